"""Utility measures: information that an analyst may still find in a release.

One module a measure, named by its key.
"""
