"""The k-d tree on disk, cell by cell.

A cell is a node of one level with all its descendants. The nodes above the cells are cut in two on disk, in
the order in which `providers.neighbours.kdtree` cuts nodes. Then each cell is built in memory, and stored
in the order of the tree. The boxes of the cells and of the nodes above them stay in memory. Several workers
can build a tree together, each the cells below some nodes.
"""

from collections import OrderedDict
from collections.abc import Sequence
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
from providers.out_of_core.median_cut import Coordinate, CutKeys, StoredNode, cut_nodes, store_nodes
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
class CellBoxes:
    """Boxes of adjacent cells. It is pickled between processes."""

    first: int
    """Number of the first cell."""
    boxes: Float64Array
    """Shape (cells, 2, numbers)."""
    code_boxes: Int32Array
    """Shape (cells, 2, codes)."""


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


class TreeBuilder:
    """Builds a tree of points in scratch space.

    Parameters
    ----------
    layout : Layout
    rows : int
        Number of points, one or more.
    resources : Resources
    """

    def __init__(self, layout: Layout, rows: int, resources: Resources) -> None:
        self._layout, self._rows, self._resources = layout, rows, resources
        self._most = cell_rows(layout, resources.memory_bytes)
        self._buffered = resources.memory_bytes // 20
        self.level = 0
        """Level of the cells."""
        while self.level + 1 < depth_of(rows) and np.diff(node_starts(rows, self.level)).max() > self._most:
            self.level += 1

    def node(self, spool: Spool, parts: tuple[int, ...]) -> StoredNode:
        """Return the node whose points are some parts of a spool."""
        together = self._resources.memory_bytes // (_MEMORY_FRACTION * self._layout.row_bytes)
        return StoredNode(sum(map(spool.rows, parts)), spool, parts, max(_LEAST_CELL, together))

    def cut(
        self, nodes: Sequence[StoredNode], first: int, levels: tuple[int, int], progress: Progress
    ) -> list[StoredNode]:
        """Cut adjacent nodes, which are cleared, into those of a lower level.

        Parameters
        ----------
        nodes : sequence of StoredNode
        first : int
            Number of the first node in its level.
        levels : (int, int)
            Level of the nodes, and level of the result.
        progress : Progress
        """
        level, last = levels
        nodes = list(nodes)
        for current in range(level, last):
            progress((current - level) / (last - level), "growing the tree")
            nodes, _ = self._cut(nodes, first << current - level, current, self._resources.scratch)
        return nodes

    def cut_apart(
        self, points: Spool, level: int, kept: Scratch, progress: Progress
    ) -> tuple[tuple[tuple[int, ...], ...], Spool]:
        """Cut all points, which are in the only part of a spool and are cleared, into the nodes of a level.

        Parameters
        ----------
        points : Spool
        level : int
        kept : Scratch
            Space for the points of the nodes.
        progress : Progress

        Returns
        -------
        parts : tuple of tuple of int
            Parts of the spool with the points of each node.
        spool : Spool
        """
        nodes = [self.node(points, (0,))]
        if level == 0:
            return ((0,),), store_nodes(nodes, kept, self._buffered)
        nodes = self.cut(nodes, 0, (0, level - 1), sub_progress(progress, 0.0, 1.0 - 1.0 / level))
        progress(1.0 - 1.0 / level, "growing the tree")
        nodes, spool = self._cut(nodes, 0, level - 1, kept)
        return tuple(node.parts for node in nodes), spool

    def _cut(
        self, nodes: Sequence[StoredNode], first: int, level: int, scratch: Scratch
    ) -> tuple[list[StoredNode], Spool]:
        """Cut adjacent nodes of a level in two. Return the halves, and the spool with their points."""
        sizes = np.diff(node_starts(self._rows, level + 1))[2 * first :]
        lefts = sizes[: 2 * len(nodes) : 2].tolist()
        return cut_nodes(nodes, lefts, _cut_keys(self._layout), self._most, scratch, self._buffered)

    def cells(self, kept: Scratch) -> Spool:
        """Create a spool for cells, one part for each of the tree."""
        return kept.spool(1 << self.level, self._buffered)

    def grow(self, nodes: Sequence[StoredNode], first: int, cells: Spool, progress: Progress) -> CellBoxes:
        """Build adjacent cells in memory, one by one, and store their points in the order of the tree.

        Parameters
        ----------
        nodes : sequence of StoredNode
            Points of the cells; cleared.
        first : int
            Number of the first cell.
        cells : Spool
            As `cells` creates it.
        progress : Progress
        """
        layout = self._layout
        grown = CellBoxes(
            first,
            np.empty((len(nodes), 2, layout.numbers)),
            np.empty((len(nodes), 2, layout.codes), np.int32),
        )
        for index, node in enumerate(nodes):
            share = sub_progress(progress, index / len(nodes), (index + 1) / len(nodes))
            tree = self._grow(first + index, node, cells, share)
            grown.boxes[index], grown.code_boxes[index] = tree.boxes[0], tree.code_boxes[0]
        return grown

    def joined(self, grown: Sequence[CellBoxes], cells: Spool) -> StoredTree:
        """Return the tree; ``grown``: boxes of all cells, whose points are in the spool."""
        tree = StoredTree(
            self._layout, self._rows, self.level, cells, self._resources.memory_bytes // _CACHE_FRACTION
        )
        for some in grown:
            places = slice(tree.cells - 1 + some.first, tree.cells - 1 + some.first + len(some.boxes))
            tree.boxes[places], tree.code_boxes[places] = some.boxes, some.code_boxes
        join_boxes(tree.boxes, tree.code_boxes)
        return tree

    def _grow(self, number: int, node: StoredNode, cells: Spool, progress: Progress) -> Tree:
        """Build one cell in memory and store its points in the order of the tree."""
        table = node.in_row_order(ROW)
        points = self._layout.points(table)
        all_points = np.arange(table.num_rows, dtype=np.int32)
        grown = grow(points, all_points, progress, leaf_starts(self._rows, self.level, number))
        cells.add(number, take_rows(table, grown.rows.astype(np.int64)))
        return grown


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
    builder = TreeBuilder(layout, rows, resources)
    nodes = [builder.node(points, (0,))]
    nodes = builder.cut(nodes, 0, (0, builder.level), sub_progress(progress, 0.0, 0.6))
    cells = builder.cells(kept)
    grown = builder.grow(nodes, 0, cells, sub_progress(progress, 0.6, 1.0))
    return builder.joined([grown], cells)


def _cut_keys(layout: Layout) -> CutKeys:
    no_numbers, no_codes = np.empty((0, layout.numbers)), np.empty((0, layout.codes), np.int32)
    extents = code_widths(Points(no_numbers, no_codes, layout.flags, layout.weight))

    def widths(ranges: Float64Array) -> Float64Array:
        ranges[layout.numbers :] = np.where(ranges[layout.numbers :] > 0.0, extents, 0.0)
        return ranges

    def coordinate(table: pa.Table, dimension: int) -> Coordinate:
        values: Coordinate = table.column(layout.dimensions[dimension]).to_numpy()
        return values

    return CutKeys(len(layout.dimensions), coordinate, ROW, widths)
