"""Candidate rows out of core: all rows, a sample, or the parts of a random partition."""

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
from providers.storage import Resources, Spool
from providers.tables.columns import take_rows


def draw_from_candidates(
    encoding: Encoding, layout: Layout, chosen: CandidateRows, order: OrderKeys, rule: NeighbourRule,
    keys: Sequence[Key], resources: Resources, shortage: PairShortage, progress: Progress,
) -> Iterator[DrawnDonors]:  # fmt: skip
    """Draw a donor for each row and field, in batches of rows in any order.

    The donors are those of `providers.neighbours.candidates.draw_from_candidates`.

    Parameters
    ----------
    encoding : Encoding
        Fitted encoding of one row or more.
    layout : Layout
    chosen : CandidateRows
        Not `own_sample` or `pairs` of the whole table.
    order : OrderKeys
    rule : NeighbourRule
    keys : sequence of Key
        One for each field.
    resources : Resources
    shortage : Shortage
        Rows are added as their donors are drawn.
    progress : Progress

    Raises
    ------
    SourceError
        k is too large for the memory.
    """
    rows, memory, scratch = encoding.source.rows, resources.memory_bytes, resources.scratch
    search = _Searches(layout, chosen, order, rule, keys, resources, shortage)
    report = _DonorProgress(rows, sub_progress(progress, 0.4, 1.0))
    if not chosen.parts and chosen.method_for(rows) == "exact":
        all_points = scratch.spool(1, memory // _MEMORY_FRACTION)
        for table in encoding.pieces(layout):
            all_points.add(0, table)
        tree = search.tree(all_points, rows, sub_progress(progress, 0.1, 0.4))
        yield from search.drawn(tree, tree, report)
        return
    cuts = np.array(chosen.cuts(rows) if chosen.parts else [0, chosen.size, rows], np.int64)
    part_of_rows = _in_random_order(encoding, cuts, order.whole, resources)
    if not chosen.parts:
        all_points, sample = (scratch.spool(1, memory // _MEMORY_FRACTION) for _ in range(2))
        for number, table in enumerate(encoding.pieces(layout)):
            _add_marked(table, part_of_rows(number) == 0, all_points, sample)
        candidates = search.tree(sample, chosen.size, sub_progress(progress, 0.1, 0.2))
        queries = search.tree(all_points, rows, sub_progress(progress, 0.2, 0.4))
        yield from search.drawn(candidates, queries, report)
        return
    parts_per_batch = max(1, cell_rows(layout, memory) // (rows // chosen.parts + 1))
    batches = scratch.spool(-(-chosen.parts // parts_per_batch), memory // 10)
    for number, table in enumerate(encoding.pieces(layout)):
        parts = part_of_rows(number)
        scatter(batches, parts // parts_per_batch, table.append_column(_PART, pa.array(parts)))
    for batch in range(batches.parts):
        for number, (points, count) in enumerate(
            _split_batch(batches, batch, parts_per_batch, resources), batch * parts_per_batch
        ):
            yield from search.part(number, points, count, report)


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


@dataclass(frozen=True)
class _Searches:
    """Donor searches with the parameters of one run."""

    layout: Layout
    chosen: CandidateRows
    order: OrderKeys
    rule: NeighbourRule
    keys: Sequence[Key]
    resources: Resources
    shortage: PairShortage

    def tree(self, points: Spool, count: int, report: Progress) -> StoredTree:
        """Build the tree of `count` points, the only part of a spool."""
        return build_stored_tree(
            self.layout, count, points, self.resources.scratch, self.resources.memory_bytes, report
        )

    def drawn(
        self, tree: StoredTree, queries: StoredTree, report: Callable[[int], None]
    ) -> Iterator[DrawnDonors]:
        """Draw donors for the rows of `queries` from `tree`, which may be the same object."""
        return DonorSearch(tree, queries, self.rule, self.keys, self.resources.memory_bytes).drawn(report)

    def part(
        self, number: int, points: Spool, count: int, report: Callable[[int], None]
    ) -> Iterator[DrawnDonors]:
        """Draw donors for the rows of one part, whose points are in row order."""
        method = self.chosen.method_for(count)
        if method in _IN_MEMORY:
            drawn = self._without_tree(number, points)
            report(count)
            yield drawn
            return
        if method == "exact":
            tree = self.tree(points, count, no_progress)
            self.shortage.count_complete(self.chosen, count, self.rule.k)
            yield from self.drawn(tree, tree, report)
            return
        scratch, buffered = self.resources.scratch, self.resources.memory_bytes // _MEMORY_FRACTION
        all_points, sample = (scratch.spool(1, buffered) for _ in range(2))
        marks = np.zeros(count, np.bool_)
        marks[random_order(count, self.order.within, number)[: self.chosen.size]] = True
        first = 0
        for table in points.read(0):
            _add_marked(table, marks[first : first + table.num_rows], all_points, sample)
            first += table.num_rows
        points.clear(0)
        candidates = self.tree(sample, self.chosen.size, no_progress)
        yield from self.drawn(candidates, self.tree(all_points, count, no_progress), report)

    def _without_tree(self, number: int, points: Spool) -> DrawnDonors:
        """Draw donors for the rows of one part, which is read into memory as a whole."""
        table = pa.concat_tables(points.read(0))
        points.clear(0)
        rows = np.asarray(table.column(ROW).to_numpy())
        keys = key_array(self.keys)
        words, sizes = np.empty((len(keys), len(rows)), np.uint32), np.empty(len(rows), np.int32)
        first_words_of_rows(rows, keys, words)
        part = PartRows(self.layout.points(table), rows, keys, words, sizes)
        draw_without_tree(
            part, self.chosen, self.rule, self.order.within, number, self.shortage, lambda share: None
        )  # fmt: skip
        return DrawnDonors(rows, rows[words.view(np.int32)], sizes)


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


class _DonorProgress:
    """Progress counter of the rows that have donors."""

    def __init__(self, rows: int, progress: Progress) -> None:
        self._rows = rows
        self._progress = progress
        self._done = 0

    def __call__(self, more: int) -> None:
        """Count `more` rows, and report the fraction."""
        self._done += more
        self._progress(self._done / self._rows, "drawing donors")


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
    for piece in shuffle.pieces(spool):
        numbers = piece.column(ROW).to_numpy()
        parts = np.searchsorted(cuts, np.arange(place, place + len(numbers)), side="right") - 1
        place += len(numbers)
        ranges.put(0, numbers, [pa.chunked_array([pa.array(parts)])], np.zeros(len(numbers), np.uint8))

    def of_range(number: int) -> Int64Array:
        (parts,), _ = ranges.get(0, number)
        return np.asarray(parts.to_numpy())

    return of_range


def _split_batch(
    batches: Spool, batch: int, parts_per_batch: int, resources: Resources
) -> Iterator[tuple[Spool, int]]:
    """Yield the points of each part of a batch, and their number."""
    if parts_per_batch == 1:
        points = resources.scratch.spool(1, resources.memory_bytes // _MEMORY_FRACTION)
        for table in batches.read(batch):
            points.add(0, table.drop_columns([_PART]))
        batches.clear(batch)
        yield points, points.rows(0)
        return
    table = pa.concat_tables(batches.read(batch))
    batches.clear(batch)
    parts = table.column(_PART).to_numpy()
    order = np.argsort(parts, kind="stable")
    table = take_rows(table.drop_columns([_PART]), order)
    starts = [0, *(np.flatnonzero(np.diff(parts[order])) + 1).tolist(), table.num_rows]
    for start, stop in itertools.pairwise(starts):
        points = resources.scratch.spool(1, resources.memory_bytes // _MEMORY_FRACTION)
        points.add(0, table.slice(start, stop - start))
        yield points, stop - start
