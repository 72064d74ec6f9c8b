"""Posterior of the permutation mechanism within a group, given the true values of some of its rows.

A permutation that moves m of n rows has a probability in proportion to p^m (1 - p)^(n - m) / D_m, p the
probability of a row to be selected and D_m the derangements of m rows. The permutations of a small group are
listed. In a large one a row that stays multiplies the probability by about m (1 - p) / p, because D_m is near
m! / e. So each unknown row takes a place that no known row takes: its own with this weight, if it is free,
and any other one with the weight 1, or less if its own row is unknown, too, and may have stayed.

References
----------
Bailie, Gong and Meng 2025, arXiv:2501.08449: the permutation swapping algorithm.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np

from providers.arrays import Float64Array, Int64Array
from providers.attacks.methods.matchings import Beliefs, explained, listed_beliefs
from providers.swapping.permutation_law import derangements

MOST_LISTED = 7
"""Most rows of a group whose permutations, 5,040, are listed one by one."""

_UNKNOWN = -1
"""Code of a true value that the intruder does not know."""

_HALVINGS = 60
"""Halvings of the interval in which the share of staying rows is searched."""


def permuted_beliefs(shown: Int64Array, true: Int64Array, selection: float) -> Beliefs:
    """Return who shows whose value in one group of at most `MOST_LISTED` rows.

    Parameters
    ----------
    shown, true
        As for `providers.attacks.methods.matchings.beliefs`.
    selection : float
        Probability of a row to be selected, between 0 and 1, both excluded.
    """
    true = explained(shown, true, np.full(len(shown), selection))
    return listed_beliefs(shown, true, *_listed(len(shown), selection))


@lru_cache(maxsize=64)
def _listed(size: int, selection: float) -> tuple[Int64Array, Float64Array]:
    """Return source rows of every permutation, shape (permutations, rows), and their probabilities."""
    sources = np.array(list(permutations(range(size))), np.int64)
    moving = (sources != np.arange(size)).sum(axis=1)
    by_moving = [
        selection**moved * (1 - selection) ** (size - moved) / max(1, derangements(moved))
        for moved in range(size + 1)
    ]
    weights = np.array(by_moving)[moving]
    return sources, weights / weights.sum()


@dataclass(frozen=True, slots=True)
class LargeGroup:
    """Weights of the values that an unknown row of a large group may have; arrays of shape (codes,)."""

    codes: Int64Array
    """Codes of the values that the group shows, ascending."""
    free: Float64Array
    """Probability that the place of a row that shows the value is taken by no known row."""
    others: Float64Array
    """Sum of the weights of all places that show the value."""
    staying: float
    """Weight of an unknown row's own place."""
    stay_share: float
    """Probability of an unknown row with a free place to have stayed."""

    @classmethod
    def of(cls, shown: Int64Array, true: Int64Array, selection: float) -> "LargeGroup":
        """Return the weights of one group; arguments as for `permuted_beliefs`.

        Notes
        -----
        A known row that shows its own value is taken to have stayed. The other known values are each at one
        of the other places that show them, all equally likely. With F free places of the U unknown rows and M
        known rows that moved, the share s that stayed solves s / (1 - s) = m (1 - p) / p / (U - F s), m = M +
        U - F s. O(rows log rows).
        """
        codes, place, copies = np.unique(shown, return_inverse=True, return_counts=True)
        known = np.flatnonzero(np.isin(true, codes) & (true != _UNKNOWN))
        of_true = np.searchsorted(codes, true[known])
        stayed = np.bincount(of_true[shown[known] == true[known]], minlength=len(codes))
        left = np.maximum(copies - np.bincount(of_true, minlength=len(codes)), 0)
        free = left / np.maximum(copies - stayed, 1)
        unknown = np.bincount(place[true == _UNKNOWN], minlength=len(codes))
        rows = int(left.sum())
        odds = (1 - selection) / selection
        own_free = float((unknown * free).sum())
        moved = len(known) - int(stayed.sum())
        share = _share_that_stayed(rows, own_free, moved, odds)
        others = free * (copies - stayed - share * unknown)
        return cls(codes, free, others, odds * max(1.0, moved + rows - own_free * share), share)

    def masses(self, own: int) -> Float64Array:
        """Return the weight of each value for an unknown row that shows the value of this code; (codes,)."""
        index = int(np.searchsorted(self.codes, own))
        found = self.others.copy()
        found[index] += self.free[index] * (self.staying - (1 - self.stay_share))
        return np.asarray(np.maximum(found, 0.0), np.float64)


def _share_that_stayed(rows: int, own_free: float, moved: int, odds: float) -> float:
    """Solve for the share of the unknown rows with a free place that stayed; see `LargeGroup.of`."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        too_small = share * (rows - own_free * share) < (1 - share) * odds * (moved + rows - own_free * share)
        low, high = (share, high) if too_small else (low, share)
    return low
