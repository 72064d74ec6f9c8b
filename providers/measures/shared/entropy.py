"""Bins of equal width, and the entropy of codes."""

import math

import numpy as np

from providers.arrays import Float64Array, Int64Array


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
