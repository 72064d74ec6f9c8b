"""Fairness between callers: quotas, the order of the queue, and the rate of requests."""
