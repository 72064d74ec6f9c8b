"""Stable parallel radix sort of row indices by uint64 keys.

The result depends on the keys alone, for any number of threads: each pass is stable, however the rows are
divided into chunks.

References
----------
Knuth 1998, The Art of Computer Programming 3, section 5.2.5: sorting by distribution.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import IndexArray, Int64Array, UInt64Array, row_index_type
from providers.kernels.decorators import within
from providers.kernels.parallel import parallel, ranges_of
from providers.numba import prange

_DIGIT_BITS = 11  # a histogram of 2048 counters stays in L1

_SHORT_TIE = 32  # longest tie that insertion sorts faster than counting passes

_BYTES = 8  # bytes of a key

_MOST_COUNTERS = 1 << 16  # counters of a thread: half of its L2 cache

_ROWS_A_COUNTER = 16  # minimum average rows of a counter for which counting is faster


@parallel
def _extremes(keys, lows, highs):
    """Write the smallest and the largest key of each chunk of rows.

    Parameters
    ----------
    keys : uint64, shape (rows,)
        At least one key.
    lows, highs : uint64, shape (chunks,)
        Receive the smallest and the largest keys.
    """
    chunks = len(lows)
    for chunk in prange(chunks):
        low = keys[0]
        high = keys[0]
        for row in range(len(keys) * chunk // chunks, len(keys) * (chunk + 1) // chunks):
            low = min(low, keys[row])
            high = max(high, keys[row])
        lows[chunk] = low
        highs[chunk] = high


def extremes(keys: UInt64Array, chunks: int) -> tuple[np.uint64, np.uint64]:
    """Return the smallest and the largest key; there must be at least one key for each chunk."""
    lows, highs = np.empty(chunks, np.uint64), np.empty(chunks, np.uint64)
    _extremes(keys, lows, highs)
    return lows.min(), highs.max()


@parallel
def _take_keys(keys, low, order, taken):
    """Write ``keys[order[i]] - low`` to ``taken[i]``.

    Parameters
    ----------
    keys : uint64, shape (rows,)
    low : uint64
        Smallest key.
    order : int32 or int64, shape (rows,)
    taken : uint32 or uint64, shape (rows,)
        Receives the differences.
    """
    for at in prange(len(order)):
        taken[at] = keys[order[at]] - low


@parallel
def _radix_pass(keys, order, shift, mask, counts, next_keys, next_order):
    """Sort rows and their keys stably by the digit ``key >> shift & mask``, by one counting pass.

    Parameters
    ----------
    keys : uint32 or uint64, shape (rows,)
    order : int32 or int64, shape (rows,)
    shift, mask : as `keys`
    counts : int64, shape (chunks, mask + 1)
        Scratch space.
    next_keys, next_order : as `keys` and `order`
        Receive the sorted keys and rows.
    """
    chunks = len(counts)
    rows = len(order)
    for chunk in prange(chunks):
        count = counts[chunk]
        count[:] = 0
        for at in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            count[(keys[at] >> shift) & mask] += 1
    total = 0
    for digit in range(counts.shape[1]):
        for chunk in range(chunks):
            here = counts[chunk, digit]
            counts[chunk, digit] = total
            total += here
    for chunk in prange(chunks):
        count = counts[chunk]
        for at in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            digit = (keys[at] >> shift) & mask
            to = count[digit]
            count[digit] = to + 1
            next_order[to] = order[at]
            next_keys[to] = keys[at]


@parallel
def _longest_tie(keys, low_bits, longest):
    """Find the longest run of keys that are equal above their `low_bits`, for each chunk of a sorted array.

    Runs are cut at the borders of chunks.

    Parameters
    ----------
    keys : uint32 or uint64, shape (rows,)
        Sorted by the bits above the `low_bits`.
    low_bits : as `keys`
        Number of bits.
    longest : int64, shape (chunks,)
        Receives the lengths.
    """
    chunks = len(longest)
    rows = len(keys)
    for chunk in prange(chunks):
        length = 1
        most = 1
        for at in range(max(1, rows * chunk // chunks), rows * (chunk + 1) // chunks):
            length = length + 1 if keys[at] >> low_bits == keys[at - 1] >> low_bits else 1
            most = max(most, length)
        longest[chunk] = most


@parallel
def _settle_ties(keys, low_bits, order, chunks):
    """Sort each run of keys that are equal above their `low_bits`, stably, by insertion.

    Parameters
    ----------
    keys : uint32 or uint64, shape (rows,)
        Sorted by the bits above the `low_bits`; sorted completely in place.
    low_bits : as `keys`
        Number of bits.
    order : int32 or int64, shape (rows,)
        Rows of the keys; moved together with them.
    chunks : int64
        Number of chunks, which are sorted in parallel.
    """
    rows = len(keys)
    for chunk in prange(chunks):
        first = rows * chunk // chunks
        stop = rows * (chunk + 1) // chunks
        while 0 < first < rows and keys[first] >> low_bits == keys[first - 1] >> low_bits:
            first += 1  # a run belongs to the chunk in which it begins
        while 0 < stop < rows and keys[stop] >> low_bits == keys[stop - 1] >> low_bits:
            stop += 1
        for at in range(first + 1, stop):
            key, row = keys[at], order[at]
            to = at
            while to > first and keys[to - 1] > key:
                keys[to] = keys[to - 1]
                order[to] = order[to - 1]
                to -= 1
            keys[to] = key
            order[to] = row


class _Sorting:
    """State of a sort by one key: keys and rows move together between two pairs of arrays."""

    def __init__(self, keys: UInt64Array, order: IndexArray, chunks: int) -> None:
        low, high = extremes(keys, chunks)
        self.chunks = chunks
        self.bits = int(high - low).bit_length()
        self.order = order
        self._word = np.uint32 if self.bits <= 32 else np.uint64
        self.keys = np.empty(len(order), self._word)
        _take_keys(keys, low, order, self.keys)
        self._spare_keys = np.empty_like(self.keys)
        self._spare_order = np.empty_like(order)

    def by_bits(self, low: int, high: int) -> None:
        """Sort stably by the bits from `low` up to `high`."""
        passes = -(-(high - low) // _DIGIT_BITS)
        for number in range(passes):  # digits of equal width, so that no pass is wider than necessary
            start = low + (high - low) * number // passes
            width = low + (high - low) * (number + 1) // passes - start
            counts = np.empty((self.chunks, 1 << width), np.int64)
            shift, mask = self._word(start), self._word((1 << width) - 1)
            _radix_pass(self.keys, self.order, shift, mask, counts, self._spare_keys, self._spare_order)
            self.keys, self._spare_keys = self._spare_keys, self.keys
            self.order, self._spare_order = self._spare_order, self.order

    def longest_tie(self, low_bits: int) -> int:
        """Return the length of the longest run of keys that are equal above their lowest bits."""
        longest = np.empty(self.chunks, np.int64)
        _longest_tie(self.keys, self._word(low_bits), longest)
        return int(longest.max())

    def settle_ties(self, low_bits: int) -> None:
        """Sort runs of keys that are equal above their lowest bits, stably, by these."""
        _settle_ties(self.keys, self._word(low_bits), self.order, self.chunks)


def radix_order(keys: Sequence[UInt64Array]) -> IndexArray:
    """Return the rows in stable ascending order of their keys.

    Parameters
    ----------
    keys : sequence of ndarray of uint64, shape (rows,)
        Most significant first; ties are broken by row number.

    Returns
    -------
    ndarray of int32 or int64, shape (rows,)

    Notes
    -----
    Counting passes over the bits that the keys span, least significant first: O(rows) for each pass of eleven
    bits. The upper bits of long keys order nearly all rows, so that these are sorted by their upper bits, and
    the few ties by insertion. If ties are long, all bits are used.
    """
    return _ordered(keys)[0]


def radix_runs(keys: Sequence[UInt64Array]) -> tuple[IndexArray, Int64Array]:
    """Return the rows in the order of `radix_order`, and the start of each run of equal keys.

    The starts end with the number of rows: shape (runs + 1,).
    """
    order, most_significant = _ordered(keys)
    begins = np.zeros(len(order), np.bool_)
    begins[:1] = True
    _new_runs(most_significant, begins)
    for key in keys[1:]:
        _new_runs_of_rows(key, order, begins)
    return order, np.append(np.flatnonzero(begins), len(order)).astype(np.int64)


def _ordered(keys: Sequence[UInt64Array]) -> tuple[IndexArray, npt.NDArray[Any]]:
    """Return the rows in order, and their most significant keys minus the smallest one."""
    rows = len(keys[0])
    order: IndexArray = np.arange(rows, dtype=row_index_type(rows))
    if rows < 2:
        return order, keys[0]
    chunks = ranges_of(rows)
    for key in reversed(keys):
        sorting = _Sorting(key, order, chunks)
        upper = -(-(rows.bit_length() + 8) // _DIGIT_BITS) * _DIGIT_BITS
        low_bits = sorting.bits - upper
        settled = False
        if low_bits >= 2 * _DIGIT_BITS:
            sorting.by_bits(low_bits, sorting.bits)
            settled = sorting.longest_tie(low_bits) <= _SHORT_TIE
            if settled:
                sorting.settle_ties(low_bits)
        if not settled:
            sorting.by_bits(0, sorting.bits)
        order = sorting.order
    return order, sorting.keys


@parallel
def _new_runs(ordered_key, begins):
    """Mark the positions whose key differs from the one before, in `begins` (bool, shape (rows,)).

    `ordered_key` (uint32 or uint64, shape (rows,)) has the keys in sorted order.
    """
    for at in prange(1, len(ordered_key)):
        if ordered_key[at] != ordered_key[at - 1]:
            begins[at] = True


@parallel
def _new_runs_of_rows(key, order, begins):
    """Mark the positions whose row's key differs from that of the row before, in `begins` (bool, (rows,)).

    `key` (uint64, shape (rows,)) has the keys by row, and `order` (int32 or int64, shape (rows,)) the rows.
    """
    for at in prange(1, len(order)):
        if key[order[at]] != key[order[at - 1]]:
            begins[at] = True


# ---------------------------------------------------------------------------------- by counting alone


def counted_runs(keys: UInt64Array) -> tuple[IndexArray, Int64Array, IndexArray] | None:
    """Return the rank of each row in the order of `radix_order`, by counting, without the order itself.

    Parameters
    ----------
    keys : ndarray of uint64, shape (rows,)

    Returns
    -------
    tuple or None
        Rank of each row, shape (rows,); start of each run of equal keys, and the end, shape (runs + 1,);
        smallest row of each run, shape (runs,). None if the range of the keys is too wide for the number of
        rows.

    Notes
    -----
    O(rows), in two passes that read the keys and write the ranks in row order.
    """
    rows = len(keys)
    if rows < _ROWS_A_COUNTER:
        return None
    chunks = ranges_of(rows)
    low, high = extremes(keys, chunks)
    span = int(high - low) + 1
    if span > min(_MOST_COUNTERS, rows // _ROWS_A_COUNTER):
        return None
    counts = np.empty((chunks, span), np.int64)
    firsts = np.empty((chunks, span), np.int64)
    _count(keys, low, counts, firsts)
    totals = counts.sum(axis=0)
    ends = np.cumsum(totals)
    begins = ends - totals
    of_chunk = np.argmax(counts > 0, axis=0)
    first = firsts[of_chunk, np.arange(span)][totals > 0]
    counts[:] = begins + np.cumsum(counts, axis=0) - counts  # first rank of each chunk's rows with a key
    kind = row_index_type(rows)
    places: IndexArray = np.empty(rows, kind)
    _place(keys, low, counts, places)
    return places, np.append(begins[totals > 0], rows).astype(np.int64), first.astype(kind)


@parallel
def _count(keys, low, counts, firsts):
    """Count the rows of each key in each chunk, and note the first of them.

    Parameters
    ----------
    keys : uint64, shape (rows,)
    low : uint64
        Smallest key.
    counts, firsts : int64, shape (chunks, keys)
        Receive the counts and the first rows.
    """
    chunks, rows = len(counts), len(keys)
    for chunk in prange(chunks):
        count, first = counts[chunk], firsts[chunk]
        count[:] = 0
        for row in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            key = keys[row] - low
            if count[key] == 0:
                first[key] = row
            count[key] += 1


@parallel
def _place(keys, low, counts, places):
    """Write the rank of each row, stably by key.

    Parameters
    ----------
    keys : uint64, shape (rows,)
    low : uint64
        Smallest key.
    counts : int64, shape (chunks, keys)
        Next rank of each chunk's rows with each key; advanced.
    places : int32 or int64, shape (rows,)
        Receives the ranks.
    """
    chunks, rows = len(counts), len(keys)
    for chunk in prange(chunks):
        count = counts[chunk]
        for row in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            key = keys[row] - low
            places[row] = count[key]
            count[key] += 1


# ------------------------------------------------------------------------------- several at a time


def radix_orders(keys: UInt64Array, orders: npt.NDArray[np.int32]) -> None:
    """Sort the rows stably by each of several keys.

    Parameters
    ----------
    keys : ndarray of uint64, shape (sorts, rows)
        Sorted, or left as they were.
    orders : ndarray of int32, shape (sorts, rows)
        Receives the rows in ascending order of each key.

    Notes
    -----
    Each key is sorted by one thread, which is faster than `radix_order` for one key after the other. O(rows)
    for each byte that is not the same in all keys of a sort.
    """
    if keys.size:
        _sort_each(keys, orders)


@parallel
def _sort_each(keys, orders):
    """Sort by each key with one thread; `keys` and `orders` are as in `radix_orders`, and are written."""
    rows = keys.shape[1]
    for sort in prange(len(keys)):
        for row in range(rows):
            orders[sort, row] = row
        other_keys = np.empty(rows, np.uint64)
        other_order = np.empty(rows, np.int32)
        places = np.zeros((_BYTES, 256), np.int64)
        if _by_bytes(keys[sort], orders[sort], other_keys, other_order, places):
            orders[sort, :] = other_order


@within
def _by_bytes(keys, order, other_keys, other_order, places):
    """Sort by one byte after the other, alternating between arrays.

    Parameters
    ----------
    keys, order : uint64 and int32, shape (rows,)
        Keys and their rows, in row order; written.
    other_keys, other_order : as `keys` and `order`
        Space for the result of every other pass; written.
    places : int64, shape (8, 256)
        Zeros; scratch space for the counts of each byte.

    Returns
    -------
    bool
        Whether the result is in `other_keys` and `other_order`.
    """
    rows = len(keys)
    for at in range(rows):
        for byte in range(_BYTES):
            places[byte, (keys[at] >> np.uint64(8 * byte)) & np.uint64(255)] += 1
    is_other = False
    for byte in range(_BYTES):
        place = places[byte]
        shift = np.uint64(8 * byte)
        if place[(keys[0] >> shift) & np.uint64(255)] == rows:
            continue
        total = 0
        for digit in range(256):
            here = place[digit]
            place[digit] = total
            total += here
        for at in range(rows):
            key = keys[at]
            digit = (key >> shift) & np.uint64(255)
            to = np.uint64(place[digit])
            place[digit] += 1
            other_keys[to] = key
            other_order[to] = order[at]
        keys, other_keys = other_keys, keys
        order, other_order = other_order, order
        is_other = not is_other
    return is_other
