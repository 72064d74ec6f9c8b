"""Random forest of trees on binned fields.

A tree searches its splits among at most 256 intervals of each field instead of among all values, by counts.
Trees are grown in threads. Each has random streams of its own, so that threads change no prediction.

References
----------
Breiman 2001, doi:10.1023/A:1010933404324: random forests.
Liaw and Wiener 2002, R News 2(3): nodes of at most 5 rows are not split if the target is a number.
Bickel, Gotze and van Zwet 1997, Statistica Sinica 7: trees on fewer draws than there are rows.
Ke et al. 2017, Advances in Neural Information Processing Systems 30: splits between intervals of values.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from providers.arrays import Float64Array
from providers.measures.models.tree_kernels import grow_and_vote
from providers.randomness.chacha20 import Key

MOST_BINS = 255
"""Intervals of the numbers of a field; missing numbers have a further interval, above all others."""

_MISSING = 255

_SMALLEST_OF_NUMBERS = 5
"""Rows up to which a node is not split if the target is a number; 1 if it is a class."""

MOST_DRAWN = 4096
"""Most rows drawn for a tree, so that the cost of a forest hardly grows with the table."""


@dataclass(frozen=True)
class Bins:
    """Intervals of one field, chosen on training rows."""

    bounds: Float64Array
    """Upper bounds of all intervals but the last, ascending and included; at most 254."""

    @staticmethod
    def choose(values: Float64Array) -> "Bins":
        """Give each distinct value its interval, or, of more than 255, intervals of about equal counts.

        Parameters
        ----------
        values : ndarray, shape (n,)
            NaN where missing.
        """
        present = np.sort(values[~np.isnan(values)])
        distinct = present[np.append(True, present[1:] != present[:-1])] if len(present) else present
        if len(distinct) <= MOST_BINS:
            return Bins(distinct[:-1] + (distinct[1:] - distinct[:-1]) / 2)
        places = np.arange(1, MOST_BINS) * len(present) // MOST_BINS
        return Bins(np.unique(present[places - 1] + (present[places] - present[places - 1]) / 2))

    def number(self, values: Float64Array) -> npt.NDArray[np.uint8]:
        """Number the interval of each value from 0; missing values are in 255."""
        found = np.searchsorted(self.bounds, values).astype(np.uint8)
        found[np.isnan(values)] = _MISSING
        return found


def forest_predictions(
    fields: Float64Array,
    target: Float64Array,
    test_fields: Float64Array,
    trees: int,
    categories: bool,
    key: Key,
) -> Float64Array:
    """Predict the target of test rows by a forest that is grown on training rows.

    Parameters
    ----------
    fields : ndarray, shape (n, fields)
        Training rows, NaN where missing.
    target : ndarray, shape (n,)
        Target of the training rows, none missing.
    test_fields : ndarray, shape (t, fields)
        Test rows.
    trees : int
    categories : bool
        Whether the target is codes, whole numbers from 0 on. If so, a prediction is the code that most
        trees vote for, else the mean over the trees. Of equally frequent codes it is the lowest.
    key : ndarray of uint32, shape (8,)
        Key of the random draws.

    Notes
    -----
    A tree is grown on min(n, 4096) rows drawn with replacement. A node is split where the Gini index or the
    sum of squares falls most, in one of floor(sqrt(fields)) random fields, or the first further one that has
    two intervals there; of equally good splits at the one found first. It is not split if its rows have one
    target, or are at most 5 of numbers. O(n log n) for the intervals; the cost of growing is bounded.
    """
    codes, values = np.unique(target, return_inverse=True) if categories else (target[:0], target)
    shift = 0.0 if categories else float(target.mean())  # sums of squares lose fewer digits
    chosen = [Bins.choose(column) for column in fields.T]
    bins = np.vstack([each.number(column) for each, column in zip(chosen, fields.T, strict=True)])
    tests = np.vstack([each.number(column) for each, column in zip(chosen, test_fields.T, strict=True)])
    votes = np.empty((trees, len(test_fields)))
    tried = max(1, math.isqrt(fields.shape[1]))
    smallest = 1 if categories else _SMALLEST_OF_NUMBERS
    drawn = min(len(fields), MOST_DRAWN)
    centred = values.astype(np.float64) - shift
    grow_and_vote(key, bins, centred, len(codes), drawn, tried, smallest, tests, votes)
    if not categories:
        return np.asarray(votes.mean(axis=0) + shift)
    votes.sort(axis=0)
    agreeing = np.stack([(votes == vote).sum(axis=0) for vote in votes])
    most = np.take_along_axis(votes, agreeing.argmax(axis=0)[np.newaxis], axis=0)[0]
    return np.asarray(codes[most.astype(np.int64)])
