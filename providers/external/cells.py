"""MEWS out of core: the rows put aside in the order of their cells, and exchanged bin by bin.

Ranges, spreads and cells are what they are in memory, since all of them are found row by row. Rows that are
alone in their cells are merged by the means of all other bins, added up as the rows of a cell come by: of
every cell that holds rows a few numbers are in memory, whatever the number of rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from providers.bins import FieldValues, Float64Array, extent, numbers_of, read_only, unusable_values
from providers.errors import SourceError
from providers.external.parts import Rows, numbered
from providers.external.swaps import Listing, SwapRun
from providers.grid import SUMMED, Axis, cell_ids, standard_deviation
from providers.merging import MeanTree, add_up, widths_of
from providers.numeric import float_values
from providers.params import SwapParams
from providers.provider import Progress, Streamed, no_progress, part_of
from providers.radix import Int64Array, UInt64Array, radix_runs
from providers.rng import Stream
from providers.storage import Room, Source
from providers.swapping import REASONS
from providers.table import BoolArray, take_rows

_OF_MEMORY = 4
"""The cells' numbers take this part of the memory at most."""
_FEW_CELLS = 1 << 12
"""So many are kept in any memory."""


class Numbers:
    """The numbers of some fields of a source: their ranges, and the rows that have all of them."""

    def __init__(self, source: Source, names: Sequence[str], nulls: str, row: str) -> None:
        """Read them once. Raises SourceError: a value is null or not finite, and `nulls` is ``fail``."""
        self.names = tuple(names)
        self._source = source
        self._row = row
        lows, highs = np.full(len(names), np.inf), np.full(len(names), -np.inf)
        unusable = np.zeros(len(names), np.int64)
        count = 0
        for batch in source.batches(self.names):
            columns = self._columns(pa.Table.from_batches([batch]))
            present = _finite(columns)
            count += int(np.count_nonzero(present))
            for at, values in enumerate(columns):
                unusable[at] += np.count_nonzero(~np.isfinite(values))
                low, high, _ = extent(values if present.all() else read_only(values[present]))
                lows[at], highs[at] = min(lows[at], low), max(highs[at], high)
        for name, found in zip(self.names, unusable.tolist(), strict=True):
            if found and nulls == "fail":
                raise unusable_values(name, found)
        nothing = read_only(np.zeros(0))
        ranges = zip(self.names, lows.tolist(), highs.tolist(), strict=True)
        self.fields = tuple(FieldValues(name, nothing, low, high) for name, low, high in ranges)
        """The fields' ranges, without their values."""
        self._every = count == source.rows
        self.rows = Rows(count, lambda fields: self._read(fields, present=True))
        """The rows that have them all."""

    def others(self) -> Iterator[pa.Table]:
        """The other rows and their numbers in the table, piece by piece."""
        return iter(()) if self._every else self._read(self.names, present=False)

    def of(self, table: pa.Table) -> list[FieldValues]:
        """The fields' values in a piece of these rows, with the range of all."""
        pairs = zip(self.fields, self._columns(table), strict=True)
        return [replace(field, values=values) for field, values in pairs]

    def whole(self) -> list[FieldValues]:
        """All values, of a table that is small."""
        return self.of(pa.concat_tables(self.rows.read(self.names)))

    def spread(self, field: FieldValues) -> float:
        """The population standard deviation of one of the fields, which is not constant."""

        def pieces() -> Iterator[Float64Array]:
            values = (numbers_of(table.column(field.name)) for table in self.rows.read(self.names))
            return _in_multiples(values, SUMMED)

        return standard_deviation(field, self.rows.count, pieces)

    def _read(self, fields: Sequence[str], present: bool) -> Iterator[pa.Table]:
        """``fields``: those whose numbers these are, in any order."""
        for table in numbered(self._source, fields, self._row):
            here = np.ones(table.num_rows, np.bool_) if self._every else _finite(self._columns(table))
            yield table if here.all() and present else take_rows(table, np.flatnonzero(here == present))

    def _columns(self, table: pa.Table) -> list[Float64Array]:
        return [numbers_of(table.column(name)) for name in self.names]


def _finite(columns: Sequence[Float64Array]) -> BoolArray:
    return np.asarray(np.logical_and.reduce([np.isfinite(values) for values in columns]))


def _in_multiples(pieces: Iterable[Float64Array], size: int) -> Iterator[Float64Array]:
    """The same values in pieces of a multiple of `size`, and at last of what is left over."""
    left = np.zeros(0)
    for values in pieces:
        together = np.concatenate([left, values])
        whole = len(together) // size * size
        if whole:
            yield read_only(together[:whole])
        left = together[whole:]
    yield read_only(left)


@dataclass(frozen=True, slots=True)
class Merged:
    """Rows that were alone, and the cells of the bins that they have joined."""

    rows: Int64Array
    """Ascending."""
    ids: UInt64Array
    """Shape (words, rows)."""


class Cells:
    """The cells of the rows, as a `Grouping`."""

    def __init__(self, numbers: Numbers, axes: Sequence[Axis], row: str) -> None:
        self.controls = numbers.names
        self.merged: Merged | None = None
        self._numbers = numbers
        self._axes = axes
        self._row = row

    def ids(self, table: pa.Table) -> UInt64Array:
        """The cell of each row, or that of the bin which it has joined; shape (words, rows)."""
        ids = cell_ids(self._numbers.of(table), self._axes)
        if self.merged is not None:
            rows = table.column(self._row).to_numpy()
            at = np.minimum(np.searchsorted(self.merged.rows, rows), len(self.merged.rows) - 1)
            joined = self.merged.rows[at] == rows
            ids[:, joined] = self.merged.ids[:, at[joined]]
        return ids

    def labels(self, table: pa.Table) -> list[pa.ChunkedArray]:
        """As words, in whose order cells come."""
        return [pa.chunked_array([pa.array(word)]) for word in self.ids(table)]

    def listing(self, table: pa.Table, rows: Int64Array, final: bool) -> Listing:
        """The bins of a piece, each named by its smallest row."""
        order, starts = radix_runs(list(self.ids(table)))
        return Listing(order, starts, rows[order[starts[:-1]]].astype(np.uint64))


@dataclass(frozen=True, slots=True)
class InCells:
    """A destination, and what its bins were."""

    streamed: Streamed
    degree: int
    """Cells that hold rows."""
    singletons: int
    """Cells of one row."""
    merged: int
    """Those of them that have joined another bin."""
    smallest: int
    """Rows of the smallest bin then."""


def swap_in_cells(
    source: Source, params: SwapParams, numbers: Numbers, axes: Sequence[Axis], merge: bool,
    stream: Stream, progress: Progress, room: Room,
) -> InCells:  # fmt: skip
    """Exchange the fields, all of them together, between rows of one cell.

    Parameters
    ----------
    source : Source
        Read several times.
    params : SwapParams
        Checked, and locked; the swap fields are those of `numbers`.
    numbers : Numbers
    axes : sequence of Axis
        The grid; none where no row has all numbers.
    merge : bool
        Whether rows that are alone join the bin of the nearest mean.
    stream : Stream
    progress : Progress
    room : Room

    Raises
    ------
    SourceError
        The cells are too many to merge within the memory.
    UnswappableError
    """
    run = SwapRun(source, params, stream, room, numbers.names, label_bytes=8 * len(numbers.names))
    spool = room.scratch.spool(run.parts, run.sizes.waiting)
    exchanging = run.exchanging(spool)
    for table in numbers.others():
        exchanging.left(0, table, REASONS["null"])
    cells = Cells(numbers, axes, run.row)
    found = None
    if numbers.rows.count:
        if merge:
            found = _Found.of_rows(numbers, axes, cells, run.row, room, part_of(progress, 0.0, 0.2))
            cells.merged = found.merged(part_of(progress, 0.2, 0.3))
        run.exchange_groups(numbers.rows, cells, exchanging, progress, None)
    bins = exchanging.tally.groups
    streamed = run.assembled([spool], exchanging.tally, None, _lacking)
    smallest = min(bins) if bins else 0
    if found is None:
        return InCells(streamed, bins.total(), bins[1], 0, smallest)
    merged = 0 if cells.merged is None else len(cells.merged.rows)
    return InCells(streamed, found.count, found.alone, merged, smallest)


def _lacking(column: pa.ChunkedArray) -> BoolArray:
    return ~np.isfinite(float_values(column))


class _Found:
    """The cells that hold rows, in order: how many rows each has, their sum in widths, and the first."""

    def __init__(self, words: int, cuts: Float64Array, most: int) -> None:
        self._cuts = cuts
        self._most = most
        self._words: UInt64Array = np.zeros((words, 0), np.uint64)
        self._sizes: Int64Array = np.zeros(0, np.int64)
        self._sums: Float64Array = np.zeros((0, len(cuts)))
        self._first: Int64Array = np.zeros(0, np.int64)

    @classmethod
    def of_rows(
        cls, numbers: Numbers, axes: Sequence[Axis], cells: Cells, row: str, room: Room, progress: Progress
    ) -> "_Found":
        """All cells that hold rows. Raises SourceError where they are too many to be kept."""
        used, cuts = widths_of(axes)
        of_a_cell = 48 + 40 * len(numbers.names)  # words, sums and the tree of the means, about
        most = max(_FEW_CELLS, room.memory_bytes // (_OF_MEMORY * of_a_cell))
        found: _Found | None = None
        done = 0
        for table in numbers.rows.read(numbers.names):
            if not table.num_rows:
                continue
            ids = cells.ids(table)
            found = found or cls(len(ids), cuts, most)
            columns = [field.values for field in numbers.of(table)]
            found._add(ids, np.asarray(table.column(row).to_numpy()), [columns[at] for at in used])
            done += table.num_rows
            progress(done / numbers.rows.count, "finding rows that are alone")
        assert found is not None  # noqa: S101 - there is a row
        return found

    @property
    def count(self) -> int:
        """Cells that hold rows."""
        return len(self._sizes)

    @property
    def alone(self) -> int:
        """Those of one row."""
        return int(np.count_nonzero(self._sizes == 1))

    def merged(self, progress: Progress) -> Merged | None:
        """Where the rows that are alone go; None where there is none, or no bin holds two."""
        single = self._sizes == 1
        if not single.any() or single.all():
            return None
        means = self._sums[~single] / self._sizes[~single][:, np.newaxis]
        nearest = MeanTree(means, no_progress).nearest(self._sums[single], progress)
        ascending = np.argsort(self._first[single], kind="stable")
        return Merged(self._first[single][ascending], self._words[:, ~single][:, nearest[ascending]])

    def _add(self, ids: UInt64Array, rows: Int64Array, columns: list[Float64Array]) -> None:
        """The rows that come next in the table: a cell's are added up in the order of their numbers."""
        order, starts = radix_runs(list(ids))
        known = self.count
        words = np.concatenate([self._words, ids[:, order[starts[:-1]]]], axis=1)
        sizes = np.concatenate([self._sizes, np.diff(starts)])
        first = np.concatenate([self._first, rows[order[starts[:-1]]]])
        sums = np.concatenate([self._sums, np.zeros((len(starts) - 1, len(self._cuts)))])
        # of a cell that is known already the known one comes first, and the other one behind it
        together, cuts = radix_runs(list(words))
        of_cell, last = together[cuts[:-1]], together[cuts[1:] - 1]
        if len(of_cell) > self._most:
            raise SourceError(
                f"more than {self._most} cells hold rows, and the means of all of them must fit in memory, "
                "for rows that are alone to be merged: widen the cells, or set 'singletons' to 'keep' or "
                "'suppression'",
                "/parameters/singletons",
            )
        self._words, self._first, self._sums = words[:, of_cell], first[of_cell], sums[of_cell]
        self._sizes = sizes[of_cell] + np.where(last == of_cell, 0, sizes[last])
        here = np.flatnonzero(last >= known)
        added = self._sums[here]
        add_up(columns, order, starts, (last[here] - known).astype(np.int64), self._cuts, added)
        self._sums[here] = added
