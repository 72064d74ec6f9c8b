"""Metrics, traces and log lines, never with a value of a row or a seed; start reading at `logs`."""
