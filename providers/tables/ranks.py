"""Ranks of numbers, as integers."""

import numpy as np

from providers.arrays import Float64Array, Int32Array, Int64Array

MISSING = 0
"""Doubled rank of a missing number; doubled ranks of other numbers are 2 or more."""

_INT32_ROWS = 1 << 30
"""Below this number of rows the doubled ranks fit int32, half the memory of the numbers."""


def doubled_ranks(numbers: Float64Array) -> Int32Array | Int64Array:
    """Twice the rank of each number, 2 for the smallest; shape (rows,).

    Equal numbers have the mean of their ranks, a whole or half number: doubled, it is an integer. `MISSING`
    where the number is missing (NaN). A correlation does not depend on the factor.

    Notes
    -----
    O(n log n).
    """
    order = np.argsort(numbers)  # NaN last; the order of equal numbers does not matter
    present = len(numbers) - int(np.count_nonzero(np.isnan(numbers)))
    ranked = numbers[order[:present]]
    found: Int32Array | Int64Array
    if len(numbers) < _INT32_ROWS:
        found = np.full(len(numbers), MISSING, np.int32)
    else:
        found = np.full(len(numbers), MISSING, np.int64)
    differs = np.flatnonzero(ranked[1:] != ranked[:-1]) + 1
    bounds = np.concatenate([[0], differs, [present]])
    # ranks first + 1 to last + 1 of equal numbers: their mean, doubled, is first + last + 2
    found[order[:present]] = np.repeat(bounds[:-1] + bounds[1:] + 1, np.diff(bounds))
    return found


def ranks_among(numbers: Float64Array, others: Float64Array) -> Float64Array:
    """Rank that each number has, or would have, among other numbers; shape (rows,).

    The number of smaller ones and half of the number of equal ones; NaN where the number is missing (NaN).

    Notes
    -----
    O(n log n).
    """
    ordered = np.sort(others[~np.isnan(others)])
    sides = np.searchsorted(ordered, numbers, "left"), np.searchsorted(ordered, numbers, "right")
    return np.where(np.isnan(numbers), np.nan, (sides[0] + sides[1]) / 2)
