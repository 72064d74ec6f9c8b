"""Uniformly random order within groups (Fisher-Yates, Rao-Sandelius).

The result of every kernel depends on its arguments alone, for any number of threads. Work is divided by
group, by bucket or by row range, each output cell is written by one thread, and every draw is looked up by
its address (`providers.randomness.chacha20`).

References
----------
Fisher and Yates 1938, in the form of Durstenfeld 1964 (doi:10.1145/364520.364540): a uniform order.
Rao 1961, Sankhya A 23; Sandelius 1962, J. R. Stat. Soc. B 24: a uniform order by random buckets.
Lemire 2019, doi:10.1145/3230636: a uniform integer below a bound, without modulo bias.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import IndexArray, Int64Array, UInt64Array, row_index_type
from providers.grouping.groups import ORDER, SMALL_GROUPS, BufferPool, Groups, Pairing
from providers.kernels.decorators import borrowing
from providers.kernels.gather import gather, scatter
from providers.kernels.parallel import parallel, ranges_of
from providers.numba import prange
from providers.randomness.chacha20 import LANES, Key, chacha20_blocks, stream_words
from providers.randomness.distributions import uniform

ONE_BUCKET = 8192
"""Maximum rows of a group that is shuffled by Fisher-Yates alone; it fits in the L1 cache."""

BUCKET_BITS = 13
"""Bits of the largest mean size of a bucket: 2**12 to 2**13 rows. A change of it changes every output."""

RATE_LEVEL = 0xFFFFFFFF
"""Stream level of the draw that determines how many rows of a group take part."""

BUCKET_LEVEL = 1
"""Stream level of the buckets of a large group."""

_SHUFFLE_LEVEL = 2  # stream level of the first bucket's shuffle; the others follow

_MOST_LOCKSTEP = 257  # longest group whose words are drawn together with those of fifteen others

_SHORTEST_RUN = 32  # draws from which on testing all for rejection before use is faster

_BATCHES_PER_TASK = 64  # batches of sixteen groups of one parallel task

_BLOCKS_OF_A_THREAD = 64  # fewest blocks of 256 rows for which a thread is woken

_BUCKETS_OF_A_THREAD = 3  # fewest buckets of about 6,000 rows for which a thread is woken

# ------------------------------------------------------------------------------- a uniform order


@borrowing
def _shuffle(places, start, stop, key, identity, level, words, buffered, address, block):
    """Write a uniformly random order of `start` to `stop` to ``places[start:stop]``, by Fisher-Yates.

    Parameters
    ----------
    places : int32 or int64, shape (rows,)
        Receives the order.
    start, stop : int64
    key : uint32, shape (8,)
    identity : uint64
    level : uint32
        Stream of the draws.
    words : uint32, shape (256,)
        Buffer with the first `buffered` words of the stream.
    buffered : int64
        A multiple of 16; 0 if no words are drawn yet.
    address, block
        Scratch space of `stream_words`.
    """
    for place in range(start, stop):
        places[place] = place
    position = 0
    drawn = buffered
    begin = np.uint64(start)  # unsigned: numba need not test for negative indices
    last = stop - start - 1
    while last > 0:
        if position == buffered:
            stream_words(key, identity, level, np.uint32(drawn // 16), address, block, words)
            position = 0
            buffered = 256
            drawn += 256
        run = min(buffered - position, last)
        if run >= _SHORTEST_RUN and _all_certain(words, position, run, last + 1):
            # Fisher-Yates step: swap the last slot with a random one up to it (Lemire 2019).
            last_slot = begin + np.uint64(last)
            for i in range(run):
                bound = np.uint64(last + 1 - i)
                partner_slot = begin + (np.uint64(words[position + i]) * bound >> np.uint64(32))
                swapped = places[last_slot]
                places[last_slot] = places[partner_slot]
                places[partner_slot] = swapped
                last_slot -= np.uint64(1)
            position += run
            last -= run
            continue
        bound = np.uint64(last + 1)
        product = np.uint64(words[position]) * bound
        position += 1
        low = product & np.uint64(0xFFFFFFFF)
        # A division is needed only if the word may be rejected, which is rare.
        if low < bound and low < np.uint64(0x100000000) % bound:
            continue
        last_slot = begin + np.uint64(last)
        partner_slot = begin + (product >> np.uint64(32))
        swapped = places[last_slot]
        places[last_slot] = places[partner_slot]
        places[partner_slot] = swapped
        last -= 1


@borrowing
def _all_certain(words, position, run, bound):
    """Whether none of `run` words (uint32) from `position` on is rejected, for `bound`, `bound` - 1, ...

    `position`, `run` and `bound` are ints.
    """
    uncertain = np.uint32(0)
    for i in range(run):
        below = np.uint32(bound - i)
        uncertain |= np.uint32(np.uint32(words[position + i] * below) < below)
    return uncertain == 0


@borrowing
def rows_taking_part(size, rate, minimum, key, identity, words, address, block):
    """Return the number of rows of a group that move; it is odd only if all rows of an odd group move.

    The expected number is x = rate * size: floor(x / 2 + u) pairs move, with u uniform in [0, 1). In an odd
    group with x > size - 1, pairs alone would fall short of x; all its rows move with probability x - (size
    - 1).

    Parameters
    ----------
    size : int64
    rate : float64
    minimum : int64
        Groups with fewer rows do not move.
    key : uint32, shape (8,)
    identity : uint64
    words, address, block
        Scratch space of `stream_words`.
    """
    if size < 2 or size < minimum:
        return 0
    if rate == 1.0:
        return size
    stream_words(key, identity, np.uint32(RATE_LEVEL), np.uint32(0), address, block, words)
    drawn = uniform(words[0], words[1])
    wanted = rate * size
    in_pairs = size - size % 2
    if wanted > in_pairs:
        return size if drawn < wanted - in_pairs else in_pairs
    # Rounding of x / 2 + u may give one pair more than the group has.
    return min(2 * np.int64(np.floor(wanted / 2.0 + drawn)), in_pairs)


@parallel
def _shuffle_small_groups(places, starts, identities, key, rate, minimum, took_part):
    """Draw the number of moving rows of every group, and shuffle groups of at most `ONE_BUCKET` rows.

    Parameters
    ----------
    places : int32 or int64, shape (rows,)
        Receives the order of each group.
    starts : int64, shape (groups + 1,)
    identities : uint64, shape (groups,)
    key : uint32, shape (8,)
    rate : float64
    minimum : int64
        Groups with fewer rows do not move.
    took_part : int64, shape (groups,)
        Receives the numbers of moving rows.
    """
    groups = len(took_part)
    spans = (groups + LANES * _BATCHES_PER_TASK - 1) // (LANES * _BATCHES_PER_TASK)
    for span in prange(spans):
        address = np.empty((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        words = np.empty(256, np.uint32)
        group_words = np.empty((LANES, 256), np.uint32)
        low = span * LANES * _BATCHES_PER_TASK
        for first in range(low, min(groups, low + LANES * _BATCHES_PER_TASK), LANES):
            last = min(first + LANES, groups)
            longest = 0  # size of the largest group that shares a draw
            for group in range(first, last):
                size = starts[group + 1] - starts[group]
                identity = identities[group]
                taking = rows_taking_part(size, rate, minimum, key, identity, words, address, block)
                took_part[group] = taking
                if size <= _MOST_LOCKSTEP and taking > 0:
                    longest = max(longest, size)
            # Two rows have a single matching: a table of pairs needs no draws.
            blocks = (longest - 1 + 15) // 16 if longest > 2 else 0
            for number in range(blocks):
                for lane in range(LANES):
                    identity = identities[min(first + lane, groups - 1)]
                    address[0, lane] = np.uint32(number)
                    address[1, lane] = np.uint32(identity & np.uint64(0xFFFFFFFF))
                    address[2, lane] = np.uint32(identity >> np.uint64(32))
                    address[3, lane] = np.uint32(0)
                chacha20_blocks(key, address, block)
                for lane in range(LANES):
                    for word in range(16):
                        group_words[lane, 16 * number + word] = block[word, lane]
            for group in range(first, last):
                start, stop = starts[group], starts[group + 1]
                if took_part[group] == 0 or (stop - start == 2 and rate == 1.0):
                    for place in range(start, stop):
                        places[place] = place
                    continue
                if stop - start > ONE_BUCKET:
                    continue  # `_shuffle_large_groups` shuffles it
                identity = identities[group]
                level = np.uint32(0)
                if stop - start <= _MOST_LOCKSTEP:
                    own = group_words[group - first]
                    _shuffle(places, start, stop, key, identity, level, own, 16 * blocks, address, block)
                else:
                    _shuffle(places, start, stop, key, identity, level, words, 0, address, block)


@parallel
def _scatter_into_buckets(
    starts, sizes, identities, bits, first_block, first_bucket, key, chunks, moved, bucket_starts
):
    """Rao-Sandelius, first half: move element e of a group to the bucket that word e of its stream names.

    Work is divided into chunks of blocks of 256 elements, for which one call of the generator gives words.

    Parameters
    ----------
    starts, sizes : int64, shape (groups,)
        First place and number of rows of each group.
    identities : uint64, shape (groups,)
    bits : int64, shape (groups,)
        log2 of the number of buckets of each group.
    first_block, first_bucket : int64, shape (groups + 1,)
        Numbers of the first block and of the first bucket of each group, counted through all groups.
    key : uint32, shape (8,)
    chunks : int64
    moved : int32 or int64, shape (rows,)
        Receives the new place of each place.
    bucket_starts : int64, shape (buckets,)
        Receives the first place of each bucket.
    """
    blocks = first_block[-1]
    counts = np.zeros((chunks, first_bucket[-1]), np.int64)
    for chunk in prange(chunks):
        count = counts[chunk]
        address = np.empty((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        words = np.empty(256, np.uint32)
        group = 0
        for number in range(blocks * chunk // chunks, blocks * (chunk + 1) // chunks):
            while number >= first_block[group + 1]:
                group += 1
            group_block = number - first_block[group]
            level = np.uint32(BUCKET_LEVEL)
            stream_words(key, identities[group], level, np.uint32(16 * group_block), address, block, words)
            shift = np.uint32(32 - bits[group])
            begin = np.uint32(first_bucket[group])
            first = np.uint64(starts[group] + 256 * group_block)  # unsigned: no test for negative indices
            drawn = np.uint64(min(256, sizes[group] - 256 * group_block))
            for i in range(drawn):
                words[i] = begin + (words[i] >> shift)
            for i in range(drawn):
                moved[first + i] = words[i]
            for i in range(drawn):
                count[np.uint64(words[i])] += 1
    for group in range(len(starts)):
        total = starts[group]
        for bucket in range(first_bucket[group], first_bucket[group + 1]):
            bucket_starts[bucket] = total
            for chunk in range(chunks):
                bucket_rows = counts[chunk, bucket]
                counts[chunk, bucket] = total
                total += bucket_rows
    for chunk in prange(chunks):
        count = counts[chunk]
        group = 0
        for number in range(blocks * chunk // chunks, blocks * (chunk + 1) // chunks):
            while number >= first_block[group + 1]:
                group += 1
            low = starts[group] + 256 * (number - first_block[group])
            high = min(low + 256, starts[group] + sizes[group])
            for at in range(np.uint64(low), np.uint64(high)):
                into = np.uint64(moved[at])
                place = count[into]
                moved[at] = place
                count[into] = place + 1


@parallel(least=_BUCKETS_OF_A_THREAD)
def shuffle_buckets(starts, sizes, identities, first_bucket, bucket_starts, key, places):
    """Rao-Sandelius, second half: shuffle each bucket separately.

    Parameters
    ----------
    starts, sizes : int64, shape (groups,)
    identities : uint64, shape (groups,)
    first_bucket : int64, shape (groups + 1,)
        Number of the first bucket of each group.
    bucket_starts : int64, shape (buckets,)
        First place of each bucket.
    key : uint32, shape (8,)
    places : int32 or int64, shape (rows,)
        Receives the order of each bucket.
    """
    for bucket in prange(first_bucket[-1]):
        address = np.empty((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        words = np.empty(256, np.uint32)
        group = np.searchsorted(first_bucket, bucket, side="right") - 1
        start = bucket_starts[bucket]
        last = bucket + 1 == first_bucket[group + 1]
        stop = starts[group] + sizes[group] if last else bucket_starts[bucket + 1]
        level = np.uint32(_SHUFFLE_LEVEL + bucket - first_bucket[group])
        _shuffle(places, start, stop, key, identities[group], level, words, 0, address, block)


def _shuffle_large_groups(
    starts: Int64Array, sizes: Int64Array, identities: UInt64Array, key: Key,
    moved: IndexArray, shuffled: IndexArray,
) -> None:  # fmt: skip
    """Shuffle groups of more than `ONE_BUCKET` rows by both halves of Rao-Sandelius.

    Arguments as for `_scatter_into_buckets` and `shuffle_buckets`; `moved` and `shuffled` are written.
    """
    bits = np.array([int(size - 1 >> BUCKET_BITS).bit_length() for size in sizes], np.int64)
    first_bucket = np.concatenate(([0], np.cumsum(1 << bits)))
    first_block = np.concatenate(([0], np.cumsum(-(-sizes // 256))))
    bucket_starts = np.empty(first_bucket[-1], np.int64)
    _scatter_into_buckets(
        starts, sizes, identities, bits, first_block, first_bucket, key,
        ranges_of(int(first_block[-1]), _BLOCKS_OF_A_THREAD), moved, bucket_starts,
    )  # fmt: skip
    shuffle_buckets(starts, sizes, identities, first_bucket, bucket_starts, key, shuffled)


def shuffle_groups(
    groups: Groups, key: Key, rate: float, min_group_size: int = 2, workspace: BufferPool | None = None
) -> Pairing:
    """Shuffle the rows of each group uniformly, and draw the number of rows that exchange values.

    Parameters
    ----------
    groups : Groups
        Not modified.
    key : ndarray of uint32, shape (8,)
        Key of the purpose; fields that move independently have different keys.
    rate : float
        Fraction of the rows that take part, over 0, up to 1.
    min_group_size : int
        Groups with fewer rows are not swapped.
    workspace : BufferPool, optional
        Buffers of the pairing, which is valid until the next use of the pool.

    Notes
    -----
    A group of m <= `ONE_BUCKET` rows is shuffled by Fisher-Yates with the stream (identity, 0). In a larger
    group element e is moved to the bucket named by the top bits of word e of the stream (identity, 1), and
    bucket k is shuffled with the stream (identity, 2 + k). Both orders are uniform over all m! (Rao,
    Sandelius). O(rows).
    """
    count = int(groups.starts[-1])
    index = np.dtype(row_index_type(groups.rows))
    workspace = workspace or BufferPool()
    shuffled: IndexArray
    if groups.layout is None and count <= SMALL_GROUPS * len(groups.identities):
        shuffled = np.empty(count, index)  # it is read until the last value is written
    else:
        shuffled = workspace.array(ORDER, 8 * groups.rows // index.itemsize, index)[:count]
    took_part = np.zeros(len(groups.identities), np.int64)
    if len(took_part):
        _shuffle_small_groups(
            shuffled, groups.starts, groups.identities, key, rate, min_group_size, took_part
        )
    large = np.flatnonzero((groups.sizes > ONE_BUCKET) & (took_part > 0))
    if not len(large):
        return Pairing(groups, shuffled, took_part)
    are_all_large = int(groups.sizes[large].sum()) == count
    moved: IndexArray = workspace.array("moved", count, index)
    if not are_all_large:
        moved[:] = np.arange(count, dtype=shuffled.dtype)
    _shuffle_large_groups(
        groups.starts[large], groups.sizes[large], groups.identities[large], key, moved, shuffled
    )
    return Pairing(groups, shuffled, took_part, moved)


_ALMOST_ALL = float(np.nextafter(1.0, 0.0))


def shuffle_rows(rows: int, key: Key) -> Pairing:
    """Shuffle all rows uniformly, as a single group of identity 0. O(rows)."""
    groups = Groups(rows, None, np.array([0, rows], np.int64), np.zeros(1, np.uint64))
    # Two rows have a single matching, for which rate 1 draws nothing; but they have two orders.
    return shuffle_groups(groups, key, 1.0 if rows != 2 else _ALMOST_ALL)


_FITS_CACHE = 16 << 20  # bytes


def reorder(values: npt.NDArray[Any], pairing: Pairing, order: IndexArray, scratch: npt.NDArray[Any]) -> None:
    """Reorder the values of all rows by a pairing, in place.

    ``order`` is the order of the pairing; ``scratch`` has the type and length of the values. Values that fit
    in the cache are gathered at once, others in two passes that each stay within it.
    """
    if values.nbytes <= _FITS_CACHE:
        gather(values, order, scratch)
        values[:] = scratch
    else:
        scatter(values, pairing.places, scratch)
        gather(scratch, pairing.shuffled, values)
