"""A balanced k-d tree that is a function of the points alone, with tight boxes and full leaves.

The tree is part of an algorithm's definition wherever a draw is made from its nodes (see `providers.
neighbours`), so that every choice in it is fixed: n rows have L leaves, as few as hold them; leaf t has
the positions from ``n t div L`` up to ``n (t + 1) div L``, and node b of level l the leaves from
``L b / 2**l`` up to ``L (b + 1) / 2**l``, both rounded up, until it has one. A node is cut in the order
of its points across its widest dimension, ties across the next widest (of equally wide ones the first
comes first), and at last by row; and the rows of a leaf stand in ascending order. How the work is cut
between threads changes nothing.

All leaves are on one level here. A node above them that has one leaf alone has it on its left, and on its
right an empty one, whose box nothing is near to.

References
----------
Bentley 1975, doi:10.1145/361002.361007: the k-d tree.
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: the median of the widest dimension.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, njit, prange

from providers.lanes import LANES
from providers.ordering import float_keys
from providers.provider import Progress, no_progress
from providers.radix import UInt64Array, radix_orders
from providers.space import Points
from providers.uncounted import uncounted

LEAF = LANES
"""Rows of a leaf at most; as many or nearly so, where there are that many: one lane each."""

_SEPARATE = 6  # levels that are cut one by one; each of the nodes below them is one thread's
_SMALL = 2**18  # rows of a small table, and rows whose subtrees are finished in one call
_LEFT, _RIGHT, _TIED = 0, 1, 2  # sides of a cut
_LINE = 64  # bytes
_LARGEST_CODE = np.int32(2**31 - 1)


class Tree(NamedTuple):
    """The points of some rows, in the order of the tree; kernels take it as it is."""

    depth: int
    """Level of the leaves."""
    flags: int
    """Codes from this one on are missing flags."""
    weight: float
    """What a mismatch of a code before them adds to a squared distance; of a flag: 2."""
    starts: npt.NDArray[np.int64]
    """The position at which each leaf begins, and the end; shape (leaves + 1,)."""
    rows: npt.NDArray[np.int32]
    """Position -> row; shape (n,)."""
    numbers: npt.NDArray[np.float64]
    """The leaves' points, infinite where there is none; shape (leaves, numbers, LEAF)."""
    codes: npt.NDArray[np.int32]
    """The same for codes, -1 where there is none; shape (leaves, codes, LEAF)."""
    boxes: npt.NDArray[np.float64]
    """Least and largest number of each node; shape (nodes, 2, numbers)."""
    code_boxes: npt.NDArray[np.int32]
    """Least and largest code; shape (nodes, 2, codes)."""
    uniform: npt.NDArray[np.bool_]
    """Nodes whose points are all the same; shape (nodes,)."""
    rough: npt.NDArray[np.float32]
    """The boxes in single precision, rounded outwards; shape (nodes, 2, numbers)."""


def _full_leaves(count: int) -> int:
    return -(-count // LEAF)


def depth_of(count: int) -> int:
    """The level of the leaves of a tree over so many rows, one or more."""
    return (_full_leaves(count) - 1).bit_length()


def _leaves_before(count: int, level: int, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many leaves with rows are before some nodes of a level above that of the leaves."""
    before: npt.NDArray[np.int64] = (_full_leaves(count) * nodes + (1 << level) - 1) >> level
    return before


def node_starts(count: int, level: int) -> npt.NDArray[np.int64]:
    """Where the nodes of a level begin in a tree over so many rows, and the end; shape (nodes + 1,).

    ``level``: 0, or one above that of the leaves.
    """
    nodes = np.arange((1 << level) + 1, dtype=np.int64)
    return count * _leaves_before(count, level, nodes) // _full_leaves(count)


def leaf_starts(count: int, level: int = 0, index: int = 0) -> npt.NDArray[np.int64]:
    """Where the leaves of a tree over so many rows begin, and the end; shape (leaves + 1,).

    Of the leaves below a node of the tree, which `index` tells from the others of its level, counted from
    the node's own first position. ``level``: as in `node_starts`.
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
    """The tree over these rows, which are in ascending order and at least one.

    ``starts``: where its leaves begin, of a tree that is a part of a larger one; `leaf_starts`.

    Notes
    -----
    O(n log n) time: the points are put in order along every dimension once, and each cut parts all of
    these orders, so that a node's box and its median are read off their ends and their middle.
    """
    count = len(rows)
    starts = leaf_starts(count) if starts is None else starts
    depth = (len(starts) - 1).bit_length() - 1
    is_everyone = count == len(points.numbers)
    numbers = points.numbers if is_everyone else points.numbers[rows]
    codes = points.codes if is_everyone else points.codes[rows]
    dimensions = numbers.shape[1] + codes.shape[1]
    orders = np.empty((dimensions + 1, count), np.int32)
    at_once = max(1, dimensions) if count < _SMALL else get_num_threads()
    for first in range(0, dimensions, at_once):
        progress(0.5 * first / dimensions, "growing the tree")
        some = range(first, min(first + at_once, dimensions))
        radix_orders(_keys_along(some, numbers, codes), orders[first : some.stop])
    orders[dimensions] = np.arange(count)
    nodes = (2 << depth) - 1
    boxes = np.empty((nodes, 2, numbers.shape[1]))
    code_boxes = np.empty((nodes, 2, codes.shape[1]), np.int32)
    uniform = np.zeros(nodes, np.bool_)
    extents = extents_of(points)
    leaves = 1 << depth
    number_blocks = _blocks(leaves, numbers.shape[1], np.float64)
    code_blocks = _blocks(leaves, codes.shape[1], np.int32)
    in_tree = np.empty(count, np.int32)
    of_points = numbers, codes, orders, np.empty_like(orders)
    of_nodes = extents, boxes, code_boxes, uniform, starts, depth
    sides = np.empty(count, np.uint8)
    filled = rows.astype(np.int32, copy=False), in_tree, number_blocks, code_blocks
    # The upper levels of a small table are cut by one thread: to start others would take longer.
    separate = min(depth, (get_num_threads() - 1).bit_length() if count < _SMALL else _SEPARATE)
    if count < _SMALL:
        _cut_levels(separate, *of_points, sides, *of_nodes)
    else:
        for level in range(separate):
            progress(0.5 + 0.25 * level / separate, "growing the tree")
            _cut_level(level, *of_points, sides, *of_nodes)
    subtrees = 1 << separate
    at_once = max(2, subtrees * _SMALL // count)
    for first in range(0, subtrees, at_once):
        progress(0.75 + 0.25 * first / subtrees, "growing the tree")
        _cut_subtrees(separate, first, min(first + at_once, subtrees), *of_points, *of_nodes, *filled)
    return Tree(
        depth, points.flags, points.weight, starts, in_tree, number_blocks, code_blocks, boxes, code_boxes,
        uniform, roughly(boxes),
    )  # fmt: skip


def _blocks(leaves: int, dimensions: int, kind: type[Any]) -> npt.NDArray[Any]:
    """Room for the leaves' points, where no vector of 16 is on more lines of the cache than need be."""
    size = leaves * dimensions * LEAF
    step = _LINE // np.dtype(kind).itemsize
    room = np.empty(size + step, kind)
    first = -(room.ctypes.data // np.dtype(kind).itemsize) % step
    return room[first : first + size].reshape(leaves, dimensions, LEAF)


def roughly(boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Boxes in single precision, no smaller anywhere; shape (nodes, 2, numbers)."""
    rough = np.empty(boxes.shape, np.float32)
    _roughen(boxes, rough)
    return rough


@njit(cache=True, nogil=True)
def _roughen(boxes, rough):
    for node in range(len(boxes)):
        for number in range(boxes.shape[2]):
            rough[node, 0, number] = rounded_down(boxes[node, 0, number])
            rough[node, 1, number] = rounded_up(boxes[node, 1, number])


@uncounted
def _rounding(single):
    """More than a number lost when it was rounded to single precision."""
    return abs(single) * np.float32(2.0**-22) + np.float32(1e-38)


@uncounted
def rounded_down(number):
    """A number of single precision, below this one; not a number where it is too large for that."""
    single = np.float32(number)
    return single - _rounding(single)


@uncounted
def rounded_up(number):
    """A number of single precision, above this one; not a number where it is too small for that."""
    single = np.float32(number)
    return single + _rounding(single)


def extents_of(points: Points) -> npt.NDArray[np.float64]:
    """How wide each code is that is not the same everywhere; shape (codes,)."""
    extents = np.full(points.codes.shape[1], math.sqrt(2.0))
    extents[: points.flags] = math.sqrt(points.weight)
    return extents


def _keys_along(
    dimensions: range, numbers: npt.NDArray[np.float64], codes: npt.NDArray[np.int32]
) -> UInt64Array:
    """Keys that order the points along some dimensions; shape (dimensions, points)."""
    fields = numbers.shape[1]
    floats = np.ascontiguousarray(numbers[:, dimensions.start : dimensions.stop].T)
    of_floats = float_keys(floats.reshape(-1).view(np.uint64)).reshape(floats.shape)
    along = codes[:, max(0, dimensions.start - fields) : max(0, dimensions.stop - fields)].T.astype(np.int64)
    if not len(along):
        return of_floats
    of_codes = (along - along.min(axis=1, keepdims=True)).view(np.uint64)
    return np.concatenate([of_floats, of_codes])


# -------------------------------------------------------------------------------------- the cuts


@uncounted
def _value(point, dimension, numbers, codes):
    """A point's number or code; codes are exact as numbers."""
    if dimension < numbers.shape[1]:
        return numbers[point, dimension]
    return np.float64(codes[point, dimension - numbers.shape[1]])


@uncounted
def _tied(order, dimension, start, middle, stop, numbers, codes):
    """Of points in order from `start` to `stop` those tied with that at `middle`: from, up to."""
    value = _value(order[dimension, middle], dimension, numbers, codes)
    low, high = start, middle
    while low < high:
        at = (low + high) // 2
        if _value(order[dimension, at], dimension, numbers, codes) < value:
            low = at + 1
        else:
            high = at
    first = low
    low, high = middle + 1, stop
    while low < high:
        at = (low + high) // 2
        if _value(order[dimension, at], dimension, numbers, codes) > value:
            high = at
        else:
            low = at + 1
    return first, low


@uncounted
def _next_widest(boxes, code_boxes, node, extents, dimension, width):
    """The next dimension in the order from the widest on, the first of equals first; -1 after the last."""
    numbers = boxes.shape[2]
    next_dimension, next_width = -1, 0.0
    for at in range(numbers + code_boxes.shape[2]):
        if at < numbers:
            wide = boxes[node, 1, at] - boxes[node, 0, at]
        else:
            code = at - numbers
            wide = extents[code] if code_boxes[node, 1, code] > code_boxes[node, 0, code] else 0.0
        if wide > next_width and (wide < width or (wide == width and at > dimension)):
            next_dimension, next_width = at, wide
    return next_dimension, next_width


@uncounted
def _choose_sides(start, middle, stop, dimension, width, node, numbers, codes, orders, spare, sides, extents,
                  boxes, code_boxes):  # fmt: skip
    """Say on which side of its node's median each point is.

    A tie across one dimension is cut across the next widest, and at last by row.
    """
    along = orders[dimension]
    for at in range(start, middle):
        sides[np.uint32(along[at])] = _LEFT
    for at in range(middle, stop):
        sides[np.uint32(along[at])] = _RIGHT
    low, high = _tied(orders, dimension, start, middle, stop, numbers, codes)
    if low == middle:
        return
    for at in range(low, high):
        sides[orders[dimension, at]] = _TIED
    while low < middle:
        left = middle - low  # tied points that belong to the left
        dimension, width = _next_widest(boxes, code_boxes, node, extents, dimension, width)
        order = dimension if dimension >= 0 else len(orders) - 1
        along, aside = orders[order, start:stop], spare[order, start:stop]
        found = np.uint64(0)
        for at in range(len(along)):
            point = along[at]
            aside[found] = point
            found += np.uint64(sides[np.uint32(point)] == _TIED)
        end = start + np.int64(found)
        low = high = middle = start + left
        if dimension >= 0:
            low, high = _tied(spare, dimension, start, middle, end, numbers, codes)
        if low == middle:  # no tie is cut
            high = middle
        for at in range(start, low):
            sides[spare[order, at]] = _LEFT
        for at in range(high, end):
            sides[spare[order, at]] = _RIGHT


@uncounted
def _prepare(level, index, numbers, codes, orders, spare, sides, extents, boxes, code_boxes, uniform, starts,
             depth):  # fmt: skip
    """Take a node's box, which is at the ends of its orders; unless it is a leaf, say how it is cut."""
    below = depth - level
    start, stop = starts[index << below], starts[(index + 1) << below]
    node = (1 << level) - 1 + index
    if start == stop:
        _nothing_in(node, boxes, code_boxes)
        uniform[node] = True
        return
    for dimension in range(numbers.shape[1]):
        boxes[node, 0, dimension] = numbers[orders[dimension, start], dimension]
        boxes[node, 1, dimension] = numbers[orders[dimension, stop - 1], dimension]
    for dimension in range(codes.shape[1]):
        order = dimension + numbers.shape[1]
        code_boxes[node, 0, dimension] = codes[orders[order, start], dimension]
        code_boxes[node, 1, dimension] = codes[orders[order, stop - 1], dimension]
    widest, width = _next_widest(boxes, code_boxes, node, extents, -1, np.inf)
    uniform[node] = widest < 0
    if widest >= 0 and level < depth:
        middle = starts[(2 * index + 1) << (below - 1)]
        if middle < stop:
            _choose_sides(
                start, middle, stop, widest, width, node, numbers, codes, orders, spare, sides, extents,
                boxes, code_boxes,
            )  # fmt: skip


@uncounted
def _nothing_in(node, boxes, code_boxes):
    """The box of an empty leaf."""
    for dimension in range(boxes.shape[2]):
        boxes[node, 0, dimension], boxes[node, 1, dimension] = np.inf, -np.inf
    for dimension in range(code_boxes.shape[2]):
        code_boxes[node, 0, dimension], code_boxes[node, 1, dimension] = _LARGEST_CODE, -_LARGEST_CODE


@uncounted
def _part(level, index, order, orders, spare, sides, boxes, code_boxes, uniform, starts, depth):
    """Part a node's points in one of their orders, which they keep on both sides.

    Where they all have the same value there, any of them stands for the others in a box: those of a
    uniform node stay in the order of rows, by which it is cut.
    """
    node = (1 << level) - 1 + index
    if level == depth or uniform[node]:
        return
    numbers, dimensions = boxes.shape[2], len(orders) - 1
    if order < numbers:
        if boxes[node, 0, order] == boxes[node, 1, order]:
            return
    elif order < dimensions and code_boxes[node, 0, order - numbers] == code_boxes[node, 1, order - numbers]:
        return
    below = depth - level
    start, stop = starts[index << below], starts[(index + 1) << below]
    if starts[(2 * index + 1) << (below - 1)] == stop:
        return
    here, aside = orders[order, start:stop], spare[order, start:stop]
    left, right = np.uint64(0), np.uint64(0)
    for at in range(len(here)):
        point = here[at]
        side = np.uint64(sides[np.uint32(point)])
        here[left] = point
        aside[right] = point
        left += np.uint64(_RIGHT) - side
        right += side
    for at in range(right):
        here[left + at] = aside[at]


@uncounted
def _fill_leaf(leaf, numbers, codes, orders, starts, of_rows, rows, number_blocks, code_blocks):
    """Lay out a leaf by dimension, its rows in ascending order."""
    start = starts[leaf]
    for lane in range(starts[leaf + 1] - start):
        point = orders[len(orders) - 1, start + lane]
        rows[start + lane] = of_rows[point]
        for dimension in range(numbers.shape[1]):
            number_blocks[leaf, dimension, lane] = numbers[point, dimension]
        for dimension in range(codes.shape[1]):
            code_blocks[leaf, dimension, lane] = codes[point, dimension]
    for lane in range(starts[leaf + 1] - start, LEAF):
        for dimension in range(numbers.shape[1]):
            number_blocks[leaf, dimension, lane] = np.inf
        for dimension in range(codes.shape[1]):
            code_blocks[leaf, dimension, lane] = -1


@uncounted
def _cut_node(
    level, index, numbers, codes, orders, spare, sides, extents, boxes, code_boxes, uniform, starts, depth
):
    """Take a node's box; unless it is a leaf, cut it in two."""
    _prepare(
        level, index, numbers, codes, orders, spare, sides, extents, boxes, code_boxes, uniform, starts, depth
    )  # fmt: skip
    for order in range(len(orders)):
        _part(level, index, order, orders, spare, sides, boxes, code_boxes, uniform, starts, depth)


@uncounted
def _cut_levels(
    levels, numbers, codes, orders, spare, sides, extents, boxes, code_boxes, uniform, starts, depth
):
    """Cut all nodes of the uppermost levels."""
    for level in range(levels):
        for index in range(1 << level):
            _cut_node(
                level, index, numbers, codes, orders, spare, sides, extents, boxes, code_boxes, uniform,
                starts, depth,
            )  # fmt: skip


@njit(cache=True, nogil=True, parallel=True)
def _cut_level(
    level, numbers, codes, orders, spare, sides, extents, boxes, code_boxes, uniform, starts, depth
):
    """Cut the nodes of an upper level, whose orders are parted side by side."""
    for index in prange(1 << level):
        _prepare(
            level, index, numbers, codes, orders, spare, sides, extents, boxes, code_boxes, uniform, starts,
            depth,
        )  # fmt: skip
    for work in prange(len(orders) << level):
        index, order = work // len(orders), work % len(orders)
        _part(level, index, order, orders, spare, sides, boxes, code_boxes, uniform, starts, depth)


@njit(cache=True, nogil=True, parallel=True)
def _cut_subtrees(top, first, last, numbers, codes, orders, spare, extents, boxes, code_boxes, uniform,
                  starts, depth, of_rows, rows, number_blocks, code_blocks):  # fmt: skip
    """Cut some nodes of a level and all below them, and fill the leaves."""
    for subtree in prange(first, last):
        sides = np.empty(len(numbers), np.uint8)  # its own: other subtrees' points are between its points
        for level in range(top, depth + 1):
            below = level - top
            for index in range(subtree << below, (subtree + 1) << below):
                _cut_node(
                    level, index, numbers, codes, orders, spare, sides, extents, boxes, code_boxes, uniform,
                    starts, depth,
                )  # fmt: skip
        below = depth - top
        for leaf in range(subtree << below, (subtree + 1) << below):
            _fill_leaf(leaf, numbers, codes, orders, starts, of_rows, rows, number_blocks, code_blocks)


# ------------------------------------------------------------------------- a tree that was grown before


def laid_out(points: Points, rows: npt.NDArray[np.int32], starts: npt.NDArray[np.int64]) -> Tree:
    """The tree whose points and rows stand in its order already, as `grow` has once put them. O(n)."""
    leaves = len(starts) - 1
    nodes = 2 * leaves - 1
    numbers, codes = points.numbers, points.codes
    boxes = np.empty((nodes, 2, numbers.shape[1]))
    code_boxes = np.empty((nodes, 2, codes.shape[1]), np.int32)
    number_blocks = _blocks(leaves, numbers.shape[1], np.float64)
    code_blocks = _blocks(leaves, codes.shape[1], np.int32)
    number_blocks[:], code_blocks[:] = np.inf, -1
    _lay_out(numbers, codes, starts, number_blocks, code_blocks, boxes, code_boxes)
    join_boxes(boxes, code_boxes)
    codes_differ = (code_boxes[:, 1] > code_boxes[:, 0]) & (extents_of(points) > 0.0)
    wide = np.any(boxes[:, 1] > boxes[:, 0], axis=1) | np.any(codes_differ, axis=1)
    depth = leaves.bit_length() - 1
    return Tree(
        depth, points.flags, points.weight, starts, rows, number_blocks, code_blocks, boxes, code_boxes,
        np.asarray(~wide), roughly(boxes),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _lay_out(numbers, codes, starts, number_blocks, code_blocks, boxes, code_boxes):
    leaves = len(starts) - 1
    for leaf in range(leaves):
        node = leaves - 1 + leaf
        first = starts[leaf]
        if first == starts[leaf + 1]:
            _nothing_in(node, boxes, code_boxes)
            continue
        for dimension in range(numbers.shape[1]):
            low = high = numbers[first, dimension]
            for at in range(first, starts[leaf + 1]):
                number = numbers[at, dimension]
                number_blocks[leaf, dimension, at - first] = number
                low, high = min(low, number), max(high, number)
            boxes[node, 0, dimension], boxes[node, 1, dimension] = low, high
        for dimension in range(codes.shape[1]):
            least = most = codes[first, dimension]
            for at in range(first, starts[leaf + 1]):
                code = codes[at, dimension]
                code_blocks[leaf, dimension, at - first] = code
                least, most = min(least, code), max(most, code)
            code_boxes[node, 0, dimension], code_boxes[node, 1, dimension] = least, most


def join_boxes(boxes: npt.NDArray[np.float64], code_boxes: npt.NDArray[np.int32]) -> None:
    """Fill in the boxes of the nodes above the leaves, whose own are there."""
    level = (len(boxes) + 1) // 2
    while level > 1:
        level //= 2
        first = level - 1
        for found in (boxes, code_boxes):
            below = found[2 * first + 1 : 2 * first + 1 + 2 * level]
            np.minimum(below[::2, 0], below[1::2, 0], out=found[first : first + level, 0])
            np.maximum(below[::2, 1], below[1::2, 1], out=found[first : first + level, 1])
