"""Bins of about equally many rows, made two at a time around rows that are far from each other.

While at least 2k rows are left, two distant rows r and s are found; bin A is r and the k - 1 rows nearest
to it without s, then bin B is s and the k - 1 nearest to it of what is left. A remainder of two rows or
more is the last bin; a single row joins the bin whose centroid is nearest to it.

Exact: r and s are the two most distant rows, ties by the smallest (r, s). Every row has a bound on how
far any row left can be from it, and the row that gave the bound. Taking rows away only lowers what is
bounded, so a bound stays true, and stays exact while its witness is left. The row with the largest bound
is looked at: if its witness is left, they are the pair; otherwise its bound is found anew. Rows that were
never looked at are bounded by the box of their node, from which the search of bounds starts.

mdav: r is the row farthest from the centroid of what is left, s the row farthest from r.

References
----------
Li and Shen 2010, Multivariate equi-width data swapping for private data publication, PAKDD, LNAI 6118,
208-215: algorithm 2.
Domingo-Ferrer and Mateo-Sanz 2002, doi:10.1109/69.979982: maximum distance to average vector (MDAV).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from providers.box_search import farthest, nearest
from providers.boxes import (
    LEAF,
    NOBODY,
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
from providers.exact_sums import LIMBS, add_exactly, nearest_mean

_WORK = 8_000_000
"""Boxes, sites and rows looked at in one call of a kernel, some tenths of a second."""


@njit(cache=True, nogil=True)
def _box(tree, low, high):
    """The box in the tree's scratch: a copy, since what it is taken from may move meanwhile."""
    for field in range(len(low)):
        tree.edges[0, field] = low[field]
        tree.edges[1, field] = high[field]
    return tree.edges[0], tree.edges[1]


@njit(cache=True, nogil=True)
def _open(tree, node):
    """Let what is below the node be bounded one by one, for now by the node's bound."""
    tree.opened[node] = True
    one = tree.child[node]
    if one:
        for child in range(one, one + 2):
            if tree.smallest[child] != NOBODY:
                tree.bound[child] = tree.bound[node]
                tree.bound_row[child] = tree.smallest[child]
                tree.bound_witness[child] = -1
    else:
        for place in range(tree.start[node], tree.start[node] + tree.live[node]):
            tree.far[place] = tree.bound[node]
            tree.witness[place] = -1


@njit(cache=True, nogil=True)
def most_distant_row(tree, most_work):
    """The place of r, whose farthest row is s, of the most distant rows; -1 when the work is used up."""
    while tree.work[0] < most_work:
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
                tree.bound[node], tree.bound_witness[node], _ = farthest(tree, low, high, NOBODY)
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
        while node > 0:
            node = tree.parent[node]
            if not bound_parent(tree, node):
                break
    return -1


class Scratch(NamedTuple):
    """What the rounds work with besides the tree."""

    near: Floats
    """Found by a search of nearest rows: distance, row and place; shape (2k + LEAF,)."""
    near_rows: Ints
    near_places: npt.NDArray[np.int64]
    leaves: Ints
    """Leaves that rows were taken from; shape (nodes,)."""
    marked: npt.NDArray[np.bool_]
    """Whether the leaf is among them; shape (nodes,)."""
    centres: Floats
    """The values of r and s; shape (2, fields)."""
    bits: npt.NDArray[np.int64]
    """The bits of the values; shape (fields, rows), or (0, 0) where no centroid is asked for."""
    sums: npt.NDArray[np.int64]
    """The exact sums of what is left; shape (fields, LIMBS)."""


@njit(cache=True, nogil=True)
def _put(tree, scratch, place, row, number):
    take(tree, place, row, number)
    for field in range(len(scratch.bits)):
        add_exactly(scratch.sums[field], scratch.bits[field, row], -1)


@njit(cache=True, nogil=True)
def _fill(tree, scratch, number, point, wanted):
    """Put the `wanted` rows nearest to the point into a bin."""
    nearest(tree, point, wanted, scratch.near, scratch.near_rows, scratch.near_places)
    count = 0
    for at in range(wanted):
        place = scratch.near_places[at]
        _put(tree, scratch, place, scratch.near_rows[at], number)
        leaf = tree.leaf[place]
        if not scratch.marked[leaf]:
            scratch.marked[leaf] = True
            scratch.leaves[count] = leaf
            count += 1
    for at in range(count):
        scratch.marked[scratch.leaves[at]] = False
        refresh(tree, scratch.leaves[at])


@njit(cache=True, nogil=True)
def _two_bins(tree, scratch, number, place, row, size):
    """Bins `number` and `number` + 1 around this row and the one farthest from it."""
    one, two = scratch.centres[0], scratch.centres[1]
    one[:] = tree.points[:, place]
    _, other, other_place = farthest(tree, one, one, row)
    two[:] = tree.points[:, other_place]
    leaf, other_leaf = tree.leaf[place], tree.leaf[other_place]
    _put(tree, scratch, place, row, number)
    _put(tree, scratch, other_place, other, number + 1)
    refresh(tree, leaf)
    if other_leaf != leaf:
        refresh(tree, other_leaf)
    _fill(tree, scratch, number, one, size - 1)
    _fill(tree, scratch, number + 1, two, size - 1)


@njit(cache=True, nogil=True)
def _rounds(tree, scratch, size, number, left, most_work):
    """Rounds until the work is used up or fewer than 2 `size` rows are left; returns (bins, rows left)."""
    tree.work[0] = 0
    while left >= 2 * size and tree.work[0] < most_work:
        if len(scratch.bits):
            centroid = scratch.centres[0]
            for field in range(len(centroid)):
                centroid[field] = nearest_mean(scratch.sums[field], left)
            _, row, place = farthest(tree, centroid, centroid, NOBODY)
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
    for field in range(len(bits)):
        for row in range(bits.shape[1]):
            add_exactly(sums[field], bits[field, row], 1)


@njit(cache=True, nogil=True)
def _nearest_bin(values, bits, listing, starts, row):
    """The bin with the centroid nearest to this row, the first of several."""
    sums = np.empty((len(values), LIMBS), np.int64)
    nearest_one, least = 0, np.inf
    for number in range(len(starts) - 1):
        sums[:] = 0
        total = 0.0
        for field in range(len(values)):
            for at in range(starts[number], starts[number + 1]):
                add_exactly(sums[field], bits[field, listing[at]], 1)
            centre = nearest_mean(sums[field], starts[number + 1] - starts[number])
            difference = values[field, row] - centre
            total += difference * difference
        if total < least:
            nearest_one, least = number, total
    return nearest_one


Told = Callable[[float], None]
"""Told which share of the work is done."""


def _grown(values: Floats, leaf_size: int, told: Told) -> Boxes:
    """The tree of all rows; `told` hears of shares of it."""
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
    looked_at = 0
    while done < nodes:
        if nodes + 2 > len(child):
            node_arrays = [np.concatenate([array, np.zeros_like(array)]) for array in node_arrays]
            child, parent, start, end, live = node_arrays
        nodes, done, used = grow(
            values, order, child, parent, start, end, live, points, head, stop, leaf,
            leaf_size, nodes, done, _WORK,
        )  # fmt: skip
        looked_at += used
        told(min(1.0, looked_at / (rows * levels)))
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


def partition(values: Floats, size: int, method: str, told: Told, leaf_size: int = LEAF) -> Ints:
    """The bin of each row, numbered in the order in which they are made.

    Parameters
    ----------
    values : ndarray of float64, shape (fields, rows)
        Finite; C-contiguous; up to `boxes.MOST_ROWS` rows.
    size : int
        k, 2 or more.
    method : str
        ``exact`` or ``mdav``.
    told : callable
        Hears which share of the work is done.
    leaf_size : int
        Rows of a leaf of the tree; it changes nothing but the speed.
    """
    fields, rows = values.shape
    if rows < 2 * size:
        return np.zeros(rows, np.int32)
    tree = _grown(values, leaf_size, lambda share: told(0.2 * share))
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
        told(0.2 + 0.8 * (rows - left) / rows)
    bin_of = tree.bin_of
    if left == 1:
        alone = int(np.flatnonzero(bin_of < 0)[0])
        binned = np.flatnonzero(bin_of >= 0)
        listing = binned[np.argsort(bin_of[binned], kind="stable")].astype(np.int32)
        starts = np.arange(0, len(listing) + 1, size, dtype=np.int64)
        bin_of[alone] = _nearest_bin(values, bits, listing, starts, alone)
    elif left:
        bin_of[bin_of < 0] = number
    return bin_of
