"""Modules that measures share: the comparison of two tables, roles of fields, samples, and common statistics.

Start with `measure`, the declaration, and `comparison`, which a measure reads.
"""
