"""Selection of the rows that take part by their risk, instead of by chance alone.

Rows at risk are selected. The others are drawn until the rate is met, each with a probability in proportion
to its risk (at most 1), by systematic sampling in random order: the rows are put into a random order, the
probabilities are added up along it, and a row is selected if the sum passes u, u + 1, u + 2, ... for one
uniform number u. Each inclusion probability is exact, the number of rows is the wanted number, rounded up or
down, and in a random order almost every pair of rows can be drawn together.

A group in which a single row is selected gets a second one, drawn with a probability in proportion to its
risk, since nobody can be swapped alone. Then all selected rows of a group exchange values as at rate 1.

The selection belongs to the rows: it does not depend on the swap fields, nor on the groups.

References
----------
Madow 1949, doi:10.1214/aoms/1177729988: systematic sampling with unequal probabilities.
Hartley and Rao 1962, Ann. Math. Statist. 33, 350-374: the same in random order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, IndexArray, Int64Array, UInt64Array
from providers.grouping.groups import BufferPool, Groups
from providers.grouping.shuffle import shuffle_groups
from providers.kernels.parallel import parallel
from providers.kernels.radix_sort import radix_order
from providers.numba import njit, prange
from providers.params import SwapParams
from providers.randomness.chacha20 import LANES, Key, Stream, stream_words
from providers.randomness.distributions import uniform
from providers.swapping.exchange import sources
from providers.swapping.participation import Participation, groups_without
from providers.swapping.permutation import Permutation
from providers.swapping.row_risk import row_risk

PURPOSE = "selection"
"""Purpose of the random stream. Identity 0: level 0 orders the rows, level 1 is where the sample starts."""

PARTNER_LEVEL = 2
"""Level of the second row of a group, whose stream has the group's identity."""

UNIT_BITS = 32
"""Inclusion probabilities are multiples of 2**-32, so that their sums are exact in any order."""

_ROWS_PER_DRAW = 128  # rows whose two words each fill the buffer of 256 words


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows that a run selects by their risk."""

    risk: Float64Array
    """Risk of each row, shape (rows,)."""
    required: BoolArray
    """Rows that must take part, shape (rows,)."""
    selected: BoolArray
    """Rows that must take part, and rows drawn to meet the rate; shape (rows,)."""
    key: Key


def select_rows(table: pa.Table, params: SwapParams, stream: Stream) -> Selection:
    """Select rows of the table by the parameter `risk`.

    Raises
    ------
    SourceError
        As `row_risk`.

    Notes
    -----
    O(rows) for each key field, and a sort of the risks and of the random order.
    """
    assert params.risk is not None  # noqa: S101 - the caller has checked
    found = row_risk(table, params.risk)
    key = stream.key(PURPOSE)
    selected = found.required.copy()
    others = np.flatnonzero(~found.required)
    wanted = params.rate * table.num_rows - (table.num_rows - len(others))
    chances = inclusion_probabilities(found.risk[others], wanted)
    selected[others[systematic_sample(chances, others, key)]] = True
    return Selection(found.risk, found.required, selected, key)


def inclusion_probabilities(risk: Float64Array, wanted: float) -> Float64Array:
    """Return probabilities in proportion to the risk, at most 1, that sum to the wanted number of rows.

    Rows without risk have probability 0, unless all rows with one are not enough: then they share the rest
    evenly.

    Parameters
    ----------
    risk : ndarray of float64, shape (rows,)
        0 or more, finite.
    wanted : float
        Number of rows; below 0 it counts as 0, and above the number of rows as that number.
    """
    relative = risk / risk.max(initial=0.0) if risk.any() else risk
    positive = relative > 0
    count, rows = int(np.count_nonzero(positive)), len(risk)
    wanted = min(max(wanted, 0.0), float(rows))
    if wanted == 0.0:
        return np.zeros(rows)
    if wanted >= count:
        rest = (wanted - count) / (rows - count) if rows > count else 0.0
        return np.where(positive, 1.0, rest)
    values, times = np.unique(relative[positive], return_counts=True)
    # With the rows above values[t] taken for certain, left[t] of the others are wanted, which share them in
    # proportion to their risk. The solution is the largest t at which no probability exceeds 1.
    tails = np.cumsum(values * times)
    left = wanted - (count - np.cumsum(times))
    last = int(np.flatnonzero((left > 0) & (left * values <= tails))[-1])
    with np.errstate(over="ignore"):
        shared = left[last] * (relative / tails[last])
    return np.where(relative > values[last], 1.0, shared)


def systematic_sample(chances: Float64Array, rows: IndexArray, key: Key) -> Int64Array:
    """Draw a sample with these inclusion probabilities; return indices into `rows`, in random order.

    Parameters
    ----------
    chances : ndarray of float64, shape (rows,)
    rows : ndarray of int, shape (rows,)
        Row numbers, ascending, by which the random order is addressed.
    key : Key
    """
    if not len(rows):
        return np.zeros(0, np.int64)
    order = radix_order([random_words(key, int(rows[-1]) + 1)[rows]])
    units = np.rint(np.ldexp(chances, UNIT_BITS)).astype(np.int64)[order]
    start = np.empty(1, np.uint64)
    _first_word(key, np.uint64(0), np.uint32(1), start)
    sums = np.cumsum(units) + int(start[0] >> np.uint64(32))
    passed = sums >> UNIT_BITS
    found: Int64Array = order[np.diff(passed, prepend=0) > 0].astype(np.int64)
    return found


def random_words(key: Key, rows: int) -> UInt64Array:
    """Return a random word of 64 bits for each row, by which rows are put into a random order."""
    words = np.empty(rows, np.uint64)
    _row_words(key, words)
    return words


@parallel
def _row_words(key, words):
    """Write words 2r and 2r + 1 of stream (0, 0), the first one above the other, for each row r.

    Parameters
    ----------
    key : uint32, shape (8,)
    words : uint64, shape (rows,)
        Receives the words.
    """
    rows = len(words)
    for draw in prange((rows + _ROWS_PER_DRAW - 1) // _ROWS_PER_DRAW):
        address = np.empty((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        drawn = np.empty(256, np.uint32)
        first = draw * _ROWS_PER_DRAW
        stream_words(
            key, np.uint64(0), np.uint32(0), np.uint32(first // 8), address, block, drawn
        )  # fmt: skip
        for row in range(min(_ROWS_PER_DRAW, rows - first)):
            words[first + row] = np.uint64(drawn[2 * row]) << np.uint64(32) | np.uint64(drawn[2 * row + 1])


@njit(cache=True, nogil=True)
def _first_word(key, identity, level, words):
    """Write the first two words of a stream, the first one above the other.

    Parameters
    ----------
    key : uint32, shape (8,)
    identity : uint64
    level : uint32
    words : uint64, shape (1,)
        Receives the words.
    """
    address = np.empty((4, LANES), np.uint32)
    block = np.empty((LANES, LANES), np.uint32)
    drawn = np.empty(256, np.uint32)
    stream_words(key, identity, level, np.uint32(0), address, block, drawn)
    words[0] = np.uint64(drawn[0]) << np.uint64(32) | np.uint64(drawn[1])


# --------------------------------------------------------------------------------- rows of each group


@dataclass(frozen=True, slots=True)
class Chosen:
    """Rows of one random order that exchange values, all of which move."""

    groups: Groups
    """Groups of the chosen rows, two or more in each; groups without chosen rows are left out."""
    rows: BoolArray
    """Mask of the chosen rows, shape (rows,)."""


def choose(participation: Participation, selection: Selection) -> Chosen:
    """Return the selected rows of each group that can be swapped, with a partner for a row that is alone."""
    groups = participation.groups
    rows = np.zeros(groups.rows, np.bool_)
    order = groups.order
    rows[order] = selection.selected[order]
    rows[participation.singletons] = rows[participation.too_small] = False
    chosen = np.concatenate(([0], np.cumsum(rows[order])))[groups.starts]
    single = np.flatnonzero(np.diff(chosen) == 1)
    if len(single):
        partners = np.empty(len(single), np.int64)
        _draw_partners(
            single, np.asarray(order), groups.starts, groups.identities, rows, selection.risk,
            selection.key, partners,
        )  # fmt: skip
        rows[partners] = True
    return Chosen(groups_without(groups, ~rows), rows)


@parallel
def _draw_partners(single, order, starts, identities, chosen, risk, key, partners):
    """Draw a second row for each group with one chosen row, with probability in proportion to its risk.

    Let s be the sum of the risks of the other rows, and u the uniform number of the group. The second row is
    the first in listing order at which the partial sum exceeds u s. If all risks are 0, each counts as 1.

    Parameters
    ----------
    single : int64, shape (groups with one chosen row,)
        Numbers of the groups, which have two rows or more.
    order : int32 or int64, shape (listed rows,)
    starts : int64, shape (groups + 1,)
    identities : uint64, shape (groups,)
    chosen : bool, shape (rows,)
    risk : float64, shape (rows,)
    key : uint32, shape (8,)
    partners : int64, shape (groups with one chosen row,)
        Receives the rows.
    """
    for index in prange(len(single)):
        address = np.empty((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        drawn = np.empty(256, np.uint32)
        group = single[index]
        level = np.uint32(PARTNER_LEVEL)
        stream_words(key, identities[group], level, np.uint32(0), address, block, drawn)
        point = uniform(drawn[0], drawn[1])
        largest = 0.0
        others = 0
        for place in range(starts[group], starts[group + 1]):
            row = order[place]
            if not chosen[row]:
                largest = max(largest, risk[row])
                others += 1
        total = 0.0
        if largest > 0:
            for place in range(starts[group], starts[group + 1]):
                row = order[place]
                if not chosen[row]:
                    total += risk[row] / largest  # a sum of risks could be too large for a float
        else:
            total = np.float64(others)
        bound = point * total
        passed = 0.0
        partner = np.int64(-1)
        for place in range(starts[group], starts[group + 1]):
            row = order[place]
            if chosen[row]:
                continue
            share = risk[row] / largest if largest > 0 else 1.0
            if share > 0 and passed <= bound:
                partner = row
            passed += share
        partners[index] = partner


def exchange_chosen(
    participation: Participation, chosen: Chosen, key: Key, workspace: BufferPool | None = None
) -> Permutation:
    """Exchange values between random pairs of the chosen rows of each group, all of which move.

    Parameters
    ----------
    participation : Participation
    chosen : Chosen
    key : Key
        Key of the exchange, as without `risk`.
    workspace : BufferPool, optional
    """
    pairs = shuffle_groups(chosen.groups, key, 1.0, 2, workspace)
    source = sources(pairs)
    return Permutation(participation.groups, pairs.shuffled[:0].copy(), pairs.took_part, source=source)


def required_sizes(participation: Participation, required: npt.NDArray[np.bool_]) -> Int64Array:
    """Return the number of rows of each group whose exchange someone expects who knows who must take part.

    A group with two required rows or more counts with these. In a group of two or three rows a single one
    counts with all rows, one of which becomes its partner. Elsewhere its partner may be anyone.
    """
    groups = participation.groups
    sizes = groups.sizes
    marked = np.zeros(groups.rows, np.bool_)
    order = groups.order
    marked[order] = required[order]
    marked[participation.singletons] = marked[participation.too_small] = False
    counts = np.diff(np.concatenate(([0], np.cumsum(marked[order])))[groups.starts])
    counts = np.where((counts == 1) & (sizes <= 3), sizes, counts)
    found: Int64Array = counts[counts > 1].astype(np.int64)
    return found
