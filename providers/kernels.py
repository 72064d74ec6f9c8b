"""The shared compiled kernels: pair up within groups, exchange.

Every kernel's result depends on its arguments alone, for any number of threads: work is cut by
group, by bucket or by row range, each output cell is written by one thread, and every draw is
looked up by its address (`providers.rng`).

References
----------
Fisher and Yates 1938, in the form of Durstenfeld 1964 (doi:10.1145/364520.364540): a uniform order.
Rao 1961, Sankhya A 23; Sandelius 1962, J. R. Stat. Soc. B 24: a uniform order by random buckets.
Lemire 2019, doi:10.1145/3230636: a uniform integer below a bound, without modulo bias.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, njit, prange

from providers.draws import uniform
from providers.groups import Groups, Pairing, Workspace
from providers.prefetch import prefetch_for_reading, prefetch_for_writing
from providers.radix import IndexArray, Int64Array, UInt64Array, row_index_type
from providers.rng import LANES, Key, chacha20_blocks, stream_words

ONE_BUCKET = 8192
"""A group of at most so many rows is put in order by Fisher and Yates alone: it fits L1."""
BUCKET_BITS = 13
"""Mean rows of a bucket of a larger group: 2**12 to 2**13. Part of every revision's output."""

RATE_LEVEL = 0xFFFFFFFF
BUCKET_LEVEL = 1
_SHUFFLE_LEVEL = 2
_SMALL_GROUPS = 128  # rows on average, up to which a layout gains nothing
_TOGETHER = 257  # groups of up to so many rows share lockstep lanes, sixteen groups at a time
_RUN = 32  # draws, from which on it pays to look at all of them before any is used
_SPAN = 64  # groups, in sixteens, that one thread takes at a time
_LINE = 64  # bytes of a cache line


# ------------------------------------------------------------------------------- a uniform order


@njit(cache=True, nogil=True)
def _shuffle(places, start, stop, key, identity, level, words, have, address, block):
    """Fisher-Yates on ``places[start:stop]``, filled in order first, by the stream (identity, level).

    `words` holds the first `have` words of the stream (a multiple of 16, 0 for none yet).
    """
    for at in range(start, stop):
        places[at] = at
    position = 0
    drawn = have
    begin = np.uint64(start)  # unsigned: no test for an index from the end
    last = stop - start - 1
    while last > 0:
        if position == have:
            stream_words(key, identity, level, np.uint32(drawn // 16), address, block, words)
            position = 0
            have = 256
            drawn += 256
        run = min(have - position, last)
        if run >= _RUN and _all_certain(words, position, run, last + 1):
            here = begin + np.uint64(last)
            for nth in range(run):
                bound = np.uint64(last + 1 - nth)
                other = begin + (np.uint64(words[position + nth]) * bound >> np.uint64(32))
                held = places[here]
                places[here] = places[other]
                places[other] = held
                here -= np.uint64(1)
            position += run
            last -= run
            continue
        bound = np.uint64(last + 1)
        product = np.uint64(words[position]) * bound
        position += 1
        low = product & np.uint64(0xFFFFFFFF)
        # Only where it may be rejected, and hardly ever, is a division needed.
        if low < bound and low < np.uint64(0x100000000) % bound:
            continue
        here = begin + np.uint64(last)
        other = begin + (product >> np.uint64(32))
        held = places[here]
        places[here] = places[other]
        places[other] = held
        last -= 1


@njit(cache=True, nogil=True)
def _all_certain(words, position, run, bound):
    """Whether none of a run of words is rejected, the first of them for `bound`, each next for one less."""
    uncertain = np.uint32(0)
    for nth in range(run):
        below = np.uint32(bound - nth)
        uncertain |= np.uint32(np.uint32(words[position + nth] * below) < below)
    return uncertain == 0


@njit(cache=True, nogil=True)
def pairs_of(size, rate, minimum, key, identity, words, address, block):
    """How many pairs a group of `size` rows exchanges: floor(rate size / 2 + u), at most size // 2."""
    if size < 2 or size < minimum:
        return 0
    if rate == 1.0:
        return size // 2
    stream_words(key, identity, np.uint32(RATE_LEVEL), np.uint32(0), address, block, words)
    return min(np.int64(np.floor(rate * size / 2.0 + uniform(words[0], words[1]))), size // 2)


@njit(cache=True, nogil=True, parallel=True)
def _shuffle_small_groups(places, starts, identities, key, rate, minimum, pairs):
    """Count the pairs of every group, and shuffle those of at most `ONE_BUCKET` rows."""
    groups = len(pairs)
    spans = (groups + LANES * _SPAN - 1) // (LANES * _SPAN)
    for span in prange(spans):
        address = np.zeros((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        words = np.empty(256, np.uint32)
        together = np.empty((LANES, 256), np.uint32)
        for first in range(span * LANES * _SPAN, min(groups, (span + 1) * LANES * _SPAN), LANES):
            last = min(first + LANES, groups)
            longest = 0  # of the groups that are drawn for together
            for group in range(first, last):
                size = starts[group + 1] - starts[group]
                identity = identities[group]
                pairs[group] = pairs_of(size, rate, minimum, key, identity, words, address, block)
                if size <= _TOGETHER and pairs[group] > 0:
                    longest = max(longest, size)
            # Two rows have one matching only: a table of pairs draws nothing.
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
                        together[lane, 16 * number + word] = block[word, lane]
            for group in range(first, last):
                start, stop = starts[group], starts[group + 1]
                if pairs[group] == 0 or (stop - start == 2 and rate == 1.0):
                    for at in range(start, stop):
                        places[at] = at
                    continue
                if stop - start > ONE_BUCKET:
                    continue  # the larger kernel's
                identity = identities[group]
                level = np.uint32(0)
                if stop - start <= _TOGETHER:
                    mine = together[group - first]
                    _shuffle(places, start, stop, key, identity, level, mine, 16 * blocks, address, block)
                else:
                    _shuffle(places, start, stop, key, identity, level, words, 0, address, block)


@njit(cache=True, nogil=True, parallel=True)
def _scatter_into_buckets(
    starts, sizes, identities, bits, first_block, first_bucket, key, chunks, moved, bucket_starts
):
    """Rao-Sandelius, first half: element e of a group goes to the bucket its word e names.

    `moved[place]` is the new place; buckets are numbered through all groups, and
    `bucket_starts` are the places where they begin. A chunk is a range of blocks of 256 elements,
    which is what one call of the generator gives words for.
    """
    blocks = first_block[-1]
    counts = np.zeros((chunks, first_bucket[-1]), np.int64)
    for chunk in prange(chunks):
        count = counts[chunk]
        address = np.zeros((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        words = np.empty(256, np.uint32)
        group = 0
        for number in range(blocks * chunk // chunks, blocks * (chunk + 1) // chunks):
            while number >= first_block[group + 1]:
                group += 1
            nth = number - first_block[group]
            level = np.uint32(BUCKET_LEVEL)
            stream_words(key, identities[group], level, np.uint32(16 * nth), address, block, words)
            shift = np.uint32(32 - bits[group])
            begin = np.uint32(first_bucket[group])
            first = np.uint64(starts[group] + 256 * nth)  # unsigned: no test for an index from the end
            drawn = np.uint64(min(256, sizes[group] - 256 * nth))
            for at in range(drawn):
                words[at] = begin + (words[at] >> shift)
            for at in range(drawn):
                moved[first + at] = words[at]
            for at in range(drawn):
                count[np.uint64(words[at])] += 1
    for group in range(len(starts)):
        total = starts[group]
        for bucket in range(first_bucket[group], first_bucket[group + 1]):
            bucket_starts[bucket] = total
            for chunk in range(chunks):
                here = counts[chunk, bucket]
                counts[chunk, bucket] = total
                total += here
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


@njit(cache=True, nogil=True, parallel=True)
def shuffle_buckets(starts, sizes, identities, first_bucket, bucket_starts, key, places):
    """Rao-Sandelius, second half: each bucket in a uniform order of its own."""
    for bucket in prange(first_bucket[-1]):
        address = np.zeros((4, LANES), np.uint32)
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
    """Shuffle groups of over `ONE_BUCKET` rows: both halves of Rao-Sandelius for all of them."""
    bits = np.array([int(size - 1 >> BUCKET_BITS).bit_length() for size in sizes], np.int64)
    first_bucket = np.concatenate(([0], np.cumsum(1 << bits)))
    first_block = np.concatenate(([0], np.cumsum(-(-sizes // 256))))
    bucket_starts = np.empty(first_bucket[-1], np.int64)
    _scatter_into_buckets(
        starts, sizes, identities, bits, first_block, first_bucket, key, get_num_threads(),
        moved, bucket_starts,
    )  # fmt: skip
    shuffle_buckets(starts, sizes, identities, first_bucket, bucket_starts, key, shuffled)


def shuffle_groups(
    groups: Groups, key: Key, rate: float, min_group_size: int = 2, workspace: Workspace | None = None
) -> Pairing:
    """A uniformly random order of each group's rows, and how many pairs of it are exchanged.

    Parameters
    ----------
    groups : Groups
        Left as it is.
    key : ndarray of uint32, shape (8,)
        Names the purpose; two fields that move on their own have two keys.
    rate : float
        Share of the rows that take part, over 0 up to 1.
    min_group_size : int
        Groups with fewer rows are not swapped.
    workspace : Workspace, optional
        The pairing holds until it serves another one.

    Notes
    -----
    A group of m <= `ONE_BUCKET` rows: Fisher-Yates by the words of the stream (identity, 0).
    A larger one: element e goes to the bucket named by the top bits of word e of the stream
    (identity, 1), and bucket k is shuffled by the stream (identity, 2 + k). Both orders are
    uniform over all m! (Rao, Sandelius). O(rows).
    """
    count = int(groups.starts[-1])
    shuffled: IndexArray = np.empty(count, row_index_type(groups.rows))
    pairs = np.zeros(len(groups.identities), np.int64)
    if len(pairs):
        _shuffle_small_groups(shuffled, groups.starts, groups.identities, key, rate, min_group_size, pairs)
    large = np.flatnonzero((groups.sizes > ONE_BUCKET) & (pairs > 0))
    if not len(large):
        return Pairing(groups, shuffled, pairs, odd_rule=rate == 1.0)
    everything = int(groups.sizes[large].sum()) == count
    moved: IndexArray = (workspace or Workspace()).array("moved", count, shuffled.dtype)
    if not everything:
        moved[:] = np.arange(count, dtype=shuffled.dtype)
    _shuffle_large_groups(
        groups.starts[large], groups.sizes[large], groups.identities[large], key, moved, shuffled
    )
    return Pairing(groups, shuffled, pairs, rate == 1.0, moved)


_ALMOST_EVERY = float(np.nextafter(1.0, 0.0))


def shuffle_rows(rows: int, key: Key) -> Pairing:
    """A uniformly random order of all rows: that of one group of them, of identity 0. O(rows)."""
    groups = Groups(rows, None, np.array([0, rows], np.int64), np.zeros(1, np.uint64))
    # Two rows have one matching, for which nothing is drawn at rate 1; but they have two orders.
    return shuffle_groups(groups, key, 1.0 if rows != 2 else _ALMOST_EVERY)


_FITS_CACHE = 16 << 20


def reorder(values: npt.NDArray[Any], pairing: Pairing, order: IndexArray, scratch: npt.NDArray[Any]) -> None:
    """Put the values of all rows in the order of the pairing, in place.

    ``order`` is the pairing's; ``scratch`` is of the values' type and length. Values that fit the cache
    are gathered at once, others in two passes that each stay within it.
    """
    if values.nbytes <= _FITS_CACHE:
        gather(values, order, scratch)
        values[:] = scratch
    else:
        _lay_out(values, pairing.places, scratch)
        gather(scratch, pairing.shuffled, values)


# -------------------------------------------------------------------------------------- exchange


@njit(cache=True, nogil=True, parallel=True)
def _lay_out(values, places, laid):
    ahead = _LINE // values.itemsize
    for row in prange(len(values)):
        if places[row] >= 0:
            place = np.uint64(places[row])
            prefetch_for_writing(laid, place + np.uint64(ahead))
            laid[place] = values[row]


@njit(cache=True, nogil=True, parallel=True)
def _put_back(laid, places, values, out):
    ahead = _LINE // values.itemsize
    for row in prange(len(values)):
        if places[row] >= 0:
            place = np.uint64(places[row])
            prefetch_for_reading(laid, place + np.uint64(ahead))
            out[row] = laid[place]
        else:
            out[row] = values[row]


@njit(cache=True, nogil=True)
def _exchange_pairs(shuffled, start, pairs, laid):
    """Exchange a run of pairs in place; returns the rows whose bits changed."""
    changed = np.int64(0)
    for pair in range(pairs):
        at = np.uint64(start + 2 * pair)  # unsigned: no test for an index from the end, twice as fast
        first, second = np.uint64(shuffled[at]), np.uint64(shuffled[at + np.uint64(1)])
        one, two = laid[first], laid[second]
        laid[first] = two
        laid[second] = one
        changed += np.int64(one != two)
    return 2 * changed


@njit(cache=True, nogil=True)
def _exchange_three(first, second, third, laid):
    """The odd rule: (m-2, m), then (m-1, m), counted from 1; returns the rows whose bits changed."""
    one, two, three = laid[first], laid[second], laid[third]
    laid[first] = three
    laid[second] = one
    laid[third] = two
    return (one != three) + (two != one) + (three != two)


@njit(cache=True, nogil=True, parallel=True)
def _exchange(shuffled, starts, pairs, odd_rule, laid, chunks):
    changed = np.zeros((chunks, 16), np.int64)  # a cache line each
    for chunk in prange(chunks):
        # A chunk is a range of the shuffled places; a group is cut between pairs, never through one.
        low = len(shuffled) * chunk // chunks
        high = len(shuffled) * (chunk + 1) // chunks
        group = np.searchsorted(starts, low, side="right") - 1
        while group < len(pairs) and starts[group] < high:
            start = starts[group]
            stop = starts[group + 1]
            odd = odd_rule and (stop - start) % 2 == 1 and pairs[group] > 0
            alone = pairs[group] - 1 if odd else pairs[group]  # pairs outside the cycle of three
            begin = min(alone, (max(low, start) - start + 1) // 2)
            end = min(alone, (min(high, stop) - start + 1) // 2)
            changed[chunk, 0] += _exchange_pairs(shuffled, start + 2 * begin, end - begin, laid)
            if odd and low <= stop - 1 < high:
                first, second, third = shuffled[stop - 3], shuffled[stop - 2], shuffled[stop - 1]
                changed[chunk, 0] += _exchange_three(first, second, third, laid)
            group += 1
    return changed[:, 0].sum()


@njit(cache=True, nogil=True, parallel=True)
def _exchange_rows(values, order, shuffled, starts, pairs, odd_rule, out, chunks):
    """Exchange from row to row, without a layout; rows of no group are not written."""
    groups = len(pairs)
    changed = np.zeros((chunks, 16), np.int64)  # a cache line each
    for chunk in prange(chunks):
        for group in range(groups * chunk // chunks, groups * (chunk + 1) // chunks):
            start, stop = starts[group], starts[group + 1]
            odd = odd_rule and (stop - start) % 2 == 1 and pairs[group] > 0
            alone = start + 2 * (pairs[group] - odd)  # the first place after the pairs
            for at in range(start, alone, 2):
                place = np.uint64(at)  # unsigned, as in _exchange_pairs
                first = np.uint64(order[np.uint64(shuffled[place])])
                second = np.uint64(order[np.uint64(shuffled[place + np.uint64(1)])])
                one, two = values[first], values[second]
                out[first] = two
                out[second] = one
                changed[chunk, 0] += 2 * np.int64(one != two)
            for at in range(alone, stop):  # who stays, or the cycle of three
                source = alone + 2 if at == alone else at - 1
                row, origin = order[shuffled[at]], order[shuffled[source if odd else at]]
                out[row] = values[origin]
                changed[chunk, 0] += np.int64(values[row] != values[origin])
    return changed[:, 0].sum()


@njit(cache=True, nogil=True, parallel=True)
def _exchange_near(laid, of_rank, shuffled, starts, pairs, odd_rule, chunks):
    """Exchange in place, each row's value at the place of its rank."""
    groups = len(pairs)
    changed = np.zeros((chunks, 16), np.int64)  # a cache line each
    for chunk in prange(chunks):
        for group in range(groups * chunk // chunks, groups * (chunk + 1) // chunks):
            start, stop = starts[group], starts[group + 1]
            odd = odd_rule and (stop - start) % 2 == 1 and pairs[group] > 0
            differing = np.int64(0)
            for at in range(start, start + 2 * (pairs[group] - odd), 2):
                place = np.uint64(at)  # unsigned, as in _exchange_pairs
                first = np.uint64(of_rank[np.uint64(shuffled[place])])
                second = np.uint64(of_rank[np.uint64(shuffled[place + np.uint64(1)])])
                one, two = laid[first], laid[second]
                laid[first] = two
                laid[second] = one
                differing += np.int64(one != two)
            changed[chunk, 0] += 2 * differing
            if odd:
                last_two = of_rank[shuffled[stop - 2]], of_rank[shuffled[stop - 1]]
                changed[chunk, 0] += _exchange_three(of_rank[shuffled[stop - 3]], *last_two, laid)
    return changed[:, 0].sum()


_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def exchange(
    values: npt.NDArray[Any], pairing: Pairing, last: bool = False, workspace: Workspace | None = None
) -> tuple[npt.NDArray[Any], int]:
    """The values after the exchange, and the number of rows whose bits changed.

    Parameters
    ----------
    values : ndarray, shape (rows,)
        Any fixed-width type of 1, 2, 4 or 8 bytes; left as it is.
    pairing : Pairing
    last : bool
        Nobody needs the pairing's order any more: its memory is given back as soon as may be.
    workspace : Workspace, optional
        Where values are laid out.

    Notes
    -----
    Three passes: lay the values out by place, exchange within the layout, put them back. Rows go
    to few places at a time (groups or buckets), so that each pass streams through memory, where
    a direct exchange would wait for two random reads and two random writes a pair. Where groups are
    so small that a layout has as many places to go to as there are groups, the exchange is direct,
    unless the groups bring a layout of many groups together.
    """
    words = values.view(_WORDS[values.dtype.itemsize])
    groups = pairing.groups
    chunks = get_num_threads() if len(pairing.shuffled) > 65536 else 1
    layout = groups.layout if pairing.moved is None else None
    small = len(pairing.shuffled) <= _SMALL_GROUPS * len(pairing.pairs)
    if layout is None and pairing.moved is None and small and not groups.in_row_order:
        out = np.empty_like(words) if len(groups.order) == groups.rows else words.copy()
        changed = _exchange_rows(
            words, groups.order, pairing.shuffled, groups.starts, pairing.pairs, pairing.odd_rule, out, chunks
        )
        return out.view(values.dtype), int(changed)
    rules = (pairing.shuffled, groups.starts, pairing.pairs, pairing.odd_rule)
    if layout is None:
        places = pairing.places
        laid = (workspace or Workspace()).array("laid", len(pairing.shuffled), words.dtype)
        _lay_out(words, places, laid)
        changed = _exchange(*rules, laid, chunks)
    else:
        places, laid = layout.places, layout.scratch(words.dtype)
        _lay_out(words, places, laid)
        changed = _exchange_near(laid, layout.of_rank, *rules, chunks)
    del rules
    if last:
        pairing.shuffled = pairing.shuffled[:0].copy()
    out = np.empty_like(words)
    _put_back(laid, places, words, out)
    return out.view(values.dtype), int(changed)


@njit(cache=True, nogil=True, parallel=True)
def gather(values, rows, out):
    """Fill `out` with the values of these rows, with all threads."""
    for at in prange(len(rows)):
        out[at] = values[rows[at]]


def listed(values: npt.NDArray[Any], groups: Groups) -> npt.NDArray[Any]:
    """The values of the participating rows, group by group, in listing order."""
    if groups.in_row_order:
        return values
    order, near = groups.layout.of_rank if groups.layout is not None else groups.order, values
    if groups.layout is not None:  # first near each other, so that each pass stays within the cache
        near = np.empty_like(values)
        _lay_out(values, groups.layout.places, near)
    out = np.empty(len(order), values.dtype)
    gather(near, order, out)
    return out


def sources(pairing: Pairing) -> IndexArray:
    """For each row the row its value comes from, itself where it stays; shape (rows,)."""
    rows = np.arange(pairing.groups.rows, dtype=pairing.shuffled.dtype)
    return exchange(rows, pairing)[0]
