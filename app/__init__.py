"""The service: HTTP, jobs, workers and storage around the algorithms in `providers`."""

__version__ = "0.2.0"
