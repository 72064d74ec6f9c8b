"""The k nearest rows of every row.

The result depends on the points alone, not on the order of the search. Distances are those of
`simd_distances`; ties are ordered by row number.

Arguments of kernels
--------------------
tree : Tree
    Tree of the candidate rows.
queries : Tree
    Tree of the queries; it may be the same.
leaf, lane : int64
    Leaf of the queries in `queries`, and the lane of one query in the leaf.
others_only : bool
    Whether a row is excluded from its own neighbours.
wanted : int64
    Number of nearest rows to find.
floor : float64
    Squared distance within which the last wanted row must be exact; see `nearest`.
lists : NearestLists
    Nearest rows found so far of each query of the leaf. Written.
state : SearchState
    Scratch space. Written.
distances, rows : float64 and int32 arrays (list_length(wanted),)
    List of one query, in the kernels of the heap. Written.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: search with bounds.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from providers.kernels.decorators import borrowing, uncounted, within
from providers.neighbours.kdtree import LEAF, rounded_down, rounded_up
from providers.neighbours.radius import distance, node_positions
from providers.neighbours.simd_distances import (
    LANES,
    child_distances,
    insert_all,
    insert_sorted,
    lanes_within,
    lowest_lane,
    near_points,
    rank_of_lane,
)

TIE = 1.0 + 2e-9
"""Factor within which squared distances are ties: distances within a relative 1e-9."""

_MOST_SORTED = 64  # longest list that is kept sorted by insertion; a longer one is kept as a heap

_NO_ROW = np.int32(2**31 - 1)

_STACK_SIZE = 80  # more nodes than can wait: one a level, and fewer levels than bits of a row number


class NearestLists(NamedTuple):
    """Lists of the nearest rows of the queries of one leaf, in the layout that kernels expect.

    The list of each query is sorted by (distance, row), or a heap until `sort_found` if more than
    `_MOST_SORTED` rows are wanted.
    """

    distances: npt.NDArray[np.float64]
    """Squared distance of each row of the lists, infinite in free slots; shape (LEAF, length)."""
    rows: npt.NDArray[np.int32]
    """Nearest rows, `_NO_ROW` in free slots; shape (LEAF, length)."""
    counts: npt.NDArray[np.int64]
    """Number of rows in each list, if it is a heap; shape (LEAF,)."""
    bounds: npt.NDArray[np.float64]
    """Squared distance beyond which rows no longer matter, -1 in lanes without a query; shape (LEAF,)."""


class SearchState(NamedTuple):
    """Buffers of one nearest-neighbour search, in the layout that kernels expect."""

    points: npt.NDArray[np.float32]
    """Numbers of the queries, rounded down and rounded up; shape (2, numbers, 16)."""
    limits: npt.NDArray[np.float32]
    """Upper bound of the squared distance of rows that matter to each query; shape (16,)."""
    gaps: npt.NDArray[np.float32]
    """Lower bound of the squared distances between each waiting node and each query; shape (80, 16)."""
    stack: npt.NDArray[np.int64]
    """Waiting nodes; shape (80,)."""
    out: npt.NDArray[np.float64]
    """Squared distances of one query from the points of a leaf; shape (16,)."""


@within
def new_search_state(tree):
    """Allocate the buffers for searches of `tree` (a `Tree`), or of others with as many numbers."""
    return SearchState(
        np.empty((2, tree.numbers.shape[1], LANES), np.float32),
        np.empty(LANES, np.float32),
        np.empty((_STACK_SIZE, LANES), np.float32),
        np.empty(_STACK_SIZE, np.int64),
        np.empty(LANES),
    )


@within
def new_lists(length):
    """Allocate lists of `length` (int64) rows, as `list_length` returns it."""
    return NearestLists(
        np.empty((LEAF, length)),
        np.empty((LEAF, length), np.int32),
        np.zeros(LEAF, np.int64),
        np.empty(LEAF),
    )


@uncounted
def list_length(wanted):
    """Return the length of each query's list in `nearest`: whole vectors if the list is kept sorted."""
    return wanted if wanted > _MOST_SORTED else (wanted + LANES - 1) // LANES * LANES


# ------------------------------------------------------------------------------ max-heap for long lists


@borrowing
def _is_after(distance, row, other_distance, other_row):
    """Whether (distance, row), float64 and int32, follows (other_distance, other_row) lexicographically."""
    return distance > other_distance or (distance == other_distance and row > other_row)


@borrowing
def _sift_down(distances, rows, node, size):
    """Restore the max-heap of the first `size` (int64) elements below index `node` (int64), in place."""
    distance, row = distances[node], rows[node]
    while True:
        child = 2 * node + 1
        if child >= size:
            break
        other = child + 1
        if other < size and _is_after(distances[other], rows[other], distances[child], rows[child]):
            child = other
        if not _is_after(distances[child], rows[child], distance, row):
            break
        distances[node], rows[node] = distances[child], rows[child]
        node = child
    distances[node], rows[node] = distance, row


@borrowing
def _push(distance, row, distances, rows, count):
    """Add a row to a list of `count` rows, or replace the farthest if it is full; return the new count.

    The list is made a max-heap when it becomes full. `distance` (float64) and `row` (int32) are added, and
    `count` is an int64.
    """
    capacity = len(rows)
    if count == capacity:
        distances[0], rows[0] = distance, row
        _sift_down(distances, rows, 0, capacity)
        return capacity
    distances[count], rows[count] = distance, row
    if count + 1 == capacity:
        for node in range(capacity // 2 - 1, -1, -1):
            _sift_down(distances, rows, node, capacity)
    return count + 1


@borrowing
def _heapsort(distances, rows, count):
    """Sort the first `count` (int64) elements by (distance, row), in place."""
    for node in range(count // 2 - 1, -1, -1):
        _sift_down(distances, rows, node, count)
    for last in range(count - 1, 0, -1):
        distances[0], distances[last] = distances[last], distances[0]
        rows[0], rows[last] = rows[last], rows[0]
        _sift_down(distances, rows, 0, last)


# ---------------------------------------------------------------------------------------- the search


@borrowing
def _search_bound(lists, lane, wanted, floor):
    """Return the squared distance beyond which a row no longer matters to a query with a sorted list.

    If a single row is wanted there is none before it; the floor is infinity then.
    """
    return min(lists.distances[lane, wanted - 1], max(floor, lists.distances[lane, wanted - 2] * TIE))


@borrowing
def _add_found(squared, row, wanted, floor, lists, lane):
    """Add a row to a query's list, and lower its bound.

    `row` (int32) is the row, and `squared` (float64) its squared distance.
    """
    distances, rows, counts = lists.distances, lists.rows, lists.counts
    if wanted <= _MOST_SORTED:
        insert_sorted(distances, rows, lane, squared, row)
        lists.bounds[lane] = _search_bound(lists, lane, wanted, floor)
        return
    if counts[lane] == wanted and not _is_after(distances[lane, 0], rows[lane, 0], squared, row):
        return
    counts[lane] = _push(squared, row, distances[lane], rows[lane], counts[lane])
    if counts[lane] == wanted:
        lists.bounds[lane] = distances[lane, 0]


@uncounted
def nearest(tree, queries, leaf, is_same_tree, others_only, wanted, floor, lists, state):
    """Find the `wanted` nearest rows of each query of a leaf; all queries descend the tree together.

    The last wanted row is exact only as far as it is a tie of the row before it or within `floor`. Otherwise
    it may be a farther row, or none. A floor of infinity makes it exact.

    Parameters
    ----------
    is_same_tree : bool
        Whether `queries` is `tree`; `others_only` is then true.
    lists : NearestLists
        Receives the rows in ascending order of distance, and `_NO_ROW` if the tree has fewer.
    """
    clear_found(queries, leaf, lists)
    searched = -1
    if is_same_tree and wanted <= LANES and _reaches_leaf(tree, leaf):
        _search_own_leaf(tree, leaf, wanted, floor, lists, state.out)
        searched = leaf
    search_tree(tree, queries, leaf, searched, others_only, wanted, floor, lists, state)
    sort_found(queries, leaf, wanted, lists)


@borrowing
def clear_found(queries, leaf, lists):
    """Empty the lists of all queries of a leaf.

    Lanes without a query get the bound -1, so that no node is near them.
    """
    size = queries.starts[leaf + 1] - queries.starts[leaf]
    for lane in range(LEAF):
        lists.counts[lane] = 0
        lists.bounds[lane] = np.inf if lane < size else -1.0
        for index in range(lists.rows.shape[1]):
            lists.distances[lane, index] = np.inf
            lists.rows[lane, index] = _NO_ROW


@borrowing
def sort_found(queries, leaf, wanted, lists):
    """Sort the lists of all queries of a leaf after the search."""
    if wanted > _MOST_SORTED:
        for lane in range(queries.starts[leaf + 1] - queries.starts[leaf]):
            _heapsort(lists.distances[lane], lists.rows[lane], lists.counts[lane])


@borrowing
def _reaches_leaf(tree, leaf):
    """Whether a search visits a leaf of `tree` itself: the rows of its parent are not all identical."""
    return tree.depth == 0 or not tree.uniform[((1 << tree.depth) - 1 + leaf - 1) >> 1]


@borrowing
def _search_own_leaf(tree, leaf, wanted, floor, lists, out):
    """Find the first neighbours of each query of a leaf, among the other rows of the leaf.

    The queries are the rows of the same leaf of `tree`. `out` (float64, shape (LANES,)) is scratch space.
    """
    start = tree.starts[leaf]
    size = tree.starts[leaf + 1] - start
    for lane in range(size):
        near_points(
            tree.numbers, tree.codes, leaf, tree.numbers, tree.codes, leaf, lane, tree.flags, tree.weight,
            np.inf, out,
        )  # fmt: skip
        others = ((1 << size) - 1) & ~(1 << lane)
        remaining = others
        while remaining:
            other = lowest_lane(remaining)
            remaining &= remaining - 1
            rank = rank_of_lane(out, other, others)
            lists.distances[lane, rank] = out[other]
            lists.rows[lane, rank] = tree.rows[start + other]
        lists.bounds[lane] = _search_bound(lists, lane, wanted, floor)


@borrowing
def search_tree(tree, queries, leaf, searched, others_only, wanted, floor, lists, state):
    """Search one tree for rows nearer than those found so far.

    `searched` (int64) is a leaf of `tree` to skip, or -1.
    """
    numbers, codes = tree.numbers, tree.codes
    query_numbers, query_codes = queries.numbers, queries.codes
    uniform, tree_rows, query_rows = tree.uniform, tree.rows, queries.rows
    weight, flags = tree.weight, tree.flags
    starts, bounds = tree.starts, lists.bounds
    first = queries.starts[leaf]
    leaves = (1 << tree.depth) - 1
    lowest = leaves >> 1  # first parent of leaves
    rounded, limits, gaps, stack, out = state.points, state.limits, state.gaps, state.stack, state.out
    for number in range(query_numbers.shape[1]):
        for lane in range(LANES):
            value = query_numbers[leaf, number, lane]
            rounded[0, number, lane] = rounded_down(value)
            rounded[1, number, lane] = rounded_up(value)
    rough_weight = np.float32(min(weight, 1e38))  # finite, because 0 mismatches times infinity is NaN
    # Exceeds the rounding of the sum of squares in single precision, a factor 1 + 2**-24 for each operation.
    slack = 1.0 + (query_numbers.shape[1] + query_codes.shape[1] + 8) * 2.0**-22
    _round_bounds_up(bounds, slack, limits)
    for lane in range(LANES):
        gaps[0, lane] = 0.0
    stack[0] = 0
    top = 1
    while top:
        top -= 1
        lanes = lanes_within(gaps, top, limits)
        if not lanes:  # bounds have fallen since the node was pushed
            continue
        node = stack[top]
        if node >= lowest and node < leaves and not uniform[node]:
            left_leaf = 2 * (node - lowest)
            if starts[left_leaf + 1] == starts[left_leaf + 2]:  # the right leaf is empty
                node = leaves + left_leaf
        if node < leaves and not uniform[node]:
            # Depth first: the child nearer to most queries is pushed last.
            half, near, far = child_distances(
                rounded, query_codes, leaf, tree.rough, tree.code_boxes, node, flags, rough_weight, limits,
                gaps, top,
            )  # fmt: skip
            if far:
                stack[top] = 2 * node + 2 - half
                top += 1
            if near:
                stack[top] = 2 * node + 1 + half
                top += 1
            continue
        if node < leaves:
            _uniform_node(tree, node, queries, leaf, others_only, wanted, floor, lists)
        else:
            other = node - leaves
            if other == searched:
                continue
            start = starts[other]
            occupied = (1 << (starts[other + 1] - start)) - 1
            while lanes:
                lane = lowest_lane(lanes)
                lanes &= lanes - 1
                excluded = query_rows[first + lane] if others_only else np.int32(-1)
                near_ones = occupied & near_points(
                    numbers, codes, other, query_numbers, query_codes, leaf, lane, flags, weight,
                    bounds[lane], out,
                )  # fmt: skip
                if near_ones and wanted <= LANES:
                    insert_all(lists.distances, lists.rows, lane, near_ones, out, tree_rows, start, excluded)
                    bounds[lane] = _search_bound(lists, lane, wanted, floor)
                    continue
                while near_ones:
                    point = lowest_lane(near_ones)
                    near_ones &= near_ones - 1
                    row = tree_rows[start + point]
                    if row != excluded and out[point] <= bounds[lane]:
                        _add_found(out[point], row, wanted, floor, lists, lane)
        _round_bounds_up(bounds, slack, limits)


@borrowing
def _round_bounds_up(bounds, slack, limits):
    """Round the bounds up to single precision in `limits` (float32, shape (LANES,)).

    The factor `slack` (float64) covers the rounding of sums, and 1e-37 the squares that underflow.
    """
    for lane in range(LANES):
        limits[lane] = np.float32(bounds[lane] * slack + 1e-37)


@borrowing
def _uniform_node(tree, node, queries, leaf, others_only, wanted, floor, lists):
    """Add the rows of a node whose points are identical, in the order of rows, as long as they matter.

    `node` (int64) is a node of `tree`.
    """
    first = queries.starts[leaf]
    start, stop = node_positions(tree, node)
    for lane in range(queries.starts[leaf + 1] - first):
        squared = distance(tree, start, queries, leaf, lane)
        added = 0
        for position in range(start, stop):
            if squared > lists.bounds[lane] or added == wanted:
                break
            row = tree.rows[position]
            if others_only and row == queries.rows[first + lane]:
                continue
            _add_found(squared, row, wanted, floor, lists, lane)
            added += 1
