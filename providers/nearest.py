"""The nearest rows of every row, by (squared distance, row).

What is found depends on the points alone, not on the order in which the tree is searched. Distances
are those of `providers.lanes`; ties are told apart by row number.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: search by bounds.
"""

import numpy as np

from providers.kdtree import LEAF
from providers.lanes import LANES, box_gaps, in_reach, insert, lowest_lane, near_points
from providers.neighbours import distance, span
from providers.uncounted import uncounted

_SORTED = 64  # nearest rows that are kept sorted by insertion; more of them are kept in a heap
_SURELY = 1.0 - 2.0**-32  # a gap that is added up in another order than distances bounds them with this
_NO_ROW = np.int32(2**31 - 1)


@uncounted
def width(wanted):
    """Places that `nearest` needs for each lane: whole vectors, where the nearest are kept sorted."""
    return wanted if wanted > _SORTED else (wanted + LANES - 1) // LANES * LANES


# ------------------------------------------------------------------------- a heap, where there are many


@uncounted
def _after(distance, row, other_distance, other_row):
    """Whether (distance, row) comes after the other."""
    return distance > other_distance or (distance == other_distance and row > other_row)


@uncounted
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


@uncounted
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


@uncounted
def _sort(distances, rows, have):
    """Sort a heap: heapsort."""
    for at in range(have // 2 - 1, -1, -1):
        _sift_down(distances, rows, at, have)
    for last in range(have - 1, 0, -1):
        distances[0], distances[last] = distances[last], distances[0]
        rows[0], rows[last] = rows[last], rows[0]
        _sift_down(distances, rows, 0, last)


# ---------------------------------------------------------------------------------------- the search


@uncounted
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


@uncounted
def nearest(tree, queries, leaf, others_only, wanted, distances, rows, have, bounds, out, stack, gaps):
    """The nearest `wanted` rows of each query of a leaf; all queries go down the tree together.

    `distances` and `rows`, shape (16, width(wanted)), get them in their order, and infinity and no
    row where the tree has fewer. With `others_only` a row is not its own neighbour.
    """
    begin(queries, leaf, distances, rows, have, bounds)
    look_further(
        tree, queries, leaf, others_only, wanted, distances, rows, have, bounds, out, stack, gaps
    )  # fmt: skip
    put_in_order(queries, leaf, wanted, distances, rows, have)


@uncounted
def begin(queries, leaf, distances, rows, have, bounds):
    """No row found yet, for any query of a leaf."""
    size = queries.starts[leaf + 1] - queries.starts[leaf]
    for lane in range(LEAF):
        have[lane] = 0
        bounds[lane] = np.inf if lane < size else -1.0
        for at in range(distances.shape[1]):
            distances[lane, at] = np.inf
            rows[lane, at] = _NO_ROW


@uncounted
def put_in_order(queries, leaf, wanted, distances, rows, have):
    """The rows found of each query of a leaf in their order, once all trees have been searched."""
    if wanted > _SORTED:
        for lane in range(queries.starts[leaf + 1] - queries.starts[leaf]):
            _sort(distances[lane], rows[lane], have[lane])


@uncounted
def look_further(tree, queries, leaf, others_only, wanted, distances, rows, have, bounds, out, stack, gaps):
    """Search one more tree for rows that are nearer than those found; all as in `nearest`."""
    numbers, codes, boxes, code_boxes = tree.numbers, tree.codes, tree.boxes, tree.code_boxes
    query_numbers, query_codes = queries.numbers, queries.codes
    query_boxes, query_code_boxes = queries.boxes, queries.code_boxes
    uniform, tree_rows, query_rows = tree.uniform, tree.rows, queries.rows
    weight, flags = tree.weight, tree.flags
    starts = tree.starts
    first = queries.starts[leaf]
    size = queries.starts[leaf + 1] - first
    query_node = (1 << queries.depth) - 1 + leaf
    leaves = (1 << tree.depth) - 1
    widest = 0.0
    for lane in range(size):
        widest = max(widest, bounds[lane])
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
            near_gap, far_gap, near_middle, far_middle = box_gaps(boxes, node, query_boxes, query_node)
            near_gap, far_gap = near_gap * _SURELY, far_gap * _SURELY
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
            if not far_gap > widest:
                stack[top], gaps[top] = far, far_gap
                top += 1
            stack[top], gaps[top] = near, near_gap
            top += 1
            continue
        if node < leaves:
            _uniform_node(tree, node, queries, leaf, others_only, wanted, distances, rows, have, bounds)
        else:
            other = node - leaves
            start = starts[other]
            points = (1 << (starts[other + 1] - start)) - 1
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


@uncounted
def _uniform_node(tree, node, queries, leaf, others_only, wanted, distances, rows, have, bounds):
    """Take the points of a node, all the same and in the order of rows, as long as they count."""
    first = queries.starts[leaf]
    start, stop = span(tree, node)
    for lane in range(queries.starts[leaf + 1] - first):
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
