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
from providers.external.sorting import sorted_parts
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
    run = SwapRun(source, params, stream, room, numbers.names)
    spool = room.scratch.spool(run.parts, run.sizes.waiting)
    exchanging = run.exchanging(spool)
    for table in numbers.others():
        exchanging.left(0, table, REASONS["null"])
    cells = Cells(numbers, axes, run.row)
    found = None
    if numbers.rows.count:
        if merge:
            found = _Found.of_rows(run, numbers, axes, cells, room, part_of(progress, 0.0, 0.3))
            cells.merged = found.merged(progress)
        run.exchange_groups(numbers.rows, cells, exchanging, progress, None)
    bins = exchanging.tally.groups
    streamed = run.assembled([spool], exchanging.tally, None, _lacking)
    smallest = min(bins) if bins else 0
    if found is None:
        return InCells(streamed, bins.total(), bins[1], 0, smallest)
    merged = 0 if cells.merged is None else len(cells.merged.rows)
    return InCells(streamed, found.count, len(found.alone), merged, smallest)


def _lacking(column: pa.ChunkedArray) -> BoolArray:
    return ~np.isfinite(float_values(column))


class _Found:
    """The cells that hold rows, as they come by in order: rows that are alone, and the other bins' means."""

    def __init__(self, cuts: Float64Array, most: int) -> None:
        self.count = 0
        self._cuts = cuts
        self._most = most
        self._alone: list[Int64Array] = []
        self._points: list[Float64Array] = [np.zeros((0, len(cuts)))]
        self._ids: list[UInt64Array] = []
        self._means: list[Float64Array] = [np.zeros((0, len(cuts)))]
        self._last: tuple[UInt64Array, int, Float64Array, Int64Array] | None = None
        """The cell that may go on: its words, rows so far, sums, and its first row; one cell each."""

    @classmethod
    def of_rows(
        cls,
        run: SwapRun,
        numbers: Numbers,
        axes: Sequence[Axis],
        cells: Cells,
        room: Room,
        progress: Progress,
    ) -> "_Found":
        """All cells that hold rows. Raises SourceError."""
        used, cuts = widths_of(axes)
        of_a_cell = 48 + 40 * len(numbers.names)  # words, means and their tree, about
        found = cls(cuts, max(_FEW_CELLS, room.memory_bytes // (_OF_MEMORY * of_a_cell)))
        parts = sorted_parts(
            numbers.rows, run.fields, numbers.names, cells.labels, run.row, run.sizes.unit_rows,
            room.scratch, run.sizes.waiting,
        )  # fmt: skip
        done = 0
        for table in parts:
            columns = [field.values for field in numbers.of(table)]
            rows = np.asarray(table.column(run.row).to_numpy())
            found._take_in(cells.ids(table), rows, [columns[at] for at in used])
            done += table.num_rows
            progress(done / numbers.rows.count, "finding rows that are alone")
        found._end()
        return found

    @property
    def alone(self) -> Int64Array:
        """The rows that are alone, in the order of their cells."""
        return np.concatenate([np.zeros(0, np.int64), *self._alone])

    def merged(self, progress: Progress) -> Merged | None:
        """Where they go; None where no row is alone, or no bin holds two."""
        alone = self.alone
        if not len(alone) or len(alone) == self.count:
            return None
        tree = MeanTree(np.concatenate(self._means), no_progress)
        nearest = tree.nearest(np.concatenate(self._points), lambda _, stage: progress(0.3, stage))
        ids = np.concatenate(self._ids, axis=1)
        ascending = np.argsort(alone, kind="stable")
        return Merged(alone[ascending], ids[:, nearest[ascending]])

    def _take_in(self, ids: UInt64Array, rows: Int64Array, columns: list[Float64Array]) -> None:
        """A part of the rows, which are not before those of the part before in the order of cells."""
        order, starts = radix_runs(list(ids))
        words = ids[:, order[starts[:-1]]]
        sizes, first = np.diff(starts), rows[order[starts[:-1]]]
        sums = np.zeros((len(sizes), len(self._cuts)))
        if self._last is not None:
            before, size, summed, row = self._last
            if (before == words[:, :1]).all():
                sizes[0] += size
                sums[:1] = summed
            else:
                self._add(before, np.array([size]), summed, row)
        add_up(columns, order, starts, np.arange(len(sizes)), self._cuts, sums)
        self._add(words[:, :-1], sizes[:-1], sums[:-1], first[:-1])
        self._last = words[:, -1:], int(sizes[-1]), sums[-1:], first[-1:]

    def _end(self) -> None:
        assert self._last is not None  # noqa: S101 - there is a row
        words, size, sums, row = self._last
        self._add(words, np.array([size]), sums, row)

    def _add(self, words: UInt64Array, sizes: Int64Array, sums: Float64Array, first: Int64Array) -> None:
        self.count += len(sizes)
        if self.count > self._most:
            raise SourceError(
                f"more than {self._most} cells hold rows, and the means of all of them must fit in memory, "
                "for rows that are alone to be merged: widen the cells, or set 'singletons' to 'keep' or "
                "'suppression'",
                "/parameters/singletons",
            )
        single = sizes == 1
        self._alone.append(first[single])
        self._points.append(sums[single])
        self._ids.append(words[:, ~single])
        self._means.append(sums[~single] / sizes[~single][:, np.newaxis])
