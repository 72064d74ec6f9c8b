"""Distance to the closest record (for DCR, PSCR and record linkage).

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: search by bounds.
"""

from dataclasses import dataclass
from typing import NamedTuple

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
    own: npt.NDArray[np.int64]
    """Number of the row's own records among them: the record with the same row number, or the records of the
    same unit; shape (n,)."""


class Units(NamedTuple):
    """Records that belong to one person or other entity, by row number."""

    of_row: npt.NDArray[np.int64]
    """Unit of each record; shape (n,)."""
    starts: npt.NDArray[np.int64]
    """Start of each unit in `rows`; shape (units + 1,)."""
    rows: npt.NDArray[np.int64]
    """Rows of the other records, unit by unit."""


def units_of(of_row: npt.NDArray[np.int64]) -> Units:
    """Return the units of n records and n other records, from the unit of each row: 0 and above."""
    sizes = np.bincount(of_row)
    return Units(of_row, np.append(0, np.cumsum(sizes)), np.argsort(of_row, kind="stable"))


def _each_row(count: int, others: int) -> Units:
    """Return a unit for each row number."""
    return Units(np.arange(count), np.minimum(np.arange(count + 1), others), np.arange(others))


@parallel
def _closest(tree, queries, places, units, first_leaf, last_leaf, distances, ties, own):
    """Find the closest record of each query of some leaves.

    Parameters
    ----------
    tree, queries : Tree
        Tree of the other records, and tree of the queries.
    places : int64, shape (others,)
        Position in `tree` of each other record.
    units : Units
        Records of its own of each query.
    first_leaf, last_leaf : int64
        Range of leaves of `queries`, the last one excluded.
    distances : float64, shape (n,)
        Receives the distances.
    ties : int64, shape (n,)
        Receives the numbers of ties.
    own : int64, shape (n,)
        Receives the numbers of records of its own among the ties.
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
                unit, near = units.of_row[row], 0
                for index in range(units.starts[unit], units.starts[unit + 1]):
                    near += distance(tree, places[units.rows[index]], queries, leaf, lane) <= radius
                own[row] = near


def closest(
    points: Points, others: Points, progress: Progress = no_progress, units: Units | None = None
) -> Closest:
    """Find the closest record of each point among `others`; both have at least one row.

    Parameters
    ----------
    points, others : Points
    progress : Progress
    units : Units, optional
        Units of the rows, the same in both. Default: each row is a unit.

    Notes
    -----
    O(n log n) in few dimensions; towards O(n^2) beyond about twenty; and O(rows of the unit) for each point.
    """
    count = len(points.numbers)
    result = Closest(np.empty(count), np.empty(count, np.int64), np.empty(count, np.int64))
    units = _each_row(count, len(others.numbers)) if units is None else units
    other_rows = np.arange(len(others.numbers), dtype=np.int32)
    tree, queries = grow(others, other_rows), grow(points, np.arange(count, dtype=np.int32))
    places = np.empty(len(other_rows), np.int64)
    places[tree.rows] = np.arange(len(other_rows))

    def work(first: int, last: int) -> None:
        _closest(tree, queries, places, units, first, last, result.distances, result.ties, result.own)

    in_slices(1 << queries.depth, work, lambda done: progress(done, "measuring distances"))
    return result
