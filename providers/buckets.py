"""Rows put in order by way of buckets, and the layout that the buckets are.

A sort that leaves memory once: rows are dealt out to some hundred buckets by the upper bits of their
key, and each bucket is sorted within the cache. What has been dealt out once is also where values can
be moved: laid out by bucket in one streaming pass, rows that are near each other in the order lie near
each other in memory, and another streaming pass puts them back (`providers.kernels.exchange`).

The layout depends on the keys alone, for any number of threads: rows are dealt out stably.

References
----------
Knuth 1998, The Art of Computer Programming 3, section 5.2.5: sorting by distribution.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, njit, prange

from providers.prefetch import prefetch_for_writing
from providers.radix import IndexArray, UInt64Array, extremes, radix_order, row_index_type

_FEW = 1 << 13  # rows that are in the cache anyway
_PREFIX_BITS = 16  # at most: a table of so many prefixes stays in L2
_MOST_STREAMS = 512  # more of them at once are slower to write
_BUCKET_ROWS = 1 << 13
_LARGEST = 1 << 17  # rows that one thread sorts without keeping the others waiting
_DIGIT_BITS = 11
_LINE = 64  # bytes of a cache line


@dataclass(frozen=True, slots=True)
class Layout:
    """A place for every row, such that what is near in an order is near in memory.

    Rows in row order go to few streams of places, and the rows of a short range of ranks lie within the
    cache: both ways are passes that stream through memory.
    """

    places: IndexArray
    """The place of each row; shape (rows,)."""
    of_rank: IndexArray
    """The place of the row of each rank in the order; shape (rows,)."""
    room: UInt64Array
    """Room to lay values out in, nobody's between two moves; shape (rows,). Memory that is taken anew has to
    be cleared first by the system, which takes as long as a pass over it."""

    def scratch(self, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        """The room as values of this type, of at most 8 bytes; undefined, shape (rows,)."""
        return self.room.view(kind)[: len(self.places)]


def bucket_layout(key: UInt64Array) -> Layout | None:
    """A layout near the stable ascending order of the rows by their key, which it tells as well.

    None for few rows, which are in the cache in any order. O(rows).
    """
    rows = len(key)
    if rows <= _FEW:
        return None
    low, high = extremes(key, get_num_threads())
    bits = int(high - low).bit_length()
    prefix_bits = min(bits, _PREFIX_BITS, rows.bit_length())
    shift = np.uint64(bits - prefix_bits)
    counts = np.zeros((get_num_threads(), 1 << prefix_bits), np.uint64)
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


# ------------------------------------------------------------------------------------- dealing out


@njit(cache=True, nogil=True, parallel=True)
def _count_prefixes(keys, low, shift, counts):
    """Rows of each prefix ``key - low >> shift``, for each chunk of rows."""
    chunks, rows = len(counts), len(keys)
    for chunk in prange(chunks):
        count = counts[chunk]
        for row in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            count[(keys[np.uint64(row)] - low) >> shift] += np.uint64(1)


@njit(cache=True, nogil=True)
def _assign_buckets(counts, target, bucket_of):
    """Cut the prefixes into buckets of at most `target` rows, or of one prefix; returns how many."""
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
    """The first place of each chunk's rows in each bucket, and where the buckets begin."""
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


@njit(cache=True, nogil=True, parallel=True)
def _deal_out(keys, low, shift, bucket_of, next_places, dealt_keys, places):
    """Deal the rows out to their buckets, stably; the keys, from 0 for the smallest, go along."""
    chunks, rows = len(next_places), len(keys)
    ahead = np.uint64(_LINE // dealt_keys.itemsize)
    for chunk in prange(chunks):
        next_place = next_places[chunk]
        for at in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            row = np.uint64(at)  # unsigned, here and below: no test for an index from the end
            key = keys[row] - low
            bucket = bucket_of[key >> shift]
            place = next_place[bucket]
            next_place[bucket] = place + np.uint64(1)
            prefetch_for_writing(dealt_keys, place + ahead)
            dealt_keys[place] = key
            places[row] = place


# ------------------------------------------------------------------------------- within a bucket


@njit(cache=True, nogil=True)
def _bits_of(number):
    bits = 0
    while bits < 64 and (number >> np.uint64(bits)) > 0:
        bits += 1
    return bits


@njit(cache=True, nogil=True)
def _digit_pass(words, shift, mask, counts, next_words):
    """One stable counting pass by the digit ``word >> shift & mask``."""
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


@njit(cache=True, nogil=True)
def _settle(words, index_bits, keys):
    """Finish by insertion what is sorted but for its low bits; returns whether that was quick enough."""
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


@njit(cache=True, nogil=True)
def _sorted_words(keys, low, bits, index_bits):
    """The rows of a bucket in the low bits of sorted words; no words where that takes too long.

    A word is a key, without its lowest bits where there is no room for them, and the row's number in
    the bucket. The upper bits tell nearly all rows apart: the rest is settled by insertion.
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
    for number in range(passes):  # equal digits, so that no pass is wider than it need be
        start = first + upper * number // passes
        width = first + upper * (number + 1) // passes - start
        mask = np.uint64((1 << width) - 1)
        _digit_pass(words, np.uint64(start), mask, counts, next_words)
        words, next_words = next_words, words
    if upper < bits and not _settle(words, index_bits, keys):
        return words[:0]
    return words


@njit(cache=True, nogil=True, parallel=True)
def _sort_buckets(dealt_keys, starts, of_rank, left):
    """Sort each bucket; `left` are those that are too large, or have too many long ties, for one thread."""
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
