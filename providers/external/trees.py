"""The k-d tree of `providers.kdtree` on the disk: the same tree, cell by cell.

A cell is a node of one level and all that is below it. The nodes above are cut in two on the disk, in the
order that a tree's nodes are cut in; then each cell is grown in memory, and put aside in the order of the
tree. Of the nodes above the cells the boxes stay in memory.
"""

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.external.encoding import MARK, ROW, Layout
from providers.external.parts import Span, scatter
from providers.kdtree import (
    LEAF,
    Tree,
    depth_of,
    extents_of,
    grow,
    join_boxes,
    laid_out,
    leaf_starts,
    node_starts,
    roughly,
)
from providers.provider import Progress, part_of
from providers.radix import IndexArray
from providers.space import Float64Array, Int32Array
from providers.storage import Scratch, Spool
from providers.table import BoolArray, take_rows

_SAMPLED = 2**14
"""Rows of a node that it is cut by, about."""
_LEAST_CELL = 64
_OF_MEMORY = 40
"""Rows that are dealt to their parts together take this part of the memory, and their parts as much again."""


def cell_rows(layout: Layout, memory: int) -> int:
    """Rows of a cell that is grown in a sixth of the memory."""
    point = 8 * layout.numbers + 4 * layout.codes
    return max(_LEAST_CELL, memory // (6 * (8 * point + 64)))


@dataclass(frozen=True)
class Cell:
    """A part of a tree, as it is in memory."""

    tree: Tree
    """Its leaves and nodes, numbered by themselves; its rows are those of the table."""
    marks: BoolArray | None
    """The mark of each of its rows, in the order of the tree, where points have one."""
    first: int
    """Positions of the whole tree before its own."""


class StoredTree:
    """A tree over points that do not fit in memory."""

    def __init__(self, layout: Layout, rows: int, level: int, spool: Spool, room_for: int) -> None:
        """``spool``: its cells, one a part; ``room_for``: bytes of the cells that stay in memory."""
        self.layout = layout
        self.rows = rows
        self.level = level
        """Of the cells."""
        self.below = depth_of(rows) - level
        """Levels from the cells down to the leaves."""
        cells = 1 << level
        self.firsts = node_starts(rows, level)
        """Where cells begin among the tree's positions, and the end; shape (cells + 1,)."""
        nodes = 2 * cells - 1
        self.boxes: Float64Array = np.empty((nodes, 2, layout.numbers))
        self.code_boxes: Int32Array = np.empty((nodes, 2, layout.codes), np.int32)
        self._spool = spool
        self._kept: OrderedDict[int, tuple[Cell, int]] = OrderedDict()
        self._room_for = room_for

    @property
    def cells(self) -> int:
        """How many there are."""
        return 1 << self.level

    def upper(self) -> Tree:
        """The nodes down to the cells, as a tree that has no points."""
        layout, nobody = self.layout, np.zeros(0, np.int32)
        numbers, codes = np.empty((0, layout.numbers, LEAF)), np.empty((0, layout.codes, LEAF), np.int32)
        uniform = np.zeros(len(self.boxes), np.bool_)
        return Tree(
            self.level, layout.flags, layout.weight, self.firsts, nobody, numbers, codes, self.boxes,
            self.code_boxes, uniform, roughly(self.boxes),
        )  # fmt: skip

    def cell(self, number: int) -> Cell:
        """One cell; those that were looked at last stay in memory."""
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number][0]
        table = pa.concat_tables(self._spool.read(number))
        points = self.layout.points(table)
        rows = np.array(table.column(ROW).to_numpy())
        marks = np.array(table.column(MARK).to_numpy()) if MARK in table.column_names else None
        starts = leaf_starts(self.rows, self.level, number)
        cell = Cell(laid_out(points, rows, starts), marks, int(self.firsts[number]))
        size = sum(array.nbytes for array in cell.tree[3:])
        self._kept[number] = cell, size
        while len(self._kept) > 2 and sum(bytes_of for _, bytes_of in self._kept.values()) > self._room_for:
            self._kept.popitem(last=False)
        return cell

    def gaps(self, low: Float64Array, high: Float64Array, codes: Int32Array) -> Float64Array:
        """No point of a cell is nearer to any of a box than this, squared; shape (cells,).

        ``codes``: the least and the largest, shape (2, codes).
        """
        boxes, code_boxes = self.boxes[self.cells - 1 :], self.code_boxes[self.cells - 1 :]
        total = np.zeros(self.cells)
        for at in range(self.layout.numbers):  # in the order in which distances are added up
            apart = np.maximum(np.maximum(boxes[:, 0, at] - high[at], low[at] - boxes[:, 1, at]), 0.0)
            total += apart * apart
        if self.layout.codes:
            off = (code_boxes[:, 0] > codes[1]) | (code_boxes[:, 1] < codes[0])
            mismatches = np.count_nonzero(off[:, : self.layout.flags], axis=1)
            flags = np.count_nonzero(off[:, self.layout.flags :], axis=1)
            total += self.layout.weight * mismatches + 2.0 * flags
        return total


def stored_tree(
    layout: Layout, rows: int, points: Spool, scratch: Scratch, memory: int, progress: Progress
) -> StoredTree:
    """The tree over the points in the only part of a spool, one or more, which are forgotten there."""
    most = cell_rows(layout, memory)
    level = 0
    while level + 1 < depth_of(rows) and np.diff(node_starts(rows, level)).max() > most:
        level += 1
    waiting = memory // 20
    at_once = max(_LEAST_CELL, memory // (_OF_MEMORY * layout.row_bytes))
    nodes: list[_Node] = [_Node(rows, points, (0,), at_once)]
    for at in range(level):
        progress(0.6 * at / level, "growing the tree")
        parts = [max(1, -(-node.rows // most)) + 2 for node in nodes]
        spool = scratch.spool(sum(parts), waiting)
        halves: list[_Node] = []
        lefts = np.diff(node_starts(rows, at + 1))[::2].tolist()
        for index, (node, left) in enumerate(zip(nodes, lefts, strict=True)):
            halves += node.halves(layout, left, spool, sum(parts[:index]), parts[index] - 2)
        nodes = halves
    cells = scratch.spool(len(nodes), waiting)
    tree = StoredTree(layout, rows, level, cells, memory // 6)
    for number, node in enumerate(nodes):
        first, last = (0.6 + 0.4 * each / len(nodes) for each in (number, number + 1))
        _grow(tree, number, node, cells, part_of(progress, first, last))
    join_boxes(tree.boxes, tree.code_boxes)
    return tree


def _grow(tree: StoredTree, number: int, node: "_Node", cells: Spool, progress: Progress) -> None:
    table = pa.concat_tables(node.pieces())
    node.clear()
    rows = table.column(ROW).to_numpy()
    table = take_rows(table, np.argsort(rows, kind="stable"))
    points = tree.layout.points(table)
    everyone = np.arange(table.num_rows, dtype=np.int32)
    grown = grow(points, everyone, progress, leaf_starts(tree.rows, tree.level, number))
    cells.add(number, take_rows(table, grown.rows.astype(np.int64)))
    at = tree.cells - 1 + number
    tree.boxes[at], tree.code_boxes[at] = grown.boxes[0], grown.code_boxes[0]


@dataclass
class _Node:
    """Points that lie in some parts of a spool."""

    rows: int
    spool: Spool
    parts: tuple[int, ...]
    at_once: int
    """Rows that are dealt to new parts together, about: few at a time would be many small pieces."""

    def pieces(self) -> Iterator[pa.Table]:
        together: list[pa.Table] = []
        for table in itertools.chain.from_iterable(self.spool.read(part) for part in self.parts):
            if not table.num_rows:
                continue
            together.append(table)
            if sum(each.num_rows for each in together) >= self.at_once:
                yield pa.concat_tables(together).combine_chunks()
                together.clear()
        if together:
            yield pa.concat_tables(together).combine_chunks()

    def clear(self) -> None:
        for part in self.parts:
            self.spool.clear(part)

    def halves(
        self, layout: Layout, left: int, spool: Spool, first: int, parts: int
    ) -> "tuple[_Node, _Node]":
        """Its first `left` points in the order in which it is cut, and the others.

        They are put into the spool, into so many parts from `first` on, and two more.
        """
        sample, order = self._looked_at(layout)
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
            _Node(left, spool, (*whole[:cut], extra), self.at_once),
            _Node(self.rows - left, spool, (extra + 1, *whole[cut + 1 :]), self.at_once),
        )

    def _looked_at(self, layout: Layout) -> tuple[pa.Table, list[str]]:
        """A sample, and the dimensions from the widest on, without those that are the same everywhere."""
        every = max(1, self.rows // _SAMPLED)
        sample, before = [], 0
        low, high = (np.full(len(layout.dimensions), end) for end in (np.inf, -np.inf))
        for table in self.pieces():
            for at, name in enumerate(layout.dimensions):
                values = table.column(name).to_numpy()
                low[at], high[at] = min(low[at], values.min()), max(high[at], values.max())
            sample.append(take_rows(table, np.arange(-before % every, table.num_rows, every)))
            before += table.num_rows
        widths = high - low
        extents = extents_of(layout.points(table.slice(0, 0)))
        widths[layout.numbers :] = np.where(widths[layout.numbers :] > 0.0, extents, 0.0)
        widest = np.argsort(-widths, kind="stable")
        return pa.concat_tables(sample), [layout.dimensions[at] for at in widest if widths[at] > 0.0]


def _sorted(table: pa.Table, by: list[str]) -> pa.Table:
    return take_rows(table, _order(table, by))


def _order(table: pa.Table, by: list[str]) -> IndexArray:
    order: IndexArray = np.lexsort([table.column(name).to_numpy() for name in reversed(by)])
    return order


def _parts_of(table: pa.Table, splitters: pa.Table, by: list[str]) -> npt.NDArray[np.int64]:
    """The part of each row: the number of splitters that are not after it."""
    key, cuts = table.column(by[0]).to_numpy(), splitters.column(by[0]).to_numpy()
    parts: npt.NDArray[np.int64] = np.searchsorted(cuts, key, side="left")
    tied = np.flatnonzero(parts < np.searchsorted(cuts, key, side="right"))
    if len(tied):
        together = pa.concat_tables([splitters, take_rows(table, tied)])
        order = _order(together, by)  # stable: a splitter comes before the row that it is
        found = np.empty(len(order), np.int64)
        found[order] = np.cumsum(order < splitters.num_rows)
        parts[tied] = found[splitters.num_rows :]
    return parts
