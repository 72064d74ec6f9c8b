"""Equal-depth bins around distant rows (exact, MDAV).

While at least 2k rows are left, two distant rows r and s are found. Bin A is r and the k - 1 rows nearest
to it without s; then bin B is s and the k - 1 rows nearest to it of those left. A remainder of two or more
rows is the last bin; a single row joins the bin with the nearest centroid.

Exact: r and s are the two most distant rows; ties go to the smallest (r, s). Every row has an upper bound
on its distance to any row that is left, and a witness: the row at that distance. Removing rows only
decreases distances, so a bound stays valid, and it stays exact while its witness is left. The row with the
largest bound is examined: if its witness is left, the two are the pair; otherwise its bound is computed
again. Rows that were never examined have the bound of their node's box, from which the search starts.

MDAV: r is the row farthest from the centroid of the rows that are left, s the row farthest from r.

References
----------
Li and Shen 2010, Multivariate equi-width data swapping for private data publication, PAKDD, LNAI 6118,
208-215: algorithm 1.
Domingo-Ferrer and Mateo-Sanz 2002, doi:10.1109/69.979982: maximum distance to average vector (MDAV).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from providers.binning.shrinking_tree import (
    LEAF,
    NO_ROW,
    Boxes,
    Floats,
    Ints,
    bound_leaf,
    bound_parent,
    grow,
    refresh,
    settle,
    take,
)
from providers.binning.shrinking_tree_search import farthest, nearest
from providers.kernels.decorators import borrowing, within
from providers.kernels.exact_sum import LIMBS, add_exactly, nearest_mean
from providers.numba import njit

_WORK = 8_000_000
"""Boxes, sites and rows examined in one call of a kernel: some tenths of a second."""


@within
def _box(tree, low, high):
    """Copy a box into the tree's scratch, since the arrays that it comes from may change meanwhile.

    Parameters
    ----------
    tree : Boxes
        Written: `edges`.
    low, high : ndarrays of float64, shape (fields,)
        Edges of the box.
    """
    for field in range(len(low)):
        tree.edges[0, field] = low[field]
        tree.edges[1, field] = high[field]
    return tree.edges[0], tree.edges[1]


@borrowing
def _open(tree, node):
    """Give the node's children or sites bounds of their own; until computed, that of the node.

    Parameters
    ----------
    tree : Boxes
        Written: `opened` of the node; `bound`, `bound_row` and `bound_witness` of its children, or `far` and
        `witness` of its sites.
    node : int
        Number of a node that is not opened.
    """
    tree.opened[node] = True
    first_child = tree.child[node]
    if first_child:
        for child in range(first_child, first_child + 2):
            if tree.smallest[child] != NO_ROW:
                tree.bound[child] = tree.bound[node]
                tree.bound_row[child] = tree.smallest[child]
                tree.bound_witness[child] = -1
    else:
        for place in range(tree.start[node], tree.start[node] + tree.live[node]):
            tree.far[place] = tree.bound[node]
            tree.witness[place] = -1


@within
def most_distant_row(tree, most_work):
    """Find the most distant pair (r, s); return the place of r, or -1 if the work budget is used up.

    Parameters
    ----------
    tree : Boxes
        Bounds and witnesses are updated.
    most_work : int
        Value of ``tree.work[0]`` at which the search pauses; calling again continues it.
    """
    while tree.work[0] < most_work:
        # Descend to the site, or the unopened node, with the largest bound.
        node = 0
        while tree.opened[node] and tree.child[node]:
            bound, row = tree.bound[node], tree.bound_row[node]
            node = tree.child[node]
            if tree.bound[node] != bound or tree.bound_row[node] != row:
                node += 1
        if not tree.opened[node]:
            witness = tree.bound_witness[node]
            if witness >= 0 and tree.bin_of[witness] < 0:
                _open(tree, node)
            else:
                low, high = _box(tree, tree.lower[node], tree.upper[node])
                tree.bound[node], tree.bound_witness[node], _ = farthest(tree, low, high, NO_ROW)
        else:
            place = tree.start[node]
            while tree.far[place] != tree.bound[node] or tree.order[tree.head[place]] != tree.bound_row[node]:
                place += 1
            row, witness = tree.order[tree.head[place]], tree.witness[place]
            if witness >= 0 and tree.bin_of[witness] < 0 and witness != row:
                return place
            low, high = _box(tree, tree.points[:, place], tree.points[:, place])
            tree.far[place], tree.witness[place], _ = farthest(tree, low, high, row)
            bound_leaf(tree, node)
        while node > 0:  # update the ancestors' bounds until one does not change
            node = tree.parent[node]
            if not bound_parent(tree, node):
                break
    return -1


class Scratch(NamedTuple):
    """Buffers of the rounds, in addition to the tree."""

    near: Floats
    """Result of a search of nearest rows: squared distances; shape (2k + LEAF,)."""
    near_rows: Ints
    """Their row numbers; same shape."""
    near_places: npt.NDArray[np.int64]
    """Their places in the tree; same shape."""
    leaves: Ints
    """Leaves from which rows were removed; shape (nodes,)."""
    marked: npt.NDArray[np.bool_]
    """Mask of the nodes in `leaves`; shape (nodes,)."""
    centres: Floats
    """Values of r and s; shape (2, fields)."""
    bits: npt.NDArray[np.int64]
    """Bits of the values; shape (fields, rows), or (0, rows) if no centroid is needed."""
    sums: npt.NDArray[np.int64]
    """Exact sums of the rows that are left; shape (fields, LIMBS)."""


@borrowing
def _put(tree, scratch, place, row, number):
    """Move a row into bin `number` and subtract it from the exact sums.

    Parameters
    ----------
    tree : Boxes
        Written: `bin_of` and `head`.
    scratch : Scratch
        Written: `sums`.
    place, row, number : int
        Place of the row's site, row number, and bin.
    """
    take(tree, place, row, number)
    for field in range(len(scratch.bits)):
        add_exactly(scratch.sums[field], scratch.bits[field, row], -1)


@borrowing
def _fill(tree, scratch, number, point, wanted):
    """Put the `wanted` rows nearest to the point into bin `number`, then refresh their leaves once each.

    Parameters
    ----------
    tree : Boxes
    scratch : Scratch
        Both are updated.
    number, wanted : int
    point : ndarray of float64, shape (fields,)
    """
    nearest(tree, point, wanted, scratch.near, scratch.near_rows, scratch.near_places)
    count = 0
    for index in range(wanted):
        place = scratch.near_places[index]
        _put(tree, scratch, place, scratch.near_rows[index], number)
        leaf = tree.leaf[place]
        if not scratch.marked[leaf]:
            scratch.marked[leaf] = True
            scratch.leaves[count] = leaf
            count += 1
    for index in range(count):
        scratch.marked[scratch.leaves[index]] = False
        refresh(tree, scratch.leaves[index])


@within
def _two_bins(tree, scratch, number, place, row, size):
    """Form bins `number` and `number` + 1 around row r and the row s farthest from it (algorithm 1, line 4).

    Parameters
    ----------
    tree : Boxes
    scratch : Scratch
        Both are updated.
    number : int
    place, row : int
        Place and row number of r.
    size : int
        k.
    """
    centre_r, centre_s = scratch.centres[0], scratch.centres[1]
    centre_r[:] = tree.points[:, place]
    _, s, s_place = farthest(tree, centre_r, centre_r, row)
    centre_s[:] = tree.points[:, s_place]
    leaf, s_leaf = tree.leaf[place], tree.leaf[s_place]
    _put(tree, scratch, place, row, number)
    _put(tree, scratch, s_place, s, number + 1)
    refresh(tree, leaf)
    if s_leaf != leaf:
        refresh(tree, s_leaf)
    _fill(tree, scratch, number, centre_r, size - 1)
    _fill(tree, scratch, number + 1, centre_s, size - 1)


@njit(cache=True, nogil=True)
def _rounds(tree, scratch, size, number, left, most_work):
    """Form pairs of bins until fewer than 2 `size` rows are left (algorithm 1, line 2), or work is used up.

    Parameters
    ----------
    tree : Boxes
    scratch : Scratch
        Both are updated.
    size : int
        k.
    number : int
        Bins so far.
    left : int
        Rows that are in no bin yet.
    most_work : int
        Work budget of this call.

    Returns
    -------
    (bins so far, rows left)
    """
    tree.work[0] = 0
    while left >= 2 * size and tree.work[0] < most_work:
        if len(scratch.bits):
            centroid = scratch.centres[0]
            for field in range(len(centroid)):
                centroid[field] = nearest_mean(scratch.sums[field], left)
            _, row, place = farthest(tree, centroid, centroid, NO_ROW)
        else:
            place = most_distant_row(tree, most_work)
            if place < 0:
                break
            row = tree.order[tree.head[place]]
        _two_bins(tree, scratch, number, place, row, size)
        number += 2
        left -= 2 * size
    return number, left


@njit(cache=True, nogil=True)
def _sum_rows(bits, sums):
    """Sum all rows exactly; ``bits``: int64 (fields, rows); ``sums``: int64 (fields, LIMBS), written."""
    for field in range(len(bits)):
        for row in range(bits.shape[1]):
            add_exactly(sums[field], bits[field, row], 1)


@njit(cache=True, nogil=True)
def _nearest_bin(values, bits, listing, starts, row):
    """Find the bin with the centroid nearest to a row; ties go to the first bin.

    Parameters
    ----------
    values : ndarray of float64, shape (fields, rows)
    bits : ndarray of int64, shape (fields, rows)
        Bits of the values.
    listing : ndarray of int32, shape (binned rows,)
        Rows by bin.
    starts : ndarray of int64, shape (bins + 1,)
        Start of each bin in `listing`.
    row : int
    """
    sums = np.empty((len(values), LIMBS), np.int64)
    nearest_one, least = 0, np.inf
    for number in range(len(starts) - 1):
        sums[:] = 0
        total = 0.0
        for field in range(len(values)):
            for index in range(starts[number], starts[number + 1]):
                add_exactly(sums[field], bits[field, listing[index]], 1)
            centre = nearest_mean(sums[field], starts[number + 1] - starts[number])
            difference = values[field, row] - centre
            total += difference * difference
        if total < least:
            nearest_one, least = number, total
    return nearest_one


ReportShare = Callable[[float], None]
"""Callback(share of the work that is done)."""


def _grown(values: Floats, leaf_size: int, report: ReportShare) -> Boxes:
    """Build the tree of all rows, with progress reports."""
    fields, rows = values.shape
    order = np.arange(rows, dtype=np.int32)
    capacity = 4 * rows // leaf_size + 3
    node_arrays = [np.zeros(capacity, np.int32) for _ in range(5)]
    points = np.empty((fields, rows))
    head, stop, leaf = (np.empty(rows, np.int32) for _ in range(3))
    child, parent, start, end, live = node_arrays
    end[0] = rows
    nodes, done = 1, 0
    levels = math.log2(max(2.0, rows / leaf_size)) + 1
    examined = 0
    while done < nodes:
        if nodes + 2 > len(child):
            node_arrays = [np.concatenate([array, np.zeros_like(array)]) for array in node_arrays]
            child, parent, start, end, live = node_arrays
        nodes, done, used = grow(
            values, order, child, parent, start, end, live, points, head, stop, leaf,
            leaf_size, nodes, done, _WORK,
        )  # fmt: skip
        examined += used
        report(min(1.0, examined / (rows * levels)))
    child, parent, start, _, live = (array[:nodes].copy() for array in node_arrays)
    tree = Boxes(
        values=values, order=order, bin_of=np.full(rows, -1, np.int32),
        child=child, parent=parent, start=start, live=live,
        lower=np.empty((nodes, fields)), upper=np.empty((nodes, fields)),
        smallest=np.empty(nodes, np.int32),
        points=points, head=head, stop=stop, leaf=leaf,
        far=np.empty(rows), witness=np.empty(rows, np.int32),
        bound=np.full(nodes, np.inf), bound_row=np.zeros(nodes, np.int32),
        bound_witness=np.full(nodes, -1, np.int32), opened=np.zeros(nodes, np.bool_),
        nodes=np.empty(0, np.int64), bounds=np.empty(0), squares=np.empty(leaf_size),
        edges=np.empty((2, fields)), work=np.zeros(1, np.int64),
    )  # fmt: skip
    depth = settle(tree) + 2
    return tree._replace(nodes=np.empty(depth, np.int64), bounds=np.empty(depth))


def partition(values: Floats, size: int, method: str, report: ReportShare, leaf_size: int = LEAF) -> Ints:
    """Return the bin of each row; bins are numbered in the order in which they are formed.

    Parameters
    ----------
    values : ndarray of float64, shape (fields, rows)
        Finite; C-contiguous; up to `shrinking_tree.MOST_ROWS` rows.
    size : int
        k, 2 or more.
    method : str
        ``exact`` or ``mdav``.
    report : callable
        Is called with the share of the work that is done.
    leaf_size : int
        Largest number of rows in a leaf of the tree; it affects the speed only.
    """
    fields, rows = values.shape
    if rows < 2 * size:
        return np.zeros(rows, np.int32)
    tree = _grown(values, leaf_size, lambda share: report(0.2 * share))
    bits = values.view(np.int64)
    sums = np.zeros((fields, LIMBS), np.int64)
    mdav = method == "mdav"
    if mdav:
        _sum_rows(bits, sums)
    scratch = Scratch(
        near=np.empty(2 * size + LEAF), near_rows=np.empty(2 * size + LEAF, np.int32),
        near_places=np.empty(2 * size + LEAF, np.int64),
        leaves=np.empty(len(tree.child), np.int32), marked=np.zeros(len(tree.child), np.bool_),
        centres=np.empty((2, fields)), bits=bits if mdav else bits[:0], sums=sums,
    )  # fmt: skip
    number, left = 0, rows
    while left >= 2 * size:
        number, left = _rounds(tree, scratch, size, number, left, _WORK)
        report(0.2 + 0.8 * (rows - left) / rows)
    bin_of = tree.bin_of
    if left == 1:
        remaining_row = int(np.flatnonzero(bin_of < 0)[0])
        binned = np.flatnonzero(bin_of >= 0)
        listing = binned[np.argsort(bin_of[binned], kind="stable")].astype(np.int32)
        starts = np.arange(0, len(listing) + 1, size, dtype=np.int64)
        bin_of[remaining_row] = _nearest_bin(values, bits, listing, starts, remaining_row)
    elif left:
        bin_of[bin_of < 0] = number
    return bin_of
