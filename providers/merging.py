"""Bins of one row, each merged into the nearest bin of two or more rows.

Nearest is the bin whose mean is nearest, in widths of a cell; of equally near ones the one whose cell
comes first. The search is exact, by a k-d tree over the means: O(log bins) for a row in few fields, more
in many.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: the k-d tree with bounds.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numba import njit, prange

from providers.addresses import addresses_of, float_at
from providers.bins import FieldValues, Float64Array
from providers.grid import Axis
from providers.groups import Groups
from providers.provider import Progress, no_progress
from providers.radix import IndexArray, Int64Array, radix_order

_LEAF = 8
"""Bins of a leaf of the tree, at most."""
_AT_ONCE = 65536
"""Rows that are looked for between two words of progress."""
_FEW = 1024
"""Rows alone below which most bins' means are of no use, and are not found."""


def merge_singletons(
    fields: Sequence[FieldValues],
    axes: Sequence[Axis],
    order: IndexArray,
    starts: Int64Array,
    progress: Progress,
) -> Groups:
    """The bins of two or more rows, with every row that was alone in the nearest of them.

    Parameters
    ----------
    fields, axes : sequences
        What the grid was made of.
    order, starts : ndarrays
        Rows by cell, as `rows_by_cell` gives them; at least one bin of two rows.
    """
    sizes = np.diff(starts)
    alone = order[starts[:-1][sizes == 1]]
    bins = np.flatnonzero(sizes > 1)
    used, cuts = widths_of(axes)
    columns = [fields[number].values for number in used]
    points = _in_widths(columns, alone, cuts)
    means = partial(_means, columns, order, starts, cuts, progress)
    if len(alone) < min(_FEW, len(bins) // 4):
        corners = np.floor(_in_widths(columns, order[starts[bins]], cuts))
        last = np.array([axes[number].last for number in used])
        within = _possible(points, np.minimum(corners, last) + 0.5, lambda numbers: means(bins[numbers]))
    else:
        within = np.arange(len(bins))
    nearest = within[MeanTree(means(bins[within]), progress).nearest(points, progress)]
    arriving = radix_order([nearest.astype(np.uint64), alone.astype(np.uint64)])
    arrivals = np.concatenate(([0], np.cumsum(np.bincount(nearest, minlength=len(bins))))).astype(np.int64)
    merged_starts = np.concatenate(([0], np.cumsum(sizes[bins]))).astype(np.int64) + arrivals
    merged = np.empty_like(order)
    _merge_rows(order, starts, bins, alone[arriving], arrivals, merged_starts, merged)
    return Groups(len(order), merged, merged_starts, merged[merged_starts[:-1]].astype(np.uint64))


def widths_of(axes: Sequence[Axis]) -> tuple[list[int], Float64Array]:
    """The fields that vary, and the origin and width of each; shape (fields that vary, 2)."""
    used = [number for number, axis in enumerate(axes) if axis.width > 0]
    return used, np.array([(axes[number].origin, axes[number].width) for number in used]).reshape(-1, 2)


def _in_widths(columns: Sequence[Float64Array], rows: IndexArray, cuts: Float64Array) -> Float64Array:
    """The values of these rows, in widths from the origin; shape (rows, fields)."""
    return np.asarray((np.column_stack([column[rows] for column in columns]) - cuts[:, 0]) / cuts[:, 1])


def _possible(
    points: Float64Array, centres: Float64Array, means_of: Callable[[Int64Array], Float64Array]
) -> Int64Array:
    """The numbers of the bins that can be nearest to a point, and hardly more, ascending.

    A mean lies in its bin's cell. So whoever is nearest has a cell that is no further away than the mean
    of any other bin, such as that of the bin with the nearest centre.
    """
    tree = MeanTree(centres, no_progress)
    guesses, of_point = np.unique(tree.nearest(points, no_progress), return_inverse=True)
    offsets = points - means_of(guesses)[of_point]
    reach = np.sqrt((offsets * offsets).sum(axis=1))
    rounded = 1e-6 * (1.0 + np.abs(centres).max())  # more than sums of numbers are
    return tree.within(points, reach + rounded, 0.5 + rounded)


def _means(
    columns: Sequence[Float64Array],
    order: IndexArray,
    starts: Int64Array,
    cuts: Float64Array,
    progress: Progress,
    bins: Int64Array,
) -> Float64Array:
    """Means of these bins in widths, shape (bins, fields)."""
    sums = np.zeros((len(bins), len(columns)))
    for start in range(0, len(bins), _AT_ONCE):
        progress(start / len(bins), "finding means")
        part = slice(start, start + _AT_ONCE)
        add_up(columns, order, starts, bins[part], cuts, sums[part])
    return np.asarray(sums / (starts[bins + 1] - starts[bins])[:, np.newaxis])


def add_up(
    columns: Sequence[Float64Array],
    order: IndexArray,
    starts: Int64Array,
    bins: Int64Array,
    cuts: Float64Array,
    sums: Float64Array,
) -> None:
    """Add the values of these bins' rows, in widths from the origin, to ``sums``, shape (bins, fields).

    One after the other in the order of the rows, so that a bin may be added up piece by piece.
    """
    _add_up(addresses_of(columns), order, starts, bins, cuts, sums)


@njit(cache=True, nogil=True, parallel=True)
def _add_up(addresses, order, starts, bins, cuts, sums):
    for at in prange(len(bins)):
        start, stop = starts[bins[at]], starts[bins[at] + 1]
        for field in range(len(cuts)):
            total = sums[at, field]
            for place in range(start, stop):
                total += (float_at(addresses[field], np.int64(order[place])) - cuts[field, 0]) / cuts[
                    field, 1
                ]
            sums[at, field] = total


@njit(cache=True, nogil=True, parallel=True)
def _merge_rows(order, starts, bins, arriving, arrivals, merged_starts, merged):
    """Write each bin's rows and those that arrive there, both ascending, as one ascending list."""
    for at in prange(len(bins)):
        here, stop = starts[bins[at]], starts[bins[at] + 1]
        come, last = arrivals[at], arrivals[at + 1]
        for to in range(merged_starts[at], merged_starts[at + 1]):
            if come == last or (here < stop and order[here] < arriving[come]):
                merged[to] = order[here]
                here += 1
            else:
                merged[to] = arriving[come]
                come += 1


# ------------------------------------------------------------------------------- the nearest mean


class MeanTree:
    """Means of bins, boxed by nearness.

    Parameters
    ----------
    means : ndarray of float64, shape (means, fields), one or more

    Notes
    -----
    Squared Euclidean distances, fields in order. The bound of a box is computed in the same order from
    the means in it, so that it is never above a distance within, rounding included.
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
        """For each point the number of the nearest mean, the smallest number of equally near ones."""
        nearest = np.empty(len(points), np.int64)
        for start in range(0, len(points), _AT_ONCE):
            progress(start / len(points), "merging single rows")
            part = slice(start, start + _AT_ONCE)
            tree = self._means, self._numbers, self._depth, self._boxes, self._smallest
            _find_nearest(points[part], *tree, nearest[part])
        return nearest

    def within(self, points: Float64Array, radii: Float64Array, half: float) -> Int64Array:
        """The numbers of the cubes, `half` as wide to each side of a mean, within a point's radius."""
        marks = np.zeros(len(self._numbers), np.bool_)
        tree = self._means, self._numbers, self._depth, self._boxes
        _mark_within(points, radii * radii, half, *tree, marks)
        return np.flatnonzero(marks)


@njit(cache=True, nogil=True)
def _select(means, numbers, start, stop, middle, axis):
    """Reorder ``numbers[start:stop]`` so that no mean before `middle` is greater than one after it."""
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


@njit(cache=True, nogil=True, parallel=True)
def _split_level(means, numbers, level, depth, boxes, smallest):
    """Box the nodes of a level and, above the leaves, halve each along its widest side.

    Node i of level l has the means from ``len(means) * i >> l`` on; its children are nodes 2i and
    2i + 1 of the next level.
    """
    count, fields = means.shape
    for node in prange(1 << level):
        start, stop = count * node >> level, count * (node + 1) >> level
        box = boxes[(1 << level) - 1 + node]
        least = np.int64(count)
        for field in range(fields):
            box[0, field] = np.inf
            box[1, field] = -np.inf
        for at in range(start, stop):
            least = min(least, numbers[at])
            for field in range(fields):
                value = means[numbers[at], field]
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
    """Nothing in the box, made wider by `half` to each side, is nearer than this, squared."""
    total = 0.0
    for field in range(len(point)):
        gap = max(low[field] - half - point[field], point[field] - high[field] - half, 0.0)
        total += gap * gap
    return total


@njit(cache=True, nogil=True, parallel=True)
def _find_nearest(points, arranged, numbers, depth, boxes, smallest, nearest):
    count, fields = arranged.shape
    for number in prange(len(points)):
        point = points[number]
        best = np.inf
        winner = np.int64(count)
        waiting = np.empty(64, np.int64)  # two nodes a level at most
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
            for at in range(count * node >> level, count * (node + 1) >> level):
                distance = 0.0
                for field in range(fields):
                    difference = point[field] - arranged[at, field]
                    distance += difference * difference
                if distance < best or (distance == best and numbers[at] < winner):
                    best = distance
                    winner = numbers[at]
        nearest[number] = winner


@njit(cache=True, nogil=True, parallel=True)
def _mark_within(points, squared, half, arranged, numbers, depth, boxes, marks):
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
            for at in range(count * node >> level, count * (node + 1) >> level):
                if _bound(point, arranged[at], arranged[at], half) <= squared[number]:
                    marks[numbers[at]] = True
