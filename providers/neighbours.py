"""Near neighbours by squared distance: the nearest rows, all rows within reach, a cover of them.

What is found depends on the points alone, not on the order in which the tree is searched. Distances
are those of `providers.lanes`; ties are told apart by row number.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: search by bounds.
"""

import numpy as np
from numba import njit

from providers.kdtree import LEAF
from providers.lanes import in_reach, lowest_lane, near_points

_SORTED = 64  # nearest rows that are kept sorted by insertion; more of them are kept in a heap


# ------------------------------------------------------------------------------ distances one by one


@njit(cache=True, nogil=True)
def _leaf_of(tree, position):
    return ((position + 1) * (np.int64(1) << tree.depth) - 1) // len(tree.rows)


@njit(cache=True, nogil=True)
def distance(tree, position, queries, leaf, lane):
    """Squared distance of the point at a position from the query: `providers.lanes`, one at a time."""
    other = _leaf_of(tree, position)
    place = position - ((len(tree.rows) * other) >> tree.depth)
    total = 0.0
    for field in range(tree.numbers.shape[1]):
        apart = queries.numbers[leaf, field, lane] - tree.numbers[other, field, place]
        total += apart * apart
    if tree.codes.shape[1]:
        mismatches, flags = 0, 0
        for field in range(tree.codes.shape[1]):
            differs = queries.codes[leaf, field, lane] != tree.codes[other, field, place]
            if field < tree.flags:
                mismatches += differs
            else:
                flags += differs
        total += tree.weight * mismatches + 2.0 * flags
    return total


@njit(cache=True, nogil=True)
def _least_and_largest(tree, node, queries, leaf, lane):
    """Bounds of the squared distances of a node's points from the query."""
    box, code_box = tree.boxes[node], tree.code_boxes[node]
    least, largest = 0.0, 0.0
    for field in range(tree.numbers.shape[1]):
        value = queries.numbers[leaf, field, lane]
        below, above = box[0, field] - value, value - box[1, field]
        gap = max(below, above, 0.0)
        far = max(-below, -above)
        least += gap * gap
        largest += far * far
    if tree.codes.shape[1]:
        outside, flags_outside, different, flags_different = 0, 0, 0, 0
        for field in range(tree.codes.shape[1]):
            code, low, high = queries.codes[leaf, field, lane], code_box[0, field], code_box[1, field]
            if field < tree.flags:
                outside += code < low or code > high
                different += low != code or high != code
            else:
                flags_outside += code < low or code > high
                flags_different += low != code or high != code
        least += tree.weight * outside + 2.0 * flags_outside
        largest += tree.weight * different + 2.0 * flags_different
    return least, largest


@njit(cache=True, nogil=True, inline="always")
def _gap(tree, child, queries, node):
    """Least squared distance between the boxes of two nodes."""
    box, code_box = tree.boxes[child], tree.code_boxes[child]
    other, other_codes = queries.boxes[node], queries.code_boxes[node]
    total = 0.0
    for field in range(tree.numbers.shape[1]):
        apart = max(box[0, field] - other[1, field], other[0, field] - box[1, field], 0.0)
        total += apart * apart
    if tree.codes.shape[1]:
        mismatches, flags = 0, 0
        for field in range(tree.codes.shape[1]):
            outside = code_box[0, field] > other_codes[1, field] or code_box[1, field] < other_codes[0, field]
            if field < tree.flags:
                mismatches += outside
            else:
                flags += outside
        total += tree.weight * mismatches + 2.0 * flags
    return total


@njit(cache=True, nogil=True)
def _is_nearer(tree, child, other_child, queries, node):
    """Whether the middle of a node's numbers is nearer to that of another node than a third one's."""
    box, other_box, middle = tree.boxes[child], tree.boxes[other_child], queries.boxes[node]
    total, other_total = 0.0, 0.0
    for field in range(tree.numbers.shape[1]):
        twice = middle[0, field] + middle[1, field]
        total += (box[0, field] + box[1, field] - twice) ** 2
        other_total += (other_box[0, field] + other_box[1, field] - twice) ** 2
    return total < other_total


# ----------------------------------------------------------------------------------- the nearest ones


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


@njit(cache=True, nogil=True, inline="always")
def _keep(distance, row, distances, rows, lane, have):
    """Take a row among a lane's nearest, of which there is room for some; returns how many there are.

    Few are kept sorted; many in a heap whose farthest is on top, once there is no more room.
    """
    room = rows.shape[1]
    last = _farthest(room)
    if have == room and not _after(distances[lane, last], rows[lane, last], distance, row):
        return have
    if room <= _SORTED:
        at = min(have, room - 1)
        while at > 0 and _after(distances[lane, at - 1], rows[lane, at - 1], distance, row):
            distances[lane, at] = distances[lane, at - 1]
            rows[lane, at] = rows[lane, at - 1]
            at -= 1
        distances[lane, at] = distance
        rows[lane, at] = row
        return min(have + 1, room)
    return _push(distance, row, distances[lane], rows[lane], have)


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


@njit(cache=True, nogil=True, inline="always")
def _farthest(room):
    return room - 1 if room <= _SORTED else 0


@njit(cache=True, nogil=True)
def _sort(distances, rows, have):
    """Sort the nearest, where they are not: heapsort."""
    if len(rows) <= _SORTED:
        return
    for at in range(have // 2 - 1, -1, -1):
        _sift_down(distances, rows, at, have)
    for last in range(have - 1, 0, -1):
        distances[0], distances[last] = distances[last], distances[0]
        rows[0], rows[last] = rows[last], rows[0]
        _sift_down(distances, rows, 0, last)


@njit(cache=True, nogil=True)
def nearest(tree, queries, leaf, others_only, distances, rows, have, bounds, out, stack, gaps):
    """The nearest rows of each query of a leaf, by (distance, row); all queries go down the tree together.

    `distances` and `rows`, shape (16, room), get them, `have` their number, sorted. With `others_only`
    a row is not its own neighbour.
    """
    room = rows.shape[1]
    count, query_count = np.int64(len(tree.rows)), np.int64(len(queries.rows))
    first = (query_count * leaf) >> queries.depth
    size = ((query_count * (leaf + 1)) >> queries.depth) - first
    query_node = (1 << queries.depth) - 1 + leaf
    leaves = (1 << tree.depth) - 1
    for lane in range(LEAF):
        have[lane] = 0
        bounds[lane] = np.inf if lane < size else -1.0
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
            queries.numbers, queries.codes, leaf, tree.boxes, tree.code_boxes, node,
            tree.flags, tree.weight, bounds,
        ) & ((1 << size) - 1)  # fmt: skip
        if not lanes:
            continue
        if node < leaves and not tree.uniform[node]:
            near, far = 2 * node + 1, 2 * node + 2
            near_gap, far_gap = _gap(tree, near, queries, query_node), _gap(tree, far, queries, query_node)
            if far_gap < near_gap or (
                far_gap == near_gap and _is_nearer(tree, far, near, queries, query_node)
            ):
                near, far, near_gap, far_gap = far, near, far_gap, near_gap
            if far_gap <= widest:
                stack[top], gaps[top] = far, far_gap
                top += 1
            stack[top], gaps[top] = near, near_gap
            top += 1
            continue
        if node < leaves:
            changed = _uniform_node(tree, node, queries, leaf, others_only, distances, rows, have, bounds)
        else:
            other = node - leaves
            start = (count * other) >> tree.depth
            points = (1 << (((count * (other + 1)) >> tree.depth) - start)) - 1
            changed = False
            while lanes:
                lane = lowest_lane(lanes)
                lanes &= lanes - 1
                excluded = queries.rows[first + lane] if others_only else -1
                near_ones = points & near_points(
                    tree.numbers, tree.codes, other, queries.numbers, queries.codes, leaf, lane,
                    tree.flags, tree.weight, bounds[lane], out,
                )  # fmt: skip
                while near_ones:
                    at = lowest_lane(near_ones)
                    near_ones &= near_ones - 1
                    row = tree.rows[start + at]
                    if row == excluded or out[at] > bounds[lane]:
                        continue
                    have[lane] = _keep(out[at], row, distances, rows, lane, have[lane])
                    if have[lane] == room:
                        bounds[lane] = distances[lane, _farthest(room)]
                        changed = True
        if changed:
            widest = 0.0
            for lane in range(size):
                widest = max(widest, bounds[lane])
    for lane in range(size):
        _sort(distances[lane], rows[lane], have[lane])


@njit(cache=True, nogil=True)
def _uniform_node(tree, node, queries, leaf, others_only, distances, rows, have, bounds):
    """Take the points of a node, all the same and in the order of rows, as long as they count."""
    room = rows.shape[1]
    first = (len(queries.rows) * leaf) >> queries.depth
    start, stop = span(tree, node)
    changed = False
    for lane in range(((len(queries.rows) * (leaf + 1)) >> queries.depth) - first):
        apart = distance(tree, start, queries, leaf, lane)
        taken = 0
        for position in range(start, stop):
            if apart > bounds[lane] or taken == room:
                break
            row = tree.rows[position]
            if others_only and row == queries.rows[first + lane]:
                continue
            have[lane] = _keep(apart, row, distances, rows, lane, have[lane])
            taken += 1
            if have[lane] == room:
                bounds[lane] = distances[lane, _farthest(room)]
                changed = True
    return changed


@njit(cache=True, nogil=True)
def span(tree, node):
    """The positions of a node: from, up to."""
    level = 0
    while (2 << level) <= node + 1:
        level += 1
    index = node + 1 - (1 << level)
    count = np.int64(len(tree.rows))
    return (count * index) >> level, (count * (index + 1)) >> level


# ----------------------------------------------------------------------------------- all within reach


@njit(cache=True, nogil=True)
def gather(tree, queries, leaf, lane, myself, reach, found, out, stack):
    """The rows within reach but `myself`, as many as there is room for in `found`; returns their number.

    With no room at all it counts them.
    """
    leaves = (1 << tree.depth) - 1
    room = len(found)
    have = 0
    top = 1
    stack[0] = 0
    while top:
        top -= 1
        node = stack[top]
        least, largest = _least_and_largest(tree, node, queries, leaf, lane)
        if least > reach:
            continue
        start, stop = span(tree, node)
        if largest <= reach:
            if not room:
                have += stop - start
                continue
            for position in range(start, stop):
                if tree.rows[position] != myself:
                    found[have] = tree.rows[position]
                    have += 1
                    if have == room:
                        return have
        elif node < leaves:
            stack[top] = 2 * node + 2
            stack[top + 1] = 2 * node + 1
            top += 2
        else:
            points = ((1 << (stop - start)) - 1) & near_points(
                tree.numbers, tree.codes, node - leaves, queries.numbers, queries.codes, leaf, lane,
                tree.flags, tree.weight, reach, out,
            )  # fmt: skip
            while points:
                row = tree.rows[start + lowest_lane(points)]
                points &= points - 1
                if not room:
                    have += 1
                elif row != myself:
                    found[have] = row
                    have += 1
                    if have == room:
                        return have
    return have


@njit(cache=True, nogil=True)
def cover(tree, queries, leaf, lane, reach, nodes, spare):
    """The nodes of a cover, in the order of the tree, as `nodes` has room for; returns their number."""
    most = len(nodes)
    leaves = (1 << tree.depth) - 1
    nodes[0] = 0
    have = 1
    while True:
        next_have = 0
        grown = False
        for at in range(have):
            node = nodes[at]
            least, largest = _least_and_largest(tree, node, queries, leaf, lane)
            if node >= leaves or largest <= reach:
                if next_have < most:
                    spare[next_have] = node
                next_have += 1
                continue
            grown = True
            for child in range(2 * node + 1, 2 * node + 3):
                least, largest = _least_and_largest(tree, child, queries, leaf, lane)
                if least <= reach:
                    if next_have < most:
                        spare[next_have] = child
                    next_have += 1
        if not grown or next_have > most:
            return have
        have = next_have
        nodes[:have] = spare[:have]
