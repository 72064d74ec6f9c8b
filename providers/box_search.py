"""The farthest row and the nearest rows of what is left in a tree of boxes, exactly.

A distance is the sum over the fields, in their order, of squared differences, in float64 without fused
multiply-add. A bound on it is the same expression at the edges of a box, in the same order: rounding is
monotone, so it bounds the computed distances, not only the true ones, and ties are bitwise ties. They go
to the smallest row everywhere.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: nearest neighbours by bounds.
Hoare 1961, doi:10.1145/366622.366647: the k smallest by selection.
"""

import numpy as np
from numba import njit

from providers.boxes import NOBODY


@njit(cache=True, nogil=True, forceinline=True)  # a call would count references to the whole tree
def _far_bound(tree, node, low, high):
    """No row left in the node is farther than this from any point of the box."""
    total = 0.0
    for field in range(len(low)):
        difference = max(tree.upper[node, field] - low[field], high[field] - tree.lower[node, field])
        total += difference * difference
    return total


@njit(cache=True, nogil=True)
def farthest(tree, low, high, myself):
    """(distance, row, place) of the row left that is farthest from the box, from its far side.

    The box is a point where `low` is `high`. The row `myself` is not looked at. -1 if there is no other.
    """
    fields = len(low)
    best, best_row, best_place = -1.0, np.int32(NOBODY), -1
    depth = 1
    work = 16  # to begin a search costs as much
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
            bound_one = -1.0 if tree.smallest[one] == NOBODY else _far_bound(tree, one, low, high)
            bound_two = -1.0 if tree.smallest[two] == NOBODY else _far_bound(tree, two, low, high)
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
            for at in range(live):
                difference = max(highest - column[at], column[at] - lowest)
                squares[at] += difference * difference
        for at in range(live):
            if squares[at] < best:
                continue
            place = first + at
            head = tree.head[place]
            if tree.order[head] == myself:
                head += 1
                if head == tree.stop[place]:
                    continue
            row = tree.order[head]
            if squares[at] > best or row < best_row:
                best, best_row, best_place = squares[at], row, place
    tree.work[0] += work
    return best, best_row, best_place


@njit(cache=True, nogil=True, forceinline=True)  # a call would count references to the whole tree
def _near_bound(tree, node, point):
    """No row left in the node is nearer to the point than this."""
    total = 0.0
    for field in range(len(point)):
        difference = max(tree.lower[node, field] - point[field], point[field] - tree.upper[node, field], 0.0)
        total += difference * difference
    return total


@njit(cache=True, nogil=True)
def _select(distances, rows, places, count, wanted):
    """Bring the `wanted` smallest by (distance, row) to the front; returns the last of them's index."""
    left, right = 0, count - 1
    target = wanted - 1
    while left < right:
        middle = (left + right) >> 1
        # median of three, so that what is sorted already stays quick
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


@njit(cache=True, nogil=True)
def _swap(distances, rows, places, one, two):
    distances[one], distances[two] = distances[two], distances[one]
    rows[one], rows[two] = rows[two], rows[one]
    places[one], places[two] = places[two], places[one]


@njit(cache=True, nogil=True)
def nearest(tree, point, wanted, distances, rows, places):
    """Find the `wanted` rows left that are nearest to the point, by (distance, row).

    They come, in no order, at the front of the last three arrays, which hold over twice as many. There
    are that many rows left. Of a site they are the first ones.
    """
    fields = len(point)
    count = 0
    limit, limit_row = np.inf, np.int32(NOBODY)
    depth = 1
    work = 16  # to begin a search costs as much
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
            bound_one = np.inf if tree.smallest[one] == NOBODY else _near_bound(tree, one, point)
            bound_two = np.inf if tree.smallest[two] == NOBODY else _near_bound(tree, two, point)
            if bound_two < bound_one or (bound_two == bound_one and tree.smallest[two] < tree.smallest[one]):
                one, two = two, one
                bound_one, bound_two = bound_two, bound_one
            if bound_two <= limit and tree.smallest[two] != NOBODY:
                tree.nodes[depth] = two
                tree.bounds[depth] = bound_two
                depth += 1
            if bound_one <= limit and tree.smallest[one] != NOBODY:
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
            for at in range(live):
                difference = column[at] - value
                squares[at] += difference * difference
        for at in range(live):
            place = first + at
            for head in range(tree.head[place], tree.stop[place]):
                row = tree.order[head]
                if squares[at] > limit or (squares[at] == limit and row > limit_row):
                    break  # the site's other rows are larger still
                distances[count], rows[count], places[count] = squares[at], row, place
                count += 1
                if count == len(rows) or (count == wanted and limit_row == NOBODY):
                    last = _select(distances, rows, places, count, wanted)
                    limit, limit_row = distances[last], rows[last]
                    work += count
                    count = wanted
    if count > wanted:
        _select(distances, rows, places, count, wanted)
    tree.work[0] += work
