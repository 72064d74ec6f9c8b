"""Find the parts of rows between sorted splitters.

Each step of a binary search takes the time of a mispredicted branch for every second row. To compare a key
with each of a few splitters takes less. With more splitters their range is cut into buckets of equal width,
so that only the keys that share a bucket with a splitter are searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from providers.arrays import IndexArray, Int64Array

Keys: TypeAlias = "npt.NDArray[Any]"

_FEW = 16
"""Up to this number of splitters, to compare a key with each of them takes least time."""

_BUCKET_BITS = 14
"""Binary logarithm of the number of buckets: their counts stay in the processor's cache."""


def places(splitters: Keys, keys: Keys, wants_ties: bool) -> tuple[Int64Array, IndexArray]:
    """Return the number of splitters at or before each key, and the rows whose key is a splitter's.

    Parameters
    ----------
    splitters : ndarray of uint64, float64 or a narrower signed integer, shape (splitters,)
        Ascending, without NaN; one or more.
    keys : ndarray of the same type, shape (rows,)
        Without NaN.
    wants_ties : bool
        Whether to find the rows whose key is a splitter's; otherwise none are returned.
    """
    if len(splitters) <= _FEW:
        return _compared(splitters, keys, wants_ties)
    buckets = _buckets(splitters, keys)
    in_bucket = np.bincount(_buckets(splitters, splitters))
    parts = (np.cumsum(in_bucket) - in_bucket)[buckets]
    searched = np.flatnonzero(in_bucket[buckets])
    parts[searched], tied = _searched(splitters, keys[searched], wants_ties)
    return parts, searched[tied]


def place_ties(
    parts: Int64Array,
    tied: IndexArray,
    splitters: Sequence[Keys],
    keys: Sequence[Keys],
    order_of: Callable[[Sequence[Keys]], IndexArray],
) -> None:
    """Set the parts of tied rows by all their keys: the number of splitters at or before each.

    Parameters
    ----------
    parts : ndarray of int64, shape (rows,)
        Part of each row; updated.
    tied : ndarray of int, shape (ties,)
        Rows whose first key is a splitter's.
    splitters : sequence of ndarray, shape (splitters,) each
        Keys of the splitters in descending weight.
    keys : sequence of ndarray, shape (ties,) each
        Keys of the tied rows.
    order_of : callable
        (keys in descending weight) -> their stable order.
    """
    count = len(splitters[0])
    order = order_of([np.concatenate(pair) for pair in zip(splitters, keys, strict=True)])
    preceding = np.empty(len(order), np.int64)
    preceding[order] = np.cumsum(order < count)  # the order is stable: a splitter precedes equal rows
    parts[tied] = preceding[count:]


def _compared(splitters: Keys, keys: Keys, wants_ties: bool) -> tuple[Int64Array, IndexArray]:
    """Do what `places` does, by comparing each key with each splitter."""
    parts = np.zeros(len(keys), np.uint8)  # words of 64 bits would take four times as long
    tied = np.zeros(len(keys) if wants_ties else 0, np.bool_)
    for splitter in splitters:
        parts += (keys >= splitter).view(np.uint8)
        if wants_ties:
            tied |= keys == splitter
    return parts.astype(np.int64), np.flatnonzero(tied)


def _searched(splitters: Keys, keys: Keys, wants_ties: bool) -> tuple[Int64Array, IndexArray]:
    """Do what `places` does, by binary search."""
    parts = np.searchsorted(splitters, keys, "right")
    before = np.searchsorted(splitters, keys, "left") if wants_ties else parts
    return parts, np.flatnonzero(parts != before)


def _buckets(splitters: Keys, keys: Keys) -> Int64Array:
    """Return the bucket of each key: a greater key is never in a lower bucket.

    The keys below the first splitter share its bucket, and those above the last one share that one's.
    """
    low, high = splitters[0], splitters[-1]
    within = np.clip(keys, low, high)
    if keys.dtype == np.uint64:
        within -= low
        within >>= np.uint64(max(0, int(high - low).bit_length() - _BUCKET_BITS))
        return within.astype(np.int64)
    with np.errstate(over="ignore", divide="ignore"):
        scale = np.float64((1 << _BUCKET_BITS) - 1) / (np.float64(high) - np.float64(low))
    if not 0.0 < scale < np.inf:  # all splitters are equal, or their range is too wide or too narrow
        return np.zeros(len(keys), np.int64)
    widths = within.astype(np.float64)
    widths -= low
    widths *= scale
    return widths.astype(np.int64)
