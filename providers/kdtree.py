"""A balanced k-d tree that is a function of the points alone, with tight boxes.

The tree is part of an algorithm's definition wherever a draw is made from its nodes (see `providers.
neighbours`), so that every choice in it is fixed: node b of level l holds the positions from
``n b >> l`` up to ``n (b + 1) >> l``; it is cut in the order of its points across its widest
dimension, ties across the next widest (of equally wide ones the first comes first), and at last by row;
and the rows of a leaf stand in ascending order. How the work is cut between threads changes nothing.

References
----------
Bentley 1975, doi:10.1145/361002.361007: the k-d tree.
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: the median of the widest dimension.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from providers.lanes import LANES
from providers.provider import Progress, no_progress
from providers.space import Points

LEAF = LANES
"""Rows of a leaf at most; half of it or more, where there are that many: one lane each."""

_SEPARATE = 6  # levels that are cut one by one; each of the nodes below them is one thread's
_TOGETHER = 3  # of a small table, whose upper levels one thread cuts: starting threads takes longer
_SMALL = 2**18  # rows of a small table, and rows whose subtrees are finished in one call


class Tree(NamedTuple):
    """The points of some rows, in the order of the tree; kernels take it as it is."""

    depth: int
    """Level of the leaves."""
    flags: int
    """Codes from this one on are missing flags."""
    weight: float
    """What a mismatch of a code before them adds to a squared distance; of a flag: 2."""
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


def grow(points: Points, rows: npt.NDArray[np.int32], progress: Progress = no_progress) -> Tree:
    """The tree over these rows, which are in ascending order and at least one.

    Notes
    -----
    O(n log n) time: on each level the boxes are read off the points, which are then parted about
    the median by quickselect. Points move with their rows, so that each node lies together.
    """
    count = len(rows)
    depth = max(0, math.ceil(math.log2(count / LEAF)))
    numbers = points.numbers[rows]
    codes = points.codes[rows]
    order = rows.astype(np.int32)
    nodes = (2 << depth) - 1
    boxes = np.empty((nodes, 2, numbers.shape[1]))
    code_boxes = np.empty((nodes, 2, codes.shape[1]), np.int32)
    uniform = np.zeros(nodes, np.bool_)
    extents = np.full(codes.shape[1], math.sqrt(2.0))
    extents[: points.flags] = math.sqrt(points.weight)
    leaves = 1 << depth
    number_blocks = np.full((leaves, numbers.shape[1], LEAF), np.inf)
    code_blocks = np.full((leaves, codes.shape[1], LEAF), -1, np.int32)
    in_tree = np.empty_like(order)
    blocks = number_blocks, code_blocks
    keys = np.empty(count)
    shared = (numbers, codes, order, keys, extents, boxes, code_boxes, uniform, in_tree, *blocks, depth)
    if count < _SMALL:
        separate = min(_TOGETHER, depth)
        _cut_subtrees(0, separate - 1, 0, 1, *shared)
    else:
        separate = _SEPARATE
        for level in range(separate):
            progress(0.5 * level / separate, "growing the tree")
            _cut_subtrees(level, level, 0, 1 << level, *shared)
    subtrees = 1 << separate
    at_once = max(2, subtrees * _SMALL // count)
    for first in range(0, subtrees, at_once):
        progress(0.5 + 0.5 * first / subtrees, "growing the tree")
        _cut_subtrees(separate, depth, first, min(first + at_once, subtrees), *shared)
    return Tree(
        depth, points.flags, points.weight, in_tree, number_blocks, code_blocks, boxes, code_boxes, uniform
    )


# -------------------------------------------------------------------------------------- the cuts


@njit(cache=True, nogil=True)
def _swap(one, two, keys, order, numbers, codes):
    keys[one], keys[two] = keys[two], keys[one]
    order[one], order[two] = order[two], order[one]
    for dimension in range(numbers.shape[1]):
        held = numbers[one, dimension]
        numbers[one, dimension] = numbers[two, dimension]
        numbers[two, dimension] = held
    for dimension in range(codes.shape[1]):
        code = codes[one, dimension]
        codes[one, dimension] = codes[two, dimension]
        codes[two, dimension] = code


@njit(cache=True, nogil=True)
def _middle(one, two, three, keys):
    """Which of three places holds the middle key."""
    if keys[two] < keys[one]:
        one, two = two, one
    if keys[three] < keys[two]:
        return one if keys[three] < keys[one] else three
    return two


@njit(cache=True, nogil=True)
def _part(start, stop, middle, keys, order, numbers, codes):
    """Part the points of these places by their keys: no key before `middle` is over one from there on.

    Quickselect; the pivots are at scattered places, so that no order of the rows is a bad one.
    """
    scatter = np.uint64(0x9E3779B97F4A7C15)
    state = scatter
    while stop - start > 1:
        size = np.uint64(stop - start)
        pivot = start
        for again in range(3 if size > 64 else 1):
            state = state * scatter + np.uint64(1)
            first = start + np.int64((state >> np.uint64(33)) % size)
            state = state * scatter + np.uint64(1)
            second = start + np.int64((state >> np.uint64(33)) % size)
            state = state * scatter + np.uint64(1)
            third = start + np.int64((state >> np.uint64(33)) % size)
            found = _middle(first, second, third, keys)
            if again == 0:
                one = found
                pivot = found
            elif again == 1:
                two = found
            else:
                pivot = _middle(one, two, found, keys)
        key = keys[pivot]
        low, high = start, stop - 1
        while low <= high:
            while keys[low] < key:
                low += 1
            while keys[high] > key:
                high -= 1
            if low <= high:
                if low < high:
                    _swap(low, high, keys, order, numbers, codes)
                low += 1
                high -= 1
        if middle <= high:
            stop = high + 1
        elif middle >= low:
            start = low
        else:
            return


@njit(cache=True, nogil=True)
def _tied(start, stop, middle, keys, order, numbers, codes):
    """Bring the points together that are tied with that at `middle`; returns where they start and stop."""
    key = keys[middle]
    low = middle
    for at in range(middle - 1, start - 1, -1):
        if keys[at] == key:
            low -= 1
            _swap(at, low, keys, order, numbers, codes)
    high = middle
    if low == middle:  # no tie is cut
        return low, high
    for at in range(middle, stop):
        if keys[at] == key:
            _swap(at, high, keys, order, numbers, codes)
            high += 1
    return low, high


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _sort_rows(rows):
    """Heapsort: numba's own sort takes seconds to compile."""
    size = len(rows)
    begin = size // 2
    while size > 1:
        if begin:
            begin -= 1
            row = rows[begin]
        else:
            size -= 1
            row = rows[size]
            rows[size] = rows[0]
        at = begin
        child = 2 * at + 1
        while child < size:
            if child + 1 < size and rows[child + 1] > rows[child]:
                child += 1
            if rows[child] <= row:
                break
            rows[at] = rows[child]
            at = child
            child = 2 * at + 1
        rows[at] = row


@njit(cache=True, nogil=True)
def _cut(level, index, numbers, codes, order, keys, extents, boxes, code_boxes, uniform, depth):
    """Take a node's box; unless it is a leaf, cut it in two."""
    count = np.int64(len(order))
    start = (count * index) >> level
    stop = (count * (index + 1)) >> level
    node = (1 << level) - 1 + index
    inherited = level > 0 and uniform[((node + 1) >> 1) - 1]
    last = start + 1 if inherited else stop  # one point of a uniform node is like the others
    for dimension in range(numbers.shape[1]):
        low = high = numbers[start, dimension]
        for at in range(start + 1, last):
            low = min(low, numbers[at, dimension])
            high = max(high, numbers[at, dimension])
        boxes[node, 0, dimension], boxes[node, 1, dimension] = low, high
    for dimension in range(codes.shape[1]):
        least = most = codes[start, dimension]
        for at in range(start + 1, last):
            least = min(least, codes[at, dimension])
            most = max(most, codes[at, dimension])
        code_boxes[node, 0, dimension], code_boxes[node, 1, dimension] = least, most
    widest, width = _next_widest(boxes, code_boxes, node, extents, -1, np.inf)
    if widest < 0:
        uniform[node] = True
        if not inherited:
            _sort_rows(order[start:stop])
        return
    if level == depth:
        return
    middle = (count * (2 * index + 1)) >> (level + 1)
    while start < middle:  # a tie across one dimension is cut across the next, and at last by row
        for at in range(start, stop):
            if widest < 0:
                keys[at] = order[at]
            elif widest < numbers.shape[1]:
                keys[at] = numbers[at, widest]
            else:
                keys[at] = codes[at, widest - numbers.shape[1]]
        _part(start, stop, middle, keys, order, numbers, codes)
        start, stop = _tied(start, stop, middle, keys, order, numbers, codes)
        widest, width = _next_widest(boxes, code_boxes, node, extents, widest, width)


@njit(cache=True, nogil=True)
def _fill_leaf(leaf, numbers, codes, order, depth, rows, number_blocks, code_blocks):
    """Lay out a leaf by dimension, its rows in ascending order."""
    count = np.int64(len(order))
    start = (count * leaf) >> depth
    size = ((count * (leaf + 1)) >> depth) - start
    sequence = np.arange(start, start + size)
    for lane in range(1, size):  # sorted by insertion
        at = sequence[lane]
        to = lane
        while to > 0 and order[sequence[to - 1]] > order[at]:
            sequence[to] = sequence[to - 1]
            to -= 1
        sequence[to] = at
    for lane in range(size):
        at = sequence[lane]
        rows[start + lane] = order[at]
        for dimension in range(numbers.shape[1]):
            number_blocks[leaf, dimension, lane] = numbers[at, dimension]
        for dimension in range(codes.shape[1]):
            code_blocks[leaf, dimension, lane] = codes[at, dimension]


@njit(cache=True, nogil=True, parallel=True)
def _cut_subtrees(top, bottom, first, last, numbers, codes, order, keys, extents, boxes, code_boxes,
                  uniform, rows, number_blocks, code_blocks, depth):  # fmt: skip
    """Cut the nodes of the levels `top` to `bottom` in and below some nodes of the first; fill the leaves."""
    for subtree in prange(first, last):
        for level in range(top, bottom + 1):
            below = level - top
            for index in range(subtree << below, (subtree + 1) << below):
                _cut(level, index, numbers, codes, order, keys, extents, boxes, code_boxes, uniform, depth)
        if bottom == depth:
            below = bottom - top
            for leaf in range(subtree << below, (subtree + 1) << below):
                _fill_leaf(leaf, numbers, codes, order, depth, rows, number_blocks, code_blocks)
