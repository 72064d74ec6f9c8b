"""Guesses of a row's own value from the values that it shows in several releases.

All functions are pure: they take integer codes or numbers, and return for each row the probability that the
guess is right, which is a fraction only where several values are equally good guesses.
"""

import numpy as np
import numpy.typing as npt

from providers.arrays import BoolArray, Float64Array, Int64Array

Codes = npt.NDArray[np.integer]


def majority(shown: Codes, truth: Codes) -> Float64Array:
    """Guess the value that a row shows in most releases; of equally frequent ones, each with equal chance.

    Parameters
    ----------
    shown : ndarray of int, shape (releases, rows)
        Code of the value of each row in each release.
    truth : ndarray of int, shape (rows,)
        Code of the row's own value.

    Notes
    -----
    At a rate below 1 a swap leaves a row its own value with chance 1 - rate, while it gets any other value
    more seldom. O(releases^2 rows).
    """
    counts = np.stack(
        [(shown == one).sum(axis=0) for one in shown]
    )  # of the value in release j, over all releases
    best = counts == counts.max(axis=0)
    ties = (best / counts).sum(axis=0)  # each of the most frequent values counts once
    right: Float64Array = ((best & (shown == truth)) / counts).sum(axis=0) / ties
    return right


def mean_of(shown: Float64Array) -> Float64Array:
    """Return the mean of the numbers that a row shows; NaN where it shows none. Shape (rows,)."""
    present = np.isfinite(shown)
    counts = present.sum(axis=0)
    sums = np.where(present, shown, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def within(guess: Float64Array, truth: Float64Array, tolerance: float) -> BoolArray:
    """Whether a guess is within the tolerance of the row's own number; never where either is missing."""
    return np.asarray(np.abs(guess - truth) <= tolerance)


def least_squares(
    shown: Float64Array, known: BoolArray, truth: Float64Array, attacked: Float64Array
) -> Float64Array:
    """Estimate the own values of rows by a linear map fitted to rows that the intruder knows.

    Parameters
    ----------
    shown : ndarray of float64, shape (known rows, fields)
        Mean over the releases of the fields of the known rows.
    known : ndarray of bool, shape (known rows,)
        Rows to use.
    truth : ndarray of float64, shape (known rows,)
        Own values of the known rows.
    attacked : ndarray of float64, shape (rows, fields)
        Mean over the releases of the fields of the rows to attack.
    """
    rows = np.flatnonzero(known)
    if len(rows) <= shown.shape[1]:
        return np.full(len(attacked), np.nan)
    design = np.column_stack([shown[rows], np.ones(len(rows))])
    coefficients = np.linalg.lstsq(design, truth[rows], rcond=None)[0]
    estimated: Float64Array = np.column_stack([attacked, np.ones(len(attacked))]) @ coefficients
    return estimated


class Intersection:
    """Candidates of each known combination that all releases have in common.

    A person whose known values are unchanged is in each release among the rows that show them, and the
    person's secret among the values of these rows. It is in the candidate sets of most releases.

    References
    ----------
    Ganta, Kasiviswanathan and Smith 2008, Composition attacks and auxiliary information in data privacy,
    KDD 2008, 265-273, doi:10.1145/1401890.1401926
    """

    def __init__(self, values: int) -> None:
        self._values = values
        self._pairs = np.zeros(0, np.int64)
        self._seen = np.zeros(0, np.int64)
        self._weights = np.zeros(0)

    def add(self, combination: Int64Array, value: Int64Array) -> None:
        """Add a release.

        Parameters
        ----------
        combination : ndarray of int64, shape (rows,)
            Number of the combination of known values that a row shows, -1 for one that nobody asks for.
        value : ndarray of int64, shape (rows,)
            Number of its secret value, below the number of values; -1 for one that is not in the source.
        """
        asked = combination >= 0
        combination, value = combination[asked], value[asked]
        sizes = np.bincount(combination, minlength=1)
        real = value >= 0
        pairs, counts = np.unique(combination[real] * self._values + value[real], return_counts=True)
        merged, places = np.unique(np.concatenate([self._pairs, pairs]), return_inverse=True)
        seen, weights = np.zeros(len(merged), np.int64), np.zeros(len(merged))
        old, new = places[: len(self._pairs)], places[len(self._pairs) :]
        seen[old] += self._seen
        weights[old] += self._weights
        seen[new] += 1
        weights[new] += counts / sizes[pairs // self._values]
        self._pairs, self._seen, self._weights = merged, seen, weights

    def guess(self, combination: Int64Array, truth: Int64Array) -> Float64Array:
        """Guess the candidate in the sets of most releases, of these the one with the largest mean share.

        Parameters
        ----------
        combination, truth : ndarrays of int64, shape (rows,)
            Number of the combination and of the own value of each attacked row.
        """
        right = np.zeros(len(truth))
        owner = self._pairs // self._values
        for index, (which, own) in enumerate(zip(combination, truth, strict=True)):
            start, stop = np.searchsorted(owner, [which, which + 1])
            if start == stop:
                continue
            best = self._seen[start:stop] == self._seen[start:stop].max()
            weights = np.where(best, self._weights[start:stop], -1.0)
            best = weights >= weights.max() - 1e-12
            right[index] = float(best[self._pairs[start:stop] % self._values == own].sum()) / best.sum()
        return right
