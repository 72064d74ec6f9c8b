"""The k nearest released rows of attacked rows, by Gower's distance.

References
----------
Gower 1971, A general coefficient of similarity and some of its properties, Biometrics 27, 857-871,
doi:10.2307/2528823: each field adds the difference of numbers relative to their range, or 1 if categories
differ. If extreme values stretch the range, numbers are ranks (`AttackTables.encode`).
"""

import numpy as np

from providers.arrays import Float64Array, Int64Array
from providers.attacks.tables import Encoded
from providers.grouping.shuffle import shuffle_rows
from providers.measures.shared.sampling import uniforms
from providers.progress import Progress, no_progress
from providers.randomness.chacha20 import Stream

_CELLS = 1 << 20
"""Distances that are held at a time."""


class Ties:
    """Random order of the released rows for each attack, by which rows at equal distance are chosen.

    One random order of the rows is begun at another row for each attack. Hence two searches of one attack
    choose alike, as an intruder would who looks for one row in both, while different attacks choose
    independently.
    """

    def __init__(self, rows: int, attacks: int, stream: Stream, purpose: str) -> None:
        order = shuffle_rows(rows, stream.key(f"ties/{purpose}")).order
        self._rank = np.empty(rows, np.int64)
        self._rank[order] = np.arange(rows)
        self._start = (uniforms(attacks, stream, f"tie starts/{purpose}") * rows).astype(np.int64)

    def first(self, attack: int, rows: Int64Array, wanted: int) -> Int64Array:
        """Return the first `wanted` of these rows in the order of an attack."""
        rank = (self._rank[rows] + self._start[attack]) % len(self._rank)
        return rows[np.argpartition(rank, wanted - 1)[:wanted]]


def gower(queries: Encoded, candidates: Encoded) -> Float64Array:
    """Return the distances of all pairs; shape (queries, candidates).

    Two missing values agree; a missing and a present one differ by 1.
    """
    distances = np.zeros((queries.rows, candidates.rows))
    for mine, others in zip(queries.numbers, candidates.numbers, strict=True):
        difference = np.abs(mine[:, None] - others)
        absent = np.isnan(mine)[:, None], np.isnan(others)
        if absent[0].any() or absent[1].any():
            difference[absent[0] ^ absent[1]] = 1.0
            difference[absent[0] & absent[1]] = 0.0
        distances += difference
    for codes, other_codes in zip(queries.codes, candidates.codes, strict=True):
        distances += codes[:, None] != other_codes
    return distances


def nearest_rows(
    queries: Encoded, candidates: Encoded, wanted: int, ties: Ties, progress: Progress = no_progress
) -> Int64Array:
    """Return the rows of the `wanted` nearest candidates of each query, in no order; shape (queries, wanted).

    Parameters
    ----------
    queries, candidates : Encoded
    wanted : int
        1 or more, and at most the number of candidates.
    ties : Ties
        Order in which candidates at the same distance are chosen; attack i is query i.
    progress : Progress
        Called after each block of queries.

    Notes
    -----
    O(queries candidates fields), in blocks of about 8 MiB of distances.
    """
    found = np.empty((queries.rows, wanted), np.int64)
    block = max(1, _CELLS // max(1, candidates.rows))
    for start in range(0, queries.rows, block):
        stop = min(start + block, queries.rows)
        distances = gower(queries.take(np.arange(start, stop)), candidates)
        limits = np.partition(distances, wanted - 1, axis=1)[:, wanted - 1]
        for query in range(start, stop):
            row, limit = distances[query - start], limits[query - start]
            closer = np.flatnonzero(row < limit)
            equal = np.flatnonzero(row == limit)
            rest = wanted - len(closer)
            found[query, : len(closer)] = closer
            found[query, len(closer) :] = ties.first(query, equal, rest) if rest < len(equal) else equal
        progress(stop / queries.rows, "searching the nearest rows")
    return found


def closest_distances(
    queries: Encoded, candidates: Encoded, progress: Progress = no_progress
) -> Float64Array:
    """Return the distance of each query from the closest candidate, of which there is one or more."""
    found = np.empty(queries.rows)
    block = max(1, _CELLS // candidates.rows)
    for start in range(0, queries.rows, block):
        stop = min(start + block, queries.rows)
        found[start:stop] = gower(queries.take(np.arange(start, stop)), candidates).min(axis=1)
        progress(stop / queries.rows, "searching the closest row")
    return found
