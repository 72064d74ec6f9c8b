"""Demonstration of the main use case on a generated sample table."""
