"""A uniformly random neighbour of every row, field by field, without a list of all neighbours.

Row i's neighbourhood among the candidates j other than i, by squared distances D (`providers.lanes`):

- ties `include`: all j with ``D_ij <= max(epsilon^2, D_i(k)) (1 + 2e-9)``, D_i(k) the k-th least;
- ties `index`: the first k by (D, row); with an epsilon over 0 also all with
  ``D_ij <= epsilon^2 (1 + 2e-9)``;
- all of them, where there are k or fewer.

From a neighbourhood of at most `LISTED` rows a uniform one is drawn, counted by row number. From a
larger one candidates are drawn until one belongs to it: uniform positions of a cover, which are the
nodes of the tree (`providers.kdtree`) within reach. The cover starts as the root; level by level each
node is replaced by those of its two halves that are within reach, but for leaves and for nodes that
lie within reach entirely; it ends before it would have more than `COVER` nodes.

The draws' addresses are in `docs/decisions/0001-randomness.md`.

References
----------
Lemire 2019, doi:10.1145/3230636: a uniform integer below a bound, without modulo bias.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from providers.kdtree import LEAF, Tree, grow
from providers.lanes import lesser_rows
from providers.nearest import TIE, nearest, notes_for, width
from providers.neighbours import cover, distance, gather, span
from providers.provider import Progress
from providers.rng import LANES, Key, stream_words
from providers.space import Points
from providers.uncounted import inlined, uncounted

Int32Array = npt.NDArray[np.int32]
UInt32Array = npt.NDArray[np.uint32]

LISTED = 1024
"""Rows of a neighbourhood that is listed, at most. Part of every revision's output, as is `COVER`."""
COVER = 64

DONOR_LEVEL, _RATE_LEVEL, MORE_LEVEL = 0, 1, 2
SPAN = 8  # leaves that one thread takes at a time
_SECONDS = 0.2  # of work between two looks at the clock, about
_NO_ROW = np.int32(2**31 - 1)
SHORT = 32  # rows that are put in order at once, rather than selected from for every field


class Rule(NamedTuple):
    """Who is a neighbour of a row; kernels take it as it is."""

    k: int
    epsilon: float
    include: bool
    """Whether all ties at the k-th distance are neighbours."""
    every: int
    """Large neighbourhoods are counted for rows divisible by this."""
    listed: int
    cover: int


@dataclass(frozen=True)
class Donors:
    """Who gives to whom."""

    rows: Int32Array
    """For each field and row the row whose value it gets; shape (fields, n)."""
    sizes: Int32Array
    """Rows of each row's neighbourhood, -1 where it was not counted; shape (n,)."""


# ------------------------------------------------------------------------------------------- words


@njit(cache=True, nogil=True, parallel=True)
def _first_words(keys, words):
    """For each field word i of the stream (0, 0) for row i."""
    rows = words.shape[1]
    chunks = (rows + 255) // 256
    for piece in prange(len(keys) * chunks):
        field, chunk = piece // chunks, piece % chunks
        address = np.zeros((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        drawn = np.empty(256, np.uint32)
        level = np.uint32(DONOR_LEVEL)
        stream_words(keys[field], np.uint64(0), level, np.uint32(16 * chunk), address, block, drawn)
        first = 256 * chunk
        for at in range(min(256, rows - first)):
            words[field, first + at] = drawn[at]


def key_array(keys: Sequence[Key]) -> UInt32Array:
    """Keys as kernels take them; shape (keys, 8)."""
    return np.array(keys, np.uint32).reshape(-1, 8)


def first_words(keys: Sequence[Key], rows: int) -> tuple[UInt32Array, UInt32Array]:
    """The keys, and for each of them and each row the word that draws from a list; shape (keys, rows)."""
    words = np.empty((len(keys), rows), np.uint32)
    array = key_array(keys)
    _first_words(array, words)
    return array, words


@njit(cache=True, nogil=True, parallel=True)
def keepers(key, q, first, kept):
    """Say which rows keep their own value, of those from `first` on, a multiple of 128.

    The uniform number is of 53 bits, from words 2 i and 2 i + 1 of the stream (0, 1) for row i.
    """
    for chunk in prange((len(kept) + 127) // 128):
        address = np.zeros((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        drawn = np.empty(256, np.uint32)
        level = np.uint32(_RATE_LEVEL)
        first_block = np.uint32(16 * (first // 128 + chunk))
        stream_words(key, np.uint64(0), level, first_block, address, block, drawn)
        for row in range(128 * chunk, min(128 * chunk + 128, len(kept))):
            at = 2 * (row - 128 * chunk)
            high = np.uint64(drawn[at]) << np.uint64(21)
            uniform = np.float64(high | (np.uint64(drawn[at + 1]) >> np.uint64(11))) * 2.0**-53
            kept[row] = uniform >= q


@inlined
def next_word(keys, field, row, used, words, address, block):
    """The next word of the stream (row, 2), of which ``used[0]`` are used."""
    at = used[0] % 256
    if at == 0:
        first_block = np.uint32(used[0] // 16)
        stream_words(keys[field], np.uint64(row), np.uint32(MORE_LEVEL), first_block, address, block, words)
    used[0] += 1
    return np.uint64(words[at])


@uncounted
def drawn_below(word, bound):
    """The uniform integer below `bound` that a word gives, or -1 where it is rejected."""
    product = np.uint64(word) * np.uint64(bound)
    low = product & np.uint64(0xFFFFFFFF)
    if low < np.uint64(bound) and low < np.uint64(0x100000000) % np.uint64(bound):
        return np.int64(-1)
    return np.int64(product >> np.uint64(32))


@uncounted
def bounded(word, bound, keys, field, row, used, words, address, block):
    """A uniform integer below `bound` from a word, and from the next ones where it is rejected."""
    place = drawn_below(word, bound)
    while place < 0:
        place = drawn_below(next_word(keys, field, row, used, words, address, block), bound)
    return place


# ------------------------------------------------------------------------------------ neighbourhoods


@uncounted
def in_order(rows, have):
    """Sort a few rows."""
    for at in range(1, have):
        row = rows[at]
        to = at
        while to > 0 and rows[to - 1] > row:
            rows[to] = rows[to - 1]
            to -= 1
        rows[to] = row


@uncounted
def nth(rows, have, wanted):
    """The row that would stand at place `wanted` if the rows were sorted; it moves them about."""
    if have <= SHORT:
        return rows[wanted]
    low, high = 0, have - 1
    while low < high:
        pivot = rows[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while rows[left] < pivot:
                left += 1
            while rows[right] > pivot:
                right -= 1
            if left <= right:
                rows[left], rows[right] = rows[right], rows[left]
                left += 1
                right -= 1
        if wanted <= right:
            high = right
        elif wanted >= left:
            low = left
        else:
            break
    return rows[wanted]


@inlined
def draw_from_list(listed, size, row, keys, donors, used, words, address, block):
    """A row of a list for each field, in the place of the row's first word."""
    if size <= SHORT:
        in_order(listed, size)
    for field in range(len(keys)):
        place = drawn_below(donors[field, row], size)
        if place < 0:
            used[0] = 0
            word = next_word(keys, field, row, used, words, address, block)
            place = bounded(word, size, keys, field, row, used, words, address, block)
        donors[field, row] = nth(listed, size, place)


@uncounted
def reach_of(rule, kth):
    """The squared distance up to which rows are neighbours, or -1 where only the k nearest are."""
    squared = rule.epsilon * rule.epsilon
    if rule.include:
        return max(squared, kth) * TIE
    return squared * TIE if rule.epsilon > 0.0 else -1.0


@inlined
def _nearest_alone(lane, rule, distances, rows, found):
    """List a row's k nearest, which have been found, where no other row is its neighbour: k, or else 0.

    In the order of rows, where they are in one vector.
    """
    if distances[lane, rule.k] <= reach_of(rule, distances[lane, rule.k - 1]) or rule.k > rule.listed:
        return 0
    in_one_vector = rows.shape[1] == LEAF
    for at in range(rule.k):
        neighbour = rows[lane, at]
        found[lesser_rows(rows, lane, rule.k, neighbour) if in_one_vector else at] = neighbour
    return rule.k


@uncounted
def _neighbourhood(tree, queries, leaf, lane, row, member, candidates, rule, distances, rows,
                   found, notes):  # fmt: skip
    """A row's neighbourhood where it is not `_nearest_alone`: (size, listed, reach, last).

    Of up to ``rule.listed`` rows: they are in `found`. Else it is all with a squared distance below
    `reach`, and those at `reach` with row numbers up to `last`; the size is -1 where it was not counted.
    """
    others = len(candidates) - member
    if others <= rule.k:
        if others > rule.listed:
            return others, False, np.inf, _NO_ROW
        have = 0
        for at in range(len(candidates)):
            if candidates[at] != row:
                found[have] = candidates[at]
                have += 1
        return others, True, np.inf, _NO_ROW
    kth, beyond = distances[lane, rule.k - 1], distances[lane, rule.k]
    reach = reach_of(rule, kth)
    if beyond > reach:
        if rule.include:
            return rule.k, False, reach, _NO_ROW
        return rule.k, False, kth, rows[lane, rule.k - 1]
    have = gather(tree, queries, leaf, lane, row, reach, found[: rule.listed + 1], notes)
    if have <= rule.listed:
        return have, True, reach, _NO_ROW
    size = -1
    if row % rule.every == 0:
        size = gather(tree, queries, leaf, lane, row, reach, found[:0], notes) - member
    return size, False, reach, _NO_ROW


@uncounted
def _accepted(tree, queries, leaf, lane, row, reach, last, nodes, ends, have, keys, field,
              used, words, address, block):  # fmt: skip
    """A uniform row of a large neighbourhood: positions of its cover are drawn until one belongs to it."""
    while True:
        word = next_word(keys, field, row, used, words, address, block)
        place = bounded(word, ends[have - 1], keys, field, row, used, words, address, block)
        at = np.searchsorted(ends[:have], place, side="right")
        _, stop = span(tree, nodes[at])
        position = stop - (ends[at] - place)
        other = tree.rows[position]
        if other == row:
            continue
        apart = distance(tree, position, queries, leaf, lane)
        if apart < reach or (apart == reach and other <= last):
            return other


@uncounted
def _draw_leaf(tree, queries, leaf, candidates, everyone, is_searched, wanted, rule, keys, donors, sizes,
               distances, rows, have, bounds, notes, found, nodes, spare, ends, words, address,
               block, used):  # fmt: skip
    """Draw for the rows of one leaf."""
    query_rows = queries.rows
    most = len(candidates)
    if is_searched:
        floor = rule.epsilon * rule.epsilon * TIE
        nearest(tree, queries, leaf, everyone, True, wanted, floor, distances, rows, have, bounds, notes)
    start = queries.starts[leaf]
    for lane in range(queries.starts[leaf + 1] - start):
        row = query_rows[start + lane]
        size = _nearest_alone(lane, rule, distances, rows, found) if is_searched else 0
        is_listed, reach, last = True, 0.0, _NO_ROW
        if size == 0:
            member = everyone
            if not everyone:
                at = np.searchsorted(candidates, row)
                member = at < most and candidates[at] == row
            size, is_listed, reach, last = _neighbourhood(
                tree, queries, leaf, lane, row, np.int64(member), candidates, rule,
                distances, rows, found, notes,
            )  # fmt: skip
        sizes[row] = size
        if is_listed:
            draw_from_list(found, size, row, keys, donors, used, words, address, block)
            continue
        covering = cover(tree, queries, leaf, lane, reach, nodes, spare)
        total = 0
        for at in range(covering):
            begin, end = span(tree, nodes[at])
            total += end - begin
            ends[at] = total
        for field in range(len(keys)):
            used[0] = 0
            donors[field, row] = _accepted(
                tree, queries, leaf, lane, row, reach, last, nodes, ends, covering,
                keys, field, used, words, address, block,
            )  # fmt: skip


@njit(cache=True, nogil=True, parallel=True)
def _draw(tree, queries, candidates, everyone, rule, keys, first_leaf, last_leaf, donors, sizes):
    """For the rows of these leaves a donor in each field, in the place of the row's first word.

    `candidates` are the tree's rows in ascending order; with `everyone` every query is among them.
    """
    most = len(candidates)
    wanted = min(rule.k + 1, most)
    is_searched = most > rule.k if not everyone else most - 1 > rule.k
    room = width(wanted) if is_searched else 1
    for chunk in prange((last_leaf - first_leaf + SPAN - 1) // SPAN):
        distances = np.empty((LEAF, room))
        rows = np.empty((LEAF, room), np.int32)
        have = np.zeros(LEAF, np.int64)
        bounds = np.empty(LEAF)
        notes = notes_for(tree)
        found = np.empty(rule.listed + 1, np.int32)
        nodes = np.empty(rule.cover, np.int64)
        spare = np.empty(rule.cover, np.int64)
        ends = np.empty(rule.cover, np.int64)
        words = np.empty(256, np.uint32)
        address = np.zeros((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        used = np.zeros(1, np.int64)
        low = first_leaf + chunk * SPAN
        for leaf in range(low, min(low + SPAN, last_leaf)):
            _draw_leaf(
                tree, queries, leaf, candidates, everyone, is_searched, wanted, rule, keys, donors, sizes,
                distances, rows, have, bounds, notes, found, nodes, spare, ends, words, address,
                block, used,
            )  # fmt: skip


def in_slices(total: int, work: Callable[[int, int], None], told: Callable[[float], None]) -> None:
    """Do ``work(first, last)`` piece by piece, and tell the share done several times a second.

    Pieces grow and shrink with the time they take; what is computed must not depend on them.
    """
    done, size = 0, 64
    while done < total:
        started = time.perf_counter()
        work(done, min(done + size, total))
        done = min(done + size, total)
        told(done / total)
        factor = _SECONDS / max(time.perf_counter() - started, 1e-6)
        size = max(1, int(size * min(16.0, max(0.25, factor))))


def draw_donors(
    points: Points,
    parts: Iterable[tuple[Int32Array, Int32Array]],
    rule: Rule,
    keys: Sequence[Key],
    progress: Progress,
) -> Donors:
    """For every row and key a uniform row of its neighbourhood.

    Parameters
    ----------
    points : Points
    parts : pairs of ndarrays of int32, ascending
        Rows, and the candidates among which their neighbours are; each row is in one part.
    rule : Rule
    keys : sequence of Key
        One a field: fields draw on their own.
    progress : Progress
        Told 0 to 1.

    Notes
    -----
    O(n log n) in few dimensions; towards O(n^2) beyond some twenty, where no bound excludes much.
    """
    rows = len(points.numbers)
    all_keys, words = first_words(keys, rows)
    sizes = np.full(rows, -1, np.int32)
    done = 0
    for queried, candidates in parts:
        tree = grow(points, candidates)
        everyone = queried is candidates
        queries = tree if everyone else grow(points, queried)
        share, before = len(queried) / max(rows, 1), done / max(rows, 1)

        def work(first: int, last: int, tree: Tree = tree, queries: Tree = queries,
                 candidates: Int32Array = candidates, everyone: bool = everyone) -> None:  # fmt: skip
            _draw(tree, queries, candidates, everyone, rule, all_keys, first, last, words, sizes)

        def told(part: float, share: float = share, before: float = before) -> None:
            progress(before + share * part, "drawing donors")

        in_slices(1 << queries.depth, work, told)
        done += len(queried)
    return Donors(words.view(np.int32), sizes)
