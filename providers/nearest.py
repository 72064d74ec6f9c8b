"""The nearest rows of every row, by (squared distance, row).

What is found depends on the points alone, not on the order in which the tree is searched. Distances
are those of `providers.lanes`; ties are told apart by row number.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: search by bounds.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from providers.kdtree import LEAF, rounded_down, rounded_up
from providers.lanes import (
    LANES,
    halves_apart,
    insert,
    lowest_lane,
    near_points,
    nearer_points,
    take_in,
    within,
)
from providers.neighbours import distance, span
from providers.uncounted import uncounted

TIE = 1.0 + 2e-9
"""Squared distances within this factor are ties: distances by a relative 1e-9."""

_SORTED = 64  # nearest rows that are kept sorted by insertion; more of them are kept in a heap
_NO_ROW = np.int32(2**31 - 1)
_WAITING = 80  # nodes at most: one a level, and levels are fewer than bits of a row number


class Notes(NamedTuple):
    """What a search writes down on its way; kernels take it as it is."""

    points: npt.NDArray[np.float32]
    """The queries' numbers rounded down, and up; shape (2, numbers, 16)."""
    limits: npt.NDArray[np.float32]
    """How far their nearest rows are at most; shape (16,)."""
    gaps: npt.NDArray[np.float32]
    """How far they are at least from each node that waits; shape (80, 16)."""
    stack: npt.NDArray[np.int64]
    """Those nodes; shape (80,)."""
    out: npt.NDArray[np.float64]
    """Distances; shape (16,)."""


@njit(cache=True, nogil=True)
def notes_for(tree):
    """For searches of trees with as many numbers."""
    return Notes(
        np.empty((2, tree.numbers.shape[1], LANES), np.float32),
        np.empty(LANES, np.float32),
        np.empty((_WAITING, LANES), np.float32),
        np.empty(_WAITING, np.int64),
        np.empty(LANES),
    )


@uncounted
def width(wanted):
    """Places that `nearest` needs for each lane: whole vectors, where the nearest are kept sorted."""
    return wanted if wanted > _SORTED else (wanted + LANES - 1) // LANES * LANES


# ------------------------------------------------------------------------- a heap, where there are many


@uncounted
def _after(distance, row, other_distance, other_row):
    """Whether (distance, row) comes after the other."""
    return distance > other_distance or (distance == other_distance and row > other_row)


@uncounted
def _sift_down(distances, rows, at, size):
    """Restore a heap whose largest is on top, below `at`."""
    distance, row = distances[at], rows[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _after(distances[child + 1], rows[child + 1], distances[child], rows[child]):
            child += 1
        if not _after(distances[child], rows[child], distance, row):
            break
        distances[at], rows[at] = distances[child], rows[child]
        at = child
    distances[at], rows[at] = distance, row


@uncounted
def _push(distance, row, distances, rows, have):
    """Take a row into a heap, or into what will be one when there is no more room."""
    room = len(rows)
    if have == room:
        distances[0], rows[0] = distance, row
        _sift_down(distances, rows, 0, room)
        return room
    distances[have], rows[have] = distance, row
    if have + 1 == room:
        for at in range(room // 2 - 1, -1, -1):
            _sift_down(distances, rows, at, room)
    return have + 1


@uncounted
def _sort(distances, rows, have):
    """Sort a heap: heapsort."""
    for at in range(have // 2 - 1, -1, -1):
        _sift_down(distances, rows, at, have)
    for last in range(have - 1, 0, -1):
        distances[0], distances[last] = distances[last], distances[0]
        rows[0], rows[last] = rows[last], rows[0]
        _sift_down(distances, rows, 0, last)


# ---------------------------------------------------------------------------------------- the search


@uncounted
def _bound(distances, lane, wanted, floor):
    """How far a row is at most that has to be looked at, where a lane's nearest are kept sorted.

    Of one wanted there is none before it: the floor is infinity there.
    """
    return min(distances[lane, wanted - 1], max(floor, distances[lane, wanted - 2] * TIE))


@uncounted
def _keep(apart, row, wanted, floor, distances, rows, lane, have, bounds):
    """Take a row among a lane's nearest, and lower the lane's bound."""
    if wanted <= _SORTED:
        insert(distances, rows, lane, apart, row)
        bounds[lane] = _bound(distances, lane, wanted, floor)
        return
    if have[lane] == wanted and not _after(distances[lane, 0], rows[lane, 0], apart, row):
        return
    have[lane] = _push(apart, row, distances[lane], rows[lane], have[lane])
    if have[lane] == wanted:
        bounds[lane] = distances[lane, 0]


@uncounted
def nearest(tree, queries, leaf, own, others_only, wanted, floor, distances, rows, have, bounds, notes):
    """The nearest `wanted` rows of each query of a leaf; all queries go down the tree together.

    `distances` and `rows`, shape (16, width(wanted)), get them in their order, and infinity and no
    row where the tree has fewer. With `others_only` a row is not its own neighbour. With `own` the
    queries are the tree itself, and so are neighbours of each other; they are then `others_only`.

    Of the last one it is told whether it is a tie of the one before it, or at most `floor` away; where it
    is neither, it may be one that is farther, or none. With a floor of infinity it is as the others.
    """
    begin(queries, leaf, distances, rows, have, bounds)
    searched = -1
    if own and wanted <= LANES and _is_apart(tree, leaf):
        _look_beside(tree, leaf, wanted, floor, distances, rows, bounds, notes.out)
        searched = leaf
    look_further(
        tree, queries, leaf, searched, others_only, wanted, floor, distances, rows, have, bounds, notes
    )  # fmt: skip
    put_in_order(queries, leaf, wanted, distances, rows, have)


@uncounted
def begin(queries, leaf, distances, rows, have, bounds):
    """No row found yet, for any query of a leaf."""
    size = queries.starts[leaf + 1] - queries.starts[leaf]
    for lane in range(LEAF):
        have[lane] = 0
        bounds[lane] = np.inf if lane < size else -1.0
        for at in range(distances.shape[1]):
            distances[lane, at] = np.inf
            rows[lane, at] = _NO_ROW


@uncounted
def put_in_order(queries, leaf, wanted, distances, rows, have):
    """The rows found of each query of a leaf in their order, once all trees have been searched."""
    if wanted > _SORTED:
        for lane in range(queries.starts[leaf + 1] - queries.starts[leaf]):
            _sort(distances[lane], rows[lane], have[lane])


@uncounted
def _is_apart(tree, leaf):
    """Whether a search comes to the leaf itself: not where all rows of the node above it are the same."""
    return tree.depth == 0 or not tree.uniform[((1 << tree.depth) - 1 + leaf - 1) >> 1]


@uncounted
def _look_beside(tree, leaf, wanted, floor, distances, rows, bounds, out):
    """The first rows to be found: those beside each in its own leaf."""
    start = tree.starts[leaf]
    size = tree.starts[leaf + 1] - start
    for lane in range(size):
        near_points(
            tree.numbers, tree.codes, leaf, tree.numbers, tree.codes, leaf, lane, tree.flags, tree.weight,
            np.inf, out,
        )  # fmt: skip
        others = ((1 << size) - 1) & ~(1 << lane)
        left = others
        while left:
            at = lowest_lane(left)
            left &= left - 1
            place = nearer_points(out, at, others)
            distances[lane, place] = out[at]
            rows[lane, place] = tree.rows[start + at]
        bounds[lane] = _bound(distances, lane, wanted, floor)


@uncounted
def look_further(tree, queries, leaf, searched, others_only, wanted, floor, distances, rows, have, bounds,
                 notes):  # fmt: skip
    """Search one more tree for rows that are nearer than those found; all as in `nearest`.

    `searched`: a leaf of it that has been, or -1.
    """
    numbers, codes = tree.numbers, tree.codes
    query_numbers, query_codes = queries.numbers, queries.codes
    uniform, tree_rows, query_rows = tree.uniform, tree.rows, queries.rows
    weight, flags = tree.weight, tree.flags
    starts = tree.starts
    first = queries.starts[leaf]
    leaves = (1 << tree.depth) - 1
    lowest = leaves >> 1  # the first node above the leaves
    points, limits, gaps, stack, out = notes.points, notes.limits, notes.gaps, notes.stack, notes.out
    for number in range(query_numbers.shape[1]):
        for lane in range(LANES):
            value = query_numbers[leaf, number, lane]
            points[0, number, lane] = rounded_down(value)
            points[1, number, lane] = rounded_up(value)
    rough_weight = np.float32(min(weight, 1e38))  # finite: it may be taken no times
    # More than a sum of so many squares may be rounded up by, each of its operations by a factor 1 + 2**-24.
    slack = 1.0 + (query_numbers.shape[1] + query_codes.shape[1] + 8) * 2.0**-22
    _limit(bounds, slack, limits)
    for lane in range(LANES):
        gaps[0, lane] = 0.0
    stack[0] = 0
    top = 1
    while top:
        top -= 1
        lanes = within(gaps, top, limits)
        if not lanes:
            continue
        node = stack[top]
        if node >= lowest and node < leaves and not uniform[node]:
            only = 2 * (node - lowest)
            if starts[only + 1] == starts[only + 2]:  # the node is its one leaf
                node = leaves + only
        if node < leaves and not uniform[node]:
            half, near, far = halves_apart(
                points, query_codes, leaf, tree.rough, tree.code_boxes, node, flags, rough_weight, limits,
                gaps, top,
            )  # fmt: skip
            if far:
                stack[top] = 2 * node + 2 - half
                top += 1
            if near:
                stack[top] = 2 * node + 1 + half
                top += 1
            continue
        if node < leaves:
            _uniform_node(
                tree, node, queries, leaf, others_only, wanted, floor, distances, rows, have, bounds
            )  # fmt: skip
        else:
            other = node - leaves
            if other == searched:
                continue
            start = starts[other]
            there = (1 << (starts[other + 1] - start)) - 1
            while lanes:
                lane = lowest_lane(lanes)
                lanes &= lanes - 1
                excluded = query_rows[first + lane] if others_only else np.int32(-1)
                near_ones = there & near_points(
                    numbers, codes, other, query_numbers, query_codes, leaf, lane, flags, weight,
                    bounds[lane], out,
                )  # fmt: skip
                if near_ones and wanted <= LANES:
                    take_in(distances, rows, lane, near_ones, out, tree_rows, start, excluded)
                    bounds[lane] = _bound(distances, lane, wanted, floor)
                    continue
                while near_ones:
                    at = lowest_lane(near_ones)
                    near_ones &= near_ones - 1
                    row = tree_rows[start + at]
                    if row != excluded and out[at] <= bounds[lane]:
                        _keep(out[at], row, wanted, floor, distances, rows, lane, have, bounds)
        _limit(bounds, slack, limits)


@uncounted
def _limit(bounds, slack, limits):
    """Bounds in single precision, more by the slack, and by as much as the smallest squares lose."""
    for lane in range(LANES):
        limits[lane] = np.float32(bounds[lane] * slack + 1e-37)


@uncounted
def _uniform_node(tree, node, queries, leaf, others_only, wanted, floor, distances, rows, have, bounds):
    """Take the points of a node, all the same and in the order of rows, as long as they count."""
    first = queries.starts[leaf]
    start, stop = span(tree, node)
    for lane in range(queries.starts[leaf + 1] - first):
        apart = distance(tree, start, queries, leaf, lane)
        taken = 0
        for position in range(start, stop):
            if apart > bounds[lane] or taken == wanted:
                break
            row = tree.rows[position]
            if others_only and row == queries.rows[first + lane]:
                continue
            _keep(apart, row, wanted, floor, distances, rows, lane, have, bounds)
            taken += 1
