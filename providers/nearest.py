"""The nearest rows of every row, by (squared distance, row).

What is found depends on the points alone, not on the order in which the tree is searched. Distances
are those of `providers.lanes`; ties are told apart by row number.

Within loops arrays are taken from the trees once and indexed in full: each view and each member of a
named tuple is counted by numba when it comes and goes, which here costs as much as the search.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: search by bounds.
"""

import numpy as np
from numba import njit

from providers.kdtree import LEAF
from providers.lanes import LANES, in_reach, insert, lowest_lane, near_points
from providers.neighbours import distance, span

_SORTED = 64  # nearest rows that are kept sorted by insertion; more of them are kept in a heap
_NO_ROW = np.int32(2**31 - 1)


@njit(cache=True, nogil=True)
def width(wanted):
    """Places that `nearest` needs for each lane: whole vectors, where the nearest are kept sorted."""
    return wanted if wanted > _SORTED else (wanted + LANES - 1) // LANES * LANES


# ------------------------------------------------------------------------- a heap, where there are many


@njit(cache=True, nogil=True, inline="always")
def _after(distance, row, other_distance, other_row):
    """Whether (distance, row) comes after the other."""
    return distance > other_distance or (distance == other_distance and row > other_row)


@njit(cache=True, nogil=True)
def _sift_down(distances, rows, at, size):
    """Restore a heap whose largest is on top, below `at`."""
    distance, row = distances[at], rows[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _after(distances[child + 1], rows[child + 1], distances[child], rows[child]):
            child += 1
        if not _after(distances[child], rows[child], distance, row):
            break
        distances[at], rows[at] = distances[child], rows[child]
        at = child
    distances[at], rows[at] = distance, row


@njit(cache=True, nogil=True)
def _push(distance, row, distances, rows, have):
    """Take a row into a heap, or into what will be one when there is no more room."""
    room = len(rows)
    if have == room:
        distances[0], rows[0] = distance, row
        _sift_down(distances, rows, 0, room)
        return room
    distances[have], rows[have] = distance, row
    if have + 1 == room:
        for at in range(room // 2 - 1, -1, -1):
            _sift_down(distances, rows, at, room)
    return have + 1


@njit(cache=True, nogil=True)
def _sort(distances, rows, have):
    """Sort a heap: heapsort."""
    for at in range(have // 2 - 1, -1, -1):
        _sift_down(distances, rows, at, have)
    for last in range(have - 1, 0, -1):
        distances[0], distances[last] = distances[last], distances[0]
        rows[0], rows[last] = rows[last], rows[0]
        _sift_down(distances, rows, 0, last)


# ---------------------------------------------------------------------------------------- the search


@njit(cache=True, nogil=True)
def _keep(apart, row, wanted, distances, rows, lane, have, bounds):
    """Take a row among a lane's nearest, and lower the lane's bound to the farthest of them."""
    if wanted <= _SORTED:
        insert(distances, rows, lane, apart, row)
        bounds[lane] = distances[lane, wanted - 1]
        return
    if have[lane] == wanted and not _after(distances[lane, 0], rows[lane, 0], apart, row):
        return
    have[lane] = _push(apart, row, distances[lane], rows[lane], have[lane])
    if have[lane] == wanted:
        bounds[lane] = distances[lane, 0]


@njit(cache=True, nogil=True)
def nearest(tree, queries, leaf, others_only, wanted, distances, rows, have, bounds, out, stack, gaps):
    """The nearest `wanted` rows of each query of a leaf; all queries go down the tree together.

    `distances` and `rows`, shape (16, width(wanted)), get them in their order, and infinity and no
    row where the tree has fewer. With `others_only` a row is not its own neighbour.
    """
    numbers, codes, boxes, code_boxes = tree.numbers, tree.codes, tree.boxes, tree.code_boxes
    query_numbers, query_codes = queries.numbers, queries.codes
    query_boxes, query_code_boxes = queries.boxes, queries.code_boxes
    uniform, tree_rows, query_rows = tree.uniform, tree.rows, queries.rows
    weight, flags = tree.weight, tree.flags
    count, query_count = np.int64(len(tree_rows)), np.int64(len(query_rows))
    first = (query_count * leaf) >> queries.depth
    size = ((query_count * (leaf + 1)) >> queries.depth) - first
    query_node = (1 << queries.depth) - 1 + leaf
    leaves = (1 << tree.depth) - 1
    for lane in range(LEAF):
        have[lane] = 0
        bounds[lane] = np.inf if lane < size else -1.0
        for at in range(distances.shape[1]):
            distances[lane, at] = np.inf
            rows[lane, at] = _NO_ROW
    widest = np.inf
    top = 1
    stack[0] = 0
    gaps[0] = 0.0
    while top:
        top -= 1
        if gaps[top] > widest:
            continue
        node = stack[top]
        lanes = in_reach(
            query_numbers, query_codes, leaf, boxes, code_boxes, node, flags, weight, bounds
        ) & ((1 << size) - 1)  # fmt: skip
        if not lanes:
            continue
        if node < leaves and not uniform[node]:
            near, far = 2 * node + 1, 2 * node + 2
            near_gap, far_gap, near_middle, far_middle = 0.0, 0.0, 0.0, 0.0
            for field in range(boxes.shape[2]):
                low, high = query_boxes[query_node, 0, field], query_boxes[query_node, 1, field]
                near_low, near_high = boxes[near, 0, field], boxes[near, 1, field]
                far_low, far_high = boxes[far, 0, field], boxes[far, 1, field]
                apart = max(near_low - high, low - near_high, 0.0)
                near_gap += apart * apart
                apart = max(far_low - high, low - far_high, 0.0)
                far_gap += apart * apart
                apart = near_low + near_high - (low + high)
                near_middle += apart * apart
                apart = far_low + far_high - (low + high)
                far_middle += apart * apart
            if code_boxes.shape[2]:
                near_counts, far_counts, near_flags, far_flags = 0, 0, 0, 0
                for field in range(code_boxes.shape[2]):
                    least = query_code_boxes[query_node, 0, field]
                    most = query_code_boxes[query_node, 1, field]
                    near_off = code_boxes[near, 0, field] > most or code_boxes[near, 1, field] < least
                    far_off = code_boxes[far, 0, field] > most or code_boxes[far, 1, field] < least
                    if field < flags:
                        near_counts += near_off
                        far_counts += far_off
                    else:
                        near_flags += near_off
                        far_flags += far_off
                near_gap += weight * near_counts + 2.0 * near_flags
                far_gap += weight * far_counts + 2.0 * far_flags
            if far_gap < near_gap or (far_gap == near_gap and far_middle < near_middle):
                near, far, near_gap, far_gap = far, near, far_gap, near_gap
            if far_gap <= widest:
                stack[top], gaps[top] = far, far_gap
                top += 1
            stack[top], gaps[top] = near, near_gap
            top += 1
            continue
        if node < leaves:
            _uniform_node(tree, node, queries, leaf, others_only, wanted, distances, rows, have, bounds)
        else:
            other = node - leaves
            start = (count * other) >> tree.depth
            points = (1 << (((count * (other + 1)) >> tree.depth) - start)) - 1
            while lanes:
                lane = lowest_lane(lanes)
                lanes &= lanes - 1
                excluded = query_rows[first + lane] if others_only else -1
                near_ones = points & near_points(
                    numbers, codes, other, query_numbers, query_codes, leaf, lane, flags, weight,
                    bounds[lane], out,
                )  # fmt: skip
                while near_ones:
                    at = lowest_lane(near_ones)
                    near_ones &= near_ones - 1
                    row = tree_rows[start + at]
                    if row != excluded and out[at] <= bounds[lane]:
                        _keep(out[at], row, wanted, distances, rows, lane, have, bounds)
        widest = 0.0
        for lane in range(size):
            widest = max(widest, bounds[lane])
    if wanted > _SORTED:
        for lane in range(size):
            _sort(distances[lane], rows[lane], have[lane])


@njit(cache=True, nogil=True)
def _uniform_node(tree, node, queries, leaf, others_only, wanted, distances, rows, have, bounds):
    """Take the points of a node, all the same and in the order of rows, as long as they count."""
    first = (len(queries.rows) * leaf) >> queries.depth
    start, stop = span(tree, node)
    for lane in range(((len(queries.rows) * (leaf + 1)) >> queries.depth) - first):
        apart = distance(tree, start, queries, leaf, lane)
        taken = 0
        for position in range(start, stop):
            if apart > bounds[lane] or taken == wanted:
                break
            row = tree.rows[position]
            if others_only and row == queries.rows[first + lane]:
                continue
            _keep(apart, row, wanted, distances, rows, lane, have, bounds)
            taken += 1
