"""Arrow columns of any type as numpy words, numbers, sort keys, equality codes and digests.

`type_names` and `literals` name types and read values of them from JSON; `columns` is the place to start.
"""
