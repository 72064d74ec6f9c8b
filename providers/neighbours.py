"""Neighbours by squared distance: all rows within reach, and a cover of them.

What is found depends on the points alone, not on the order in which the tree is searched. Distances
are those of `providers.lanes`; ties are told apart by row number.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: search by bounds.
"""

import numpy as np
from numba import njit

from providers.lanes import lowest_lane, near_points

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
