"""Permutation mechanism: a random selection of each group's rows is permuted by a uniform derangement.

Every row of a group is selected with the same probability, independently; if exactly one is selected, all are
drawn again. Only the number m of the selected rows is needed: the first m rows of a uniformly random order
are a uniformly random set of m rows. The same order, cut into cycles, is the permutation: the value of each
row goes to the next row of its cycle, and the value of the last row to the first. In a uniform permutation of
m rows the cycle of a given row has a uniform length 1 to m, and the other rows are permuted uniformly. Hence
lengths drawn one after another are those of a uniform permutation, and they are independent of the order. If
one of them is 1, the permutation leaves a row in its place, and all lengths are drawn again: about e times.

References
----------
Bailie, Gong and Meng 2025, arXiv:2501.08449: the permutation swapping algorithm.
Arratia, Barbour and Tavare 2003, Logarithmic combinatorial structures, section 1.1: the Feller coupling.
"""

from dataclasses import dataclass, field

import numpy as np

from providers.arrays import IndexArray, Int64Array, UInt64Array, row_index_type
from providers.grouping.groups import BufferPool, Groups, Pairing
from providers.grouping.shuffle import RATE_LEVEL, shuffle_groups
from providers.kernels.parallel import parallel, ranges_of
from providers.numba import prange
from providers.params import SwapParams
from providers.randomness.chacha20 import LANES, Key, stream_words
from providers.randomness.distributions import uniform
from providers.randomness.word_stream import bounded, open_stream, words_used

LENGTH_LEVEL = RATE_LEVEL - 1
"""Stream level of the lengths of cycles; `RATE_LEVEL` is that of the selection."""

_ROWS_PER_DRAW = 128  # rows whose two words each fill the buffer of 256 words


@parallel
def _draw_moving(sizes, identities, key, rate, minimum, moving):
    """Draw the number of selected rows of each group; never 1.

    Parameters
    ----------
    sizes : int64, shape (groups,)
    identities : uint64, shape (groups,)
    key : uint32, shape (8,)
    rate : float64
    minimum : int64
        Groups with fewer rows do not move.
    moving : int64, shape (groups,)
        Receives the numbers.
    """
    for group in prange(len(sizes)):
        address = np.empty((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        words = np.empty(256, np.uint32)
        size = sizes[group]
        moving[group] = 0
        if size < 2 or size < minimum:
            continue
        first_block = np.int64(0)  # block 0 of the attempt: words 2e and 2e + 1 are those of row e
        while True:
            selected = np.int64(0)
            for first in range(0, size, _ROWS_PER_DRAW):
                stream_words(
                    key, identities[group], np.uint32(RATE_LEVEL), np.uint32(first_block + first // 8),
                    address, block, words,
                )  # fmt: skip
                for row in range(min(_ROWS_PER_DRAW, size - first)):
                    selected += np.int64(uniform(words[2 * row], words[2 * row + 1]) < rate)
            if selected != 1:
                break
            first_block += (size + 7) // 8
        moving[group] = selected


@parallel
def _count_cycles(moving, identities, key, positions, cycles):
    """Draw the cycle lengths of each group until none is 1; count them.

    Parameters
    ----------
    moving : int64, shape (groups,)
        Number of rows that move, never 1.
    identities : uint64, shape (groups,)
    key : uint32, shape (8,)
    positions : int64, shape (groups,)
        Receives the number of words drawn before the accepted lengths.
    cycles : int64, shape (groups,)
        Receives the number of cycles.
    """
    for group in prange(len(moving)):
        positions[group] = 0
        cycles[group] = 0
        if moving[group] == 0:
            continue
        draws = open_stream(key, identities[group], np.uint32(LENGTH_LEVEL), 0)
        left = moving[group]
        while left > 0:
            length = bounded(draws, left) + 1
            left -= length
            cycles[group] += 1
            if length == 1:  # a row in its place: begin again
                positions[group] = words_used(draws)
                cycles[group] = 0
                left = moving[group]


@parallel
def _list_cycles(starts, moving, identities, key, positions, first_cycle, cycle_starts, lengths):
    """Write start and length of every cycle.

    Parameters
    ----------
    starts : int64, shape (groups,)
        Place of each group's first row in the random order.
    moving, identities, key, positions
        See `_count_cycles`; positions are those that it found.
    first_cycle : int64, shape (groups,)
        Index of each group's first cycle.
    cycle_starts, lengths : int64, shape (cycles,)
        Receive the place of each cycle's first row in the random order, and the number of its rows.
    """
    for group in prange(len(moving)):
        if moving[group] == 0:
            continue
        draws = open_stream(key, identities[group], np.uint32(LENGTH_LEVEL), positions[group])
        left = moving[group]
        cycle = first_cycle[group]
        place = starts[group]
        while left > 0:
            length = bounded(draws, left) + 1
            cycle_starts[cycle] = place
            lengths[cycle] = length
            place += length
            left -= length
            cycle += 1


@parallel
def _move_along_cycles(order, starts, moving, cycle_starts, lengths, source, chunks):
    """Write the source row of every row that moves.

    Parameters
    ----------
    order : int32 or int64, shape (places,)
        Rows group by group, in random order.
    starts : int64, shape (groups + 1,)
    moving : int64, shape (groups,)
        Number of rows that move: the first ones of each group.
    cycle_starts, lengths : int64, shape (cycles,)
    source : int32 or int64, shape (rows,)
        Written at the rows that move.
    chunks : int
        Number of ranges of `order` that are processed in parallel.
    """
    for chunk in prange(chunks):
        low = len(order) * chunk // chunks
        high = len(order) * (chunk + 1) // chunks
        group = np.searchsorted(starts, low, side="right") - 1
        while group < len(moving) and starts[group] < high:
            begin = max(low, starts[group] + 1)
            end = min(high, starts[group] + moving[group])
            for place in range(begin, end):
                source[order[place]] = order[place - 1]
            group += 1
    for cycle in prange(len(lengths)):  # the first row of a cycle gets the value of the last one
        first = cycle_starts[cycle]
        source[order[first]] = order[first + lengths[cycle] - 1]


@dataclass(frozen=True)
class Cycles:
    """Cycles of the permutations of groups, as places in the groups' random order."""

    moving: Int64Array
    """Number of rows that move in each group, the first ones of its order; never 1; shape (groups,)."""
    starts: Int64Array
    """Place of each cycle's first row, ascending; shape (cycles,)."""
    lengths: Int64Array
    """Number of rows of each cycle, 2 or more; shape (cycles,)."""


def draw_cycles(
    starts: Int64Array, identities: UInt64Array, key: Key, rate: float, min_group_size: int = 2
) -> Cycles:
    """Draw how many rows of each group move, and the lengths of the cycles in which they do.

    Parameters
    ----------
    starts : ndarray of int64, shape (groups + 1,)
        Start of each group in the random order.
    identities : ndarray of uint64, shape (groups,)
    key : ndarray of uint32, shape (8,)
    rate : float
        Probability of a row to be selected, between 0 and 1, both excluded.
    min_group_size : int
        Groups with fewer rows are not permuted.

    Notes
    -----
    Row e of a group is selected if the uniform number of words 2e and 2e + 1 of the stream (identity,
    `RATE_LEVEL`) is below the rate; another attempt continues at the next block. The lengths are bounded
    integers of the stream (identity, `LENGTH_LEVEL`).
    """
    groups = len(identities)
    moving, positions, counts = (np.zeros(groups, np.int64) for _ in range(3))
    if groups:
        _draw_moving(np.diff(starts), identities, key, rate, min_group_size, moving)
        _count_cycles(moving, identities, key, positions, counts)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if groups else 0
    cycle_starts, lengths = np.empty(total, np.int64), np.empty(total, np.int64)
    if total:
        first = ends - counts
        _list_cycles(starts[:-1], moving, identities, key, positions, first, cycle_starts, lengths)
    return Cycles(moving, cycle_starts, lengths)


@dataclass
class Permutation(Pairing):
    """Permutation of the rows of groups, in place of pairs. `took_part` counts the rows that move."""

    source: IndexArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Row that each row's value comes from, itself if it stays; shape (rows,)."""


def sources_along(order: IndexArray, starts: Int64Array, cycles: Cycles, rows: int) -> IndexArray:
    """Return the source row of every row, itself if it stays; shape (rows,).

    Parameters
    ----------
    order : ndarray of int32 or int64, shape (places,)
        Rows of the groups, group by group, in random order.
    starts : ndarray of int64, shape (groups + 1,)
    cycles : Cycles
    rows : int
        Number of rows, including those in no group.
    """
    source: IndexArray = np.arange(rows, dtype=row_index_type(rows))
    if len(cycles.moving):
        chunks = ranges_of(len(order))
        _move_along_cycles(order, starts, cycles.moving, cycles.starts, cycles.lengths, source, chunks)
    return source


def permute_groups(
    groups: Groups, key: Key, rate: float, min_group_size: int = 2, workspace: BufferPool | None = None
) -> Permutation:
    """Permute the rows of each group by the permutation mechanism.

    Parameters
    ----------
    groups : Groups
        Not modified.
    key : ndarray of uint32, shape (8,)
        Key of the purpose; fields that move independently have different keys.
    rate : float
        Probability of a row to be selected, between 0 and 1, both excluded.
    min_group_size : int
        Groups with fewer rows are not permuted.
    workspace : BufferPool, optional
        Buffers of the random order.

    Notes
    -----
    O(rows): the random order of `shuffle_groups` at rate 1, and about ln(m) cycles in a group of m.
    """
    shuffled = shuffle_groups(groups, key, 1.0, min_group_size, workspace)
    cycles = draw_cycles(groups.starts, groups.identities, key, rate, min_group_size)
    source = sources_along(shuffled.order, groups.starts, cycles, groups.rows)
    return Permutation(groups, shuffled.shuffled[:0].copy(), cycles.moving, source=source)


def draw_exchange(
    groups: Groups, key: Key, params: SwapParams, workspace: BufferPool | None = None
) -> Pairing:
    """Draw the exchange of a field, or of locked fields, by the mechanism that the parameters name."""
    if params.mechanism == "permutation":
        return permute_groups(groups, key, params.rate, params.min_group_size, workspace)
    return shuffle_groups(groups, key, params.rate, params.min_group_size, workspace)


def purpose(params: SwapParams, field_name: str | None) -> str:
    """Return the purpose of the random stream of a field; None: of all locked fields."""
    name = "permutation" if params.mechanism == "permutation" else "exchange"
    return name if field_name is None else f"{name}/{field_name}"
