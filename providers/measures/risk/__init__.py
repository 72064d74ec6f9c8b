"""Risk measures: information that an intruder may still learn from a release.

One module a measure, named by its key.
"""
