"""Cache-friendly bucket sort, and the memory layout it yields.

Rows are distributed to some hundred buckets by the upper bits of their keys, and each bucket is sorted
within the cache. Hence the sort passes through memory once. The distribution also yields a memory layout in
which rows near each other in the order are near each other in memory. One streaming pass moves values to
this layout, and another moves them back (`providers.swapping.exchange.exchange`).

The layout depends on the keys alone, for any number of threads, because the distribution is stable.

References
----------
Knuth 1998, The Art of Computer Programming 3, section 5.2.5: sorting by distribution.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import IndexArray, UInt64Array, row_index_type
from providers.kernels.decorators import borrowing, within
from providers.kernels.parallel import parallel, ranges_of
from providers.kernels.prefetch import prefetch_for_writing
from providers.kernels.radix_sort import extremes, radix_order
from providers.numba import njit, prange

_FEW = 1 << 13  # rows that fit in the cache in any order

_PREFIX_BITS = 16  # maximum: a table of 2**16 prefixes stays in L2

_PREFIX_ROWS = 16  # minimum rows of a prefix on average; a larger table takes longer than it saves

_MOST_STREAMS = 512  # buckets written at the same time; more are slower

_BUCKET_ROWS = 1 << 13  # minimum rows of a bucket, as far as prefixes allow

_LARGEST = 1 << 17  # rows of a bucket that one thread sorts; a larger one is sorted by all

_DIGIT_BITS = 11

_LINE = 64  # bytes of a cache line


@dataclass(frozen=True, slots=True)
class Layout:
    """Place for every row, such that rows near each other in an order are near each other in memory.

    Rows in row order are written to few streams of places, and the rows of a short range of ranks fit in the
    cache. Therefore moves in both directions stream through memory.
    """

    places: IndexArray
    """Place of each row; shape (rows,)."""
    of_rank: IndexArray
    """Place of the row of each rank; shape (rows,)."""
    room: UInt64Array
    """Buffer for values in the layout, free between two moves; shape (rows,). It is reused because the
    operating system zeroes fresh memory, which costs as much as one pass over it."""

    def scratch(self, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the buffer as undefined values of a type of at most 8 bytes; shape (rows,)."""
        return self.room.view(kind)[: len(self.places)]


def bucket_layout(key: UInt64Array) -> Layout | None:
    """Return the layout for the stable ascending order of the rows by key, including that order.

    None for few rows, which are in the cache in any order. O(rows).
    """
    rows = len(key)
    if rows <= _FEW:
        return None
    chunks = ranges_of(rows)
    low, high = extremes(key, chunks)
    bits = int(high - low).bit_length()
    prefix_bits = min(bits, _PREFIX_BITS, (rows // _PREFIX_ROWS).bit_length())
    shift = np.uint64(bits - prefix_bits)
    counts = np.zeros((chunks, 1 << prefix_bits), np.uint64)
    _count_prefixes(key, low, shift, counts)
    bucket_of = np.empty(counts.shape[1], np.uint16)
    buckets = _assign_buckets(counts, max(_BUCKET_ROWS, rows // _MOST_STREAMS), bucket_of)
    next_places, starts = _first_places(counts, bucket_of, buckets)
    index = row_index_type(rows)
    layout = Layout(np.empty(rows, index), np.empty(rows, index), np.empty(rows, np.uint64))
    _deal_out(key, low, shift, bucket_of, next_places, layout.room, layout.places)
    left = np.zeros(buckets, np.bool_)
    _sort_buckets(layout.room, starts, layout.of_rank, left)
    for bucket in np.flatnonzero(left):
        span = slice(starts[bucket], starts[bucket + 1])
        layout.of_rank[span] = starts[bucket] + radix_order([layout.room[span]])
    return layout


# ------------------------------------------------------------------------------------ distribution


@parallel
def _count_prefixes(keys, low, shift, counts):
    """Count the rows of each prefix ``key - low >> shift``, for each chunk of rows.

    Parameters
    ----------
    keys : uint64, shape (rows,)
    low, shift : uint64
        Smallest key, and number of bits below the prefix.
    counts : uint64, shape (chunks, prefixes)
        Zeros; receives the counts.
    """
    chunks, rows = len(counts), len(keys)
    for chunk in prange(chunks):
        count = counts[chunk]
        for row in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            count[(keys[np.uint64(row)] - low) >> shift] += np.uint64(1)


@njit(cache=True, nogil=True)
def _assign_buckets(counts, target, bucket_of):
    """Group consecutive prefixes to buckets of at most `target` rows, or of one prefix; return their number.

    Parameters
    ----------
    counts : uint64, shape (chunks, prefixes)
    target : int64
    bucket_of : uint16, shape (prefixes,)
        Receives the bucket of each prefix.
    """
    bucket = 0
    within = np.int64(0)
    for prefix in range(counts.shape[1]):
        count = np.int64(0)
        for chunk in range(len(counts)):
            count += np.int64(counts[chunk, prefix])
        if within > 0 and within + count > target:
            bucket += 1
            within = np.int64(0)
        bucket_of[prefix] = bucket
        within += count
    return bucket + 1


@njit(cache=True, nogil=True)
def _first_places(counts, bucket_of, buckets):
    """Return the first place of each chunk's rows in each bucket, and the first place of each bucket.

    Parameters
    ----------
    counts : uint64, shape (chunks, prefixes)
    bucket_of : uint16, shape (prefixes,)
    buckets : int64

    Returns
    -------
    places : uint64, shape (chunks, buckets)
    starts : int64, shape (buckets + 1,)
    """
    chunks = len(counts)
    places = np.zeros((chunks, buckets), np.uint64)
    for prefix in range(counts.shape[1]):
        for chunk in range(chunks):
            places[chunk, bucket_of[prefix]] += counts[chunk, prefix]
    starts = np.empty(buckets + 1, np.int64)
    total = np.uint64(0)
    for bucket in range(buckets):
        starts[bucket] = total
        for chunk in range(chunks):
            here = places[chunk, bucket]
            places[chunk, bucket] = total
            total += here
    starts[buckets] = total
    return places, starts


@parallel
def _deal_out(keys, low, shift, bucket_of, next_places, dealt_keys, places):
    """Distribute the rows to their buckets, stably, together with their keys.

    Parameters
    ----------
    keys : uint64, shape (rows,)
    low, shift : uint64
        Smallest key, and number of bits below the prefix.
    bucket_of : uint16, shape (prefixes,)
    next_places : uint64, shape (chunks, buckets)
        Next place of each chunk in each bucket; advanced.
    dealt_keys : uint64, shape (rows,)
        Receives ``key - low`` at the place of each row.
    places : int32 or int64, shape (rows,)
        Receives the places.
    """
    chunks, rows = len(next_places), len(keys)
    ahead = np.uint64(_LINE // dealt_keys.itemsize)
    for chunk in prange(chunks):
        next_place = next_places[chunk]
        for at in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            row = np.uint64(at)  # unsigned, here and below: numba need not test for negative indices
            key = keys[row] - low
            bucket = bucket_of[key >> shift]
            place = next_place[bucket]
            next_place[bucket] = place + np.uint64(1)
            prefetch_for_writing(dealt_keys, place + ahead)
            dealt_keys[place] = key
            places[row] = place


# ------------------------------------------------------------------------------- within a bucket


@within
def _bits_of(number):
    """Return the number of bits of `number` (uint64)."""
    bits = 0
    while bits < 64 and (number >> np.uint64(bits)) > 0:
        bits += 1
    return bits


@borrowing
def _digit_pass(words, shift, mask, counts, next_words):
    """Sort words stably by the digit ``word >> shift & mask``, by one counting pass.

    Parameters
    ----------
    words : uint64, shape (rows,)
    shift, mask : uint64
    counts : uint32, shape (mask + 1,) or more
        Scratch space.
    next_words : uint64, shape (rows,)
        Receives the sorted words.
    """
    counts[:] = 0
    for at in range(len(words)):
        counts[(words[np.uint64(at)] >> shift) & mask] += np.uint32(1)
    total = np.uint32(0)
    for digit in range(np.int64(mask) + 1):
        here = counts[digit]
        counts[digit] = total
        total += here
    for at in range(len(words)):
        word = words[np.uint64(at)]
        digit = (word >> shift) & mask
        to = counts[digit]
        counts[digit] = to + np.uint32(1)
        next_words[to] = word


@borrowing
def _settle(words, index_bits, keys):
    """Complete a sort by upper bits, by insertion; return False if it takes more than 16 moves a word.

    Parameters
    ----------
    words : uint64, shape (rows,)
        Keys without their lowest bits, followed by `index_bits` bits of row index; sorted in place.
    index_bits : int64
    keys : uint64, shape (rows,)
        Complete keys, by row index.
    """
    shift = np.uint64(index_bits)
    mask = (np.uint64(1) << shift) - np.uint64(1)
    moves_left = np.int64(16 * len(words))
    for at in range(1, len(words)):
        word = words[np.uint64(at)]
        to = np.uint64(at)
        while to > 0:
            before = words[to - np.uint64(1)]
            if before >> shift < word >> shift:
                break
            # The words may have lost the lowest bits of their keys.
            if before >> shift == word >> shift and keys[before & mask] <= keys[word & mask]:
                break
            words[to] = before
            to -= np.uint64(1)
        words[to] = word
        moves_left -= at - np.int64(to)
        if moves_left < 0:
            return False
    return True


@within
def _sorted_words(keys, low, bits, index_bits):
    """Return sorted words with the row indices of a bucket in their low bits; empty if it takes too long.

    A word is a key, without its lowest bits if the word has no space for them, followed by the index of the
    row in the bucket. The upper bits order nearly all rows; the others are sorted by insertion.

    Parameters
    ----------
    keys : uint64, shape (rows,)
        Keys of the bucket.
    low : uint64
        Smallest key of the bucket.
    bits : int64
        Bits of the largest ``key - low``.
    index_bits : int64
        Bits of a row index.
    """
    rows = len(keys)
    lost = max(0, bits + index_bits - 64)
    words, next_words = np.empty(rows, np.uint64), np.empty(rows, np.uint64)
    for at in range(rows):
        head = (keys[np.uint64(at)] - low) >> np.uint64(lost)
        words[np.uint64(at)] = head << np.uint64(index_bits) | np.uint64(at)
    passes = -(-min(bits - lost, index_bits + 8) // _DIGIT_BITS)
    upper = min(bits - lost, passes * _DIGIT_BITS)
    first = index_bits + bits - lost - upper
    counts = np.empty(1 << _DIGIT_BITS, np.uint32)
    for number in range(passes):  # digits of equal width, so that no pass is wider than necessary
        start = first + upper * number // passes
        width = first + upper * (number + 1) // passes - start
        mask = np.uint64((1 << width) - 1)
        _digit_pass(words, np.uint64(start), mask, counts, next_words)
        words, next_words = next_words, words
    if upper < bits and not _settle(words, index_bits, keys):
        return words[:0]
    return words


@parallel
def _sort_buckets(dealt_keys, starts, of_rank, left):
    """Sort each bucket by one thread.

    Parameters
    ----------
    dealt_keys : uint64, shape (rows,)
        Keys by place.
    starts : int64, shape (buckets + 1,)
        First place of each bucket.
    of_rank : int32 or int64, shape (rows,)
        Receives the place of each rank.
    left : bool, shape (buckets,)
        Receives the marks of buckets not sorted, because they are too large or have too many long ties.
    """
    for bucket in prange(len(left)):
        start, stop = starts[bucket], starts[bucket + 1]
        keys = dealt_keys[start:stop]
        low, high = keys[0], keys[0]
        for at in range(len(keys)):
            low = min(low, keys[np.uint64(at)])
            high = max(high, keys[np.uint64(at)])
        if low == high:
            for place in range(start, stop):
                of_rank[place] = place
        elif len(keys) > _LARGEST:
            left[bucket] = True
        else:
            index_bits = _bits_of(np.uint64(len(keys)))
            words = _sorted_words(keys, low, _bits_of(high - low), index_bits)
            left[bucket] = len(words) == 0
            mask = (np.uint64(1) << np.uint64(index_bits)) - np.uint64(1)
            for at in range(len(words)):
                of_rank[np.uint64(start + at)] = np.uint64(start) + (words[np.uint64(at)] & mask)
