"""What the service tells of itself: metrics, traces, log lines. Never a value of a row, never a seed."""
