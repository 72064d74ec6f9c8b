"""A random neighbour of every row out of core: the draws of `providers.donors`, from trees on the disk.

Queries are taken a stretch of leaves at a time: rows that lie near each other, and whose nearest rows fit in
memory as they are found. They search their own cell first, then the others from the nearest on, until no
cell is left that could hold a nearer row; what is within a distance is counted first, and then listed.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from providers.donors import Rule
from providers.errors import SourceError
from providers.external import reach as kernels
from providers.external.trees import Cell, StoredTree
from providers.kdtree import LEAF, Tree
from providers.nearest import TIE, width
from providers.rng import Key
from providers.space import Int32Array
from providers.table import BoolArray

Int64Array = npt.NDArray[np.int64]

_LEAST_STATE = 2**20
"""Bytes that the nearest rows of a leaf's queries may take in any memory."""
_LEAST_AT_ONCE = 64
"""Queries whose covers, and rows, that are in memory at a time in any memory."""
_FIRST_TRIES, _MORE_TRIES = 16, 16
"""Draws from a cover that are tried at first, and how many times more in each round after that."""


@dataclass(frozen=True)
class Drawn:
    """Who gives to some rows."""

    rows: Int32Array
    """Shape (n,)."""
    donors: Int32Array
    """Shape (fields, n)."""
    sizes: Int32Array
    """Rows of each row's neighbourhood, -1 where it was not counted; shape (n,)."""


class Search:
    """Draws donors out of one tree for the rows of another, or of the same."""

    def __init__(
        self, tree: StoredTree, queries: StoredTree, rule: Rule, keys: Sequence[Key], memory: int
    ) -> None:
        """``queries``: the same object as `tree` where candidates draw from each other.

        Raises SourceError: k is too large for the memory.
        """
        self.tree = tree
        self.upper = tree.upper()
        self.queries = queries
        self.rule = rule
        self.keys = np.array(keys, np.uint32).reshape(-1, 8)
        self.memory = memory
        most = tree.rows
        everyone = tree is queries
        self.wanted = min(rule.k + 1, most)
        self.is_searched = most - 1 > rule.k if everyone else most > rule.k
        self.room = width(self.wanted) if self.is_searched else 1
        """Places that the nearest rows of a query need."""
        of_leaf = LEAF * (12 * self.room + 64)
        most_bytes = max(memory // 8, _LEAST_STATE)
        if of_leaf > most_bytes:
            raise SourceError(
                f"the {rule.k} nearest rows of {LEAF} rows take {of_leaf} bytes while they are looked for, "
                f"and the memory leaves {most_bytes}; use a k of {most_bytes // (12 * LEAF) - 8} or less, "
                "or 'epsilon' for neighbourhoods as large as that",
                "/parameters/k",
            )
        self._leaves = most_bytes // of_leaf
        """Leaves whose queries are taken at a time."""

    def drawn(self, told: Callable[[int], None]) -> Iterator[Drawn]:
        """All queries' donors, stretch by stretch; tells how many more there are."""
        for number in range(self.queries.cells):
            cell = self.queries.cell(number)
            leaves = 1 << cell.tree.depth
            for first in range(0, leaves, self._leaves):
                done = self._stretch(number, cell, first, min(first + self._leaves, leaves))
                told(len(done.rows))
                yield done

    def _stretch(self, number: int, cell: Cell, first: int, stop: int) -> Drawn:
        queries = cell.tree
        marks = np.ones(len(queries.rows), np.bool_) if cell.marks is None else cell.marks
        own = number if self.tree is self.queries else None
        stretch = _Stretch(self, queries, marks, own, first, stop)
        stretch.find()
        return stretch.drawn()


class _Stretch:
    """Some leaves' queries; arrays have an element for each lane of each leaf, or for each query in it."""

    def __init__(
        self, search: Search, queries: Tree, marks: BoolArray, own: int | None, first: int, stop: int
    ) -> None:
        self._of = search
        self._tree = search.tree
        self._queries = queries
        self._marks = marks
        self._own = own
        """The cell that the queries are themselves, if any."""
        self._first = first
        self._stop = stop
        leaves = stop - first
        self._state = np.zeros(leaves * LEAF, np.int64)
        self._reach = np.empty(leaves * LEAF)
        self._last = np.empty(leaves * LEAF, np.int32)
        self._sizes = np.empty(leaves * LEAF, np.int64)
        self._donors = np.empty((len(search.keys), leaves * LEAF), np.int32)
        nodes = slice(len(queries.boxes) // 2 + first, len(queries.boxes) // 2 + stop)
        self._gaps = self._tree.gaps(
            queries.boxes[nodes, 0].min(axis=0), queries.boxes[nodes, 1].max(axis=0),
            np.stack([queries.code_boxes[nodes, 0].min(axis=0), queries.code_boxes[nodes, 1].max(axis=0)]),
        )  # fmt: skip
        self._order = np.argsort(self._gaps, kind="stable")
        """The cells, from the nearest on."""
        if own is not None:
            self._order = np.concatenate([[own], self._order[self._order != own]])

    def find(self) -> None:
        """Draw a donor for each query."""
        self._nearest()
        places = np.flatnonzero(self._state == kernels.GATHERED)
        if len(places):
            self._gathered(places)
        large = np.flatnonzero(self._state == kernels.LARGE)
        most = self._of.rule.cover
        of_query = 20 * most + 8 * (self._tree.below + 2) + 24 * len(self._of.keys)
        at_once = max(_LEAST_AT_ONCE, self._of.memory // (6 * of_query))
        for first in range(0, len(large), at_once):
            self._from_cover(large[first : first + at_once])

    def drawn(self) -> Drawn:
        """What was found."""
        places = np.flatnonzero(self._state)
        start, stop = self._queries.starts[self._first], self._queries.starts[self._stop]
        rows = self._queries.rows[start:stop]  # lanes are in the order of positions
        return Drawn(rows, self._donors[:, places], self._sizes[places].astype(np.int32))

    def _within(self, reach: float) -> Iterator[tuple[int, Cell]]:
        """The cells that may hold rows within a squared distance of a query, from the nearest on."""
        for number in self._order.tolist():
            if self._gaps[number] <= reach:
                yield number, self._tree.cell(number)

    # -------------------------------------------------------------------------------- k nearest

    def _nearest(self) -> None:
        of = self._of
        leaves = self._stop - self._first
        distances = np.empty((leaves, LEAF, of.room))
        rows = np.empty((leaves, LEAF, of.room), np.int32)
        have = np.zeros((leaves, LEAF), np.int64)
        bounds = np.empty((leaves, LEAF))
        found = distances, rows, have
        if of.is_searched:
            floor = of.rule.epsilon * of.rule.epsilon * TIE
            kernels.begin_all(self._queries, self._first, *found, bounds)
            for number in self._order.tolist():
                if self._gaps[number] > bounds.max():
                    break
                tree = self._tree.cell(number).tree
                kernels.search(tree, self._queries, self._first, of.wanted, floor, *found, bounds)
        kernels.judge(
            self._queries, self._first, self._marks, self._tree.rows, of.rule, of.wanted, *found,
            self._state, self._reach, self._last, self._sizes,
        )  # fmt: skip
        places = np.flatnonzero(self._state == kernels.NEAREST)
        k = of.rule.k
        listed = np.ascontiguousarray(rows.reshape(leaves * LEAF, of.room)[places, :k]).reshape(-1)
        self._draw_listed(places, np.arange(len(places) + 1) * k, listed)

    def _draw_listed(self, places: Int64Array, starts: Int64Array, listed: Int32Array) -> None:
        if len(places):
            kernels.draw_listed(
                self._queries, self._first, places, starts, listed, self._of.keys, self._donors
            )

    # ----------------------------------------------------------------------- all within reach

    def _gathered(self, places: Int64Array) -> None:
        """Count who is within reach; list and draw from those that are few, and mark the others as large."""
        of, rule = self._of, self._of.rule
        reach = self._reach[places]
        positions = self._queries.starts[self._first + places // LEAF] + places % LEAF
        exact = (self._queries.rows[positions] % rule.every == 0) & (self._sizes[places] < 0)
        counts = np.zeros(len(places), np.int64)
        for _, cell in self._within(reach.max()):
            kernels.count(
                cell.tree, self._queries, self._first, places, reach, exact, rule.listed, counts
            )  # fmt: skip
        counts[exact] -= self._marks[positions[exact]]
        large = counts > rule.listed
        self._sizes[places] = np.where(large & ~exact, self._sizes[places], counts)
        self._state[places[large]] = kernels.LARGE
        few = np.flatnonzero(~large)
        ends = np.cumsum(counts[few])
        room = max(of.memory // (6 * 4), _LEAST_AT_ONCE * rule.listed)
        first = 0
        while first < len(few):
            before = ends[first - 1] if first else 0
            stop = max(first + 1, int(np.searchsorted(ends, before + room, side="right")))
            self._list(places[few[first:stop]], reach[few[first:stop]], counts[few[first:stop]])
            first = stop

    def _list(self, places: Int64Array, reach: npt.NDArray[np.float64], counts: Int64Array) -> None:
        starts = np.concatenate([[0], np.cumsum(counts)])
        found = np.empty(int(starts[-1]), np.int32)
        filled = np.zeros(len(places), np.int64)
        for _, cell in self._within(reach.max()):
            kernels.collect(cell.tree, self._queries, self._first, places, reach, starts, filled, found)
        self._draw_listed(places, starts, found)

    # ------------------------------------------------------------------- draws from a cover

    def _from_cover(self, places: Int64Array) -> None:
        of = self._of
        asked = self._queries, self._first, places, np.ascontiguousarray(self._reach[places])
        count, most = len(places), of.rule.cover
        nodes = np.empty((count, most), np.int64)
        above, open_cells = np.zeros(count, np.int64), np.zeros(count, np.int64)
        stopped = np.zeros(count, np.bool_)
        kernels.cover_above(of.upper, *asked, nodes, above, stopped, open_cells)
        queries_of = self._open(nodes, above)
        counts = np.repeat((above - open_cells)[:, np.newaxis], self._tree.below, axis=1)
        for number, which in queries_of:
            kernels.count_nodes(self._tree.cell(number).tree, *asked, most, which, counts)
        deeper = np.cumprod(counts <= most, axis=1).sum(axis=1)
        spans = np.zeros((count, most, 2), np.int32)
        have = np.zeros(count, np.int64)
        kernels.add_whole_nodes(of.upper, nodes, above, spans, have)
        for number, which in queries_of:
            cell = self._tree.cell(number)
            kernels.add_nodes(cell.tree, *asked, cell.first, deeper, which, spans, have)
        ends = np.zeros((count, most), np.int32)
        kernels.settle_spans(spans, have, ends)
        self._accept(asked, spans, have, ends)

    def _open(self, nodes: Int64Array, have: Int64Array) -> list[tuple[int, Int64Array]]:
        """The cells that are to be looked into, and by which queries."""
        there = np.arange(nodes.shape[1]) < have[:, np.newaxis]
        query, at = np.nonzero(there & (nodes < 0))
        numbers = -1 - nodes[query, at] - (self._tree.cells - 1)
        order = np.argsort(numbers, kind="stable")
        cells, starts = np.unique(numbers[order], return_index=True)
        bounds = [*starts.tolist(), len(order)]
        return [
            (number, query[order[first:stop]])
            for number, (first, stop) in zip(cells.tolist(), itertools.pairwise(bounds), strict=True)
        ]

    def _accept(
        self,
        asked: tuple[Tree, int, Int64Array, npt.NDArray[np.float64]],
        spans: Int32Array,
        have: Int64Array,
        ends: Int32Array,
    ) -> None:
        """Draw positions of the covers until one is a neighbour's, a round of draws at a time."""
        queries, first_leaf, places, reach = asked
        keys = self._of.keys
        last = np.ascontiguousarray(self._last[places])
        used = np.zeros((len(places), len(keys)), np.int64)
        tries, left = _FIRST_TRIES, used.size
        while left:
            accepted = np.full(used.shape, tries, np.int64)
            for number in self._touched(spans, have, used):
                cell = self._tree.cell(number)
                kernels.try_cell(
                    cell.tree, queries, first_leaf, places, reach, last, cell.first, spans, have, ends, keys,
                    used, accepted, self._donors,
                )  # fmt: skip
            left = kernels.go_on(
                queries, first_leaf, places, have, ends, keys, tries, used, accepted
            )  # fmt: skip
            tries = min(tries * _MORE_TRIES, 2**16)

    def _touched(self, spans: Int32Array, have: Int64Array, used: Int64Array) -> list[int]:
        """The cells in which the covers of queries lie that still have to draw."""
        there = np.arange(spans.shape[1]) < have[:, np.newaxis]
        there &= np.any(used >= 0, axis=1, keepdims=True)
        ends = np.zeros(self._tree.cells + 1, np.int64)
        begin = np.searchsorted(self._tree.firsts, spans[there, 0], side="right") - 1
        stop = np.searchsorted(self._tree.firsts, spans[there, 1], side="left")
        np.add.at(ends, begin, 1)
        np.add.at(ends, stop, -1)
        return np.flatnonzero(np.cumsum(ends)[:-1] > 0).tolist()
