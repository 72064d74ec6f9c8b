"""Neighbours by squared distance: all rows within reach, and a cover of them.

What is found depends on the points alone, not on the order in which the tree is searched. Distances
are those of `providers.lanes`; ties are told apart by row number.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: search by bounds.
"""

from providers.lanes import lowest_lane, near_points
from providers.uncounted import uncounted

# ------------------------------------------------------------------------------ distances one by one


@uncounted
def _leaf_of(tree, position):
    leaf = (position << tree.depth) // len(tree.rows)  # or the one before, where it is part of a larger tree
    while tree.starts[leaf] > position:
        leaf -= 1
    while tree.starts[leaf + 1] <= position:
        leaf += 1
    return leaf


@uncounted
def distance(tree, position, queries, leaf, lane):
    """Squared distance of the point at a position from the query: `providers.lanes`, one at a time."""
    other = _leaf_of(tree, position)
    place = position - tree.starts[other]
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


@uncounted
def least_and_largest(tree, node, queries, leaf, lane):
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


@uncounted
def span(tree, node):
    """The positions of a node: from, up to."""
    level = 0
    while (2 << level) <= node + 1:
        level += 1
    index = node + 1 - (1 << level)
    below = tree.depth - level
    return tree.starts[index << below], tree.starts[(index + 1) << below]


# ----------------------------------------------------------------------------------- all within reach


@uncounted
def gather(tree, queries, leaf, lane, myself, reach, found, notes):
    """The rows within reach but `myself`, as many as there is room for in `found`; returns their number.

    With no room at all it counts them.
    """
    leaves = (1 << tree.depth) - 1
    stack = notes.stack
    room = len(found)
    have = 0
    top = 1
    stack[0] = 0
    while top:
        top -= 1
        node = stack[top]
        least, largest = least_and_largest(tree, node, queries, leaf, lane)
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
                tree.flags, tree.weight, reach, notes.out,
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


@uncounted
def cover(tree, queries, leaf, lane, reach, nodes, spare):
    """The nodes of a cover, in the order of the tree, as `nodes` has room for; returns their number."""
    most = len(nodes)
    nodes[0] = 0
    have = 1
    while True:
        next_have, grown = deepen(tree, queries, leaf, lane, reach, nodes, have, spare)
        if not grown or next_have > most:
            return have
        have = next_have
        for at in range(have):
            nodes[at] = spare[at]


@uncounted
def deepen(tree, queries, leaf, lane, reach, nodes, have, spare):
    """A cover one level deeper, as `spare` has room for: (its nodes, whether any was replaced)."""
    most = len(spare)
    leaves = (1 << tree.depth) - 1
    next_have = 0
    grown = False
    for at in range(have):
        node = nodes[at]
        _, largest = least_and_largest(tree, node, queries, leaf, lane)
        if node >= leaves or largest <= reach:
            if next_have < most:
                spare[next_have] = node
            next_have += 1
            continue
        grown = True
        for child in range(2 * node + 1, 2 * node + 3):
            if child >= leaves and tree.starts[child - leaves] == tree.starts[child - leaves + 1]:
                continue
            least, _ = least_and_largest(tree, child, queries, leaf, lane)
            if least <= reach:
                if next_have < most:
                    spare[next_have] = child
                next_have += 1
    return next_have, grown
