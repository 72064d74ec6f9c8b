"""Benchmarks of the methods, next to other libraries, and of their memory."""
