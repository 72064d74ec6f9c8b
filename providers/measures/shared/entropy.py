"""Bins of equal width, ranges that extreme values stretch, and the entropy of codes."""

import math

import numpy as np

from providers.arrays import Float64Array, Int64Array

MOST_IN_ONE_BIN = 0.95
"""Share of a field's numbers in one bin of equal width above which its range is stretched."""


def bin_count(rows: int) -> int:
    """Return floor(rows^(1/3)), the number of bins for this number of rows; at least one."""
    return max(1, math.floor(round(math.cbrt(rows), 9)))  # the rounding keeps cube roots of cubes whole


def equal_width_bins(values: Float64Array, low: float, high: float, bins: int) -> Int64Array:
    """Return the bin of each value, 0 to bins - 1, of equal widths from `low` to `high`."""
    if low == high:
        return np.zeros(len(values), np.int64)
    if math.isinf(high - low):  # the range of two huge numbers overflows, half of it does not
        values, low, high = values / 2, low / 2, high / 2
    width = (high - low) / bins or high - low  # a subnormal range may be too small to be divided
    return np.asarray(np.minimum(np.floor((values - low) / width), bins - 1), np.int64)


def entropy(codes: Int64Array) -> float:
    """Entropy of the codes (0 or more), in nats."""
    shares = np.bincount(codes) / len(codes)
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


def range_is_stretched(numbers: Float64Array) -> bool:
    """Whether over 95 % of the numbers share a bin of equal width over their range, and are not all equal.

    Not if the field has one value in over 95 % of the rows: its range hides no difference between them.

    Parameters
    ----------
    numbers : ndarray of float64, shape (rows,)
        NaN where missing.

    Notes
    -----
    The bins are those of `total_correlation`. O(n).
    """
    values = numbers[~np.isnan(numbers)]
    bins = bin_count(len(numbers))
    if bins < 2 or not len(values):
        return False
    found = equal_width_bins(values, float(values.min()), float(values.max()), bins)
    counts = np.bincount(found)
    inside = values[found == counts.argmax()]
    most = MOST_IN_ONE_BIN * len(values)
    # a value that over 95 % of the rows have is the median of the bin that holds them
    return len(inside) > most and int(np.count_nonzero(inside == np.median(inside))) <= most
