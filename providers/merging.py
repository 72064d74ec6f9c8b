"""Bins of one row, each merged into the nearest bin of two or more rows.

Nearest is the bin whose mean is nearest, in widths of a cell; of equally near ones the one whose cell
comes first. The search is exact, by a k-d tree over the means: O(log bins) for a row in few fields, more
in many.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: the k-d tree with bounds.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit, prange

from providers.addresses import addresses_of
from providers.bins import FieldValues, Float64Array
from providers.grid import Axis
from providers.kernels import Groups
from providers.provider import Progress
from providers.radix import IndexArray, Int64Array, radix_order
from providers.together import pack_rows

_LEAF = 8
"""Bins of a leaf of the tree, at most."""
_AT_ONCE = 65536
"""Rows that are looked for between two words of progress."""
_PACKED_AT_ONCE = 2**22


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
    used = [number for number, axis in enumerate(axes) if axis.width > 0]
    cuts = np.array([(axes[number].origin, axes[number].width) for number in used])
    values = [fields[number].values for number in used]
    means = np.empty((len(bins), len(used)))
    _means_of_bins(_packed(values), order, starts, bins, cuts, means)
    points = (np.column_stack([column[alone] for column in values]) - cuts[:, 0]) / cuts[:, 1]
    nearest = nearest_means(points, means, progress)
    arriving = radix_order([nearest.astype(np.uint64), alone.astype(np.uint64)])
    arrivals = np.concatenate(([0], np.cumsum(np.bincount(nearest, minlength=len(bins))))).astype(np.int64)
    merged_starts = np.concatenate(([0], np.cumsum(sizes[bins]))).astype(np.int64) + arrivals
    merged = np.empty_like(order)
    _merge_rows(order, starts, bins, alone[arriving], arrivals, merged_starts, merged)
    return Groups(len(order), merged, merged_starts, merged[merged_starts[:-1]].astype(np.uint64))


def _packed(columns: Sequence[Float64Array]) -> Float64Array:
    """The values of each row side by side, so that a row in random order is waited for once."""
    packed = np.empty((len(columns[0]), len(columns)), np.uint64)
    addresses = addresses_of(columns)
    for start in range(0, len(packed), _PACKED_AT_ONCE):
        pack_rows(addresses, start, packed[start : start + _PACKED_AT_ONCE])
    return packed.view(np.float64)


@njit(cache=True, nogil=True, parallel=True)
def _means_of_bins(packed, order, starts, bins, cuts, means):
    """Means in widths, summed in the order of the rows; ``means`` float64, shape (bins, fields)."""
    for at in prange(len(bins)):
        start, stop = starts[bins[at]], starts[bins[at] + 1]
        mean = means[at]
        mean[:] = 0.0
        for place in range(start, stop):
            row = np.uint64(order[place])
            for field in range(len(cuts)):
                mean[field] += (packed[row, field] - cuts[field, 0]) / cuts[field, 1]
        for field in range(len(cuts)):
            mean[field] /= stop - start


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


def nearest_means(points: Float64Array, means: Float64Array, progress: Progress) -> Int64Array:
    """For each point the number of the nearest mean, the smallest number of equally near ones.

    Parameters
    ----------
    points : ndarray of float64, shape (points, fields)
    means : ndarray of float64, shape (means, fields), one or more

    Notes
    -----
    Squared Euclidean distance, fields in order. The bound of a box is computed in the same order from
    the means in it, so that it is never above a distance within, rounding included.
    """
    numbers = np.arange(len(means))
    depth = max(0, (len(means) - 1) // _LEAF).bit_length()
    nodes = (1 << (depth + 1)) - 1
    boxes = np.empty((nodes, 2, means.shape[1]))
    smallest = np.empty(nodes, np.int64)
    for level in range(depth + 1):
        progress(0.5 * level / (depth + 1), "arranging bins")
        _split_level(means, numbers, level, depth, boxes, smallest)
    arranged = means[numbers]
    nearest = np.empty(len(points), np.int64)
    for start in range(0, len(points), _AT_ONCE):
        progress(0.5 + 0.5 * start / len(points), "merging single rows")
        part = slice(start, start + _AT_ONCE)
        _find_nearest(points[part], arranged, numbers, depth, boxes, smallest, nearest[part])
    return nearest


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
def _bound(point, box):
    """No mean in the box is nearer than this, squared."""
    total = 0.0
    for field in range(len(point)):
        gap = max(box[0, field] - point[field], point[field] - box[1, field], 0.0)
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
                near_bound = _bound(point, boxes[below + near])
                far_bound = _bound(point, boxes[below + far])
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
