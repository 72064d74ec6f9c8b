"""Kernels that exchange values within random pairs of rows.

Rows of a group in random order are exchanged in pairs. If the number is odd, the last three rows form a
cycle: the value of each goes to the next one (decision 0001).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import IndexArray
from providers.grouping.groups import ORDER, SMALL_GROUPS, BufferPool, Groups, Pairing
from providers.kernels.decorators import borrowing
from providers.kernels.gather import gather, scatter, unscatter
from providers.kernels.parallel import parallel, ranges_of
from providers.numba import prange
from providers.swapping.permutation import Permutation


@borrowing
def _exchange_pairs(shuffled, start, pairs, laid):
    """Exchange a run of consecutive pairs in place; return the number of rows whose bits changed.

    Parameters
    ----------
    shuffled : ndarray of int, shape (places,)
        Places of the rows, group by group, in random order.
    start, pairs : int
        Index in `shuffled` of the first pair, and number of pairs.
    laid : ndarray of unsigned int, shape (places,)
        Values by place. Written.
    """
    changed = np.int64(0)
    for pair in range(pairs):
        place = np.uint64(start + 2 * pair)  # unsigned: no wrap-around test, twice as fast
        first, second = np.uint64(shuffled[place]), np.uint64(shuffled[place + np.uint64(1)])
        one, two = laid[first], laid[second]
        laid[first] = two
        laid[second] = one
        changed += np.int64(one != two)
    return 2 * changed


@borrowing
def _exchange_three(first, second, third, laid):
    """Exchange a cycle of three, (m-2, m) then (m-1, m) counted from 1; return the number of changed rows.

    Parameters
    ----------
    first, second, third : int
        Places of the rows.
    laid : ndarray of unsigned int, shape (places,)
        Values by place. Written.
    """
    one, two, three = laid[first], laid[second], laid[third]
    laid[first] = three
    laid[second] = one
    laid[third] = two
    return (one != three) + (two != one) + (three != two)


@parallel
def _exchange(shuffled, starts, took_part, laid, chunks):
    """Exchange within all groups in place; return the number of rows whose bits changed.

    Parameters
    ----------
    shuffled : ndarray of int, shape (places,)
        Places of the rows, group by group, in random order.
    starts : ndarray of int64, shape (groups + 1,)
        Start of each group in `shuffled`.
    took_part : ndarray of int64, shape (groups,)
        Number of rows of each group that are exchanged: the first ones.
    laid : ndarray of unsigned int, shape (places,)
        Values by place. Written.
    chunks : int
        Number of ranges of `shuffled` that are processed in parallel.
    """
    changed = np.zeros((chunks, 16), np.int64)  # one cache line for each chunk
    for chunk in prange(chunks):
        # A chunk is a range of the shuffled places; a group is cut between pairs, never through one.
        low = len(shuffled) * chunk // chunks
        high = len(shuffled) * (chunk + 1) // chunks
        group = np.searchsorted(starts, low, side="right") - 1
        while group < len(took_part) and starts[group] < high:
            start = starts[group]
            stop = starts[group + 1]
            odd = took_part[group] % 2 == 1
            pairs = took_part[group] // 2 - odd  # pairs outside the cycle of three
            begin = min(pairs, (max(low, start) - start + 1) // 2)
            end = min(pairs, (min(high, stop) - start + 1) // 2)
            changed[chunk, 0] += _exchange_pairs(shuffled, start + 2 * begin, end - begin, laid)
            if odd and low <= stop - 1 < high:
                first, second, third = shuffled[stop - 3], shuffled[stop - 2], shuffled[stop - 1]
                changed[chunk, 0] += _exchange_three(first, second, third, laid)
            group += 1
    return changed[:, 0].sum()


@parallel
def _exchange_rows(values, order, shuffled, starts, took_part, out, chunks):
    """Exchange from row to row, without a layout; return the number of rows whose bits changed.

    Parameters
    ----------
    values : ndarray of unsigned int, shape (rows,)
    order : ndarray of int, shape (listed rows,)
        Rows of the groups in listing order.
    shuffled : ndarray of int, shape (listed rows,)
        Indices into `order`, group by group, in random order.
    starts, took_part, chunks
        See `_exchange`; a chunk is a range of groups.
    out : ndarray of unsigned int, shape (rows,)
        Written at the rows of the groups.
    """
    groups = len(took_part)
    changed = np.zeros((chunks, 16), np.int64)  # one cache line for each chunk
    for chunk in prange(chunks):
        for group in range(groups * chunk // chunks, groups * (chunk + 1) // chunks):
            start, stop = starts[group], starts[group + 1]
            odd = took_part[group] % 2 == 1
            pairs_end = start + took_part[group] - 3 * odd
            for index in range(start, pairs_end, 2):
                place = np.uint64(index)  # unsigned, as in _exchange_pairs
                first = np.uint64(order[np.uint64(shuffled[place])])
                second = np.uint64(order[np.uint64(shuffled[place + np.uint64(1)])])
                one, two = values[first], values[second]
                out[first] = two
                out[second] = one
                changed[chunk, 0] += 2 * np.int64(one != two)
            for index in range(pairs_end, stop):  # the cycle of three, or rows that keep their values
                source = pairs_end + 2 if index == pairs_end else index - 1
                row, origin = order[shuffled[index]], order[shuffled[source if odd else index]]
                out[row] = values[origin]
                changed[chunk, 0] += np.int64(values[row] != values[origin])
    return changed[:, 0].sum()


@parallel
def _exchange_near(laid, of_rank, shuffled, starts, took_part, chunks):
    """Exchange in place with the places of `Layout`; return the number of rows whose bits changed.

    Parameters
    ----------
    laid : ndarray of unsigned int, shape (rows,)
        Values by place of the layout. Written.
    of_rank : ndarray of int, shape (rows,)
        Place of each rank.
    shuffled : ndarray of int, shape (rows,)
        Ranks of the rows, group by group, in random order.
    starts, took_part, chunks
        See `_exchange`; a chunk is a range of groups.
    """
    groups = len(took_part)
    changed = np.zeros((chunks, 16), np.int64)  # one cache line for each chunk
    for chunk in prange(chunks):
        for group in range(groups * chunk // chunks, groups * (chunk + 1) // chunks):
            start, stop = starts[group], starts[group + 1]
            odd = took_part[group] % 2 == 1
            differing = np.int64(0)
            for index in range(start, start + took_part[group] - 3 * odd, 2):
                place = np.uint64(index)  # unsigned, as in _exchange_pairs
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
"""Width of a value in bytes -> type in which its bits are exchanged."""


def exchange(
    values: npt.NDArray[Any], pairing: Pairing, last: bool = False, workspace: BufferPool | None = None
) -> tuple[npt.NDArray[Any], int]:
    """Exchange values by a pairing; return the new values and the number of rows whose bits changed.

    Parameters
    ----------
    values : ndarray, shape (rows,)
        Any fixed-width type of 1, 2, 4 or 8 bytes; not modified.
    pairing : Pairing
    last : bool
        Whether this is the last use of the pairing, so that its order may be freed early.
    workspace : BufferPool, optional
        Buffers for the values by place.

    Notes
    -----
    Three passes: scatter the values to their places, exchange there, and scatter them back. Each pass
    streams to few regions of memory at a time (groups or buckets), while a direct exchange would wait for
    two random reads and two random writes per pair. If groups are small, there are as many regions as
    groups, and the exchange is direct, unless the groups have a layout that joins many of them.
    """
    words = values.view(_WORDS[values.dtype.itemsize])
    if isinstance(pairing, Permutation):
        moved_words = np.empty_like(words)
        gather(words, pairing.source, moved_words)
        return moved_words.view(values.dtype), int(np.count_nonzero(moved_words != words))
    groups = pairing.groups
    chunks = ranges_of(len(pairing.shuffled))
    layout = groups.layout if pairing.moved is None else None
    small = len(pairing.shuffled) <= SMALL_GROUPS * len(pairing.took_part)
    if layout is None and pairing.moved is None and small and not groups.in_row_order:
        out = np.empty_like(words) if len(groups.order) == groups.rows else words.copy()
        changed = _exchange_rows(
            words, groups.order, pairing.shuffled, groups.starts, pairing.took_part, out, chunks
        )
        return out.view(values.dtype), int(changed)
    rules = (pairing.shuffled, groups.starts, pairing.took_part)
    if layout is None:
        places = pairing.places
        laid = (workspace or BufferPool()).array("laid", len(pairing.shuffled), words.dtype)
        scatter(words, places, laid)
        changed = _exchange(*rules, laid, chunks)
    else:
        places, laid = layout.places, layout.scratch(words.dtype)
        scatter(words, places, laid)
        changed = _exchange_near(laid, layout.of_rank, *rules, chunks)
    del rules
    free: npt.NDArray[Any] | None = None
    if last:
        pairing.shuffled = pairing.shuffled[:0].copy()
        free = None if workspace is None else workspace.taken(ORDER, len(words), words.dtype)
    out = np.empty_like(words) if free is None else free
    unscatter(laid, places, words, out)
    return out.view(values.dtype), int(changed)


def listed(values: npt.NDArray[Any], groups: Groups) -> npt.NDArray[Any]:
    """Return the values of the groups' rows, group by group, in listing order."""
    if groups.in_row_order:
        return values
    order, local = groups.layout.of_rank if groups.layout is not None else groups.order, values
    if groups.layout is not None:  # scatter first, so that the gather stays within the cache
        local = np.empty_like(values)
        scatter(values, groups.layout.places, local)
    out = np.empty(len(order), values.dtype)
    gather(local, order, out)
    return out


def sources(pairing: Pairing) -> IndexArray:
    """Return for each row the row that its value comes from, itself if it stays; shape (rows,)."""
    if isinstance(pairing, Permutation):
        return pairing.source
    rows = np.arange(pairing.groups.rows, dtype=pairing.shuffled.dtype)
    return exchange(rows, pairing)[0]
