"""The k-d tree on disk, cell by cell.

A cell is a node of one level with all its descendants. The nodes above the cells are cut in two on disk, in
the order in which `providers.neighbours.kdtree` cuts nodes. Then each cell is built in memory, and stored
in the order of the tree. The boxes of the cells and of the nodes above them stay in memory.
"""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, Int32Array
from providers.neighbours.kdtree import (
    LEAF,
    Tree,
    code_widths,
    depth_of,
    grow,
    join_boxes,
    leaf_starts,
    node_starts,
    round_boxes_outward,
    tree_from_sorted,
)
from providers.neighbours.out_of_core.points import MARK, ROW, Layout
from providers.neighbours.points import Points
from providers.out_of_core.median_cut import CutKeys, StoredNode, cut_nodes
from providers.progress import Progress, sub_progress
from providers.storage import Resources, Scratch, Spool
from providers.tables.columns import take_rows

_LEAST_CELL = 64  # rows

_MEMORY_FRACTION = 40
"""Memory is divided by this for the rows that are scattered together; their parts take as much again."""

_CACHE_FRACTION = 6
"""Memory is divided by this for the cells that are kept in memory."""


def cell_rows(layout: Layout, memory: int) -> int:
    """Return the rows of a cell that can be built in a sixth of the memory (bytes)."""
    point = 8 * layout.numbers + 4 * layout.codes
    return max(_LEAST_CELL, memory // (6 * (8 * point + 64)))


@dataclass(frozen=True)
class Cell:
    """Cell of a stored tree, in memory."""

    tree: Tree
    """Leaves and nodes of the cell, numbered from 0; its rows are row numbers of the table."""
    marks: BoolArray | None
    """Mark of each row in the order of the tree; None if the points have no marks."""
    first: int
    """Position of the cell's first row in the whole tree."""


@dataclass(frozen=True)
class TreeOutline:
    """Data of a stored tree apart from its points. It is pickled between processes."""

    layout: Layout
    rows: int
    level: int
    """Level of the cells."""
    boxes: Float64Array
    """Boxes of the nodes down to the cells; shape (nodes, 2, numbers)."""
    code_boxes: Int32Array
    """Boxes of their codes; shape (nodes, 2, codes)."""

    def tree(self, spool: Spool, memory: int) -> "StoredTree":
        """Return the tree whose points are in a spool, one part for each cell; ``memory``: bytes."""
        tree = StoredTree(self.layout, self.rows, self.level, spool, memory // _CACHE_FRACTION)
        tree.boxes[:], tree.code_boxes[:] = self.boxes, self.code_boxes
        return tree


class StoredTree:
    """Tree of points that do not fit in memory."""

    def __init__(self, layout: Layout, rows: int, level: int, spool: Spool, cache_bytes: int) -> None:
        """``spool``: one part for each cell; ``cache_bytes``: maximum bytes of cells kept in memory."""
        self.layout = layout
        self.rows = rows
        self.level = level
        """Level of the cells."""
        self.below = depth_of(rows) - level
        """Number of levels from the cells down to the leaves."""
        cells = 1 << level
        self.firsts = node_starts(rows, level)
        """First position of each cell, and the end; shape (cells + 1,)."""
        nodes = 2 * cells - 1
        self.boxes: Float64Array = np.empty((nodes, 2, layout.numbers))
        self.code_boxes: Int32Array = np.empty((nodes, 2, layout.codes), np.int32)
        self.spool = spool
        """Points, one part for each cell, in the order of the tree."""
        self._cache: OrderedDict[int, tuple[Cell, int]] = OrderedDict()
        self._cache_bytes = cache_bytes

    @property
    def cells(self) -> int:
        """Number of cells."""
        return 1 << self.level

    def outline(self) -> TreeOutline:
        """Return the tree apart from its points."""
        return TreeOutline(self.layout, self.rows, self.level, self.boxes, self.code_boxes)

    def upper(self) -> Tree:
        """Return the nodes down to the cells as a tree without points."""
        layout, no_rows = self.layout, np.zeros(0, np.int32)
        numbers, codes = np.empty((0, layout.numbers, LEAF)), np.empty((0, layout.codes, LEAF), np.int32)
        uniform = np.zeros(len(self.boxes), np.bool_)
        return Tree(
            self.level, layout.flags, layout.weight, self.firsts, no_rows, numbers, codes, self.boxes,
            self.code_boxes, uniform, round_boxes_outward(self.boxes),
        )  # fmt: skip

    def cell(self, number: int) -> Cell:
        """Return one cell; the cells used most recently stay in memory."""
        if number in self._cache:
            self._cache.move_to_end(number)
            return self._cache[number][0]
        table = pa.concat_tables(self.spool.read(number))
        points = self.layout.points(table)
        rows = np.array(table.column(ROW).to_numpy())
        marks = np.array(table.column(MARK).to_numpy()) if MARK in table.column_names else None
        starts = leaf_starts(self.rows, self.level, number)
        cell = Cell(tree_from_sorted(points, rows, starts), marks, int(self.firsts[number]))
        size = sum(array.nbytes for array in cell.tree[3:])
        self._cache[number] = cell, size
        while len(self._cache) > 2 and sum(each for _, each in self._cache.values()) > self._cache_bytes:
            self._cache.popitem(last=False)
        return cell

    def gaps(self, low: Float64Array, high: Float64Array, codes: Int32Array) -> Float64Array:
        """Return a lower bound of the squared distance between each cell and a box; shape (cells,).

        ``codes``: smallest and largest codes of the box, shape (2, codes).
        """
        boxes, code_boxes = self.boxes[self.cells - 1 :], self.code_boxes[self.cells - 1 :]
        total = np.zeros(self.cells)
        for field in range(self.layout.numbers):  # the order of the sum is that of distances
            below, above = boxes[:, 0, field] - high[field], low[field] - boxes[:, 1, field]
            gap = np.maximum(np.maximum(below, above), 0.0)
            total += gap * gap
        if self.layout.codes:
            outside = (code_boxes[:, 0] > codes[1]) | (code_boxes[:, 1] < codes[0])
            mismatches = np.count_nonzero(outside[:, : self.layout.flags], axis=1)
            flags = np.count_nonzero(outside[:, self.layout.flags :], axis=1)
            total += self.layout.weight * mismatches + 2.0 * flags
        return total


def build_stored_tree(
    layout: Layout, rows: int, points: Spool, resources: Resources, kept: Scratch, progress: Progress
) -> StoredTree:
    """Build the tree of the points in the only part of a spool, one or more, and clear the spool.

    Parameters
    ----------
    layout : Layout
    rows : int
        Number of points.
    points : Spool
    resources : Resources
    kept : Scratch
        Scratch space for the tree; that of `resources` is used while the tree is built.
    progress : Progress
    """
    memory, scratch = resources.memory_bytes, resources.scratch
    most = cell_rows(layout, memory)
    level = 0
    while level + 1 < depth_of(rows) and np.diff(node_starts(rows, level)).max() > most:
        level += 1
    buffered = memory // 20
    rows_together = max(_LEAST_CELL, memory // (_MEMORY_FRACTION * layout.row_bytes))
    keys = _cut_keys(layout)
    nodes = [StoredNode(rows, points, (0,), rows_together)]
    for current in range(level):
        progress(0.6 * current / level, "growing the tree")
        lefts = np.diff(node_starts(rows, current + 1))[::2].tolist()
        nodes = cut_nodes(nodes, lefts, keys, most, scratch, buffered)
    cells = kept.spool(len(nodes), buffered)
    tree = StoredTree(layout, rows, level, cells, memory // _CACHE_FRACTION)
    for number, node in enumerate(nodes):
        first, last = (0.6 + 0.4 * each / len(nodes) for each in (number, number + 1))
        _grow(tree, number, node, cells, sub_progress(progress, first, last))
    join_boxes(tree.boxes, tree.code_boxes)
    return tree


def _cut_keys(layout: Layout) -> CutKeys:
    no_numbers, no_codes = np.empty((0, layout.numbers)), np.empty((0, layout.codes), np.int32)
    extents = code_widths(Points(no_numbers, no_codes, layout.flags, layout.weight))

    def widths(ranges: Float64Array) -> Float64Array:
        ranges[layout.numbers :] = np.where(ranges[layout.numbers :] > 0.0, extents, 0.0)
        return ranges

    return CutKeys(layout.dimensions, ROW, widths)


def _grow(tree: StoredTree, number: int, node: StoredNode, cells: Spool, progress: Progress) -> None:
    """Build one cell in memory, store its points in tree order, and note its box."""
    table = pa.concat_tables(node.pieces())
    node.clear()
    rows = table.column(ROW).to_numpy()
    table = take_rows(table, np.argsort(rows, kind="stable"))
    points = tree.layout.points(table)
    all_points = np.arange(table.num_rows, dtype=np.int32)
    grown = grow(points, all_points, progress, leaf_starts(tree.rows, tree.level, number))
    cells.add(number, take_rows(table, grown.rows.astype(np.int64)))
    index = tree.cells - 1 + number
    tree.boxes[index], tree.code_boxes[index] = grown.boxes[0], grown.code_boxes[0]
