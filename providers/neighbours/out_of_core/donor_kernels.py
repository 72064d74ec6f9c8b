"""Kernels of the cell-by-cell donor search.

The result is that of `providers.neighbours.donors`, whatever the order of the cells.

Arguments of kernels
--------------------
tree, upper : Tree
    Tree of one cell, and tree of the nodes above the cells.
queries : Tree
    Tree of the queries.
first_leaf : int64
    First leaf of a batch of leaves of `queries`.
lists : NearestLists
    Lists of the nearest rows of the batch, as in `k_nearest`, with a leading axis of leaves. Written.
places : int64 array (q,)
    Place of each query in the batch: place p is lane ``p % LEAF`` of leaf ``first_leaf + p // LEAF``.
radius : float64 array (q,)
    Squared distance within which rows are neighbours of each query.
last_rows : int32 array (q,)
    Largest row number that is a neighbour of each query at exactly the radius.
spans : int32 array (q, most nodes, 2)
    Cover of each query as ranges of positions in the whole tree: first position and end. Written
    by `add_whole_nodes`, `add_nodes` and `sort_spans`.
ends : int32 array (q, most nodes)
    Cumulative number of rows in the ranges. Written by `sort_spans`.
keys : uint32 array (fields, 8)
    Key of each field.
used : int64 array (q, fields)
    Number of words used in earlier rounds of draws, -1 if the donor is already drawn. Written by
    `advance_streams`.
accepted : int64 array (q, fields)
    Index of the first accepted draw of the round, or the number of draws of the round if none is accepted.
    Written by `try_cell`.
donors : int32 array (fields, places of the batch)
    Row numbers of the donors. Written.
"""

import numpy as np

from providers.kernels.decorators import uncounted, within
from providers.kernels.parallel import parallel
from providers.neighbours.donors import (
    DONOR_LEVEL,
    FURTHER_LEVEL,
    LEAVES_PER_TASK,
    MOST_SORTED,
    bounded,
    insertion_sort,
    new_word_buffer,
    next_word,
    restart,
    select_nth,
    squared_radius,
)
from providers.neighbours.k_nearest import (
    NearestLists,
    clear_found,
    new_search_state,
    search_tree,
    sort_found,
)
from providers.neighbours.kdtree import LEAF
from providers.neighbours.radius import distance, distance_bounds, node_positions, refine_cover, rows_within
from providers.numba import njit, prange
from providers.randomness.chacha20 import LANES, chacha20_blocks, stream_words

_NO_ROW = np.int32(2**31 - 1)

_QUERIES_PER_TASK = 64

NO_QUERY, K_NEAREST, WITHIN_RADIUS, TOO_LARGE = 0, 1, 2, 3
"""State of a place: no query, neighbours are the k nearest, neighbours are the rows within a radius that are
not counted yet, or neighbours are too many to list."""

# ----------------------------------------------------------------------------------- the nearest rows


@within
def _lists_of(lists, index):
    """Return the lists of the leaf of index `index` (int64) in the batch, without a copy."""
    return NearestLists(lists.distances[index], lists.rows[index], lists.counts[index], lists.bounds[index])


@njit(cache=True, nogil=True)
def clear_all_found(queries, first_leaf, lists):
    """Empty the lists of nearest rows of a batch of leaves."""
    for index in range(len(lists.counts)):
        clear_found(queries, first_leaf + index, _lists_of(lists, index))


@parallel
def search_cell(tree, queries, first_leaf, wanted, floor, lists):
    """Search one more cell for nearer rows, and update the lists.

    `wanted` (int64) and `floor` (float64) are as in `k_nearest`.
    """
    leaves = len(lists.counts)
    for chunk in prange((leaves + LEAVES_PER_TASK - 1) // LEAVES_PER_TASK):
        search_state = new_search_state(tree)
        for index in range(chunk * LEAVES_PER_TASK, min(chunk * LEAVES_PER_TASK + LEAVES_PER_TASK, leaves)):
            of_leaf = _lists_of(lists, index)
            search_tree(
                tree, queries, first_leaf + index, -1, True, wanted, floor, of_leaf, search_state
            )  # fmt: skip


@njit(cache=True, nogil=True)
def classify_queries(
    queries, first_leaf, members, candidates, rule, wanted, lists, state, radius, last_rows, sizes
):
    """Determine the kind of each query's neighbourhood, after all cells have been searched.

    Parameters
    ----------
    members : bool, shape (n,)
        Whether the query at each position is itself a candidate.
    candidates : int64
        Number of candidates.
    rule : NeighbourRule
    wanted : int64
        Number of nearest rows in a list.
    state : int64, shape (places,)
        Receives `NO_QUERY`, `K_NEAREST`, `WITHIN_RADIUS` or `TOO_LARGE`.
    radius : float64, shape (places,)
        Receives the squared distance of the neighbourhood.
    last_rows : int32, shape (places,)
        Receives the largest row number that is a neighbour at exactly that distance.
    sizes : int64, shape (places,)
        Receives the size of the neighbourhood, -1 if it is not known yet.
    """
    for index in range(len(lists.counts)):
        leaf = first_leaf + index
        distances, rows = lists.distances[index], lists.rows[index]
        start = queries.starts[leaf]
        if candidates > rule.k:
            sort_found(queries, leaf, wanted, _lists_of(lists, index))
        for lane in range(LEAF):
            place = index * LEAF + lane
            state[place] = NO_QUERY
            if start + lane >= queries.starts[leaf + 1]:
                continue
            others = candidates - members[start + lane]
            last_rows[place] = _NO_ROW
            if others <= rule.k:
                radius[place] = np.inf
                sizes[place] = others
                state[place] = TOO_LARGE if others > rule.most_listed else WITHIN_RADIUS
                continue
            kth, next_distance = distances[lane, rule.k - 1], distances[lane, rule.k]
            squared = squared_radius(rule, kth)
            radius[place] = squared
            sizes[place] = rule.k
            if next_distance <= squared:
                state[place] = WITHIN_RADIUS
                sizes[place] = -1
            elif rule.k <= rule.most_listed:
                state[place] = K_NEAREST
            else:
                state[place] = TOO_LARGE
                if not rule.include_ties:
                    radius[place] = kth
                    last_rows[place] = rows[lane, rule.k - 1]


# ------------------------------------------------------------------------------ all rows within a radius


@parallel
def count_within(tree, queries, first_leaf, places, radius, exact, most_listed, counts):
    """Count the rows of the cell within the radius of each query.

    Parameters
    ----------
    exact : bool, shape (q,)
        Whether to count all rows, including the query itself. Otherwise counting stops at `most_listed` + 1.
    most_listed : int64
        Maximum rows of a listed neighbourhood.
    counts : int64, shape (q,)
        Increased by the rows found.
    """
    for chunk in prange((len(places) + _QUERIES_PER_TASK - 1) // _QUERIES_PER_TASK):
        search_state = new_search_state(tree)
        found = np.empty(most_listed + 1, np.int32)
        first = chunk * _QUERIES_PER_TASK
        for query in range(first, min(first + _QUERIES_PER_TASK, len(places))):
            leaf, lane = first_leaf + places[query] // LEAF, places[query] % LEAF
            capacity = most_listed + 1 - counts[query]
            if exact[query]:
                capacity = 0
            elif capacity <= 0:
                continue
            row = queries.rows[queries.starts[leaf] + lane]
            counts[query] += rows_within(
                tree, queries, leaf, lane, row, radius[query], found[:capacity], search_state
            )  # fmt: skip


@parallel
def list_within(tree, queries, first_leaf, places, radius, starts, filled, found):
    """Append the rows of the cell within the radius to each query's list.

    Parameters
    ----------
    starts : int64, shape (q + 1,)
        Offsets: the list of query i is ``found[starts[i]:starts[i + 1]]``.
    filled : int64, shape (q,)
        Length of each list so far; increased.
    found : int32, shape (starts[q],)
        Receives the rows.
    """
    for chunk in prange((len(places) + _QUERIES_PER_TASK - 1) // _QUERIES_PER_TASK):
        search_state = new_search_state(tree)
        first = chunk * _QUERIES_PER_TASK
        for query in range(first, min(first + _QUERIES_PER_TASK, len(places))):
            leaf, lane = first_leaf + places[query] // LEAF, places[query] % LEAF
            free = found[starts[query] + filled[query] : starts[query + 1]]
            if len(free):
                row = queries.rows[queries.starts[leaf] + lane]
                filled[query] += rows_within(
                    tree, queries, leaf, lane, row, radius[query], free, search_state
                )  # fmt: skip


@uncounted
def _first_words(rows, key, address, block, words):
    """Compute the first word of each of 16 rows, as `providers.neighbours.donors` draws it.

    Parameters
    ----------
    rows : int64, shape (LANES,)
    key : uint32, shape (8,)
    address, block : uint32, shape (4, LANES) and (LANES, LANES)
        Scratch space for ChaCha20; written.
    words : uint32, shape (LANES,)
        Receives the words.
    """
    for lane in range(LANES):
        address[0, lane] = np.uint32(rows[lane] // 16)
        address[1, lane] = address[2, lane] = np.uint32(0)
        address[3, lane] = np.uint32(DONOR_LEVEL)
    chacha20_blocks(key, address, block)
    for lane in range(LANES):
        words[lane] = block[rows[lane] % 16, lane]


@parallel
def first_words_of_rows(rows, keys, words):
    """Compute the first word of each of some rows (int32, shape (n,)) into `words` (uint32, (fields, n))."""
    for chunk in prange((len(rows) + LANES - 1) // LANES):
        chunk_rows = np.zeros(LANES, np.int64)
        chunk_words = np.empty(LANES, np.uint32)
        address = np.empty((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        first = LANES * chunk
        count = min(LANES, len(rows) - first)
        for lane in range(count):
            chunk_rows[lane] = rows[first + lane]
        for field in range(len(keys)):
            _first_words(chunk_rows, keys[field], address, block, chunk_words)
            for lane in range(count):
                words[field, first + lane] = chunk_words[lane]


@parallel
def draw_listed(queries, first_leaf, places, starts, found, keys, donors):
    """Draw a donor in each field from the neighbours ``found[starts[i]:starts[i + 1]]`` of each query.

    `starts` (int64, shape (q + 1,)) are the offsets in `found` (int32, shape (starts[q],)), whose lists
    are reordered.
    """
    for chunk in prange((len(places) + _QUERIES_PER_TASK - 1) // _QUERIES_PER_TASK):
        rows = np.zeros(LANES, np.int64)
        first_words = np.empty(LANES, np.uint32)
        address = np.empty((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        buffer = new_word_buffer()
        begin = chunk * _QUERIES_PER_TASK
        for first in range(begin, min(begin + _QUERIES_PER_TASK, len(places)), LANES):
            count = min(LANES, len(places) - first)
            for lane in range(count):
                query = first + lane
                leaf = first_leaf + places[query] // LEAF
                rows[lane] = queries.rows[queries.starts[leaf] + places[query] % LEAF]
                if starts[query + 1] - starts[query] <= MOST_SORTED:
                    insertion_sort(found[starts[query] :], starts[query + 1] - starts[query])
            for field in range(len(keys)):
                _first_words(rows, keys[field], address, block, first_words)
                for lane in range(count):
                    listed = found[starts[first + lane] : starts[first + lane + 1]]
                    size, row = len(listed), rows[lane]
                    restart(buffer)
                    nth = bounded(first_words[lane], size, keys[field], row, buffer)
                    donors[field, places[first + lane]] = select_nth(listed, size, nth)


# --------------------------------------------------------- covers of neighbourhoods too large to list


@njit(cache=True, nogil=True)
def cover_upper(upper, queries, first_leaf, places, radius, covers, counts, stopped, open_cells):
    """Find the part of each query's cover above the cells.

    Parameters
    ----------
    covers : int64, shape (q, most nodes)
        Receives the nodes. A cell that is not wholly within the radius must be refined further, and is
        written as -1 - node.
    counts : int64, shape (q,)
        Receives the number of nodes.
    stopped : bool, shape (q,)
        Set if the cover ends above the cells, because the next level has too many nodes.
    open_cells : int64, shape (q,)
        Increased by the number of cells to be refined.
    """
    most = covers.shape[1]
    next_nodes = np.empty(most, np.int64)
    leaves = (1 << upper.depth) - 1
    for query in range(len(places)):
        leaf, lane = first_leaf + places[query] // LEAF, places[query] % LEAF
        nodes = covers[query]
        nodes[0] = 0
        counts[query] = 1
        for _ in range(upper.depth):
            next_count, _ = refine_cover(
                upper, queries, leaf, lane, radius[query], nodes, counts[query], next_nodes
            )  # fmt: skip
            if next_count > most:
                stopped[query] = True
                break
            nodes[:next_count] = next_nodes[:next_count]
            counts[query] = next_count
        if stopped[query]:
            continue
        for index in range(counts[query]):
            if nodes[index] >= leaves:
                _, largest = distance_bounds(upper, nodes[index], queries, leaf, lane)
                if largest > radius[query]:
                    nodes[index] = -1 - nodes[index]
                    open_cells[query] += 1


@parallel
def count_nodes(tree, queries, first_leaf, places, radius, most, which, counts):
    """Count the nodes that covers have in the cell, for each level of refinement.

    Parameters
    ----------
    most : int64
        Maximum nodes of a cover. Levels after the first one that exceeds it are not counted.
    which : int64, shape (cell queries,)
        Distinct queries whose covers need the cell.
    counts : int64, shape (q, levels)
        Increased by the nodes of the cell 1, 2, ... levels below its root.
    """
    for chunk in prange((len(which) + _QUERIES_PER_TASK - 1) // _QUERIES_PER_TASK):
        nodes = np.empty(most, np.int64)
        next_nodes = np.empty(most, np.int64)
        first = chunk * _QUERIES_PER_TASK
        for index in range(first, min(first + _QUERIES_PER_TASK, len(which))):
            query = which[index]
            leaf, lane = first_leaf + places[query] // LEAF, places[query] % LEAF
            nodes[0] = 0
            count = 1
            for level in range(counts.shape[1]):
                if counts[query, level] > most:
                    break
                next_count, _ = refine_cover(
                    tree, queries, leaf, lane, radius[query], nodes, count, next_nodes
                )  # fmt: skip
                if next_count > most:
                    counts[query, level] += next_count
                    break
                nodes[:next_count] = next_nodes[:next_count]
                count = next_count
                counts[query, level] += count


@parallel
def add_nodes(tree, queries, first_leaf, places, radius, first_position, deeper, which, spans, counts):
    """Append the nodes that covers have in the cell, as ranges of positions.

    Parameters
    ----------
    first_position : int64
        First position of the cell in the whole tree.
    deeper : int64, shape (q,)
        Levels of refinement below the root of the cell.
    which : int64, shape (cell queries,)
        Distinct queries whose covers need the cell.
    counts : int64, shape (q,)
        Number of ranges of each cover; increased.
    """
    most = spans.shape[1]
    for chunk in prange((len(which) + _QUERIES_PER_TASK - 1) // _QUERIES_PER_TASK):
        nodes = np.empty(most, np.int64)
        next_nodes = np.empty(most, np.int64)
        first = chunk * _QUERIES_PER_TASK
        for index in range(first, min(first + _QUERIES_PER_TASK, len(which))):
            query = which[index]
            leaf, lane = first_leaf + places[query] // LEAF, places[query] % LEAF
            nodes[0] = 0
            count = 1
            for _ in range(deeper[query]):
                count, _ = refine_cover(tree, queries, leaf, lane, radius[query], nodes, count, next_nodes)
                nodes[:count] = next_nodes[:count]
            for node in nodes[:count]:
                start, stop = node_positions(tree, node)
                spans[query, counts[query], 0] = first_position + start
                spans[query, counts[query], 1] = first_position + stop
                counts[query] += 1


@njit(cache=True, nogil=True)
def add_whole_nodes(upper, nodes, node_counts, spans, counts):
    """Append the nodes of covers that need no refinement in a cell, as ranges of positions.

    `nodes` and `node_counts` are `covers` and `counts` of `cover_upper`. `counts` is as in `add_nodes`, and
    is increased.
    """
    for query in range(len(node_counts)):
        for node in nodes[query, : node_counts[query]]:
            if node >= 0:
                start, stop = node_positions(upper, node)
                spans[query, counts[query], 0], spans[query, counts[query], 1] = start, stop
                counts[query] += 1


@njit(cache=True, nogil=True)
def sort_spans(spans, counts, ends):
    """Sort the ranges of each cover by position, and write their cumulative sizes to `ends`.

    `counts` (int64, shape (q,)) has the number of ranges of each cover.
    """
    for query in range(len(counts)):
        ranges = spans[query]
        for index in range(1, counts[query]):
            start, stop = ranges[index, 0], ranges[index, 1]
            to = index
            while to > 0 and ranges[to - 1, 0] > start:
                ranges[to, 0], ranges[to, 1] = ranges[to - 1, 0], ranges[to - 1, 1]
                to -= 1
            ranges[to, 0], ranges[to, 1] = start, stop
        total = 0
        for index in range(counts[query]):
            total += ranges[index, 1] - ranges[index, 0]
            ends[query, index] = total


@within
def _resume(key, row, used, buffer):
    """Continue a stream of which `used` (int64) words were used before.

    `key`, `row` and `buffer` are as for `donors.next_word`. The buffer is refilled if the stream continues
    within its 256 words.
    """
    buffer.used[0] = used
    if used % 256:
        first_block, level = np.uint32(used // 256 * 16), np.uint32(FURTHER_LEVEL)
        stream_words(key, np.uint64(row), level, first_block, buffer.address, buffer.block, buffer.words)


@parallel
def try_cell(tree, queries, first_leaf, places, radius, last_rows, first_position, spans, counts, ends, keys,
             used, accepted, donors):  # fmt: skip
    """Test the draws of one round whose positions are in the cell.

    Parameters
    ----------
    first_position : int64
        First position of the cell in the whole tree.
    counts : int64, shape (q,)
        Number of ranges of each cover, which `sort_spans` has sorted.
    accepted
        Lowered if an earlier draw is accepted here than in the cells before.
    """
    end_position = first_position + len(tree.rows)
    for chunk in prange((len(places) + _QUERIES_PER_TASK - 1) // _QUERIES_PER_TASK):
        buffer = new_word_buffer()
        first = chunk * _QUERIES_PER_TASK
        for query in range(first, min(first + _QUERIES_PER_TASK, len(places))):
            leaf, lane = first_leaf + places[query] // LEAF, places[query] % LEAF
            row = queries.rows[queries.starts[leaf] + lane]
            overlaps = False
            for index in range(counts[query]):
                overlaps |= spans[query, index, 0] < end_position and spans[query, index, 1] > first_position
            if not overlaps:
                continue
            cover_ends = ends[query, : counts[query]]
            for field in range(len(keys)):
                if used[query, field] < 0:
                    continue
                _resume(keys[field], row, used[query, field], buffer)
                for draw in range(accepted[query, field]):
                    word = next_word(keys[field], row, buffer)
                    place = bounded(word, cover_ends[-1], keys[field], row, buffer)
                    index = np.searchsorted(cover_ends, place, side="right")
                    position = spans[query, index, 1] - (cover_ends[index] - place)
                    if position < first_position or position >= end_position:
                        continue
                    other = tree.rows[position - first_position]
                    if other == row:
                        continue
                    squared = distance(tree, position - first_position, queries, leaf, lane)
                    if squared < radius[query] or (squared == radius[query] and other <= last_rows[query]):
                        accepted[query, field] = draw
                        donors[field, places[query]] = other
                        break


@njit(cache=True, nogil=True)
def advance_streams(queries, first_leaf, places, counts, ends, keys, tried, used, accepted):
    """Advance the streams after a round of `tried` (int64) draws; return the number of donors still to draw.

    `used` becomes -1 where a draw was accepted, and the number of words used otherwise. `counts` is that of
    `try_cell`.
    """
    buffer = new_word_buffer()
    remaining = 0
    for query in range(len(places)):
        leaf, lane = first_leaf + places[query] // LEAF, places[query] % LEAF
        row = queries.rows[queries.starts[leaf] + lane]
        for field in range(len(keys)):
            if used[query, field] < 0:
                continue
            if accepted[query, field] < tried:
                used[query, field] = -1
                continue
            _resume(keys[field], row, used[query, field], buffer)
            for _ in range(tried):  # a rejected word uses a further one
                word = next_word(keys[field], row, buffer)
                bounded(word, ends[query, counts[query] - 1], keys[field], row, buffer)
            used[query, field] = buffer.used[0]
            remaining += 1
    return remaining
