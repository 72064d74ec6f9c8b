"""Distance to the closest record (for DCR, PSCR and record linkage).

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: search by bounds.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from providers.kernels.parallel import parallel
from providers.neighbours.k_nearest import TIE, list_length, nearest, new_lists, new_search_state
from providers.neighbours.kdtree import grow
from providers.neighbours.points import Points
from providers.neighbours.radius import distance, rows_within
from providers.numba import prange
from providers.progress import Progress, in_slices, no_progress

_LEAVES_PER_TASK = 8


@dataclass(frozen=True)
class Closest:
    """Closest other record of each point."""

    distances: npt.NDArray[np.float64]
    """Distance to the closest other record; shape (n,)."""
    ties: npt.NDArray[np.int64]
    """Number of other records at that distance, within a relative 1e-9; shape (n,)."""
    own: npt.NDArray[np.bool_]
    """Whether there is another record with the same row number and it is one of them; shape (n,)."""


@parallel
def _closest(tree, queries, places, first_leaf, last_leaf, distances, ties, own):
    """Find the closest record of each query of some leaves.

    Parameters
    ----------
    tree, queries : Tree
        Tree of the other records, and tree of the queries.
    places : int64, shape (others,)
        Position in `tree` of each other record.
    first_leaf, last_leaf : int64
        Range of leaves of `queries`, the last one excluded.
    distances : float64, shape (n,)
        Receives the distances.
    ties : int64, shape (n,)
        Receives the numbers of ties.
    own : bool, shape (n,)
        Receives the marks of the record with the same row number.
    """
    for chunk in prange((last_leaf - first_leaf + _LEAVES_PER_TASK - 1) // _LEAVES_PER_TASK):
        lists = new_lists(list_length(1))
        state = new_search_state(tree)
        low = first_leaf + chunk * _LEAVES_PER_TASK
        for leaf in range(low, min(low + _LEAVES_PER_TASK, last_leaf)):
            nearest(tree, queries, leaf, False, False, 1, np.inf, lists, state)
            start = queries.starts[leaf]
            for lane in range(queries.starts[leaf + 1] - start):
                row = queries.rows[start + lane]
                radius = lists.distances[lane, 0] * TIE
                distances[row] = np.sqrt(lists.distances[lane, 0])
                ties[row] = rows_within(tree, queries, leaf, lane, -1, radius, lists.rows[0, :0], state)
                own[row] = row < len(places) and distance(tree, places[row], queries, leaf, lane) <= radius


def closest(points: Points, others: Points, progress: Progress = no_progress) -> Closest:
    """Find the closest record of each point among `others`; both have at least one row.

    Notes
    -----
    O(n log n) in few dimensions; towards O(n^2) beyond about twenty.
    """
    count = len(points.numbers)
    result = Closest(np.empty(count), np.empty(count, np.int64), np.empty(count, np.bool_))
    other_rows = np.arange(len(others.numbers), dtype=np.int32)
    tree, queries = grow(others, other_rows), grow(points, np.arange(count, dtype=np.int32))
    places = np.empty(len(other_rows), np.int64)
    places[tree.rows] = np.arange(len(other_rows))

    def work(first: int, last: int) -> None:
        _closest(tree, queries, places, first, last, result.distances, result.ties, result.own)

    in_slices(1 << queries.depth, work, lambda done: progress(done, "measuring distances"))
    return result
