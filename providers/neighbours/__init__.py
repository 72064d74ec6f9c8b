"""Nearest neighbours of RWN: rows as points, the k-d tree, the search, and the random choice of a donor.

Start with `donors`. `points` encodes rows, `kdtree` stores them, `k_nearest` and `radius` search, and
`candidates`, `own_samples` and `pair_samples` restrict the candidate rows.
"""
