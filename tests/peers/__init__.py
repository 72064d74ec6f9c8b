"""Comparisons with programs of others, which run in environments of their own."""
