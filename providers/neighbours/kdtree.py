"""Deterministic balanced k-d tree.

Donors are drawn from nodes of the tree (`donors`), so that the tree is part of the definition of RWN, and
every choice in it is fixed. A tree of n rows has L leaves, the fewest that hold them. Leaf t has the
positions from ``n t div L`` up to ``n (t + 1) div L``. Node b of level l has the leaves from ``L b / 2**l``
up to ``L (b + 1) / 2**l``, both rounded up, until a node has a single leaf. A node is cut across its widest
dimension in the order of its points; ties are cut across the next widest dimension, and finally by row. Of
equally wide dimensions the first comes first. The rows of a leaf are in ascending order. The division of
the work between threads does not change the tree.

In this implementation all leaves are on one level. A node above them with a single leaf has it as its left
child; its right child is an empty leaf, whose box is infinitely far from everything.

Arguments of kernels
--------------------
growth : Growth
    Tree that is being grown. Its arrays are written, except `extents`, `starts` and the points.
sides : uint8 array (n,)
    Side of the cut of each point: `_LEFT` or `_RIGHT`, or `_TIED` while it is undecided. Written.
boxes : float64 array (nodes, 2, numbers)
    Smallest and largest numbers of each node. Written.
code_boxes : int32 array (nodes, 2, codes)
    Smallest and largest codes of each node. Written.
starts : int64 array (leaves + 1,)
    First position of each leaf, and the end.
level, index, node : int64
    Level of a node, its index in the level, and its number ``(1 << level) - 1 + index``.
dimension : int64
    Index of a number, or number of numbers plus index of a code.
number_blocks : float64 array (leaves, numbers, LEAF)
    Numbers of the points of each leaf, infinite in empty lanes. Written.
code_blocks : int32 array (leaves, codes, LEAF)
    Codes of the points of each leaf, -1 in empty lanes. Written.

References
----------
Bentley 1975, doi:10.1145/361002.361007: the k-d tree.
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: the median of the widest dimension.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from providers.arrays import UInt64Array
from providers.kernels.decorators import borrowing, uncounted
from providers.kernels.parallel import parallel
from providers.kernels.radix_sort import radix_orders
from providers.neighbours.points import Points
from providers.neighbours.simd_distances import LANES
from providers.numba import get_num_threads, njit, prange
from providers.progress import Progress, no_progress
from providers.tables.sort_keys import float_keys

LEAF = LANES
"""Maximum rows of a leaf: one for each lane of a vector. Leaves are full or nearly full."""

_UPPER_LEVELS = 6  # levels cut one after the other; each subtree below them is one parallel task

_SMALL_TABLE = 2**18  # rows of a table whose upper levels one thread cuts; rows of subtrees cut in one call

_LEFT, _RIGHT, _TIED = 0, 1, 2  # sides of a cut

_LINE = 64  # bytes

_LARGEST_CODE = np.int32(2**31 - 1)


class Tree(NamedTuple):
    """Points of some rows in the order of the tree, in the form that kernels take.

    Nodes are numbered level by level from the root, 0; the children of node b are 2 b + 1 and 2 b + 2.
    """

    depth: int
    """Level of the leaves."""
    flags: int
    """Index of the first code that is a missing flag."""
    weight: float
    """Squared distance that a mismatch of a category adds; a mismatch of a flag adds 2."""
    starts: npt.NDArray[np.int64]
    """First position of each leaf, and the end; shape (leaves + 1,)."""
    rows: npt.NDArray[np.int32]
    """Row at each position; shape (n,)."""
    numbers: npt.NDArray[np.float64]
    """Numbers of the points of each leaf, infinite in empty lanes; shape (leaves, numbers, LEAF)."""
    codes: npt.NDArray[np.int32]
    """Codes of the points of each leaf, -1 in empty lanes; shape (leaves, codes, LEAF)."""
    boxes: npt.NDArray[np.float64]
    """Smallest and largest numbers of each node; shape (nodes, 2, numbers)."""
    code_boxes: npt.NDArray[np.int32]
    """Smallest and largest codes of each node; shape (nodes, 2, codes)."""
    uniform: npt.NDArray[np.bool_]
    """Whether all points of the node are identical; shape (nodes,)."""
    rough: npt.NDArray[np.float32]
    """Boxes in single precision, rounded outward; shape (nodes, 2, numbers)."""


class Growth(NamedTuple):
    """Tree that is being grown, in the form that kernels take."""

    numbers: npt.NDArray[np.float64]
    """Numbers of the points; shape (n, numbers)."""
    codes: npt.NDArray[np.int32]
    """Codes of the points; shape (n, codes)."""
    orders: npt.NDArray[np.int32]
    """Points in ascending order along each dimension, and in the last one by row; shape (dimensions + 1, n).

    Cutting a node partitions its range of each order.
    """
    spare: npt.NDArray[np.int32]
    """Scratch space; shape (dimensions + 1, n)."""
    extents: npt.NDArray[np.float64]
    """Width of each code in a node where it varies; shape (codes,)."""
    boxes: npt.NDArray[np.float64]
    """Smallest and largest numbers of each node; shape (nodes, 2, numbers)."""
    code_boxes: npt.NDArray[np.int32]
    """Smallest and largest codes of each node; shape (nodes, 2, codes)."""
    uniform: npt.NDArray[np.bool_]
    """Whether all points of the node are identical; shape (nodes,)."""
    starts: npt.NDArray[np.int64]
    """First position of each leaf, and the end; shape (leaves + 1,)."""
    depth: int
    """Level of the leaves."""


class Leaves(NamedTuple):
    """Leaves of the tree that is being grown, in the form that kernels take."""

    table_rows: npt.NDArray[np.int32]
    """Row number of each point; shape (n,)."""
    rows: npt.NDArray[np.int32]
    """Row number at each position; shape (n,)."""
    numbers: npt.NDArray[np.float64]
    """Numbers of the points of each leaf, infinite in empty lanes; shape (leaves, numbers, LEAF)."""
    codes: npt.NDArray[np.int32]
    """Codes of the points of each leaf, -1 in empty lanes; shape (leaves, codes, LEAF)."""


def _full_leaves(count: int) -> int:
    """Return L, the number of leaves that hold rows."""
    return -(-count // LEAF)


def depth_of(count: int) -> int:
    """Return the level of the leaves of a tree of `count` rows, one or more."""
    return (_full_leaves(count) - 1).bit_length()


def _leaves_before(count: int, level: int, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of non-empty leaves before each of some nodes of a level above the leaves."""
    before: npt.NDArray[np.int64] = (_full_leaves(count) * nodes + (1 << level) - 1) >> level
    return before


def node_starts(count: int, level: int) -> npt.NDArray[np.int64]:
    """Return the first position of each node of a level in a tree of `count` rows; shape (nodes + 1,).

    The last element is the end. ``level``: 0, or a level above that of the leaves.
    """
    nodes = np.arange((1 << level) + 1, dtype=np.int64)
    return count * _leaves_before(count, level, nodes) // _full_leaves(count)


def leaf_starts(count: int, level: int = 0, index: int = 0) -> npt.NDArray[np.int64]:
    """Return the first positions of the leaves below one node, and the end; shape (leaves + 1,).

    Parameters
    ----------
    count : int
        Rows of the tree.
    level, index : int
        Level of the node, as for `node_starts`, and its index in the level. Positions are counted from the
        first position of the node.
    """
    depth = depth_of(count)
    if depth == 0:
        return np.array([0, count], np.int64)
    parents = 1 << (depth - 1 - level)
    before = _leaves_before(count, depth - 1, np.arange(parents + 1, dtype=np.int64) + index * parents)
    leaves = np.empty(2 * parents + 1, np.int64)
    leaves[::2] = before
    leaves[1::2] = before[:-1] + 1
    starts = count * leaves // _full_leaves(count)
    return np.asarray(starts - starts[0])


def grow(
    points: Points,
    rows: npt.NDArray[np.int32],
    progress: Progress = no_progress,
    starts: npt.NDArray[np.int64] | None = None,
) -> Tree:
    """Build the tree of some rows.

    Parameters
    ----------
    points : Points
    rows : ndarray of int32, shape (n,)
        Row numbers in ascending order, one or more.
    progress : Progress
    starts : ndarray of int64, optional
        First positions of the leaves, if the tree is part of a larger one; see `leaf_starts`.

    Notes
    -----
    O(n log n) time. The points are sorted along every dimension once, and each cut partitions all of these
    orders. Hence the ends of the orders give a node's box, and their middle its median.
    """
    count = len(rows)
    starts = leaf_starts(count) if starts is None else starts
    depth = (len(starts) - 1).bit_length() - 1
    is_whole_table = count == len(points.numbers)
    numbers = points.numbers if is_whole_table else points.numbers[rows]
    codes = points.codes if is_whole_table else points.codes[rows]
    dimensions = numbers.shape[1] + codes.shape[1]
    orders = np.empty((dimensions + 1, count), np.int32)
    batch = max(1, dimensions) if count < _SMALL_TABLE else get_num_threads()
    for first in range(0, dimensions, batch):
        progress(0.5 * first / dimensions, "growing the tree")
        sorted_now = range(first, min(first + batch, dimensions))
        radix_orders(_keys_along(sorted_now, numbers, codes), orders[first : sorted_now.stop])
    orders[dimensions] = np.arange(count)  # by row, the last resort of ties
    nodes = (2 << depth) - 1
    boxes = np.empty((nodes, 2, numbers.shape[1]))
    code_boxes = np.empty((nodes, 2, codes.shape[1]), np.int32)
    uniform = np.zeros(nodes, np.bool_)
    extents = code_widths(points)
    growth = Growth(
        numbers, codes, orders, np.empty_like(orders), extents, boxes, code_boxes, uniform, starts, depth
    )
    leaves = Leaves(
        rows.astype(np.int32, copy=False),
        np.empty(count, np.int32),
        _blocks(1 << depth, numbers.shape[1], np.float64),
        _blocks(1 << depth, codes.shape[1], np.int32),
    )
    sides = np.empty(count, np.uint8)
    # One thread cuts the upper levels of a small table, because starting others would take longer.
    separate = min(depth, (get_num_threads() - 1).bit_length() if count < _SMALL_TABLE else _UPPER_LEVELS)
    if count < _SMALL_TABLE:
        _cut_levels(separate, growth, sides)
    else:
        for level in range(separate):
            progress(0.5 + 0.25 * level / separate, "growing the tree")
            _cut_level(level, growth, sides)
    subtrees = 1 << separate
    batch = max(2, subtrees * _SMALL_TABLE // count)
    for first in range(0, subtrees, batch):
        progress(0.75 + 0.25 * first / subtrees, "growing the tree")
        last = min(first + batch, subtrees)
        _cut_subtrees(separate, first, last, growth, leaves)
    return Tree(
        depth, points.flags, points.weight, starts, leaves.rows, leaves.numbers, leaves.codes, boxes,
        code_boxes, uniform, round_boxes_outward(boxes),
    )  # fmt: skip


def _blocks(leaves: int, dimensions: int, kind: type[Any]) -> npt.NDArray[Any]:
    """Allocate the points of the leaves, aligned so that a vector of 16 spans the fewest cache lines."""
    size = leaves * dimensions * LEAF
    step = _LINE // np.dtype(kind).itemsize
    buffer = np.empty(size + step, kind)
    first = -(buffer.ctypes.data // np.dtype(kind).itemsize) % step
    return buffer[first : first + size].reshape(leaves, dimensions, LEAF)


def round_boxes_outward(boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return the boxes in single precision, rounded outward; shape (nodes, 2, numbers)."""
    rough = np.empty(boxes.shape, np.float32)
    _round_boxes(boxes, rough)
    return rough


@njit(cache=True, nogil=True)
def _round_boxes(boxes, rough):
    """Round boxes (float64) outward into `rough` (float32), both of shape (nodes, 2, numbers)."""
    for node in range(len(boxes)):
        for number in range(boxes.shape[2]):
            rough[node, 0, number] = rounded_down(boxes[node, 0, number])
            rough[node, 1, number] = rounded_up(boxes[node, 1, number])


@borrowing
def _rounding_error(single):
    """Upper bound of the error of rounding to `single` (float32)."""
    return abs(single) * np.float32(2.0**-22) + np.float32(1e-38)


@borrowing
def rounded_down(number):
    """Return a float32 below `number` (float64); NaN if it is too large for single precision."""
    single = np.float32(number)
    return single - _rounding_error(single)


@borrowing
def rounded_up(number):
    """Return a float32 above `number` (float64); NaN if it is too small for single precision."""
    single = np.float32(number)
    return single + _rounding_error(single)


def code_widths(points: Points) -> npt.NDArray[np.float64]:
    """Return the width of each code in a node where it varies; shape (codes,)."""
    extents = np.full(points.codes.shape[1], math.sqrt(2.0))
    extents[: points.flags] = math.sqrt(points.weight)
    return extents


def _keys_along(
    dimensions: range, numbers: npt.NDArray[np.float64], codes: npt.NDArray[np.int32]
) -> UInt64Array:
    """Return keys that order the points along some dimensions; shape (dimensions, points)."""
    fields = numbers.shape[1]
    floats = np.ascontiguousarray(numbers[:, dimensions.start : dimensions.stop].T)
    float_part = float_keys(floats.reshape(-1).view(np.uint64)).reshape(floats.shape)
    along = codes[:, max(0, dimensions.start - fields) : max(0, dimensions.stop - fields)].T.astype(np.int64)
    if not len(along):
        return float_part
    code_part = (along - along.min(axis=1, keepdims=True)).view(np.uint64)
    return np.concatenate([float_part, code_part])


# -------------------------------------------------------------------------------------- the cuts


@uncounted
def _value(growth, point, dimension):
    """Return the number or code of a point along a dimension, as float64, which is exact for codes.

    `point` (int32) is the index of the point.
    """
    if dimension < growth.numbers.shape[1]:
        return growth.numbers[point, dimension]
    return np.float64(growth.codes[point, dimension - growth.numbers.shape[1]])


@borrowing
def _tied_range(growth, order, dimension, start, middle, stop):
    """Return the range of positions from `start` to `stop` whose points tie with that at `middle`.

    `order` is `orders` or `spare`, sorted along the dimension from `start` to `stop`. Positions are int64.
    """
    value = _value(growth, order[dimension, middle], dimension)
    low, high = start, middle
    while low < high:
        probe = (low + high) // 2
        if _value(growth, order[dimension, probe], dimension) < value:
            low = probe + 1
        else:
            high = probe
    first = low
    low, high = middle + 1, stop
    while low < high:
        probe = (low + high) // 2
        if _value(growth, order[dimension, probe], dimension) > value:
            high = probe
        else:
            low = probe + 1
    return first, low


@borrowing
def _next_widest(growth, node, dimension, width):
    """Return the dimension after `dimension` in descending order of width, and its width; (-1, 0) at the end.

    Dimensions of equal width are in ascending order. `width` (float64) is the width of `dimension`; -1 and
    infinity give the widest dimension. The boxes of the node are only read.
    """
    boxes, code_boxes = growth.boxes, growth.code_boxes
    numbers = boxes.shape[2]
    next_dimension, next_width = -1, 0.0
    for candidate in range(numbers + code_boxes.shape[2]):
        if candidate < numbers:
            extent = boxes[node, 1, candidate] - boxes[node, 0, candidate]
        else:
            code = candidate - numbers
            extent = growth.extents[code] if code_boxes[node, 1, code] > code_boxes[node, 0, code] else 0.0
        if extent > next_width and (extent < width or (extent == width and candidate > dimension)):
            next_dimension, next_width = candidate, extent
    return next_dimension, next_width


@borrowing
def _choose_sides(growth, sides, start, middle, stop, dimension, width, node):
    """Write the side of the median for each point of a node to `sides`.

    Parameters
    ----------
    start, middle, stop : int64
        Positions of the node: its first, the first of its right child, and its end.
    dimension : int64
        Widest dimension of the node.
    width : float64
        Width of that dimension.
    """
    orders, spare = growth.orders, growth.spare
    along = orders[dimension]
    for position in range(start, middle):
        sides[np.uint32(along[position])] = _LEFT
    for position in range(middle, stop):
        sides[np.uint32(along[position])] = _RIGHT
    low, high = _tied_range(growth, orders, dimension, start, middle, stop)
    if low == middle:
        return
    for position in range(low, high):
        sides[orders[dimension, position]] = _TIED
    while low < middle:
        # A tie is cut across the next widest dimension, and finally by row.
        left = middle - low  # tied points that belong to the left
        dimension, width = _next_widest(growth, node, dimension, width)
        order = dimension if dimension >= 0 else len(orders) - 1
        along, tied_points = orders[order, start:stop], spare[order, start:stop]
        tied = np.uint64(0)
        for index in range(len(along)):
            point = along[index]
            tied_points[tied] = point  # without a branch: overwritten unless it is tied
            tied += np.uint64(sides[np.uint32(point)] == _TIED)
        end = start + np.int64(tied)
        low = high = middle = start + left
        if dimension >= 0:
            low, high = _tied_range(growth, spare, dimension, start, middle, end)
        if low == middle:  # no tie is cut
            high = middle
        for position in range(start, low):
            sides[spare[order, position]] = _LEFT
        for position in range(high, end):
            sides[spare[order, position]] = _RIGHT


@borrowing
def _choose_cut(growth, sides, level, index):
    """Write the box of node `index` of a level, found at the ends of its orders, and the sides of its cut."""
    numbers, codes, orders = growth.numbers, growth.codes, growth.orders
    boxes, code_boxes, starts = growth.boxes, growth.code_boxes, growth.starts
    below = growth.depth - level
    start, stop = starts[index << below], starts[(index + 1) << below]
    node = (1 << level) - 1 + index
    if start == stop:
        _clear_box(node, boxes, code_boxes)
        growth.uniform[node] = True
        return
    for dimension in range(numbers.shape[1]):
        boxes[node, 0, dimension] = numbers[orders[dimension, start], dimension]
        boxes[node, 1, dimension] = numbers[orders[dimension, stop - 1], dimension]
    for dimension in range(codes.shape[1]):
        order = dimension + numbers.shape[1]
        code_boxes[node, 0, dimension] = codes[orders[order, start], dimension]
        code_boxes[node, 1, dimension] = codes[orders[order, stop - 1], dimension]
    widest, width = _next_widest(growth, node, -1, np.inf)
    growth.uniform[node] = widest < 0
    if widest >= 0 and level < growth.depth:
        middle = starts[(2 * index + 1) << (below - 1)]
        if middle < stop:
            _choose_sides(growth, sides, start, middle, stop, widest, width, node)


@borrowing
def _clear_box(node, boxes, code_boxes):
    """Write the box of an empty leaf, from which every distance is infinite."""
    for dimension in range(boxes.shape[2]):
        boxes[node, 0, dimension], boxes[node, 1, dimension] = np.inf, -np.inf
    for dimension in range(code_boxes.shape[2]):
        code_boxes[node, 0, dimension], code_boxes[node, 1, dimension] = _LARGEST_CODE, -_LARGEST_CODE


@borrowing
def _partition_order(growth, sides, level, index, order):
    """Partition the order of index `order` (int64) of a node by side, stably.

    An order along which all points are equal is left as it is, because any of its points gives the box. A
    uniform node is also left: its points stay in the order of rows, by which it is cut.
    """
    boxes, code_boxes, starts = growth.boxes, growth.code_boxes, growth.starts
    orders, spare = growth.orders, growth.spare
    node = (1 << level) - 1 + index
    if level == growth.depth or growth.uniform[node]:
        return
    numbers, dimensions = boxes.shape[2], len(orders) - 1
    if order < numbers:
        if boxes[node, 0, order] == boxes[node, 1, order]:
            return
    elif order < dimensions and code_boxes[node, 0, order - numbers] == code_boxes[node, 1, order - numbers]:
        return
    below = growth.depth - level
    start, stop = starts[index << below], starts[(index + 1) << below]
    if starts[(2 * index + 1) << (below - 1)] == stop:
        return
    segment, right_points = orders[order, start:stop], spare[order, start:stop]
    left, right = np.uint64(0), np.uint64(0)
    for index in range(len(segment)):  # without branches, which would be mispredicted half of the time
        point = segment[index]
        side = np.uint64(sides[np.uint32(point)])
        segment[left] = point
        right_points[right] = point
        left += np.uint64(_RIGHT) - side
        right += side
    for index in range(right):
        segment[left + index] = right_points[index]


@borrowing
def _fill_leaf(growth, leaves, leaf):
    """Write the rows of a leaf (int64) in ascending order, and its points by dimension, to `leaves`."""
    numbers, codes, orders, starts = growth.numbers, growth.codes, growth.orders, growth.starts
    start = starts[leaf]
    for lane in range(starts[leaf + 1] - start):
        point = orders[len(orders) - 1, start + lane]
        leaves.rows[start + lane] = leaves.table_rows[point]
        for dimension in range(numbers.shape[1]):
            leaves.numbers[leaf, dimension, lane] = numbers[point, dimension]
        for dimension in range(codes.shape[1]):
            leaves.codes[leaf, dimension, lane] = codes[point, dimension]
    for lane in range(starts[leaf + 1] - start, LEAF):
        for dimension in range(numbers.shape[1]):
            leaves.numbers[leaf, dimension, lane] = np.inf
        for dimension in range(codes.shape[1]):
            leaves.codes[leaf, dimension, lane] = -1


@borrowing
def _cut_node(growth, sides, level, index):
    """Write the box of node `index` of a level, and cut the node in two unless it is a leaf."""
    _choose_cut(growth, sides, level, index)
    for order in range(len(growth.orders)):
        _partition_order(growth, sides, level, index, order)


@uncounted
def _cut_levels(levels, growth, sides):
    """Cut all nodes of the first `levels` (int64) levels, by one thread."""
    for level in range(levels):
        for index in range(1 << level):
            _cut_node(growth, sides, level, index)


@parallel
def _cut_level(level, growth, sides):
    """Cut the nodes of an upper level; their orders are partitioned in parallel."""
    for index in prange(1 << level):
        _choose_cut(growth, sides, level, index)
    orders = len(growth.orders)
    for work in prange(orders << level):
        _partition_order(growth, sides, level, work // orders, work % orders)


@parallel
def _cut_subtrees(top, first, last, growth, leaves):
    """Cut nodes `first` to `last` of level `top` with all their descendants, and fill `leaves` (`Leaves`).

    The three are int64; the last node is excluded.
    """
    for subtree in prange(first, last):
        # The sides are of this subtree alone, because points of others are interleaved.
        sides = np.empty(len(growth.numbers), np.uint8)
        for level in range(top, growth.depth + 1):
            below = level - top
            for index in range(subtree << below, (subtree + 1) << below):
                _cut_node(growth, sides, level, index)
        below = growth.depth - top
        for leaf in range(subtree << below, (subtree + 1) << below):
            _fill_leaf(growth, leaves, leaf)


# ------------------------------------------------------------------------- a tree that was stored on disk


def tree_from_sorted(points: Points, rows: npt.NDArray[np.int32], starts: npt.NDArray[np.int64]) -> Tree:
    """Build the tree of points and rows that are already in the order of `grow`. O(n)."""
    leaves = len(starts) - 1
    nodes = 2 * leaves - 1
    numbers, codes = points.numbers, points.codes
    boxes = np.empty((nodes, 2, numbers.shape[1]))
    code_boxes = np.empty((nodes, 2, codes.shape[1]), np.int32)
    number_blocks = _blocks(leaves, numbers.shape[1], np.float64)
    code_blocks = _blocks(leaves, codes.shape[1], np.int32)
    number_blocks[:], code_blocks[:] = np.inf, -1
    _fill_leaves(numbers, codes, starts, number_blocks, code_blocks, boxes, code_boxes)
    join_boxes(boxes, code_boxes)
    codes_differ = (code_boxes[:, 1] > code_boxes[:, 0]) & (code_widths(points) > 0.0)
    wide = np.any(boxes[:, 1] > boxes[:, 0], axis=1) | np.any(codes_differ, axis=1)
    depth = leaves.bit_length() - 1
    return Tree(
        depth, points.flags, points.weight, starts, rows, number_blocks, code_blocks, boxes, code_boxes,
        np.asarray(~wide), round_boxes_outward(boxes),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _fill_leaves(numbers, codes, starts, number_blocks, code_blocks, boxes, code_boxes):
    """Write the points and boxes of all leaves, for points that are in the order of the tree.

    `numbers` (float64, shape (n, numbers)) and `codes` (int32, shape (n, codes)) are those of the points.
    """
    leaves = len(starts) - 1
    for leaf in range(leaves):
        node = leaves - 1 + leaf
        first = starts[leaf]
        if first == starts[leaf + 1]:
            _clear_box(node, boxes, code_boxes)
            continue
        for dimension in range(numbers.shape[1]):
            low = high = numbers[first, dimension]
            for position in range(first, starts[leaf + 1]):
                number = numbers[position, dimension]
                number_blocks[leaf, dimension, position - first] = number
                low, high = min(low, number), max(high, number)
            boxes[node, 0, dimension], boxes[node, 1, dimension] = low, high
        for dimension in range(codes.shape[1]):
            least = most = codes[first, dimension]
            for position in range(first, starts[leaf + 1]):
                code = codes[position, dimension]
                code_blocks[leaf, dimension, position - first] = code
                least, most = min(least, code), max(most, code)
            code_boxes[node, 0, dimension], code_boxes[node, 1, dimension] = least, most


def join_boxes(boxes: npt.NDArray[np.float64], code_boxes: npt.NDArray[np.int32]) -> None:
    """Compute the boxes of the nodes above the leaves from those of the leaves, in place."""
    level = (len(boxes) + 1) // 2
    while level > 1:
        level //= 2
        first = level - 1
        for bounds in (boxes, code_boxes):
            children = bounds[2 * first + 1 : 2 * first + 1 + 2 * level]
            np.minimum(children[::2, 0], children[1::2, 0], out=bounds[first : first + level, 0])
            np.maximum(children[::2, 1], children[1::2, 1], out=bounds[first : first + level, 1])
