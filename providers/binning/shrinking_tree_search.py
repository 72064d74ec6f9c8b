"""Farthest and nearest remaining rows in a shrinking k-d tree.

A distance is the sum of squared differences over the fields, in their order, in float64 without fused
multiply-add. A bound on it is the same expression at the edges of a box, in the same order. Rounding is
monotone, so that the bound holds for computed distances, not only for exact ones. Ties are bitwise equal
distances and always go to the smallest row.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: nearest neighbours by bounds.
Hoare 1961, doi:10.1145/366622.366647: the k smallest by selection.
"""

import numpy as np

from providers.binning.shrinking_tree import NO_ROW
from providers.kernels.decorators import borrowing, within_forced


@within_forced
def _far_bound(tree, node, low, high):
    """Upper bound of the squared distance from any point of the box to any row left in the node.

    `tree` is a Boxes, `node` the number of a node; `low` and `high` are the edges of the box, float64
    (fields,).
    """
    total = 0.0
    for field in range(len(low)):
        difference = max(tree.upper[node, field] - low[field], high[field] - tree.lower[node, field])
        total += difference * difference
    return total


@borrowing
def farthest(tree, low, high, excluded):
    """Find the row left whose largest distance to a point of the box is largest.

    Parameters
    ----------
    tree : Boxes
        Scratch and work counter are written.
    low, high : ndarrays of float64, shape (fields,)
        Edges of the box; equal for a point.
    excluded : int
        Row that is not considered; `NO_ROW` for none.

    Returns
    -------
    (squared distance, row, place)
        (-1, `NO_ROW`, -1) if there is no other row.
    """
    fields = len(low)
    best, best_row, best_place = -1.0, np.int32(NO_ROW), -1
    depth = 1
    work = 16  # cost of starting a search, in boxes
    tree.nodes[0] = 0
    tree.bounds[0] = np.inf
    while depth > 0:
        depth -= 1
        node = tree.nodes[depth]
        bound = tree.bounds[depth]
        if bound < best or (bound == best and tree.smallest[node] >= best_row):
            continue
        one = tree.child[node]
        if one:
            two = one + 1
            work += 2
            bound_one = -1.0 if tree.smallest[one] == NO_ROW else _far_bound(tree, one, low, high)
            bound_two = -1.0 if tree.smallest[two] == NO_ROW else _far_bound(tree, two, low, high)
            if bound_two > bound_one or (bound_two == bound_one and tree.smallest[two] < tree.smallest[one]):
                one, two = two, one
                bound_one, bound_two = bound_two, bound_one
            if bound_two >= best:
                tree.nodes[depth] = two
                tree.bounds[depth] = bound_two
                depth += 1
            if bound_one >= best:
                tree.nodes[depth] = one
                tree.bounds[depth] = bound_one
                depth += 1
            continue
        first, live = tree.start[node], tree.live[node]
        work += live
        squares = tree.squares[:live]
        squares[:] = 0.0
        for field in range(fields):
            column = tree.points[field, first : first + live]
            lowest, highest = low[field], high[field]
            for site in range(live):
                difference = max(highest - column[site], column[site] - lowest)
                squares[site] += difference * difference
        for site in range(live):
            if squares[site] < best:
                continue
            place = first + site
            head = tree.head[place]
            if tree.order[head] == excluded:
                head += 1
                if head == tree.stop[place]:
                    continue
            row = tree.order[head]
            if squares[site] > best or row < best_row:
                best, best_row, best_place = squares[site], row, place
    tree.work[0] += work
    return best, best_row, best_place


@within_forced
def _near_bound(tree, node, point):
    """Lower bound of the squared distance from the point to any row left in the node.

    `tree` is a Boxes, `node` the number of a node, and `point` float64 (fields,).
    """
    total = 0.0
    for field in range(len(point)):
        difference = max(tree.lower[node, field] - point[field], point[field] - tree.upper[node, field], 0.0)
        total += difference * difference
    return total


@borrowing
def _select(distances, rows, places, count, wanted):
    """Quickselect: move the `wanted` smallest by (distance, row) to the front; return the index of the last.

    Parameters
    ----------
    distances : ndarray of float64, shape (at least count,)
    rows : ndarray of int32, same shape
    places : ndarray of int64, same shape
        All three are permuted in place, together.
    count : int
        Number of entries in use.
    wanted : int
        1 up to `count`.
    """
    left, right = 0, count - 1
    target = wanted - 1
    while left < right:
        middle = (left + right) >> 1
        # Median of three, so that sorted input stays quick.
        for one, two in ((left, middle), (middle, right), (left, middle)):
            if distances[two] < distances[one] or (
                distances[two] == distances[one] and rows[two] < rows[one]
            ):
                _swap(distances, rows, places, one, two)
        pivot, pivot_row = distances[middle], rows[middle]
        low, high = left, right
        while low <= high:
            while distances[low] < pivot or (distances[low] == pivot and rows[low] < pivot_row):
                low += 1
            while distances[high] > pivot or (distances[high] == pivot and rows[high] > pivot_row):
                high -= 1
            if low <= high:
                _swap(distances, rows, places, low, high)
                low += 1
                high -= 1
        if target <= high:
            right = high
        elif target >= low:
            left = low
        else:
            break
    return target


@borrowing
def _swap(distances, rows, places, one, two):
    """Exchange the entries `one` and `two` (ints) of `distances`, `rows` and `places`, as in `_select`."""
    distances[one], distances[two] = distances[two], distances[one]
    rows[one], rows[two] = rows[two], rows[one]
    places[one], places[two] = places[two], places[one]


@borrowing
def nearest(tree, point, wanted, distances, rows, places):
    """Find the `wanted` rows left that are nearest to the point, by (distance, row).

    The result is at the front of the last three arrays, in no order; of each site it holds the first rows.

    Parameters
    ----------
    tree : Boxes
        Scratch and work counter are written.
    point : ndarray of float64, shape (fields,)
    wanted : int
        At most the number of rows left.
    distances : ndarray of float64, shape (more than 2 wanted,)
        Squared distances. Written.
    rows : ndarray of int32, same shape
        Written.
    places : ndarray of int64, same shape
        Places of the rows' sites. Written.
    """
    fields = len(point)
    count = 0
    limit, limit_row = np.inf, np.int32(NO_ROW)
    depth = 1
    work = 16  # cost of starting a search, in boxes
    tree.nodes[0] = 0
    tree.bounds[0] = 0.0
    while depth > 0:
        depth -= 1
        node = tree.nodes[depth]
        bound = tree.bounds[depth]
        if bound > limit or (bound == limit and tree.smallest[node] > limit_row):
            continue
        one = tree.child[node]
        if one:
            two = one + 1
            work += 2
            bound_one = np.inf if tree.smallest[one] == NO_ROW else _near_bound(tree, one, point)
            bound_two = np.inf if tree.smallest[two] == NO_ROW else _near_bound(tree, two, point)
            if bound_two < bound_one or (bound_two == bound_one and tree.smallest[two] < tree.smallest[one]):
                one, two = two, one
                bound_one, bound_two = bound_two, bound_one
            if bound_two <= limit and tree.smallest[two] != NO_ROW:
                tree.nodes[depth] = two
                tree.bounds[depth] = bound_two
                depth += 1
            if bound_one <= limit and tree.smallest[one] != NO_ROW:
                tree.nodes[depth] = one
                tree.bounds[depth] = bound_one
                depth += 1
            continue
        first, live = tree.start[node], tree.live[node]
        work += live
        squares = tree.squares[:live]
        squares[:] = 0.0
        for field in range(fields):
            column = tree.points[field, first : first + live]
            value = point[field]
            for site in range(live):
                difference = column[site] - value
                squares[site] += difference * difference
        for site in range(live):
            place = first + site
            for head in range(tree.head[place], tree.stop[place]):
                row = tree.order[head]
                if squares[site] > limit or (squares[site] == limit and row > limit_row):
                    break  # the other rows of the site have larger numbers
                distances[count], rows[count], places[count] = squares[site], row, place
                count += 1
                if count == len(rows) or (count == wanted and limit_row == NO_ROW):
                    last = _select(distances, rows, places, count, wanted)
                    limit, limit_row = distances[last], rows[last]
                    work += count
                    count = wanted
    if count > wanted:
        _select(distances, rows, places, count, wanted)
    tree.work[0] += work
