"""Benchmarks of the service over HTTP: calls, tables, streams of events, load."""
