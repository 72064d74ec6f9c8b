"""k-d tree that supports removing rows.

Equal rows form one *site*. A node stores the tight bounding box and the smallest row number of the rows that
are left in it; both are updated as rows are removed. `shrinking_tree_search` searches the tree.

Arguments of kernels
--------------------
tree : Boxes
    The tree. `take` writes `bin_of` and `head`; `bound_leaf` and `bound_parent` write `bound` and
    `bound_row`. `_join` also writes `lower`, `upper` and `smallest`. `_refresh_leaf`, `refresh` and `settle`
    also write `live`, `points`, `head`, `stop`, `far` and `witness` of leaves.
node, leaf : int
    Number of a node, and of a leaf.
place, row : int
    Place of a site, and its first row that is left.
number : int
    Number of a bin.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: k-d trees and nearest neighbours by bounds.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from providers.kernels.decorators import borrowing, within
from providers.numba import njit

Floats = npt.NDArray[np.float64]
"""Array of float64."""

Ints = npt.NDArray[np.int32]
"""Array of int32."""

LEAF = 32
"""Largest number of rows in a leaf, unless they are all equal; it affects the speed, no result."""

MOST_ROWS = 2**30 - 1
"""Largest number of rows that row and place numbers of int32 allow."""

NO_ROW = 2**31 - 1
"""Row number that means "no row": larger than any."""

_SAMPLE = 64  # rows sampled to choose the cut of a node


class Boxes(NamedTuple):
    """Arrays of the tree. The two children of a node have consecutive numbers; node 0 is the root.

    A *place* is an index into `order`. The sites of a leaf are its first `live` places from `start` on. The
    rows of a site are ``order[head:stop]``, ascending; rows before `head` have been removed.
    """

    values: Floats
    """Values of the rows, shape (fields, rows); read only."""
    order: Ints
    """Row numbers, leaf by leaf and site by site; shape (rows,)."""
    bin_of: Ints
    """Bin of each row, -1 while it is left; shape (rows,)."""
    child: Ints
    """First child of each node; 0 for a leaf; shape (nodes,)."""
    parent: Ints
    """Parent of each node; shape (nodes,)."""
    start: Ints
    """First place of each leaf; shape (nodes,)."""
    live: Ints
    """Number of sites of each leaf that hold rows; shape (nodes,)."""
    lower: Floats
    """Smallest value of the rows left in each node, by field; inf if none is; shape (nodes, fields)."""
    upper: Floats
    """Largest value, likewise; -inf if no row is left."""
    smallest: Ints
    """Smallest row left in each node, `NO_ROW` if none is; shape (nodes,)."""
    points: Floats
    """Values of the sites by place; shape (fields, rows)."""
    head: Ints
    """Index in `order` of each site's first row that is left, by place; shape (rows,)."""
    stop: Ints
    """End of each site's rows in `order`, by place; shape (rows,)."""
    leaf: Ints
    """Leaf of each site, by place; shape (rows,)."""
    far: Floats
    """Upper bound on the squared distance from each site to any row left, by place; shape (rows,)."""
    witness: Ints
    """Row at distance `far`, by place; while it is left, `far` is exact. -1 for none yet; shape (rows,)."""
    bound: Floats
    """Largest `far` in each node; for a node that is not opened, a bound on it; shape (nodes,)."""
    bound_row: Ints
    """Smallest row with that bound; shape (nodes,)."""
    bound_witness: Ints
    """Row that gave the bound of a node that is not opened; -1 for none yet; shape (nodes,)."""
    opened: npt.NDArray[np.bool_]
    """Whether a node's bound is that of its children or sites; shape (nodes,)."""
    nodes: npt.NDArray[np.int64]
    """Scratch of the searches: stack of nodes to visit; shape (depth,)."""
    bounds: Floats
    """Scratch of the searches: bounds of these nodes; shape (depth,)."""
    squares: Floats
    """Scratch: squared distances of a leaf's sites; shape (leaf size,)."""
    edges: Floats
    """Scratch: lower and upper edge of the box that a search starts from; shape (2, fields)."""
    work: npt.NDArray[np.int64]
    """Number of boxes and sites examined; shape (1,)."""


# ------------------------------------------------------------------------------------------- building


@within
def _cut_of(values, order, start, stop, sample):
    """Choose (field, value) at which to cut a node, "<=" to the left; field -1 if all rows are equal.

    The cut is at the median of the widest field of a sample, so that both sides get a row.

    Parameters
    ----------
    values : ndarray of float64, shape (fields, rows)
    order : ndarray of int32, shape (rows,)
    start, stop : int
        The node's rows are ``order[start:stop]``.
    sample : ndarray of int64, shape (_SAMPLE,)
        Scratch.
    """
    fields = len(values)
    size = stop - start
    count = min(size, _SAMPLE)
    state = np.uint64(size)
    widest, extent = -1, 0.0
    for index in range(count):
        if size <= _SAMPLE:
            sample[index] = order[start + index]
        else:  # a linear congruential generator suffices: the shape of the tree affects no result
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            sample[index] = order[start + np.int64((state >> np.uint64(33)) % np.uint64(size))]
    for field in range(fields):
        column = values[field]
        low = high = column[sample[0]]
        for index in range(1, count):
            value = column[sample[index]]
            low = min(low, value)
            high = max(high, value)
        if low < high and (widest < 0 or high - low > extent):
            widest, extent = field, high - low
    if widest >= 0:
        column = values[widest]
        sampled = np.empty(count)
        for index in range(count):
            sampled[index] = column[sample[index]]
        sampled.sort()
        middle = count // 2
        while sampled[middle] == sampled[count - 1]:  # the right side must get a row
            middle -= 1
        return widest, sampled[middle]
    if size > _SAMPLE:  # all sampled rows are equal: examine all rows
        for field in range(fields):
            column = values[field]
            low = high = column[order[start]]
            for place in range(start + 1, stop):
                low = min(low, column[order[place]])
                high = max(high, column[order[place]])
            if low < high:
                return field, low
    return -1, 0.0


@njit(cache=True, nogil=True)
def _partition(column, order, start, stop, value):
    """Reorder ``order[start:stop]`` so that rows up to `value` come first; return the start of the others.

    Parameters
    ----------
    column : ndarray of float64, shape (rows,)
    order : ndarray of int32, shape (rows,)
        Permuted in place.
    start, stop : int
    value : float
    """
    left, right = start, stop - 1
    while True:
        while left <= right and column[order[left]] <= value:
            left += 1
        while left <= right and column[order[right]] > value:
            right -= 1
        if left > right:
            return left
        order[left], order[right] = order[right], order[left]


@within
def _make_sites(values, order, start, stop, equal, points, head, site_stop):
    """Group the rows of a leaf into sites of equal rows; return the number of sites.

    Parameters
    ----------
    values : ndarray of float64, shape (fields, rows)
    order : ndarray of int32, shape (rows,)
        ``order[start:stop]`` is permuted in place.
    start, stop : int
        Places of the leaf.
    equal : bool
        Whether the leaf's rows are known to be equal.
    points, head, site_stop
        `points`, `head` and `stop` of `Boxes`. Written from place `start` on.
    """
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
    for index in range(size):
        row = order[start + index]
        rows[index] = row
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
        site_of[index] = site
        count[site] += 1
    place = start
    for site in range(sites):
        head[start + site] = site_stop[start + site] = place
        place += count[site]
    for index in range(size):  # counting sort by site; rows stay ascending within one
        site = start + site_of[index]
        order[site_stop[site]] = rows[index]
        site_stop[site] += 1
    return sites


@njit(cache=True, nogil=True)
def grow(
    values, order, child, parent, start, stop, live, points, head, site_stop, leaf,
    leaf_size, nodes, done, budget,
):  # fmt: skip
    """Cut nodes from number `done` on, until none is left, the budget is used up, or the arrays are full.

    Parameters
    ----------
    values, order, child, parent, start, live, points, head, leaf
        Arrays of `Boxes`; all but `values` are written.
    stop : ndarray of int32, shape (capacity,)
        End of each node's places. Written.
    site_stop : ndarray of int32, shape (rows,)
        `stop` of `Boxes`. Written.
    leaf_size : int
        Largest number of rows in a leaf.
    nodes, done : int
        Number of nodes so far, and of those that are cut.
    budget : int
        Number of rows to examine in this call.

    Returns
    -------
    (nodes, nodes that are cut, rows examined)
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
    """Compute the box of every node, from the leaves up; return the depth of the tree."""
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


# ---------------------------------------------------------------------------------- removing rows


@borrowing
def _refresh_leaf(tree, node):
    """Compact the sites of a leaf that still hold rows, and recompute its box and bound."""
    fields = len(tree.points)
    first = tree.start[node]
    target = first
    smallest = np.int32(NO_ROW)
    for place in range(first, first + tree.live[node]):
        if tree.head[place] == tree.stop[place]:
            continue
        if place != target:
            for field in range(fields):
                tree.points[field, target] = tree.points[field, place]
            tree.head[target] = tree.head[place]
            tree.stop[target] = tree.stop[place]
            tree.far[target] = tree.far[place]
            tree.witness[target] = tree.witness[place]
        smallest = min(smallest, tree.order[tree.head[target]])
        target += 1
    tree.live[node] = target - first
    tree.smallest[node] = smallest
    for field in range(fields):
        low, high = np.inf, -np.inf
        for place in range(first, target):
            low = min(low, tree.points[field, place])
            high = max(high, tree.points[field, place])
        tree.lower[node, field] = low
        tree.upper[node, field] = high
    bound_leaf(tree, node)


@borrowing
def bound_leaf(tree, node):
    """Update a leaf's bound: the largest of its sites if it is opened."""
    if tree.opened[node]:
        largest, row = -1.0, np.int32(NO_ROW)
        for place in range(tree.start[node], tree.start[node] + tree.live[node]):
            far = tree.far[place]
            if far > largest or (far == largest and tree.order[tree.head[place]] < row):
                largest = far
                row = tree.order[tree.head[place]]
        tree.bound[node] = largest
        tree.bound_row[node] = row
    else:
        tree.bound_row[node] = tree.smallest[node]
        if tree.smallest[node] == NO_ROW:
            tree.bound[node] = -1.0


@borrowing
def bound_parent(tree, node):
    """Update an inner node's bound: that of its children if it is opened; return whether it changed."""
    bound, row = tree.bound[node], tree.smallest[node]
    if tree.opened[node]:
        one = tree.child[node]
        if tree.bound[one + 1] > tree.bound[one] or (
            tree.bound[one + 1] == tree.bound[one] and tree.bound_row[one + 1] < tree.bound_row[one]
        ):
            one += 1
        bound, row = tree.bound[one], tree.bound_row[one]
    elif row == NO_ROW:
        bound = -1.0
    changed = bound != tree.bound[node] or row != tree.bound_row[node]
    tree.bound[node] = bound
    tree.bound_row[node] = row
    return changed


@borrowing
def _join(tree, node):
    """Recompute box, smallest row and bound of an inner node; return whether anything changed."""
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


@borrowing
def take(tree, place, row, number):
    """Put the first row of a site into bin `number`; `refresh` must follow before the next search."""
    tree.bin_of[row] = number
    tree.head[place] += 1


@borrowing
def refresh(tree, leaf):
    """Update a leaf and its ancestors after rows were removed from it."""
    _refresh_leaf(tree, leaf)
    node = leaf
    while node > 0:
        node = tree.parent[node]
        if not _join(tree, node):
            break
