"""k-d tree over bin means: nearest mean, and cubes within a radius.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: the k-d tree with bounds.
"""

import numpy as np

from providers.arrays import Float64Array, Int64Array
from providers.kernels.decorators import within
from providers.kernels.parallel import parallel
from providers.numba import njit, prange
from providers.progress import Progress

_LEAF = 8
"""Largest number of means in a leaf."""

AT_ONCE = 65536
"""Number of points that are searched for between two progress reports."""

# ------------------------------------------------------------------------------- the nearest mean


class MeanTree:
    """k-d tree of the means of bins, with the bounding box of each node.

    Parameters
    ----------
    means : ndarray of float64, shape (means, fields)
        One or more.
    progress : Progress

    Notes
    -----
    Distances are squared Euclidean, summed in the order of the fields. The bound of a box is computed in
    the same order, so that it never exceeds the computed distance of a mean in it, rounding included.
    """

    def __init__(self, means: Float64Array, progress: Progress) -> None:
        self._numbers = np.arange(len(means))
        self._depth = max(0, (len(means) - 1) // _LEAF).bit_length()
        nodes = (1 << (self._depth + 1)) - 1
        self._boxes = np.empty((nodes, 2, means.shape[1]))
        self._smallest = np.empty(nodes, np.int64)
        for level in range(self._depth + 1):
            progress(level / (self._depth + 1), "arranging bins")
            _split_level(means, self._numbers, level, self._depth, self._boxes, self._smallest)
        self._means = means[self._numbers]

    def nearest(self, points: Float64Array, progress: Progress) -> Int64Array:
        """Return for each point the number of the nearest mean; ties go to the smallest number."""
        nearest = np.empty(len(points), np.int64)
        for start in range(0, len(points), AT_ONCE):
            progress(start / len(points), "merging single rows")
            batch = slice(start, start + AT_ONCE)
            tree = self._means, self._numbers, self._depth, self._boxes, self._smallest
            _find_nearest(points[batch], *tree, nearest[batch])
        return nearest

    def within(self, points: Float64Array, radii: Float64Array, half: float) -> Int64Array:
        """Return the numbers of the means whose cube is within some point's radius.

        The cube around a mean extends by `half` to each side.
        """
        marks = np.zeros(len(self._numbers), np.bool_)
        tree = self._means, self._numbers, self._depth, self._boxes
        _mark_within(points, radii * radii, half, *tree, marks)
        return np.flatnonzero(marks)


@within
def _select(means, numbers, start, stop, middle, axis):
    """Quickselect: reorder ``numbers[start:stop]`` so that no mean before `middle` exceeds one after it.

    Parameters
    ----------
    means : ndarray of float64, shape (means, fields)
    numbers : ndarray of int64, shape (means,)
        Permuted in place.
    start, stop, middle : int
        Positions in `numbers`.
    axis : int
        Field to compare.
    """
    low, high = start, stop - 1
    while low < high:
        pivot = means[numbers[(low + high) // 2], axis]
        left, right = low, high
        while left <= right:
            while means[numbers[left], axis] < pivot:
                left += 1
            while means[numbers[right], axis] > pivot:
                right -= 1
            if left <= right:
                numbers[left], numbers[right] = numbers[right], numbers[left]
                left += 1
                right -= 1
        if middle <= right:
            high = right
        elif middle >= left:
            low = left
        else:
            return


@parallel
def _split_level(means, numbers, level, depth, boxes, smallest):
    """Compute the boxes of a level's nodes and, above the leaves, halve each along its widest side.

    Node i of level l holds the positions from ``len(means) * i >> l`` on; its children are nodes 2i and
    2i + 1 of the next level. Its index in `boxes` and `smallest` is 2^l - 1 + i.

    Parameters
    ----------
    means : ndarray of float64, shape (means, fields)
    numbers : ndarray of int64, shape (means,)
        Numbers of the means by position. Permuted in place.
    level, depth : int
        This level, and that of the leaves.
    boxes : ndarray of float64, shape (nodes, 2, fields)
        Smallest and largest value of each node in each field. Written.
    smallest : ndarray of int64, shape (nodes,)
        Smallest number of a mean in each node. Written.
    """
    count, fields = means.shape
    for node in prange(1 << level):
        start, stop = count * node >> level, count * (node + 1) >> level
        box = boxes[(1 << level) - 1 + node]
        least = np.int64(count)
        for field in range(fields):
            box[0, field] = np.inf
            box[1, field] = -np.inf
        for position in range(start, stop):
            least = min(least, numbers[position])
            for field in range(fields):
                value = means[numbers[position], field]
                box[0, field] = min(box[0, field], value)
                box[1, field] = max(box[1, field], value)
        smallest[(1 << level) - 1 + node] = least
        if level < depth:
            widest = 0
            for field in range(1, fields):
                if box[1, field] - box[0, field] > box[1, widest] - box[0, widest]:
                    widest = field
            middle = count * (2 * node + 1) >> (level + 1)
            if fields > 0 and start < middle < stop:
                _select(means, numbers, start, stop, middle, widest)


@njit(cache=True, nogil=True)
def _bound(point, low, high, half):
    """Lower bound of the squared distance from the point to the box, which `half` extends to each side.

    `point` and the edges of the box, `low` and `high`, are float64 (fields,); `half` is a float.
    """
    total = 0.0
    for field in range(len(point)):
        gap = max(low[field] - half - point[field], point[field] - high[field] - half, 0.0)
        total += gap * gap
    return total


@parallel
def _find_nearest(points, arranged, numbers, depth, boxes, smallest, nearest):
    """Find the nearest mean of each point by depth-first search, the nearer child first.

    Parameters
    ----------
    points : ndarray of float64, shape (points, fields)
    arranged : ndarray of float64, shape (means, fields)
        Means by position.
    numbers, depth, boxes, smallest
        See `_split_level`.
    nearest : ndarray of int64, shape (points,)
        Number of the nearest mean. Written.
    """
    count, fields = arranged.shape
    for number in prange(len(points)):
        point = points[number]
        best = np.inf
        winner = np.int64(count)
        waiting = np.empty(64, np.int64)  # stack of nodes to visit: at most two for each level
        bounds = np.empty(64)
        levels = np.empty(64, np.int64)
        waiting[0] = 0
        bounds[0] = 0.0
        levels[0] = 0
        left = 1
        while left > 0:
            left -= 1
            node, level, bound = waiting[left], levels[left], bounds[left]
            index = (1 << level) - 1 + node
            if bound > best or (bound == best and smallest[index] > winner):
                continue
            if level < depth:
                near, far = 2 * node, 2 * node + 1
                below = (2 << level) - 1
                near_bound = _bound(point, boxes[below + near, 0], boxes[below + near, 1], 0.0)
                far_bound = _bound(point, boxes[below + far, 0], boxes[below + far, 1], 0.0)
                if far_bound < near_bound:
                    near, far = far, near
                    near_bound, far_bound = far_bound, near_bound
                waiting[left], levels[left], bounds[left] = far, level + 1, far_bound
                waiting[left + 1], levels[left + 1], bounds[left + 1] = near, level + 1, near_bound
                left += 2
                continue
            for position in range(count * node >> level, count * (node + 1) >> level):
                distance = 0.0
                for field in range(fields):
                    difference = point[field] - arranged[position, field]
                    distance += difference * difference
                if distance < best or (distance == best and numbers[position] < winner):
                    best = distance
                    winner = numbers[position]
        nearest[number] = winner


@parallel
def _mark_within(points, squared, half, arranged, numbers, depth, boxes, marks):
    """Mark the means whose cube is within a point's radius.

    Parameters
    ----------
    points, arranged, numbers, depth, boxes
        See `_find_nearest`.
    squared : ndarray of float64, shape (points,)
        Squared radii.
    half : float
        Half the side of a cube.
    marks : ndarray of bool, shape (means,)
        Set to True for the numbers found.
    """
    count = len(arranged)
    for number in prange(len(points)):
        point = points[number]
        waiting = np.empty(64, np.int64)
        levels = np.empty(64, np.int64)
        waiting[0] = 0
        levels[0] = 0
        left = 1
        while left > 0:
            left -= 1
            node, level = waiting[left], levels[left]
            box = boxes[(1 << level) - 1 + node]
            if _bound(point, box[0], box[1], half) > squared[number]:
                continue
            if level < depth:
                waiting[left], waiting[left + 1] = 2 * node, 2 * node + 1
                levels[left] = levels[left + 1] = level + 1
                left += 2
                continue
            for position in range(count * node >> level, count * (node + 1) >> level):
                if _bound(point, arranged[position], arranged[position], half) <= squared[number]:
                    marks[numbers[position]] = True
