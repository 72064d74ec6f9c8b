"""Most probable value of a row among those of its group, given what it shows in several releases.

In a group of m rows with c_v copies of value v, a row whose own value is v shows w in a release with
probability P(w | v) = rate (c_w - [w = v]) / (m - 1) + (1 - rate) [w = v]. For s_v releases that show v, the
posterior of v is proportional to c_v (P(v | v) / P(v | others))^s_v. At rate 1 a value with one copy that was
shown once has probability zero: it is excluded.

The posterior of a value that a row never shows is its share of the group. So only the values shown are
computed for each row: O(releases) a row, whatever the number of values in its group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from providers.arrays import BoolArray, Float64Array, Int64Array

Codes = npt.NDArray[np.integer]

_TIE = 1e-9
"""Difference of two log posteriors that counts as none."""


class GroupValues:
    """Values in the groups of the attacked rows, which every release has."""

    def __init__(
        self, group_of: Int64Array, members: Int64Array, starts: Int64Array, codes: Codes, rate: float
    ) -> None:
        """Count the values.

        Parameters
        ----------
        group_of : ndarray of int64, shape (rows,)
            Group of each attacked row; -1 for none.
        members, starts : ndarrays of int64
            Rows of the release, group by group, and the start of each group.
        codes : ndarray of int, shape (rows of the release,)
            Codes of the values in one release.
        rate : float
            Share of the rows that are exchanged.
        """
        self.rows: Int64Array = np.flatnonzero(group_of >= 0)
        """Attacked rows that have a group."""
        attacked, self.group = np.unique(group_of[self.rows], return_inverse=True)
        """Group of each of these rows, numbered in order."""
        sizes = starts[attacked + 1] - starts[attacked]
        group = np.repeat(np.arange(len(attacked)), sizes)
        within = np.arange(len(group)) - (np.cumsum(sizes) - sizes)[group]
        self._levels = int(codes.max(initial=0)) + 1
        keys, copies = np.unique(
            group * self._levels + codes[members[starts[attacked][group] + within]], return_counts=True
        )
        self._keys = keys
        of = keys // self._levels
        self.starts: Int64Array = np.searchsorted(of, np.arange(len(attacked) + 1))
        """First value of each group."""
        self.alone: BoolArray = (sizes == 1)[self.group]
        """Whether the row is the only one of its group."""
        others = (sizes - 1)[of]
        self.prior: Float64Array = np.log(copies)
        """Log of the number of copies of each value."""
        with np.errstate(divide="ignore", invalid="ignore"):
            kept = rate * (copies - 1) / others + (1 - rate)
            ratio = np.log(kept) - np.log(rate * copies / others)
        self.ratio: Float64Array = np.where(others > 0, ratio, 0.0)
        """Log of the factor of the posterior for each release that shows the value."""
        order = np.lexsort((-copies, of))
        self._descending = self.prior[order]
        self.rank = np.empty(len(keys), np.int64)
        """Place of each value in its group, the most frequent one first."""
        self.rank[order] = np.arange(len(keys)) - self.starts[of[order]]

    @property
    def count(self) -> int:
        """Number of values, those of each group separately."""
        return len(self._keys)

    def find(self, codes: Codes) -> tuple[Int64Array, BoolArray]:
        """Find values of the rows, shape (..., rows), in their groups: number, and whether it is there."""
        keys = self.group * self._levels + codes
        places = np.minimum(np.searchsorted(self._keys, keys), self.count - 1)
        return places, (codes < self._levels) & (self._keys[places] == keys)

    def prior_at(self, rank: Int64Array) -> Float64Array:
        """Return for each row the prior of the value at a rank in its group; -inf if it has fewer values."""
        place = self.starts[self.group] + rank
        beyond = place >= self.starts[self.group + 1]
        return np.where(beyond, -np.inf, self._descending[np.minimum(place, self.count - 1)])

    def at_least(self, threshold: Float64Array) -> Int64Array:
        """Return for each row how many values of its group have at least this prior."""
        first = self.starts[self.group]
        low, high = first.copy(), self.starts[self.group + 1].copy()
        while (low < high).any():
            middle = (low + high) // 2
            enough = (low < high) & (self._descending[np.minimum(middle, self.count - 1)] >= threshold)
            high = np.where(enough, high, np.minimum(middle, high))
            low = np.where(enough, middle + 1, low)
        return low - first


def exclusion(
    shown: Codes, truth: Codes, values: GroupValues, steps: Sequence[int]
) -> dict[int, Float64Array]:
    """Guess the most probable value after some numbers of releases.

    Parameters
    ----------
    shown : ndarray of int, shape (releases, rows)
        Code of the value of each attacked row in each release.
    truth : ndarray of int, shape (rows,)
        Code of the row's own value.
    values : GroupValues
        Values in the groups of these rows.
    steps : sequence of int
        Numbers of releases, 1 or more each.

    Returns
    -------
    dict of int to ndarray of float64, shape (rows,)
        Number of releases -> probability that each row's guess is right: a fraction where several values are
        equally probable. Of a row without a group the guess is what the first release shows.
    """
    first = (shown[0] == truth).astype(np.float64)
    if not len(values.rows):
        return dict.fromkeys(steps, first)
    places, there = values.find(shown[:, values.rows])
    pairs = np.arange(len(values.rows)) * values.count + places
    right = {step: first.copy() for step in steps}
    for step in steps:
        right[step][values.rows] = _right(pairs[:step][there[:step]], truth[values.rows], values)
    return right


def _right(pairs: Int64Array, truth: Codes, values: GroupValues) -> Float64Array:
    """Return the probability that the guess is right, for the rows that have a group.

    Parameters
    ----------
    pairs : ndarray of int64
        Row times the number of values, plus the value, for each time that a row shows a value of its group.
    truth : ndarray of int, shape (rows,)
    values : GroupValues
    """
    rows = len(truth)
    found, times = np.unique(pairs, return_counts=True)
    row, value = np.divmod(found, values.count)
    score = values.prior[value] + times * values.ratio[value]
    highest = np.full(rows, -np.inf)
    np.maximum.at(highest, row, score)
    highest = np.maximum(highest, values.prior_at(_ranks_from_the_first(row, values.rank[value], rows)))
    threshold = highest - _TIE
    best = values.at_least(threshold)  # as if no value was shown
    best -= np.bincount(row[values.prior[value] >= threshold[row]], minlength=rows)
    best += np.bincount(row[score >= threshold[row]], minlength=rows)

    own, known = values.find(truth)
    pair = np.arange(rows) * values.count + own
    at = np.minimum(np.searchsorted(found, pair), max(0, len(found) - 1))
    own_score = values.prior[own]
    if len(found):
        own_score = np.where(found[at] == pair, score[at], own_score)
    guessed = known & np.isfinite(highest) & (own_score >= threshold)  # else no value explains the releases
    return np.where(values.alone, known, np.divide(guessed, best, out=np.zeros(rows), where=guessed))


def _ranks_from_the_first(row: Int64Array, rank: Int64Array, rows: int) -> Int64Array:
    """Return for each row the smallest rank that it does not have.

    Parameters
    ----------
    row, rank : ndarrays of int64, shape (values,)
        Rows, ascending, and different ranks of each.
    rows : int
    """
    ascending = rank[np.lexsort((rank, row))]
    position = np.arange(len(row)) - np.searchsorted(row, row)
    return np.bincount(row[ascending == position], minlength=rows)
