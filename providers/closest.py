"""For each point the distance to the closest of other points, and how many are as close.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: search by bounds.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from providers.donors import in_slices
from providers.kdtree import LEAF, grow
from providers.nearest import TIE, nearest, notes_for, width
from providers.neighbours import distance, gather
from providers.provider import Progress, no_progress
from providers.space import Points

_SPAN = 8  # leaves that one thread takes at a time


@dataclass(frozen=True)
class Closest:
    """What is closest to each point."""

    distances: npt.NDArray[np.float64]
    """To the closest of the others; shape (n,)."""
    ties: npt.NDArray[np.int64]
    """How many of the others are as close, within a relative 1e-9; shape (n,)."""
    own: npt.NDArray[np.bool_]
    """Whether the other point of the same number is one of them; shape (n,)."""


@njit(cache=True, nogil=True, parallel=True)
def _closest(tree, queries, places, first_leaf, last_leaf, distances, ties, own):
    for chunk in prange((last_leaf - first_leaf + _SPAN - 1) // _SPAN):
        found = np.empty((LEAF, width(1)))
        rows = np.empty((LEAF, width(1)), np.int32)
        have = np.zeros(LEAF, np.int64)
        bounds = np.empty(LEAF)
        notes = notes_for(tree)
        low = first_leaf + chunk * _SPAN
        for leaf in range(low, min(low + _SPAN, last_leaf)):
            nearest(tree, queries, leaf, False, False, 1, np.inf, found, rows, have, bounds, notes)
            start = queries.starts[leaf]
            for lane in range(queries.starts[leaf + 1] - start):
                row = queries.rows[start + lane]
                reach = found[lane, 0] * TIE
                distances[row] = np.sqrt(found[lane, 0])
                ties[row] = gather(tree, queries, leaf, lane, -1, reach, rows[0, :0], notes)
                own[row] = distance(tree, places[row], queries, leaf, lane) <= reach


def closest(points: Points, others: Points, progress: Progress = no_progress) -> Closest:
    """What is closest to each point among the others, of which there are as many, and at least one.

    Notes
    -----
    O(n log n) in few dimensions; towards O(n^2) beyond some twenty.
    """
    count = len(points.numbers)
    result = Closest(np.empty(count), np.empty(count, np.int64), np.empty(count, np.bool_))
    everyone = np.arange(count, dtype=np.int32)
    tree, queries = grow(others, everyone), grow(points, everyone)
    places = np.empty(count, np.int64)
    places[tree.rows] = np.arange(count)

    def work(first: int, last: int) -> None:
        _closest(tree, queries, places, first, last, result.distances, result.ties, result.own)

    in_slices(1 << queries.depth, work, lambda done: progress(done, "measuring distances"))
    return result
