"""Groups of rows and their random order: equivalence classes, blocks, and shuffles within groups.

Start with `groups`. `shuffle` orders the rows of every group at random, and `large_groups` does so for one
group that does not fit in memory.
"""
