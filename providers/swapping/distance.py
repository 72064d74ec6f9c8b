"""Swapping distance: how far values move, in ranks and in units of the control field."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import IndexArray
from providers.grouping.groups import Groups, Pairing
from providers.kernels.decorators import borrowing
from providers.kernels.parallel import parallel
from providers.numba import prange
from providers.swapping.exchange import listed
from providers.swapping.permutation import Permutation
from providers.tables.numbers import HIGH, measured

_SPAN = 256
"""Number of groups whose distances are summed together; fixed, so that no sum depends on the threads."""

_SPANS_OF_A_THREAD = 8
"""Fewest spans of a thread: 4,096 rows or more, if groups have two."""


@borrowing
def _with_moves(figures, source, target, times, values, low):
    """Add one move, or two (`times`), from rank `source` to rank `target` to the six figures of a span.

    Parameters
    ----------
    figures : tuple of six floats
        Row of `moves` as in `_count_moves`; the new one is returned.
    source, target, times : int
    values, low : ndarrays of float64, shape (rows,) or (0,)
        As for `_count_moves`.
    """
    moves, ranks, most_ranks, measured_moves, units, most_units = figures
    distance = abs(np.float64(source) - np.float64(target))
    moves += times
    ranks += times * distance  # a whole number, so the sum is exact
    most_ranks = max(most_ranks, distance)
    if len(values):
        origin, goal = np.uint64(source), np.uint64(target)
        distance = values[origin] - values[goal]
        if len(low):
            distance = distance * HIGH + (low[origin] - low[goal])
        distance = abs(distance)
        if np.isfinite(distance):
            measured_moves += times
            units += distance
            if times == 2:
                units += distance
            most_units = max(most_units, distance)
    return moves, ranks, most_ranks, measured_moves, units, most_units


@parallel(least=_SPANS_OF_A_THREAD)
def _count_moves(ranks, starts, took_part, values, low, moves):
    """Sum up the moves of each span of groups.

    Parameters
    ----------
    ranks : ndarray of int, shape (rows of the groups,)
        Ranks of each group's rows in their random order.
    starts : ndarray of int64, shape (groups + 1,)
        Start of each group in `ranks`.
    took_part : ndarray of int64, shape (groups,)
        Number of rows of each group that are exchanged.
    values, low : ndarrays of float64, shape (rows,) or (0,)
        Control field by rank, as in `Measured`; of length 0 if there is none.
    moves : ndarray of float64, shape (spans, 6)
        Number, sum and largest of the moves in ranks, then the same of those measured in units. Written.
    """
    groups = len(took_part)
    for span in prange(len(moves)):
        figures = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        for group in range(span * _SPAN, min(groups, (span + 1) * _SPAN)):
            start, stop = starts[group], starts[group + 1]
            odd = took_part[group] % 2 == 1
            for index in range(start, start + took_part[group] - 3 * odd, 2):
                place = np.uint64(index)  # unsigned: no wrap-around test for negative indices
                figures = _with_moves(figures, ranks[place], ranks[place + np.uint64(1)], 2, values, low)
            if odd:  # the cycle of three: the last value goes to the first row, and so on
                first, second, third = ranks[stop - 3], ranks[stop - 2], ranks[stop - 1]
                figures = _with_moves(figures, third, first, 1, values, low)
                figures = _with_moves(figures, first, second, 1, values, low)
                figures = _with_moves(figures, second, third, 1, values, low)
        for column in range(6):
            moves[span, column] = figures[column]


class Distances:
    """Distances on the control fields between the row that a value leaves and the row that gets it.

    Distances are measured in ranks: the positions of rows in the order of the rows that take part. If there
    is one control field and it is a number, a date (days) or a time (seconds), they are also measured in
    its units. A row whose control value is null or not finite has no distance in units.

    Parameters
    ----------
    control : pa.ChunkedArray or None
        Values of the control field by row; None if there are several control fields.
    """

    def __init__(self, control: pa.ChunkedArray | None) -> None:
        self._numbers = None if control is None else measured(control)
        self._listed_for: Groups | None = None
        """Blocks whose order `_values` and `_low` have."""
        self._values: npt.NDArray[np.float64] = np.empty(0)
        self._low: npt.NDArray[np.float64] = np.empty(0)
        self._moves = np.zeros((0, 6))

    def add(self, name: str, pairing: Pairing) -> None:
        """Add the moves of one field, or of all fields if they are locked."""
        if isinstance(pairing, Permutation):
            self.add_sources(pairing.groups, pairing.source)
            return
        groups = pairing.groups
        if self._numbers is not None and groups is not self._listed_for:
            self._values = listed(self._numbers.values, groups)
            if len(self._numbers.low):
                self._low = listed(self._numbers.low, groups)
            self._listed_for = groups
        ranks = pairing.shuffled if pairing.moved is None else groups.places[pairing.order]
        moves = np.empty((-(-len(pairing.took_part) // _SPAN), 6))
        _count_moves(ranks, groups.starts, pairing.took_part, self._values, self._low, moves)
        self._moves = np.concatenate([self._moves, moves])

    def add_sources(self, groups: Groups, source: IndexArray) -> None:
        """Add the moves of rows whose values come from their source rows.

        Parameters
        ----------
        groups : Groups
            Groups in whose order ranks are counted.
        source : ndarray of int, shape (rows,)
        """
        places = groups.places
        rows = np.flatnonzero(source != np.arange(len(source)))
        rows = rows[np.argsort(places[rows], kind="stable")]  # fixed order of the sum: that of the ranks
        origins = source[rows]
        ranks = np.abs(places[rows].astype(np.float64) - places[origins])
        moves = np.zeros((1, 6))
        moves[0, :3] = len(rows), ranks.sum(), ranks.max(initial=0.0)
        if self._numbers is not None:
            values, low = self._numbers.values, self._numbers.low
            with np.errstate(invalid="ignore", over="ignore"):  # infinite values have no distance
                distances = values[origins] - values[rows]
                if len(low):
                    distances = distances * HIGH + (low[origins] - low[rows])
            distances = np.abs(distances[np.isfinite(distances)])
            moves[0, 3:] = len(distances), distances.sum(), distances.max(initial=0.0)
        self._moves = np.concatenate([self._moves, moves])

    def include(self, other: Distances) -> None:
        """Add the moves of other rows of the table."""
        self._moves = np.concatenate([self._moves, other._moves.sum(axis=0, keepdims=True)])
        self._moves[-1, [2, 5]] = other._moves[:, [2, 5]].max(axis=0, initial=0.0)

    def figures(self) -> dict[str, Any]:
        """Return mean and largest over all moves; None if nothing was measured."""
        figures: dict[str, Any] = {"ranks": self._mean_and_largest(0, 1)}
        if self._numbers is not None:
            distances = self._mean_and_largest(3, self._numbers.in_a_unit)
            figures["units"] = {**distances, "unit": self._numbers.unit}
        return figures

    def _mean_and_largest(self, column: int, in_a_unit: int) -> dict[str, float | None]:
        count = self._moves[:, column].sum()
        if not count:
            return {"mean": None, "largest": None}
        mean, largest = self._moves[:, column + 1].sum() / count, self._moves[:, column + 2].max()
        return {"mean": float(mean / in_a_unit), "largest": float(largest / in_a_unit)}
