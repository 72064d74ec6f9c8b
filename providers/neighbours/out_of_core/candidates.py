"""Candidate rows out of core: all rows, a sample, or the parts of a random partition."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Int64Array
from providers.errors import SourceError
from providers.neighbours.candidates import (
    CandidateRows,
    OrderKeys,
    PairShortage,
    draw_without_tree,
    random_order,
)
from providers.neighbours.donors import NeighbourRule, PartRows, key_array
from providers.neighbours.out_of_core.donor_kernels import first_words_of_rows
from providers.neighbours.out_of_core.donors import DonorSearch, DrawnDonors
from providers.neighbours.out_of_core.kdtree import StoredTree, build_stored_tree, cell_rows
from providers.neighbours.out_of_core.points import MARK, ROW, Encoding, Layout
from providers.out_of_core.partitions import scatter
from providers.out_of_core.random_order import Shuffle
from providers.out_of_core.row_ranges import Ranges
from providers.progress import Progress, no_progress, sub_progress
from providers.randomness.chacha20 import Key
from providers.sections import Section
from providers.storage import Resources, Scratch, Spool
from providers.tables.columns import take_rows


@dataclass(frozen=True)
class StoredTrees:
    """Trees of a search in the whole table."""

    candidates: StoredTree
    queries: StoredTree
    """Tree of all rows; the same object as `candidates` if all rows are candidates."""


@dataclass(frozen=True)
class StoredParts:
    """Points of the parts of a random partition."""

    spool: Spool
    """Points with the number of their part, one part of the spool for each batch."""
    batches: tuple[tuple[int, int], ...]
    """First part of each batch, and the end; the parts of a batch fit in memory together."""


@dataclass(frozen=True)
class CandidateSearch:
    """Search for the donors of all rows, whose points are stored first.

    The donors are those of `providers.neighbours.candidates.draw_from_candidates`.

    Parameters
    ----------
    chosen : CandidateRows
        Not `own_sample` or `pairs` of the whole table.
    order : OrderKeys
    rule : NeighbourRule
    keys : sequence of Key
        One for each field.
    resources : Resources
    shortage : PairShortage
        Rows are added as their donors are drawn.
    """

    chosen: CandidateRows
    order: OrderKeys
    rule: NeighbourRule
    keys: Sequence[Key]
    resources: Resources
    shortage: PairShortage

    def store_trees(
        self, encoding: Encoding, layout: Layout, kept: Scratch, progress: Progress
    ) -> StoredTrees:
        """Store the trees of a table that is not divided into parts; ``kept``: scratch space for them."""
        points = self.store_points(encoding, layout)
        counts, trees = self.tree_sizes(encoding.source.rows), []
        done = 0
        for count, spool in zip(counts, points, strict=True):
            share = sub_progress(progress, done / sum(counts), (done + count) / sum(counts))
            trees.append(self._tree(layout, spool, count, kept, share))
            done += count
        return StoredTrees(trees[0], trees[-1])

    def tree_sizes(self, rows: int) -> tuple[int, ...]:
        """Return the number of points of the tree of the candidates and of that of all rows.

        One number if all rows are candidates. ``rows``: rows of the table, which has no parts.
        """
        return (rows,) if self.chosen.method_for(rows) == "exact" else (self.chosen.size, rows)

    def store_points(self, encoding: Encoding, layout: Layout) -> tuple[Spool, ...]:
        """Store the points of each tree of `tree_sizes`, in one part."""
        chosen, rows = self.chosen, encoding.source.rows
        all_points = self._points_spool()
        if chosen.method_for(rows) == "exact":
            for table in encoding.pieces(layout):
                all_points.add(0, table)
            return (all_points,)
        cuts = np.array([0, chosen.size, rows], np.int64)
        part_of_rows = _in_random_order(encoding, cuts, self.order.whole, self.resources)
        sample = self._points_spool()
        for number, table in enumerate(encoding.pieces(layout)):
            _add_marked(table, part_of_rows(number) == 0, all_points, sample)
        return sample, all_points

    def draw_from_trees(
        self, trees: StoredTrees, report: Callable[[int], None], leaves: tuple[int, int] | None = None
    ) -> Iterator[DrawnDonors]:
        """Draw a donor for each query and field, in batches of rows in any order.

        ``leaves``: first leaf and end of the queries that get donors; None: all. Raises SourceError if k is
        too large for the memory.
        """
        search = DonorSearch(
            trees.candidates, trees.queries, self.rule, self.keys, self.resources.memory_bytes
        )
        yield from search.drawn(report, leaves)

    def store_parts(
        self, encoding: Encoding, layout: Layout, shares: Sequence[tuple[int, int]], kept: Scratch
    ) -> StoredParts:
        """Store the points of a random partition.

        Parameters
        ----------
        encoding : Encoding
        layout : Layout
        shares : sequence of (int, int)
            Consecutive ranges of parts, together all of them. No batch has parts of two ranges.
        kept : Scratch
            Scratch space for the points.
        """
        chosen, rows = self.chosen, encoding.source.rows
        together = max(1, cell_rows(layout, self.resources.memory_bytes) // (rows // chosen.parts + 1))
        batches = tuple(
            (first, min(first + together, stop))
            for start, stop in shares
            for first in range(start, stop, together)
        )
        batch_of_part = np.repeat(np.arange(len(batches)), [stop - first for first, stop in batches])
        cuts = np.array(chosen.cuts(rows), np.int64)
        part_of_rows = _in_random_order(encoding, cuts, self.order.whole, self.resources)
        spool = kept.spool(len(batches), self.resources.memory_bytes // 10)
        for number, table in enumerate(encoding.pieces(layout)):
            parts = part_of_rows(number)
            scatter(spool, batch_of_part[parts], table.append_column(_PART, pa.array(parts)))
        return StoredParts(spool, batches)

    def draw_in_parts(
        self, stored: StoredParts, layout: Layout, share: tuple[int, int], report: Callable[[int], None]
    ) -> Iterator[DrawnDonors]:
        """Draw a donor for each row and field of a range of parts, in batches of rows in any order.

        ``share``: first part and end, one of the ranges for which the parts were stored. Raises SourceError
        if k is too large for the memory.
        """
        for batch, (first, stop) in enumerate(stored.batches):
            if share[0] <= first < share[1]:
                for number, points in enumerate(self._split_batch(stored.spool, batch, stop - first), first):
                    yield from self._draw_in_part(number, layout, points, report)

    def _draw_in_part(
        self, number: int, layout: Layout, points: Spool, report: Callable[[int], None]
    ) -> Iterator[DrawnDonors]:
        """Draw donors for the rows of one part, whose points are in row order."""
        count = points.rows(0)
        method = self.chosen.method_for(count)
        if method in _IN_MEMORY:
            drawn = self._draw_without_tree(number, layout, points)
            report(count)
            yield drawn
            return
        scratch = self.resources.scratch
        if method == "exact":
            tree = self._tree(layout, points, count, scratch, no_progress)
            self.shortage.count_complete(self.chosen, count, self.rule.k)
            yield from self.draw_from_trees(StoredTrees(tree, tree), report)
            return
        all_points, sample = self._points_spool(), self._points_spool()
        marks = np.zeros(count, np.bool_)
        marks[random_order(count, self.order.within, number)[: self.chosen.size]] = True
        first = 0
        for table in points.read(0):
            _add_marked(table, marks[first : first + table.num_rows], all_points, sample)
            first += table.num_rows
        points.clear(0)
        candidates = self._tree(layout, sample, self.chosen.size, scratch, no_progress)
        queries = self._tree(layout, all_points, count, scratch, no_progress)
        yield from self.draw_from_trees(StoredTrees(candidates, queries), report)

    def _draw_without_tree(self, number: int, layout: Layout, points: Spool) -> DrawnDonors:
        """Draw donors for the rows of one part, which is read into memory as a whole."""
        table = pa.concat_tables(points.read(0))
        points.clear(0)
        rows = np.asarray(table.column(ROW).to_numpy())
        keys = key_array(self.keys)
        words, sizes = np.empty((len(keys), len(rows)), np.uint32), np.empty(len(rows), np.int32)
        first_words_of_rows(rows, keys, words)
        part = PartRows(layout.points(table), rows, keys, words, sizes)
        draw_without_tree(
            part, self.chosen, self.rule, self.order.within, number, self.shortage, lambda share: None
        )  # fmt: skip
        return DrawnDonors(rows, rows[words.view(np.int32)], sizes)

    def _split_batch(self, batches: Spool, batch: int, parts: int) -> Iterator[Spool]:
        """Yield the points of each part of a batch of ``parts`` parts."""
        if parts == 1:
            points = self._points_spool()
            for table in batches.read(batch):
                points.add(0, table.drop_columns([_PART]))
            batches.clear(batch)
            yield points
            return
        table = pa.concat_tables(batches.read(batch))
        batches.clear(batch)
        part_of_row = table.column(_PART).to_numpy()
        order = np.argsort(part_of_row, kind="stable")
        table = take_rows(table.drop_columns([_PART]), order)
        starts = [0, *(np.flatnonzero(np.diff(part_of_row[order])) + 1).tolist(), table.num_rows]
        for start, stop in itertools.pairwise(starts):
            points = self._points_spool()
            points.add(0, table.slice(start, stop - start))
            yield points

    def _points_spool(self) -> Spool:
        return self.resources.scratch.spool(1, self.resources.memory_bytes // _MEMORY_FRACTION)

    def _tree(
        self, layout: Layout, points: Spool, count: int, kept: Scratch, progress: Progress
    ) -> StoredTree:
        """Build the tree of `count` points, the only part of a spool."""
        return build_stored_tree(layout, count, points, self.resources, kept, progress)


def check_parts_fit(
    chosen: CandidateRows, rows: int, k: int, dimensions: int, fields: int, memory: int
) -> None:
    """Raise SourceError if a part does not fit in memory; the message names the number of parts needed.

    ``dimensions``: number of distance fields; ``fields``: number of perturbed fields; ``memory``: bytes.
    """

    def needed(parts: int) -> int:
        divided = replace(chosen, parts=parts)
        largest = divided.largest_part(rows)
        is_in_memory = divided.method_for(largest) in _IN_MEMORY
        row_bytes = _POINT_BYTES * dimensions + 12 * fields if is_in_memory else 0
        return largest * row_bytes + divided.work_bytes(rows, k)

    most = memory // 2
    if not chosen.parts or chosen.method == "exact" or needed(chosen.parts) <= most:
        return
    enough = bisect.bisect_left(range(rows // 2 + 1), True, lo=1, key=lambda parts: needed(parts) <= most)
    advice = f"use at least {enough} parts" if enough <= rows // 2 else "use a smaller sample_size"
    raise SourceError(
        f"a part of {chosen.largest_part(rows)} rows takes about {needed(chosen.parts)} bytes with "
        f"within '{chosen.method}', and {most} bytes of memory are available; {advice}",
        "/parameters/parts",
    )


def _add_marked(table: pa.Table, marks: BoolArray, all_points: Spool, sample: Spool) -> None:
    """Add points with their marks to `all_points`, and the marked ones to `sample`."""
    all_points.add(0, table.append_column(MARK, pa.array(marks)))
    sample.add(0, take_rows(table, np.flatnonzero(marks)))


_IN_MEMORY = ("own_sample", "pairs")
"""Methods whose candidates are anywhere in a part, which is therefore in memory as a whole."""

_POINT_BYTES = 36
"""Bytes of a field's number and flag, or code: in the table, in a contiguous column, and in points."""

_PART = "part"

_MEMORY_FRACTION = 40
"""Memory is divided by this for the rows buffered before one write, of which three copies are made."""


def _in_random_order(
    encoding: Encoding, cuts: Int64Array, order: Key, resources: Resources
) -> Callable[[int], Int64Array]:
    """Return a function that reads the part of each row of a row range.

    Parts begin at the offsets `cuts` of a random order of all rows.
    """
    source, sizes = encoding.source, encoding.sizes()
    rows = source.rows
    schema = pa.schema([(ROW, pa.int64())])
    shuffle = Shuffle(schema, rows, order, max(64, resources.memory_bytes // 200))
    spool = resources.scratch.spool(shuffle.parts, sizes.waiting)
    for first in range(0, rows, sizes.range_rows):
        numbers = np.arange(first, min(first + sizes.range_rows, rows), dtype=np.int64)
        shuffle.put(spool, first, pa.table({ROW: numbers}))
    part_spool = resources.scratch.spool(Ranges.parts(rows, sizes.range_rows, 1), sizes.waiting)
    ranges = Ranges([part_spool], rows, sizes.range_rows, 1)
    place = 0
    for piece in shuffle.pieces(spool, Section(0, rows)):
        numbers = piece.column(ROW).to_numpy()
        parts = np.searchsorted(cuts, np.arange(place, place + len(numbers)), side="right") - 1
        place += len(numbers)
        ranges.put(0, numbers, [pa.chunked_array([pa.array(parts)])], np.zeros(len(numbers), np.uint8))

    def of_range(number: int) -> Int64Array:
        (parts,), _ = ranges.get(0, number)
        return np.asarray(parts.to_numpy())

    return of_range
