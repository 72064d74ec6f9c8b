"""Swapping distance: how far values move, in ranks and in units of the control field."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import IndexArray
from providers.grouping.groups import Groups, Pairing
from providers.kernels.decorators import borrowing
from providers.kernels.exact_sum import exact_total
from providers.kernels.parallel import parallel
from providers.numba import prange
from providers.swapping.exchange import listed, sources
from providers.swapping.permutation import Permutation
from providers.tables.numbers import HIGH, measured

_SPAN = 256
"""Number of groups whose distances are summed together."""

_SPANS_OF_A_THREAD = 8
"""Fewest spans of a thread: 4,096 rows or more, if groups have two."""


_DIGIT = 2.0**31
"""Bound of a digit: a sum has up to 2**31 of them, each counted twice."""


@borrowing
def _with_moves(figures, source, target, times, values, low, scale):
    """Add one move, or two (`times`), from rank `source` to rank `target` to the figures of a span.

    Parameters
    ----------
    figures : tuple of eight int and a float
        Row of `moves` as in `_count_moves`, and the largest move in units; the new ones are returned.
    source, target, times : int
    values, low : ndarrays of float64, shape (rows,) or (0,)
    scale : float64
        As for `_count_moves`.
    """
    moves, ranks, most_ranks, measured_moves, first, second, third, others, most_units = figures
    distance = abs(np.int64(source) - np.int64(target))
    moves += times
    ranks += times * distance
    most_ranks = max(most_ranks, distance)
    if len(values):
        origin, goal = np.uint64(source), np.uint64(target)
        in_units = values[origin] - values[goal]
        if len(low):
            in_units = in_units * HIGH + (low[origin] - low[goal])
        in_units = abs(in_units)
        if np.isfinite(in_units):
            measured_moves += times
            most_units = max(most_units, in_units)
            # Products with powers of two, and what digits leave, are exact, but for underflow.
            scaled = in_units * scale
            digit = np.int64(min(scaled, _DIGIT))
            first += times * digit
            scaled = (scaled - np.float64(digit)) * _DIGIT
            digit = np.int64(min(scaled, _DIGIT))
            second += times * digit
            scaled = (scaled - np.float64(digit)) * _DIGIT
            digit = np.int64(min(scaled, _DIGIT))
            third += times * digit
            others += scaled != np.float64(digit)
            others += in_units * scale == 0.0 and in_units != 0.0
    return moves, ranks, most_ranks, measured_moves, first, second, third, others, most_units


@parallel(least=_SPANS_OF_A_THREAD)
def _count_moves(ranks, starts, took_part, values, low, scale, moves, most_units):
    """Sum up the moves of each span of groups.

    Parameters
    ----------
    ranks : ndarray of int, shape (rows of the groups,)
        Ranks of each group's rows in their random order.
    starts : ndarray of int64, shape (groups + 1,)
    took_part : ndarray of int64, shape (groups,)
        Number of rows of each group that are exchanged.
    values, low : ndarrays of float64, shape (rows,) or (0,)
        Control field by rank, as in `Measured`; of length 0 if there is none.
    scale : float64
        Number of units of the first digit in one, as of `_scale`.
    moves : ndarray of int64, shape (spans, 8)
        Number, sum and largest of the moves in ranks, and number of those measured in units; sums of the
        three digits of these, and number of those that have further digits. Written.
    most_units : ndarray of float64, shape (spans,)
        Largest of the moves in units. Written.
    """
    groups = len(took_part)
    for span in prange(len(moves)):
        figures = (0, 0, 0, 0, 0, 0, 0, 0, 0.0)
        for group in range(span * _SPAN, min(groups, (span + 1) * _SPAN)):
            start, stop = starts[group], starts[group + 1]
            odd = took_part[group] % 2 == 1
            for index in range(start, start + took_part[group] - 3 * odd, 2):
                place = np.uint64(index)  # unsigned: no wrap-around test for negative indices
                one, other = ranks[place], ranks[place + np.uint64(1)]
                figures = _with_moves(figures, one, other, 2, values, low, scale)
            if odd:  # the cycle of three: the last value goes to the first row, and so on
                first, second, third = ranks[stop - 3], ranks[stop - 2], ranks[stop - 1]
                figures = _with_moves(figures, third, first, 1, values, low, scale)
                figures = _with_moves(figures, first, second, 1, values, low, scale)
                figures = _with_moves(figures, second, third, 1, values, low, scale)
        row = moves[span]
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], most_units[span] = figures


def _scale(values: npt.NDArray[np.float64], low: npt.NDArray[np.float64]) -> float:
    """Return the power of two that scales distances to the first of three digits.

    It is below 2**31, and each further digit is worth 2**31 times less, so that three of them hold all bits
    of values down to 2**-40 of the largest one.
    """
    ends = values[[0, -1]] if len(values) else np.zeros(1)  # values are in order
    if not np.isfinite(ends).all():
        ends = values[np.isfinite(values)]
    _, exponent = math.frexp(float(np.abs(ends).max(initial=0.0)))
    # A distance is at most twice the largest value.
    return math.ldexp(1.0, min(29 - exponent - 32 * bool(len(low)), 900))


@dataclass(slots=True)
class _Moves:
    """Sums over moves; exact, so that no division into units shows."""

    moved: int = 0
    ranks: int = 0
    most_ranks: int = 0
    measured: int = 0
    """Moves that are measured in units."""
    units: Fraction = Fraction()
    most_units: float = 0.0

    def add(self, other: _Moves) -> None:
        """Add other moves."""
        self.moved += other.moved
        self.ranks += other.ranks
        self.most_ranks = max(self.most_ranks, other.most_ranks)
        self.measured += other.measured
        self.units += other.units
        self.most_units = max(self.most_units, other.most_units)


class Distances:
    """Distances on the control fields between the row that a value leaves and the row that gets it.

    Distances are measured in ranks, which are the positions of rows in the order of the rows that take part.
    If there is one control field and it is a number, a date (days) or a time (seconds), they are also
    measured in its units. A row whose control value is null or not finite has no distance in units.

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
        self._moves = _Moves()

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
        spans = -(-len(pairing.took_part) // _SPAN)
        moves, largest = np.empty((spans, 8), np.int64), np.empty(spans)
        scale = _scale(self._values, self._low)
        _count_moves(ranks, groups.starts, pairing.took_part, self._values, self._low, scale, moves, largest)
        moved, in_ranks, _, in_units, first, second, third, others = moves.sum(axis=0).tolist()
        if others:
            self.add_sources(groups, sources(pairing))
            return
        total = Fraction((((first << 31) + second) << 31) + third) / (Fraction(scale) * 2**62)
        most_ranks, most_units = int(moves[:, 2].max(initial=0)), float(largest.max(initial=0.0))
        self._moves.add(_Moves(moved, in_ranks, most_ranks, in_units, total, most_units))

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
        origins = source[rows]
        ranks = np.abs(places[rows].astype(np.int64) - places[origins].astype(np.int64))
        moves = _Moves(len(rows), int(ranks.sum()), int(ranks.max(initial=0)))
        if self._numbers is not None:
            values, low = self._numbers.values, self._numbers.low
            with np.errstate(invalid="ignore", over="ignore"):  # infinite values have no distance
                distances = values[origins] - values[rows]
                if len(low):
                    distances = distances * HIGH + (low[origins] - low[rows])
            distances = np.abs(distances[np.isfinite(distances)])
            moves.measured, moves.units = len(distances), exact_total(distances)
            moves.most_units = float(distances.max(initial=0.0))
        self._moves.add(moves)

    def include(self, other: Distances) -> None:
        """Add the moves of other rows of the table."""
        self._moves.add(other._moves)

    def figures(self) -> dict[str, Any]:
        """Return mean and largest over all moves; None if nothing was measured."""
        moves = self._moves
        figures: dict[str, Any] = {"ranks": _mean_and_largest(moves.moved, moves.ranks, moves.most_ranks)}
        if self._numbers is not None:
            distances = _mean_and_largest(
                moves.measured, moves.units, moves.most_units, self._numbers.in_a_unit
            )
            figures["units"] = {**distances, "unit": self._numbers.unit}
        return figures


def _mean_and_largest(
    count: int, total: int | Fraction, largest: float, in_a_unit: int = 1
) -> dict[str, float | None]:
    if not count:
        return {"mean": None, "largest": None}
    return {"mean": float(total / count) / in_a_unit, "largest": float(largest / in_a_unit)}
