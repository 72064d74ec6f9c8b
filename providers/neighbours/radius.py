"""All rows within a radius; node covers of a neighbourhood.

The result depends on the points alone, not on the order of the search. Distances are those of
`simd_distances`. All radii are squared distances.

Arguments of kernels
--------------------
tree : Tree
    Tree of the points.
queries : Tree
    Tree of the queries; it may be the same.
leaf, lane : int64
    Leaf of the query in `queries`, and its lane in the leaf.
position : int64
    Position of a point in `tree`.
node : int64
    Node of `tree`.
radius : float64
    Squared distance within which rows are neighbours of the query.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: search with bounds.
"""

from providers.kernels.decorators import borrowing, uncounted
from providers.neighbours.simd_distances import lowest_lane, near_points

# ------------------------------------------------------------------------------ distances one by one


@borrowing
def _leaf_of(tree, position):
    """Return the leaf that holds a position of the tree."""
    leaf = (position << tree.depth) // len(tree.rows)  # estimate, near because leaves are evenly filled
    while tree.starts[leaf] > position:
        leaf -= 1
    while tree.starts[leaf + 1] <= position:
        leaf += 1
    return leaf


@uncounted
def distance(tree, position, queries, leaf, lane):
    """Return the squared distance between a point and a query, by the expression of `simd_distances`."""
    other = _leaf_of(tree, position)
    other_lane = position - tree.starts[other]
    total = 0.0
    for field in range(tree.numbers.shape[1]):
        difference = queries.numbers[leaf, field, lane] - tree.numbers[other, field, other_lane]
        total += difference * difference
    if tree.codes.shape[1]:
        mismatches, flags = 0, 0
        for field in range(tree.codes.shape[1]):
            differs = queries.codes[leaf, field, lane] != tree.codes[other, field, other_lane]
            if field < tree.flags:
                mismatches += differs
            else:
                flags += differs
        total += tree.weight * mismatches + 2.0 * flags
    return total


@borrowing
def distance_bounds(tree, node, queries, leaf, lane):
    """Return bounds of the squared distances between a node's points and a query: (least, largest)."""
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


@borrowing
def node_positions(tree, node):
    """Return the first position of a node, and the position after its last."""
    level = 0
    while (2 << level) <= node + 1:
        level += 1
    index = node + 1 - (1 << level)
    below = tree.depth - level  # levels down to the leaves
    return tree.starts[index << below], tree.starts[(index + 1) << below]


# ------------------------------------------------------------------------------ all rows within a radius


@borrowing
def rows_within(tree, queries, leaf, lane, excluded, radius, found, state):
    """List the rows within a squared distance of a query, and return their number.

    Parameters
    ----------
    excluded : int32 or int64
        Row that is not listed, or -1.
    found : int32, shape (capacity,)
        Receives the rows; the search ends when it is full. With a capacity of 0 the rows are only counted,
        including `excluded`.
    state : SearchState
        Scratch space; written.
    """
    leaves = (1 << tree.depth) - 1
    stack = state.stack
    capacity = len(found)
    count = 0
    top = 1
    stack[0] = 0
    while top:
        top -= 1
        node = stack[top]
        least, largest = distance_bounds(tree, node, queries, leaf, lane)
        if least > radius:
            continue
        start, stop = node_positions(tree, node)
        if largest <= radius:  # all rows of the node, without computing distances
            if not capacity:
                count += stop - start
                continue
            for position in range(start, stop):
                if tree.rows[position] != excluded:
                    found[count] = tree.rows[position]
                    count += 1
                    if count == capacity:
                        return count
        elif node < leaves:
            stack[top] = 2 * node + 2
            stack[top + 1] = 2 * node + 1
            top += 2
        else:
            points = ((1 << (stop - start)) - 1) & near_points(
                tree.numbers, tree.codes, node - leaves, queries.numbers, queries.codes, leaf, lane,
                tree.flags, tree.weight, radius, state.out,
            )  # fmt: skip
            while points:
                row = tree.rows[start + lowest_lane(points)]
                points &= points - 1
                if not capacity:
                    count += 1
                elif row != excluded:
                    found[count] = row
                    count += 1
                    if count == capacity:
                        return count
    return count


# ------------------------------------------------------------------------------ covers of a neighbourhood


@borrowing
def cover_nodes(tree, queries, leaf, lane, radius, nodes, spare_nodes):
    """Find the cover of a neighbourhood, in the order of the tree, and return its number of nodes.

    `providers.neighbours.donors` defines covers.

    Parameters
    ----------
    nodes : int64, shape (capacity,)
        Receives the nodes; their maximum number is the capacity.
    spare_nodes : int64, shape (capacity,)
        Scratch space; written.
    """
    most = len(nodes)
    nodes[0] = 0
    count = 1
    while True:
        next_count, is_refined = refine_cover(tree, queries, leaf, lane, radius, nodes, count, spare_nodes)
        if not is_refined or next_count > most:
            return count
        count = next_count
        for index in range(count):
            nodes[index] = spare_nodes[index]


@borrowing
def refine_cover(tree, queries, leaf, lane, radius, nodes, count, next_nodes):
    """Refine a cover by one level, and return (number of nodes, whether any node was replaced).

    Parameters
    ----------
    nodes : int64, shape (count,) or more
        Nodes of the cover.
    count : int64
        Number of nodes of the cover.
    next_nodes : int64, shape (capacity,)
        Receives as many nodes of the refined cover as it holds. The number that is returned may exceed its
        capacity.
    """
    most = len(next_nodes)
    leaves = (1 << tree.depth) - 1
    next_count = 0
    is_refined = False
    for index in range(count):
        node = nodes[index]
        _, largest = distance_bounds(tree, node, queries, leaf, lane)
        if node >= leaves or largest <= radius:
            if next_count < most:
                next_nodes[next_count] = node
            next_count += 1
            continue
        is_refined = True
        for child in range(2 * node + 1, 2 * node + 3):
            if child >= leaves and tree.starts[child - leaves] == tree.starts[child - leaves + 1]:
                continue  # an empty leaf
            least, _ = distance_bounds(tree, child, queries, leaf, lane)
            if least <= radius:
                if next_count < most:
                    next_nodes[next_count] = child
                next_count += 1
    return next_count, is_refined
