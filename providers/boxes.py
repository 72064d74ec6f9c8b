"""A k-d tree of the rows that are left: how it grows, and how it shrinks as rows are taken.

Equal rows lie together as one *site*. A node knows the tight box and the smallest row of what is left
in it; both shrink as rows are taken. `providers.box_search` looks for rows in it.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: k-d trees and nearest neighbours by bounds.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

LEAF = 32
"""Rows of a leaf, at most, unless they are all equal; chosen for speed, it changes no result."""
MOST_ROWS = 2**30 - 1
NOBODY = 2**31 - 1
"""In place of a row number where there is no row: larger than any."""

_SAMPLE = 64  # rows that say where a node is cut


class Boxes(NamedTuple):
    """The tree. Children of a node lie side by side, after their parent; node 0 is the root.

    A *place* is an index into `order`; the sites of a leaf are its places from `start` on, `live` of
    them, and the rows of a site are ``order[head:stop]``, ascending, those taken before `head`.
    """

    values: Floats
    """The rows, shape (fields, rows); left as they are."""
    order: Ints
    """The rows, leaf by leaf and site by site; shape (rows,)."""
    bin_of: Ints
    """The bin that each row is in, -1 while it is left; shape (rows,)."""
    child: Ints
    """The first of a node's two children; 0 for a leaf; shape (nodes,)."""
    parent: Ints
    start: Ints
    live: Ints
    lower: Floats
    """The smallest value left in the node, field by field, inf where none is; shape (nodes, fields)."""
    upper: Floats
    smallest: Ints
    """The smallest row left in the node, `NOBODY` where none is; shape (nodes,)."""
    points: Floats
    """The values of the sites by place; shape (fields, rows)."""
    head: Ints
    """By place, shape (rows,), like `stop` and `leaf`."""
    stop: Ints
    leaf: Ints
    far: Floats
    """By place: no row is farther from the site than this. For the search of the farthest pair."""
    witness: Ints
    """By place: the row that was so far; while it is left, `far` is exact. -1 for none yet."""
    bound: Floats
    """The largest `far` in the node; where it is not opened, a bound on it; shape (nodes,)."""
    bound_row: Ints
    """The smallest row with that bound."""
    bound_witness: Ints
    """The row that gave the bound of a node not opened; -1 for none yet."""
    opened: npt.NDArray[np.bool_]
    """Whether the bound comes from the node's children or sites."""
    nodes: npt.NDArray[np.int64]
    """Scratch of the searches: nodes to visit, and their bounds; shape (depth,)."""
    bounds: Floats
    squares: Floats
    """Scratch: the distances of a leaf's sites; as many as a leaf has."""
    edges: Floats
    """Scratch: the box that is searched from; shape (2, fields)."""
    work: npt.NDArray[np.int64]
    """``work[0]`` counts the boxes and sites looked at; shape (1,)."""


# ------------------------------------------------------------------------------------------- building


@njit(cache=True, nogil=True)
def _cut_of(values, order, start, stop, sample):
    """(field, value) to cut rows ``order[start:stop]`` at, "<=" to the left; field -1 if all are equal.

    The widest field of a sample at its median, so that both sides get a row.
    """
    fields = len(values)
    size = stop - start
    count = min(size, _SAMPLE)
    state = np.uint64(size)
    widest, extent = -1, 0.0
    for at in range(count):
        if size <= _SAMPLE:
            sample[at] = order[start + at]
        else:  # any spread will do: the shape of the tree changes no result
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            sample[at] = order[start + np.int64((state >> np.uint64(33)) % np.uint64(size))]
    for field in range(fields):
        column = values[field]
        low = high = column[sample[0]]
        for at in range(1, count):
            value = column[sample[at]]
            low = min(low, value)
            high = max(high, value)
        if low < high and (widest < 0 or high - low > extent):
            widest, extent = field, high - low
    if widest >= 0:
        column = values[widest]
        drawn = np.empty(count)
        for at in range(count):
            drawn[at] = column[sample[at]]
        drawn.sort()
        middle = count // 2
        while drawn[middle] == drawn[count - 1]:
            middle -= 1
        return widest, drawn[middle]
    if size > _SAMPLE:  # the sample is of equal rows: look at all
        for field in range(fields):
            column = values[field]
            low = high = column[order[start]]
            for at in range(start + 1, stop):
                low = min(low, column[order[at]])
                high = max(high, column[order[at]])
            if low < high:
                return field, low
    return -1, 0.0


@njit(cache=True, nogil=True)
def _partition(column, order, start, stop, value):
    """Rows with a value up to `value` first; returns where the others begin."""
    left, right = start, stop - 1
    while True:
        while left <= right and column[order[left]] <= value:
            left += 1
        while left <= right and column[order[right]] > value:
            right -= 1
        if left > right:
            return left
        order[left], order[right] = order[right], order[left]


@njit(cache=True, nogil=True)
def _make_sites(values, order, start, stop, equal, points, head, site_stop):
    """Lay out the sites of a leaf; returns how many there are. `equal`: its rows are known to be equal."""
    fields = len(values)
    order[start:stop].sort()
    if equal:
        head[start], site_stop[start] = start, stop
        for field in range(fields):
            points[field, start] = values[field, order[start]]
        return 1
    size = stop - start
    rows = np.empty(size, order.dtype)
    site_of = np.empty(size, np.int64)
    count = np.zeros(size + 1, np.int64)
    sites = 0
    for at in range(size):
        row = order[start + at]
        rows[at] = row
        site = 0
        while site < sites:
            field = 0
            while field < fields and points[field, start + site] == values[field, row]:
                field += 1
            if field == fields:
                break
            site += 1
        if site == sites:
            for field in range(fields):
                points[field, start + site] = values[field, row]
            sites += 1
        site_of[at] = site
        count[site] += 1
    place = start
    for site in range(sites):
        head[start + site] = site_stop[start + site] = place
        place += count[site]
    for at in range(size):
        site = start + site_of[at]
        order[site_stop[site]] = rows[at]
        site_stop[site] += 1
    return sites


@njit(cache=True, nogil=True)
def grow(
    values, order, child, parent, start, stop, live, points, head, site_stop, leaf,
    leaf_size, nodes, done, budget,
):  # fmt: skip
    """Cut nodes `done` and on, until all are, or `budget` rows are looked at, or the arrays are full.

    Returns the nodes there are now, the nodes that are done, and the rows that were looked at.
    """
    sample = np.empty(_SAMPLE, np.int64)
    used = np.int64(0)
    while done < nodes and used < budget and nodes + 2 <= len(child):
        first, last = start[done], stop[done]
        used += last - first
        field, value = -1, 0.0
        if last - first > leaf_size:
            field, value = _cut_of(values, order, first, last, sample)
        if field < 0:
            equal = last - first > leaf_size
            live[done] = _make_sites(values, order, first, last, equal, points, head, site_stop)
            child[done] = 0
            leaf[first : first + live[done]] = done
        else:
            middle = _partition(values[field], order, first, last, value)
            child[done] = nodes
            for side in range(2):
                parent[nodes + side] = done
                start[nodes + side] = first if side == 0 else middle
                stop[nodes + side] = middle if side == 0 else last
            nodes += 2
        done += 1
    return nodes, done, used


@njit(cache=True, nogil=True)
def settle(tree):
    """Give every node its box; returns the depth of the tree."""
    depth = np.zeros(len(tree.child), np.int32)
    deepest = 0
    for node in range(1, len(tree.child)):
        depth[node] = depth[tree.parent[node]] + 1
        deepest = max(deepest, depth[node])
    for node in range(len(tree.child) - 1, -1, -1):
        if tree.child[node]:
            _join(tree, node)
        else:
            _refresh_leaf(tree, node)
    return deepest


# ------------------------------------------------------------------------------------- taking away


@njit(cache=True, nogil=True)
def _refresh_leaf(tree, node):
    """Close up the sites of a leaf that are left, and shrink its box to them."""
    fields = len(tree.points)
    first = tree.start[node]
    to = first
    smallest = np.int32(NOBODY)
    for place in range(first, first + tree.live[node]):
        if tree.head[place] == tree.stop[place]:
            continue
        if place != to:
            for field in range(fields):
                tree.points[field, to] = tree.points[field, place]
            tree.head[to] = tree.head[place]
            tree.stop[to] = tree.stop[place]
            tree.far[to] = tree.far[place]
            tree.witness[to] = tree.witness[place]
        smallest = min(smallest, tree.order[tree.head[to]])
        to += 1
    tree.live[node] = to - first
    tree.smallest[node] = smallest
    for field in range(fields):
        low, high = np.inf, -np.inf
        for place in range(first, to):
            low = min(low, tree.points[field, place])
            high = max(high, tree.points[field, place])
        tree.lower[node, field] = low
        tree.upper[node, field] = high
    bound_leaf(tree, node)


@njit(cache=True, nogil=True)
def bound_leaf(tree, node):
    """The leaf's bound: that of its sites, where it is opened."""
    if tree.opened[node]:
        largest, row = -1.0, np.int32(NOBODY)
        for place in range(tree.start[node], tree.start[node] + tree.live[node]):
            far = tree.far[place]
            if far > largest or (far == largest and tree.order[tree.head[place]] < row):
                largest = far
                row = tree.order[tree.head[place]]
        tree.bound[node] = largest
        tree.bound_row[node] = row
    else:
        tree.bound_row[node] = tree.smallest[node]
        if tree.smallest[node] == NOBODY:
            tree.bound[node] = -1.0


@njit(cache=True, nogil=True)
def bound_parent(tree, node):
    """The inner node's bound: that of its children, where it is opened; returns whether it changed."""
    bound, row = tree.bound[node], tree.smallest[node]
    if tree.opened[node]:
        one = tree.child[node]
        if tree.bound[one + 1] > tree.bound[one] or (
            tree.bound[one + 1] == tree.bound[one] and tree.bound_row[one + 1] < tree.bound_row[one]
        ):
            one += 1
        bound, row = tree.bound[one], tree.bound_row[one]
    elif row == NOBODY:
        bound = -1.0
    changed = bound != tree.bound[node] or row != tree.bound_row[node]
    tree.bound[node] = bound
    tree.bound_row[node] = row
    return changed


@njit(cache=True, nogil=True)
def _join(tree, node):
    """Make the inner node what its children are together; returns whether anything changed."""
    one = tree.child[node]
    smallest = min(tree.smallest[one], tree.smallest[one + 1])
    changed = smallest != tree.smallest[node]
    tree.smallest[node] = smallest
    for field in range(len(tree.points)):
        low = min(tree.lower[one, field], tree.lower[one + 1, field])
        high = max(tree.upper[one, field], tree.upper[one + 1, field])
        changed |= low != tree.lower[node, field] or high != tree.upper[node, field]
        tree.lower[node, field] = low
        tree.upper[node, field] = high
    return bound_parent(tree, node) or changed


@njit(cache=True, nogil=True)
def take(tree, place, row, number):
    """Put a row of this site into a bin; the site's first ones go, and `refresh` follows before a search."""
    tree.bin_of[row] = number
    tree.head[place] += 1


@njit(cache=True, nogil=True)
def refresh(tree, leaf):
    """Let the leaf and what lies above it know that rows were taken from it."""
    _refresh_leaf(tree, leaf)
    node = leaf
    while node > 0:
        node = tree.parent[node]
        if not _join(tree, node):
            break
