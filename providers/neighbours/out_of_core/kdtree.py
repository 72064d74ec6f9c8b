"""The k-d tree on disk, cell by cell.

A cell is a node of one level with all its descendants. The nodes above the cells are cut in two on disk, in
the order in which `providers.neighbours.kdtree` cuts nodes. Then each cell is built in memory, and stored
in the order of the tree. The boxes of the cells and of the nodes above them stay in memory.
"""

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, IndexArray, Int32Array
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
from providers.out_of_core.partitions import Span, scatter
from providers.progress import Progress, sub_progress
from providers.storage import Resources, Scratch, Spool
from providers.tables.columns import take_rows

_SAMPLED = 2**14
"""Approximate number of sampled rows by which a node is cut."""

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
    nodes: list[_Node] = [_Node(rows, points, (0,), rows_together)]
    for current in range(level):
        progress(0.6 * current / level, "growing the tree")
        parts = [max(1, -(-node.rows // most)) + 2 for node in nodes]
        spool = scratch.spool(sum(parts), buffered)
        halves: list[_Node] = []
        lefts = np.diff(node_starts(rows, current + 1))[::2].tolist()
        for index, (node, left) in enumerate(zip(nodes, lefts, strict=True)):
            halves += node.halves(layout, left, spool, sum(parts[:index]), parts[index] - 2)
        nodes = halves
    cells = kept.spool(len(nodes), buffered)
    tree = StoredTree(layout, rows, level, cells, memory // _CACHE_FRACTION)
    for number, node in enumerate(nodes):
        first, last = (0.6 + 0.4 * each / len(nodes) for each in (number, number + 1))
        _grow(tree, number, node, cells, sub_progress(progress, first, last))
    join_boxes(tree.boxes, tree.code_boxes)
    return tree


def _grow(tree: StoredTree, number: int, node: "_Node", cells: Spool, progress: Progress) -> None:
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


@dataclass
class _Node:
    """Node above the cells, whose points are in some parts of a spool."""

    rows: int
    spool: Spool
    parts: tuple[int, ...]
    rows_together: int
    """Approximate rows that are scattered together; small batches would leave many small pieces."""

    def pieces(self) -> Iterator[pa.Table]:
        """Yield the points in tables of about `rows_together` rows."""
        together: list[pa.Table] = []
        for table in itertools.chain.from_iterable(self.spool.read(part) for part in self.parts):
            if not table.num_rows:
                continue
            together.append(table)
            if sum(each.num_rows for each in together) >= self.rows_together:
                yield pa.concat_tables(together).combine_chunks()
                together.clear()
        if together:
            yield pa.concat_tables(together).combine_chunks()

    def clear(self) -> None:
        """Delete the points."""
        for part in self.parts:
            self.spool.clear(part)

    def halves(
        self, layout: Layout, left: int, spool: Spool, first: int, parts: int
    ) -> "tuple[_Node, _Node]":
        """Cut the node: return its first `left` points in cutting order, and the others.

        The points are written to `parts` parts of the spool from `first` on, and to two further parts. Only
        the part that contains the median is sorted.
        """
        sample, order = self._sample(layout)
        by = [*order, ROW]
        splitting = _sorted(sample, by)
        places = [splitting.num_rows * part // parts for part in range(1, parts)]
        splitters = take_rows(splitting, np.array(places, np.int64))
        for table in self.pieces():
            scatter(Span([spool], first, parts), _parts_of(table, splitters, by), table)
        self.clear()
        sizes = np.array([spool.rows(first + part) for part in range(parts)])
        ends = np.cumsum(sizes)
        cut = int(np.searchsorted(ends, left, side="right"))
        before = int(ends[cut] - sizes[cut])
        both = _sorted(pa.concat_tables(spool.read(first + cut)), by)
        spool.clear(first + cut)
        extra = first + parts
        spool.add(extra, take_rows(both, np.arange(left - before)))
        spool.add(extra + 1, take_rows(both, np.arange(left - before, both.num_rows)))
        whole = range(first, first + parts)
        return (
            _Node(left, spool, (*whole[:cut], extra), self.rows_together),
            _Node(self.rows - left, spool, (extra + 1, *whole[cut + 1 :]), self.rows_together),
        )

    def _sample(self, layout: Layout) -> tuple[pa.Table, list[str]]:
        """Return a sample of the points, and the varying dimensions in descending order of width."""
        step = max(1, self.rows // _SAMPLED)
        sample, before = [], 0
        low, high = (np.full(len(layout.dimensions), end) for end in (np.inf, -np.inf))
        for table in self.pieces():
            for index, name in enumerate(layout.dimensions):
                values = table.column(name).to_numpy()
                low[index], high[index] = min(low[index], values.min()), max(high[index], values.max())
            sample.append(take_rows(table, np.arange(-before % step, table.num_rows, step)))
            before += table.num_rows
        widths = high - low
        extents = code_widths(layout.points(table.slice(0, 0)))
        widths[layout.numbers :] = np.where(widths[layout.numbers :] > 0.0, extents, 0.0)
        widest = np.argsort(-widths, kind="stable")
        return pa.concat_tables(sample), [layout.dimensions[index] for index in widest if widths[index] > 0.0]


def _sorted(table: pa.Table, by: list[str]) -> pa.Table:
    """Sort a table by columns, the most significant first."""
    return take_rows(table, _order(table, by))


def _order(table: pa.Table, by: list[str]) -> IndexArray:
    """Return the stable ascending order of a table's rows."""
    order: IndexArray = np.lexsort([table.column(name).to_numpy() for name in reversed(by)])
    return order


def _parts_of(table: pa.Table, splitters: pa.Table, by: list[str]) -> npt.NDArray[np.int64]:
    """Return the part of each row: the number of splitters at or before it."""
    key, cuts = table.column(by[0]).to_numpy(), splitters.column(by[0]).to_numpy()
    parts: npt.NDArray[np.int64] = np.searchsorted(cuts, key, side="left")
    tied = np.flatnonzero(parts < np.searchsorted(cuts, key, side="right"))
    if len(tied):
        together = pa.concat_tables([splitters, take_rows(table, tied)])
        order = _order(together, by)  # stable: a splitter precedes the row from which it was taken
        preceding = np.empty(len(order), np.int64)
        preceding[order] = np.cumsum(order < splitters.num_rows)
        parts[tied] = preceding[splitters.num_rows :]
    return parts
