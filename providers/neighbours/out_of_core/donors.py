"""Draw donors from a k-d tree on disk.

Queries are processed in batches of adjacent leaves: rows near each other, whose nearest rows fit in memory
during the search. A batch searches its own cell first, then the other cells in ascending order of distance,
until no cell can hold a nearer row. Rows within a radius are counted first, and then listed.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from providers.arrays import BoolArray, Int32Array
from providers.errors import SourceError
from providers.neighbours.donors import NeighbourRule
from providers.neighbours.k_nearest import TIE, NearestLists, list_length
from providers.neighbours.kdtree import LEAF, Tree
from providers.neighbours.out_of_core import donor_kernels as kernels
from providers.neighbours.out_of_core.kdtree import Cell, StoredTree
from providers.randomness.chacha20 import Key

Int64Array = npt.NDArray[np.int64]

_LEAST_STATE = 2**20
"""Bytes for the nearest rows of one leaf that are granted whatever the memory budget."""

_LEAST_AT_ONCE = 64
"""Queries whose covers or lists are processed together, whatever the memory budget."""

_FIRST_TRIES, _MORE_TRIES = 16, 16
"""Draws from a cover in the first round, and factor by which each later round has more."""


@dataclass(frozen=True)
class DrawnDonors:
    """Donors of a batch of rows."""

    rows: Int32Array
    """Row numbers; shape (n,)."""
    donors: Int32Array
    """Row numbers of the donors; shape (fields, n)."""
    sizes: Int32Array
    """Size of each row's neighbourhood, -1 if it was not counted; shape (n,)."""


class DonorSearch:
    """Draws donors from one tree for the rows of another, or of the same."""

    def __init__(
        self, tree: StoredTree, queries: StoredTree, rule: NeighbourRule, keys: Sequence[Key], memory: int
    ) -> None:
        """Prepare a search with a memory budget in bytes.

        ``queries`` is the same object as `tree` if candidates draw from each other. Raises SourceError if k
        is too large for the memory budget.
        """
        self.tree = tree
        self.upper = tree.upper()
        self.queries = queries
        self.rule = rule
        self.keys = np.array(keys, np.uint32).reshape(-1, 8)
        self.memory = memory
        most = tree.rows
        is_same_tree = tree is queries
        self.wanted = min(rule.k + 1, most)
        self.is_searched = most - 1 > rule.k if is_same_tree else most > rule.k
        self.list_length = list_length(self.wanted) if self.is_searched else 1
        """Length of each query's list of nearest rows."""
        leaf_bytes = LEAF * (12 * self.list_length + 64)
        most_bytes = max(memory // 8, _LEAST_STATE)
        if leaf_bytes > most_bytes:
            raise SourceError(
                f"the {rule.k} nearest rows of {LEAF} rows take {leaf_bytes} bytes during the search, and "
                f"{most_bytes} bytes of memory are available; use a k of {most_bytes // (12 * LEAF) - 8} "
                "or less, or 'epsilon' for neighbourhoods of this size",
                "/parameters/k",
            )
        self._leaves = most_bytes // leaf_bytes
        """Leaves of a batch of queries."""

    def drawn(
        self, report: Callable[[int], None], leaves: tuple[int, int] | None = None
    ) -> Iterator[DrawnDonors]:
        """Yield the donors of queries in batches, and report the number of rows of each.

        ``leaves``: first leaf and end of a range of leaves of the tree of the queries; None: all.
        """
        below = self.queries.below
        start, end = leaves or (0, self.queries.cells << below)
        for number in range(start >> below, -(-end >> below)):
            cell, before = self.queries.cell(number), number << below
            stop = min(end - before, 1 << below)
            for first in range(max(start - before, 0), stop, self._leaves):
                batch = self._draw_batch(number, cell, first, min(first + self._leaves, stop))
                report(len(batch.rows))
                yield batch

    def _draw_batch(self, number: int, cell: Cell, first: int, stop: int) -> DrawnDonors:
        queries = cell.tree
        marks = np.ones(len(queries.rows), np.bool_) if cell.marks is None else cell.marks
        own = number if self.tree is self.queries else None
        batch = _LeafBatch(self, queries, marks, own, first, stop)
        batch.draw()
        return batch.result()


class _LeafBatch:
    """Queries of adjacent leaves; place p names lane ``p % LEAF`` of leaf ``p // LEAF``."""

    def __init__(
        self, search: DonorSearch, queries: Tree, marks: BoolArray, own: int | None, first: int, stop: int
    ) -> None:
        self._search = search
        self._tree = search.tree
        self._queries = queries
        self._marks = marks
        self._own = own
        """Cell that contains the queries as candidates, if any."""
        self._first = first
        self._stop = stop
        leaves = stop - first
        self._state = np.zeros(leaves * LEAF, np.int64)
        self._radius = np.empty(leaves * LEAF)
        self._last_rows = np.empty(leaves * LEAF, np.int32)
        self._sizes = np.empty(leaves * LEAF, np.int64)
        self._donors = np.empty((len(search.keys), leaves * LEAF), np.int32)
        nodes = slice(len(queries.boxes) // 2 + first, len(queries.boxes) // 2 + stop)
        self._gaps = self._tree.gaps(
            queries.boxes[nodes, 0].min(axis=0), queries.boxes[nodes, 1].max(axis=0),
            np.stack([queries.code_boxes[nodes, 0].min(axis=0), queries.code_boxes[nodes, 1].max(axis=0)]),
        )  # fmt: skip
        self._order = np.argsort(self._gaps, kind="stable")
        """Cells in ascending order of distance, the own cell first."""
        if own is not None:
            self._order = np.concatenate([[own], self._order[self._order != own]])

    def draw(self) -> None:
        """Draw a donor for each query and field."""
        self._find_nearest()
        places = np.flatnonzero(self._state == kernels.WITHIN_RADIUS)
        if len(places):
            self._draw_within_radius(places)
        large = np.flatnonzero(self._state == kernels.TOO_LARGE)
        most = self._search.rule.most_cover_nodes
        query_bytes = 20 * most + 8 * (self._tree.below + 2) + 24 * len(self._search.keys)
        at_once = max(_LEAST_AT_ONCE, self._search.memory // (6 * query_bytes))
        for first in range(0, len(large), at_once):
            self._draw_from_covers(large[first : first + at_once])

    def result(self) -> DrawnDonors:
        """Return the donors of the batch."""
        places = np.flatnonzero(self._state)
        start, stop = self._queries.starts[self._first], self._queries.starts[self._stop]
        rows = self._queries.rows[start:stop]  # lanes are in the order of positions
        return DrawnDonors(rows, self._donors[:, places], self._sizes[places].astype(np.int32))

    def _cells_within(self, radius: float) -> Iterator[tuple[int, Cell]]:
        """Yield the cells that may hold rows within a squared distance of a query, the nearest first."""
        for number in self._order.tolist():
            if self._gaps[number] <= radius:
                yield number, self._tree.cell(number)

    # -------------------------------------------------------------------------------- k nearest

    def _find_nearest(self) -> None:
        """Find the k nearest rows of all queries, and draw where they are the whole neighbourhood."""
        search = self._search
        leaves = self._stop - self._first
        lists = NearestLists(
            np.empty((leaves, LEAF, search.list_length)),
            np.empty((leaves, LEAF, search.list_length), np.int32),
            np.zeros((leaves, LEAF), np.int64),
            np.empty((leaves, LEAF)),
        )
        if search.is_searched:
            floor = search.rule.epsilon * search.rule.epsilon * TIE
            kernels.clear_all_found(self._queries, self._first, lists)
            for number in self._order.tolist():
                if self._gaps[number] > lists.bounds.max():
                    break
                tree = self._tree.cell(number).tree
                kernels.search_cell(tree, self._queries, self._first, search.wanted, floor, lists)
        kernels.classify_queries(
            self._queries, self._first, self._marks, self._tree.rows, search.rule, search.wanted, lists,
            self._state, self._radius, self._last_rows, self._sizes,
        )  # fmt: skip
        places = np.flatnonzero(self._state == kernels.K_NEAREST)
        k = search.rule.k
        listed = np.ascontiguousarray(lists.rows.reshape(leaves * LEAF, -1)[places, :k]).reshape(-1)
        self._draw_listed(places, np.arange(len(places) + 1) * k, listed)

    def _draw_listed(self, places: Int64Array, starts: Int64Array, listed: Int32Array) -> None:
        """Draw donors for queries whose neighbours are ``listed[starts[q]:starts[q + 1]]``."""
        if len(places):
            kernels.draw_listed(
                self._queries, self._first, places, starts, listed, self._search.keys, self._donors
            )

    # ----------------------------------------------------------------------- all rows within a radius

    def _draw_within_radius(self, places: Int64Array) -> None:
        """Count the rows within the radius, draw from short lists, and mark other queries as too large."""
        search, rule = self._search, self._search.rule
        radius = self._radius[places]
        positions = self._queries.starts[self._first + places // LEAF] + places % LEAF
        exact = (self._queries.rows[positions] % rule.count_every == 0) & (self._sizes[places] < 0)
        counts = np.zeros(len(places), np.int64)
        for _, cell in self._cells_within(radius.max()):
            kernels.count_within(
                cell.tree, self._queries, self._first, places, radius, exact, rule.most_listed, counts
            )  # fmt: skip
        counts[exact] -= self._marks[positions[exact]]
        large = counts > rule.most_listed
        self._sizes[places] = np.where(large & ~exact, self._sizes[places], counts)
        self._state[places[large]] = kernels.TOO_LARGE
        few = np.flatnonzero(~large)
        ends = np.cumsum(counts[few])
        capacity = max(search.memory // (6 * 4), _LEAST_AT_ONCE * rule.most_listed)
        first = 0
        while first < len(few):
            before = ends[first - 1] if first else 0
            stop = max(first + 1, int(np.searchsorted(ends, before + capacity, side="right")))
            self._draw_from_lists(places[few[first:stop]], radius[few[first:stop]], counts[few[first:stop]])
            first = stop

    def _draw_from_lists(
        self, places: Int64Array, radius: npt.NDArray[np.float64], counts: Int64Array
    ) -> None:
        """List the rows within the radius of some queries, whose numbers are known, and draw from them."""
        starts = np.concatenate([[0], np.cumsum(counts)])
        found = np.empty(int(starts[-1]), np.int32)
        filled = np.zeros(len(places), np.int64)
        for _, cell in self._cells_within(radius.max()):
            kernels.list_within(cell.tree, self._queries, self._first, places, radius, starts, filled, found)
        self._draw_listed(places, starts, found)

    # ------------------------------------------------------------------- draws from a cover

    def _draw_from_covers(self, places: Int64Array) -> None:
        """Find the covers of some queries, above the cells and in them, and draw from them."""
        search = self._search
        queried = self._queries, self._first, places, np.ascontiguousarray(self._radius[places])
        count, most = len(places), search.rule.most_cover_nodes
        nodes = np.empty((count, most), np.int64)
        above, open_cells = np.zeros(count, np.int64), np.zeros(count, np.int64)
        stopped = np.zeros(count, np.bool_)
        kernels.cover_upper(search.upper, *queried, nodes, above, stopped, open_cells)
        queries_by_cell = self._open_cells(nodes, above)
        counts = np.repeat((above - open_cells)[:, np.newaxis], self._tree.below, axis=1)
        for number, which in queries_by_cell:
            kernels.count_nodes(self._tree.cell(number).tree, *queried, most, which, counts)
        deeper = np.cumprod(counts <= most, axis=1).sum(axis=1)
        spans = np.zeros((count, most, 2), np.int32)
        have = np.zeros(count, np.int64)
        kernels.add_whole_nodes(search.upper, nodes, above, spans, have)
        for number, which in queries_by_cell:
            cell = self._tree.cell(number)
            kernels.add_nodes(cell.tree, *queried, cell.first, deeper, which, spans, have)
        ends = np.zeros((count, most), np.int32)
        kernels.sort_spans(spans, have, ends)
        self._accept(queried, spans, have, ends)

    def _open_cells(self, nodes: Int64Array, have: Int64Array) -> list[tuple[int, Int64Array]]:
        """Return the cells whose nodes the covers need, and the queries of each."""
        is_used = np.arange(nodes.shape[1]) < have[:, np.newaxis]
        query, slot = np.nonzero(is_used & (nodes < 0))
        numbers = -1 - nodes[query, slot] - (self._tree.cells - 1)
        order = np.argsort(numbers, kind="stable")
        cells, starts = np.unique(numbers[order], return_index=True)
        bounds = [*starts.tolist(), len(order)]
        return [
            (number, query[order[first:stop]])
            for number, (first, stop) in zip(cells.tolist(), itertools.pairwise(bounds), strict=True)
        ]

    def _accept(
        self,
        queried: tuple[Tree, int, Int64Array, npt.NDArray[np.float64]],
        spans: Int32Array,
        have: Int64Array,
        ends: Int32Array,
    ) -> None:
        """Draw positions of the covers in rounds, until each query has drawn a neighbour in each field."""
        queries, first_leaf, places, radius = queried
        keys = self._search.keys
        last = np.ascontiguousarray(self._last_rows[places])
        used = np.zeros((len(places), len(keys)), np.int64)
        tries, left = _FIRST_TRIES, used.size
        while left:
            accepted = np.full(used.shape, tries, np.int64)
            for number in self._touched(spans, have, used):
                cell = self._tree.cell(number)
                kernels.try_cell(
                    cell.tree, queries, first_leaf, places, radius, last, cell.first, spans, have, ends, keys,
                    used, accepted, self._donors,
                )  # fmt: skip
            left = kernels.advance_streams(
                queries, first_leaf, places, have, ends, keys, tries, used, accepted
            )  # fmt: skip
            tries = min(tries * _MORE_TRIES, 2**16)

    def _touched(self, spans: Int32Array, have: Int64Array, used: Int64Array) -> list[int]:
        """Return the cells that overlap the covers of queries without all donors."""
        is_active = np.arange(spans.shape[1]) < have[:, np.newaxis]
        is_active &= np.any(used >= 0, axis=1, keepdims=True)
        ends = np.zeros(self._tree.cells + 1, np.int64)
        begin = np.searchsorted(self._tree.firsts, spans[is_active, 0], side="right") - 1
        stop = np.searchsorted(self._tree.firsts, spans[is_active, 1], side="left")
        np.add.at(ends, begin, 1)
        np.add.at(ends, stop, -1)
        return np.flatnonzero(np.cumsum(ends)[:-1] > 0).tolist()
