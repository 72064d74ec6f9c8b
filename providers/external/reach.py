"""Kernels of a search whose tree comes cell by cell: what was found goes on from one cell to the next.

Queries are told by their place: lane `place % LEAF` of the leaf that is ``place // LEAF`` after the first of
a stretch of leaves. What each kernel finds is that of `providers.donors`, whatever the order of the cells.
"""

import numpy as np
from numba import njit, prange

from providers.donors import (
    DONOR_LEVEL,
    MORE_LEVEL,
    SHORT,
    SPAN,
    bounded,
    in_order,
    next_word,
    nth,
    reach_of,
)
from providers.kdtree import LEAF
from providers.nearest import begin, look_further, notes_for, put_in_order
from providers.neighbours import deepen, distance, gather, least_and_largest, span
from providers.rng import LANES, chacha20_blocks, stream_words
from providers.uncounted import uncounted

_NO_ROW = np.int32(2**31 - 1)
_TOGETHER = 64  # queries that one thread takes at a time

NOBODY, NEAREST, GATHERED, LARGE = 0, 1, 2, 3
"""No query; its neighbours are the k nearest; those within reach, yet to be counted; too many to list."""


# ----------------------------------------------------------------------------------- the nearest rows


@njit(cache=True, nogil=True)
def begin_all(queries, first_leaf, distances, rows, have, bounds):
    """No row found yet; all of shape (leaves, LEAF) or (leaves, LEAF, places)."""
    for at in range(len(have)):
        begin(queries, first_leaf + at, distances[at], rows[at], have[at], bounds[at])


@njit(cache=True, nogil=True, parallel=True)
def search(tree, queries, first_leaf, wanted, floor, distances, rows, have, bounds):
    """Look for nearer rows in one more cell."""
    leaves = len(have)
    for chunk in prange((leaves + SPAN - 1) // SPAN):
        notes = notes_for(tree)
        for at in range(chunk * SPAN, min(chunk * SPAN + SPAN, leaves)):
            look_further(
                tree, queries, first_leaf + at, -1, True, wanted, floor, distances[at], rows[at], have[at],
                bounds[at], notes,
            )  # fmt: skip


@njit(cache=True, nogil=True)
def judge(queries, first_leaf, members, candidates, rule, wanted, distances, rows, have, state, reach, last,
          sizes):  # fmt: skip
    """Say of each query who its neighbours are, or how far they are to be looked for.

    `members` says which queries are candidates themselves, by position; `state`, `reach`, `last`, `sizes`
    get an element a place. All cells have been searched, where there was a need to.
    """
    for at in range(len(have)):
        leaf = first_leaf + at
        start = queries.starts[leaf]
        if candidates > rule.k:
            put_in_order(queries, leaf, wanted, distances[at], rows[at], have[at])
        for lane in range(LEAF):
            place = at * LEAF + lane
            state[place] = NOBODY
            if start + lane >= queries.starts[leaf + 1]:
                continue
            others = candidates - members[start + lane]
            last[place] = _NO_ROW
            if others <= rule.k:
                reach[place] = np.inf
                sizes[place] = others
                state[place] = LARGE if others > rule.listed else GATHERED
                continue
            kth, beyond = distances[at, lane, rule.k - 1], distances[at, lane, rule.k]
            far = reach_of(rule, kth)
            reach[place] = far
            sizes[place] = rule.k
            if beyond <= far:
                state[place] = GATHERED
                sizes[place] = -1
            elif rule.k <= rule.listed:
                state[place] = NEAREST
            else:
                state[place] = LARGE
                if not rule.include:
                    reach[place] = kth
                    last[place] = rows[at, lane, rule.k - 1]


# ------------------------------------------------------------------------------- all within reach


@njit(cache=True, nogil=True, parallel=True)
def count(tree, queries, first_leaf, places, reach, exact, listed, counts):
    """Add how many rows of the cell are within reach: up to one more than are listed, unless `exact`.

    With `exact` the row itself counts as well.
    """
    for chunk in prange((len(places) + _TOGETHER - 1) // _TOGETHER):
        notes = notes_for(tree)
        found = np.empty(listed + 1, np.int32)
        for at in range(chunk * _TOGETHER, min(chunk * _TOGETHER + _TOGETHER, len(places))):
            leaf, lane = first_leaf + places[at] // LEAF, places[at] % LEAF
            room = listed + 1 - counts[at]
            if exact[at]:
                room = 0
            elif room <= 0:
                continue
            row = queries.rows[queries.starts[leaf] + lane]
            counts[at] += gather(tree, queries, leaf, lane, row, reach[at], found[:room], notes)


@njit(cache=True, nogil=True, parallel=True)
def collect(tree, queries, first_leaf, places, reach, starts, filled, found):
    """Put the rows of the cell within reach behind those that are there; ``found[starts[q]:]`` is q's."""
    for chunk in prange((len(places) + _TOGETHER - 1) // _TOGETHER):
        notes = notes_for(tree)
        for at in range(chunk * _TOGETHER, min(chunk * _TOGETHER + _TOGETHER, len(places))):
            leaf, lane = first_leaf + places[at] // LEAF, places[at] % LEAF
            room = found[starts[at] + filled[at] : starts[at + 1]]
            if len(room):
                row = queries.rows[queries.starts[leaf] + lane]
                filled[at] += gather(tree, queries, leaf, lane, row, reach[at], room, notes)


@uncounted
def _words_of_rows(rows, key, address, block, words):
    """The word with which each of 16 rows draws from a list in `providers.donors`."""
    for lane in range(LANES):
        address[0, lane] = np.uint32(rows[lane] // 16)
        address[1, lane] = address[2, lane] = np.uint32(0)
        address[3, lane] = np.uint32(DONOR_LEVEL)
    chacha20_blocks(key, address, block)
    for lane in range(LANES):
        words[lane] = block[rows[lane] % 16, lane]


@njit(cache=True, nogil=True, parallel=True)
def draw_listed(queries, first_leaf, places, starts, found, keys, donors):
    """A donor in each field out of the rows ``found[starts[q]:starts[q + 1]]``."""
    for chunk in prange((len(places) + _TOGETHER - 1) // _TOGETHER):
        rows = np.zeros(LANES, np.int64)
        firsts = np.empty(LANES, np.uint32)
        words = np.empty(256, np.uint32)
        address = np.zeros((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        used = np.zeros(1, np.int64)
        for first in range(chunk * _TOGETHER, min(chunk * _TOGETHER + _TOGETHER, len(places)), LANES):
            count = min(LANES, len(places) - first)
            for lane in range(count):
                at = first + lane
                rows[lane] = queries.rows[queries.starts[first_leaf + places[at] // LEAF] + places[at] % LEAF]
                if starts[at + 1] - starts[at] <= SHORT:
                    in_order(found[starts[at] :], starts[at + 1] - starts[at])
            for field in range(len(keys)):
                _words_of_rows(rows, keys[field], address, block, firsts)
                for lane in range(count):
                    listed = found[starts[first + lane] : starts[first + lane + 1]]
                    size, row = len(listed), rows[lane]
                    used[0] = 0
                    place = bounded(firsts[lane], size, keys, field, row, used, words, address, block)
                    donors[field, places[first + lane]] = nth(listed, size, place)


# --------------------------------------------------------------- covers of what is too much to list


@njit(cache=True, nogil=True)
def cover_above(upper, queries, first_leaf, places, reach, covers, have, stopped, open_cells):
    """Each query's cover as far as it goes above the cells.

    `covers`, shape (queries, most), gets its nodes, and `have` how many; `stopped` whether it ends there. A
    cell that is not within reach as a whole, and so is to be looked into, is -1 less the node; `open_cells`
    says how many there are.
    """
    most = covers.shape[1]
    spare = np.empty(most, np.int64)
    leaves = (1 << upper.depth) - 1
    for at in range(len(places)):
        leaf, lane = first_leaf + places[at] // LEAF, places[at] % LEAF
        nodes = covers[at]
        nodes[0] = 0
        have[at] = 1
        for _ in range(upper.depth):
            following, _ = deepen(upper, queries, leaf, lane, reach[at], nodes, have[at], spare)
            if following > most:
                stopped[at] = True
                break
            nodes[:following] = spare[:following]
            have[at] = following
        if stopped[at]:
            continue
        for each in range(have[at]):
            if nodes[each] >= leaves:
                _, largest = least_and_largest(upper, nodes[each], queries, leaf, lane)
                if largest > reach[at]:
                    nodes[each] = -1 - nodes[each]  # to be looked into
                    open_cells[at] += 1


@njit(cache=True, nogil=True, parallel=True)
def count_nodes(tree, queries, first_leaf, places, reach, most, which, counts):
    """Add how many nodes of the cell a cover has, 1 level deeper, 2 deeper, ...; shape (queries, levels).

    `which` are the queries, each once, that look into the cell. Levels are left out from the first on that
    is known to have more than `most`.
    """
    for chunk in prange((len(which) + _TOGETHER - 1) // _TOGETHER):
        nodes = np.empty(most, np.int64)
        spare = np.empty(most, np.int64)
        for each in range(chunk * _TOGETHER, min(chunk * _TOGETHER + _TOGETHER, len(which))):
            at = which[each]
            leaf, lane = first_leaf + places[at] // LEAF, places[at] % LEAF
            nodes[0] = 0
            have = 1
            for level in range(counts.shape[1]):
                if counts[at, level] > most:
                    break
                following, _ = deepen(tree, queries, leaf, lane, reach[at], nodes, have, spare)
                if following > most:
                    counts[at, level] += following
                    break
                nodes[:following] = spare[:following]
                have = following
                counts[at, level] += have


@njit(cache=True, nogil=True, parallel=True)
def add_nodes(tree, queries, first_leaf, places, reach, first, deeper, which, spans, have):
    """Add the nodes that the covers have in the cell, so many levels deeper, as spans of positions."""
    most = spans.shape[1]
    for chunk in prange((len(which) + _TOGETHER - 1) // _TOGETHER):
        nodes = np.empty(most, np.int64)
        spare = np.empty(most, np.int64)
        for each in range(chunk * _TOGETHER, min(chunk * _TOGETHER + _TOGETHER, len(which))):
            at = which[each]
            leaf, lane = first_leaf + places[at] // LEAF, places[at] % LEAF
            nodes[0] = 0
            here = 1
            for _ in range(deeper[at]):
                here, _ = deepen(tree, queries, leaf, lane, reach[at], nodes, here, spare)
                nodes[:here] = spare[:here]
            for node in nodes[:here]:
                start, stop = span(tree, node)
                spans[at, have[at], 0], spans[at, have[at], 1] = first + start, first + stop
                have[at] += 1


@njit(cache=True, nogil=True)
def add_whole_nodes(upper, nodes, number, spans, have):
    """Add the nodes above the cells that a cover has, and cells that it has as a whole."""
    for at in range(len(number)):
        for node in nodes[at, : number[at]]:
            if node >= 0:
                spans[at, have[at], 0], spans[at, have[at], 1] = span(upper, node)
                have[at] += 1


@njit(cache=True, nogil=True)
def settle_spans(spans, have, ends):
    """Put each cover's spans in the order of the tree; `ends` gets their rows added up."""
    for at in range(len(have)):
        of = spans[at]
        for nth_span in range(1, have[at]):
            start, stop = of[nth_span, 0], of[nth_span, 1]
            to = nth_span
            while to > 0 and of[to - 1, 0] > start:
                of[to, 0], of[to, 1] = of[to - 1, 0], of[to - 1, 1]
                to -= 1
            of[to, 0], of[to, 1] = start, stop
        total = 0
        for each in range(have[at]):
            total += of[each, 1] - of[each, 0]
            ends[at, each] = total


@njit(cache=True, nogil=True)
def _resume(keys, field, row, used, words, address, block):
    """Have the words that come next at hand, where some of their 256 are used already."""
    if used[0] % 256:
        first_block = np.uint32(used[0] // 256 * 16)
        stream_words(keys[field], np.uint64(row), np.uint32(MORE_LEVEL), first_block, address, block, words)


@njit(cache=True, nogil=True, parallel=True)
def try_cell(tree, queries, first_leaf, places, reach, last, first, spans, have, ends, keys, used, accepted,
             donors):  # fmt: skip
    """Try the positions drawn that lie in the cell; ``used``, ``accepted`` have shape (queries, fields).

    `accepted` says which of the next draws is to be beaten, and gets the first whose row is a neighbour.
    """
    end = first + len(tree.rows)
    for chunk in prange((len(places) + _TOGETHER - 1) // _TOGETHER):
        words = np.empty(256, np.uint32)
        address = np.zeros((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        drawn = np.zeros(1, np.int64)
        for at in range(chunk * _TOGETHER, min(chunk * _TOGETHER + _TOGETHER, len(places))):
            leaf, lane = first_leaf + places[at] // LEAF, places[at] % LEAF
            row = queries.rows[queries.starts[leaf] + lane]
            here = False
            for each in range(have[at]):
                here |= spans[at, each, 0] < end and spans[at, each, 1] > first
            if not here:
                continue
            mine = ends[at, : have[at]]
            for field in range(len(keys)):
                if used[at, field] < 0:
                    continue
                drawn[0] = used[at, field]
                _resume(keys, field, row, drawn, words, address, block)
                for nth_draw in range(accepted[at, field]):
                    word = next_word(keys, field, row, drawn, words, address, block)
                    place = bounded(word, mine[-1], keys, field, row, drawn, words, address, block)
                    of = np.searchsorted(mine, place, side="right")
                    position = spans[at, of, 1] - (mine[of] - place)
                    if position < first or position >= end:
                        continue
                    other = tree.rows[position - first]
                    if other == row:
                        continue
                    apart = distance(tree, position - first, queries, leaf, lane)
                    if apart < reach[at] or (apart == reach[at] and other <= last[at]):
                        accepted[at, field] = nth_draw
                        donors[field, places[at]] = other
                        break


@njit(cache=True, nogil=True)
def go_on(queries, first_leaf, places, have, ends, keys, tried, used, accepted):
    """After a round of so many draws: -1 words used where one was accepted, else all that they took.

    Returns how many are left.
    """
    words = np.empty(256, np.uint32)
    address = np.zeros((4, LANES), np.uint32)
    block = np.empty((LANES, LANES), np.uint32)
    drawn = np.zeros(1, np.int64)
    left = 0
    for at in range(len(places)):
        leaf, lane = first_leaf + places[at] // LEAF, places[at] % LEAF
        row = queries.rows[queries.starts[leaf] + lane]
        for field in range(len(keys)):
            if used[at, field] < 0:
                continue
            if accepted[at, field] < tried:
                used[at, field] = -1
                continue
            drawn[0] = used[at, field]
            _resume(keys, field, row, drawn, words, address, block)
            for _ in range(tried):
                word = next_word(keys, field, row, drawn, words, address, block)
                bounded(word, ends[at, have[at] - 1], keys, field, row, drawn, words, address, block)
            used[at, field] = drawn[0]
            left += 1
    return left
