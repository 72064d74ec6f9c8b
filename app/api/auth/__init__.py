"""Authentication of callers; start reading at `authenticate`."""
