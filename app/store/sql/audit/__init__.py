"""Audit log: chained lines, checkpoints, anchors outside of the database, verification. Start at `trail`."""
