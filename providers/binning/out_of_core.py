"""MEWS out of core: read numbers batch by batch, find cells and merge singletons, exchange cell by cell.

Ranges, standard deviations and cells are the same as in memory, since they are computed row by row.
Singletons are merged by the means of the larger bins, which are summed up batch by batch. Memory holds a
few numbers for each cell with rows, independent of the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, Int64Array, UInt64Array
from providers.binning.cell_sums import CellSums, new_cell_sums
from providers.binning.grid import Axis, cell_ids, coarse_numbers, grid_figures
from providers.binning.mean_tree import MeanTree
from providers.binning.privacy import P_PRIVACY_KEY, depths_publishable, minimal_depths, privacy_of_mews
from providers.binning.singletons import NOTHING_TO_MERGE_INTO, widths_of
from providers.binning.values import (
    SUMMED,
    FieldValues,
    extent,
    numbers_of,
    read_only,
    standard_deviation,
    step_of,
    unusable_values,
)
from providers.kernels.radix_sort import radix_runs
from providers.out_of_core.partitions import Rows, numbered, row_numbers
from providers.params import SwapParams
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import StreamedResult
from providers.randomness.chacha20 import Stream
from providers.results import SwapResult
from providers.sections import Section
from providers.storage import Resources, Source, Spool
from providers.swapping.out_of_core.assemble import AssemblyFigures
from providers.swapping.out_of_core.exchange import Exchanger, Tally
from providers.swapping.out_of_core.swap import Listing, SwapRun
from providers.swapping.participation import REASONS
from providers.tables.columns import take_rows
from providers.tables.numbers import float_values

Drawing: TypeAlias = "Callable[[Iterator[pa.Table]], Iterator[pa.Table]]"
"""Callback that yields the same tables, and may draw rows from them."""


@dataclass(frozen=True, slots=True)
class NumberRanges:
    """Ranges of the numeric fields of a source."""

    lows: tuple[float, ...]
    """Smallest finite value of each field, among the rows in which all fields are finite."""
    highs: tuple[float, ...]
    """Largest such value of each field."""
    rows: int
    """Number of these rows."""


class Numbers:
    """Numeric fields of a source: their ranges, and the rows in which all of them are finite.

    Parameters
    ----------
    source : Source
        Read once here, and again by each method.
    names : sequence of str
        Fields that define the grid.
    nulls : str
        ``fail``: raise SourceError if a value is null or not finite; ``keep``: leave such rows out.
    row : str
        Name of the column that holds row numbers.
    ranges : NumberRanges, optional
        Ranges, if they are known: then the source is not read here.
    drawing : callable
        Passes the tables with all rows on, if they are read here.
    """

    def __init__(
        self,
        source: Source,
        names: Sequence[str],
        nulls: str,
        row: str,
        ranges: NumberRanges | None = None,
        drawing: Drawing = iter,
    ) -> None:
        self.names = tuple(names)
        self._source = source
        self._row = row
        self.ranges = self._find_ranges(nulls, drawing) if ranges is None else ranges
        """Ranges of the fields, and the number of rows in which all of them are finite."""
        no_values = read_only(np.zeros(0))
        steps = [step_of(source.schema.field(name).type) for name in self.names]
        named = zip(self.names, self.ranges.lows, self.ranges.highs, steps, strict=True)
        self.fields = tuple(FieldValues(name, no_values, low, high, step) for name, low, high, step in named)
        """Ranges of the fields, without their values."""
        self._all_present = self.ranges.rows == source.rows
        self.rows = Rows(
            self.ranges.rows, lambda fields, within: self._read(fields, present=True, within=within)
        )
        """Rows in which all fields are finite."""

    def _find_ranges(self, nulls: str, drawing: Drawing) -> NumberRanges:
        """Read the source once; raise SourceError as the class says."""
        names = self.names
        lows, highs = np.full(len(names), np.inf), np.full(len(names), -np.inf)
        unusable = np.zeros(len(names), np.int64)
        count = 0
        for table in drawing(numbered(self._source, self.names, self._row)):
            columns = self._columns(table)
            rows, extents = table.num_rows, [extent(values) for values in columns]
            faults = [count for _, _, count in extents]
            if any(faults):  # values of rows that take no part do not count
                present = _finite(columns)
                rows = int(np.count_nonzero(present))
                extents = [extent(read_only(values[present])) for values in columns]
            unusable += faults
            count += rows
            for index, (low, high, _) in enumerate(extents):
                lows[index], highs[index] = min(lows[index], low), max(highs[index], high)
        for name, unusable_count in zip(self.names, unusable.tolist(), strict=True):
            if unusable_count and nulls == "fail":
                raise unusable_values(name, unusable_count)
        return NumberRanges(tuple(lows.tolist()), tuple(highs.tolist()), count)

    def absent_rows(self) -> Iterator[pa.Table]:
        """Iterate over the rows that take no part, in batches, with their row numbers."""
        return iter(()) if self._all_present else self._read(self.names, present=False)

    def of_batch(self, table: pa.Table) -> list[FieldValues]:
        """Return the fields' values in a batch, with the ranges of the whole table."""
        pairs = zip(self.fields, self._columns(table), strict=True)
        return [replace(field, values=values) for field, values in pairs]

    def whole(self) -> list[FieldValues]:
        """Return all values at once, for a small table."""
        return self.of_batch(pa.concat_tables(self.rows.read(self.names)))

    def spread(self, field: FieldValues) -> float:
        """Population standard deviation of a field that is not constant."""

        def batches() -> Iterator[Float64Array]:
            values = (numbers_of(table.column(field.name)) for table in self.rows.read(self.names))
            return _in_multiples(values, SUMMED)

        return standard_deviation(field, self.rows.count, batches)

    def _read(self, fields: Sequence[str], present: bool, within: range | None = None) -> Iterator[pa.Table]:
        """Read batches of the rows that take part, or of all others.

        ``fields``: `names`, in any order; ``within``: as for `numbered`.
        """
        for table in numbered(self._source, fields, self._row, within):
            finite = np.ones(table.num_rows, np.bool_) if self._all_present else _finite(self._columns(table))
            yield table if finite.all() and present else take_rows(table, np.flatnonzero(finite == present))

    def _columns(self, table: pa.Table) -> list[Float64Array]:
        return [numbers_of(table.column(name)) for name in self.names]


def _finite(columns: Sequence[Float64Array]) -> BoolArray:
    """Mask of the rows in which all columns are finite."""
    return np.asarray(np.logical_and.reduce([np.isfinite(values) for values in columns]))


def _in_multiples(batches: Iterable[Float64Array], size: int) -> Iterator[Float64Array]:
    """Regroup values into batches of a multiple of `size`, and a last batch with the remainder."""
    remainder = np.zeros(0)
    for values in batches:
        joined = np.concatenate([remainder, values])
        whole = len(joined) // size * size
        if whole:
            yield read_only(joined[:whole])
        remainder = joined[whole:]
    yield read_only(remainder)


@dataclass(frozen=True, slots=True)
class MergedSingletons:
    """Singleton rows and the cells of the bins that they have joined."""

    rows: Int64Array
    """Row numbers, ascending."""
    ids: UInt64Array
    """Cell ids of the bins, shape (words, rows)."""


class CellGrouping:
    """Grouping of a table's batches by grid cell; merged singletons count to the cell that they joined.

    Parameters
    ----------
    numbers : Numbers
        Fields that define the grid.
    axes : sequence of Axis
        The grid.
    row : str
        Name of the column that holds row numbers.
    merged : MergedSingletons, optional
    """

    def __init__(
        self, numbers: Numbers, axes: Sequence[Axis], row: str, merged: MergedSingletons | None = None
    ) -> None:
        self.controls = numbers.names
        self.merged = merged
        self._numbers = numbers
        self._axes = axes
        self._row = row

    def ids(self, table: pa.Table) -> UInt64Array:
        """Return the cell id of each row, or of the bin that it has joined; shape (words, rows)."""
        ids = cell_ids(self._numbers.of_batch(table), self._axes)
        if self.merged is not None:
            rows = row_numbers(table, self._row)
            place = np.minimum(np.searchsorted(self.merged.rows, rows), len(self.merged.rows) - 1)
            joined = self.merged.rows[place] == rows
            ids[:, joined] = self.merged.ids[:, place[joined]]
        return ids

    def labels(self, table: pa.Table) -> list[pa.ChunkedArray]:
        """Return the words of the cell ids as label columns; their order is the order of the cells."""
        return [pa.chunked_array([pa.array(word)]) for word in self.ids(table)]

    def listing(self, table: pa.Table, rows: Int64Array, final: bool) -> Listing:
        """Return the bins of a sorted batch; the identity of a bin is its smallest row."""
        order, starts = radix_runs(list(self.ids(table)))
        return Listing(order, starts, rows[order[starts[:-1]]].astype(np.uint64))


@dataclass(frozen=True, slots=True)
class CellCounts:
    """Figures of the cells of a grid before singletons are merged."""

    cells: int
    """Number of cells that hold rows."""
    singletons: int
    """Number of cells of one row."""
    merged: int
    """Number of singletons that join another bin."""


@dataclass(frozen=True, slots=True)
class CellGrid:
    """Grid of a table with its merged singletons."""

    axes: tuple[Axis, ...]
    """Empty if no row has all numbers."""
    merge: bool
    """Whether singletons join the bin with the nearest mean."""
    counts: CellCounts | None = None
    """None if no singletons are merged, so that the bins show them, or before they are found."""
    merged: MergedSingletons | None = None
    """None if no singleton joins another bin, or before they are found."""

    @classmethod
    def of_numbers(
        cls, numbers: Numbers, axes: Sequence[Axis], merge: bool, run: SwapRun, resources: Resources,
        progress: Progress,
    ) -> CellGrid:  # fmt: skip
        """Find the singletons of a grid and the bins that they join.

        Parameters
        ----------
        numbers : Numbers
            Fields that define the grid; read once more if singletons are merged.
        axes : sequence of Axis
        merge : bool
        run : SwapRun
        resources : Resources
        progress : Progress

        Raises
        ------
        SourceError
            The cells are too many to merge singletons within the memory.
        """
        if not merge or not numbers.rows.count:
            return cls(tuple(axes), merge)
        sums = _cell_sums(numbers, axes, run.row, resources, sub_progress(progress, 0.0, 0.7))
        merged = _merged(sums, sub_progress(progress, 0.7, 1.0))
        joining = 0 if merged is None else len(merged.rows)
        return cls(tuple(axes), merge, CellCounts(sums.count, sums.singletons, joining), merged)

    def grouping(self, numbers: Numbers, row: str) -> CellGrouping:
        """Return the grouping of the table's rows by their bins."""
        return CellGrouping(numbers, self.axes, row, self.merged)


def swap_in_cells(
    source: Source, params: SwapParams, numbers: Numbers, axes: Sequence[Axis], merge: bool, widest: float,
    stream: Stream, progress: Progress, resources: Resources,
) -> StreamedResult:  # fmt: skip
    """Exchange the fields together between rows of one cell; add the figures of the grid to the report.

    Parameters
    ----------
    source : Source
        Read several times.
    params : SwapParams
        Checked, and locked; the swap fields are those of `numbers`.
    numbers : Numbers
    axes : sequence of Axis
        The grid; empty if no row has all numbers.
    merge : bool
        Whether singletons join the bin with the nearest mean.
    widest : float
        Widest cell for the measure `p_privacy`, as a share of each field's range.
    stream : Stream
    progress : Progress
    resources : Resources

    Raises
    ------
    SourceError
        The cells are too many to merge singletons within the memory.
    UnswappableError
        Rows cannot be swapped and the policy is ``fail``.
    """
    run = run_in_cells(source, params, numbers.names, stream, resources)
    spool = resources.scratch.spool(run.parts, run.sizes.waiting)
    exchanger = run.exchanger(spool)
    keep_absent(numbers, exchanger)
    grid = CellGrid.of_numbers(numbers, axes, merge, run, resources, sub_progress(progress, 0.0, 0.3))
    if numbers.rows.count:
        grouping = grid.grouping(numbers, run.row)
        rows = run.sorted_rows(numbers.rows, grouping, exchanger)
        run.exchange_groups(rows, grouping, exchanger, progress, None)
    return assembled_cells(run, [spool], exchanger.tally, numbers, grid, widest)


def run_in_cells(
    source: Source, params: SwapParams, names: tuple[str, ...], stream: Stream, resources: Resources
) -> SwapRun:
    """Return the run whose labels are cell ids of the named fields; arguments as in `swap_in_cells`."""
    return SwapRun(source, params, stream, resources, names, label_bytes=8 * len(names))


def keep_absent(numbers: Numbers, exchanger: Exchanger) -> None:
    """Write the rows that take no part, with their own values."""
    for table in numbers.absent_rows():
        exchanger.keep_values(0, table, REASONS["null"])


def assembled_cells(
    run: SwapRun, spools: Sequence[Spool], tally: Tally, numbers: Numbers, grid: CellGrid, widest: float
) -> StreamedResult:
    """Assemble the whole destination from the spools of a run by one worker; arguments as `finished_cells`.

    Raises
    ------
    UnswappableError
        Rows cannot be swapped and the policy is ``fail``.
    """
    streamed = run.section(spools, tally, Section(0, run.source.rows), not_finite)
    return StreamedResult(
        streamed.schema,
        streamed.pieces,
        lambda: finished_cells(run, tally, [streamed.figures()], numbers, grid, widest),
        streamed.unchanged,
    )


def finished_cells(
    run: SwapRun,
    tally: Tally,
    sections: Sequence[AssemblyFigures],
    numbers: Numbers,
    grid: CellGrid,
    widest: float,
) -> SwapResult:
    """Build the report from the figures of all units and sections, and add the figures of the grid.

    Parameters
    ----------
    run : SwapRun
    tally : Tally
        Figures of all units.
    sections : sequence of AssemblyFigures
        Figures of all sections, in their order.
    numbers : Numbers
    grid : CellGrid
    widest : float
        As in `swap_in_cells`.

    Raises
    ------
    UnswappableError
        Rows cannot be swapped and the policy is ``fail``.
    """
    report = run.finished(tally, None, sections)
    rows, bin_sizes = numbers.rows.count, tally.groups
    minimal_depth = min(bin_sizes) if bin_sizes else 0
    counts = grid.counts or CellCounts(bin_sizes.total(), bin_sizes[1], 0)
    report.provider.update(
        partition_degree=counts.cells, minimal_depth=minimal_depth, singletons=counts.singletons
    )
    if rows:
        publishable = depths_publishable(rows, len(numbers.fields))
        depths = minimal_depths(numbers.whole(), widest) if publishable else None
        report.provider.update(grid_figures(counts.merged, numbers.fields, grid.axes))
        report.measures[P_PRIVACY_KEY] = privacy_of_mews(depths or (), minimal_depth)
    if grid.merge and counts.singletons and not counts.merged:
        report.events.add(NOTHING_TO_MERGE_INTO)
    for event in coarse_numbers(numbers.fields, grid.axes):
        report.events.add(event)
    return report


def not_finite(column: pa.ChunkedArray) -> BoolArray:
    """Mask of the rows whose value cannot take part."""
    return ~np.isfinite(float_values(column))


def _cell_sums(
    numbers: Numbers, axes: Sequence[Axis], row: str, resources: Resources, progress: Progress
) -> CellSums:
    """Sum up all cells that hold rows; raise SourceError if they are too many for the memory budget."""
    used, cuts = widths_of(axes)
    sums = new_cell_sums([axis.cells for axis in axes], cuts, resources.memory_bytes)
    done = 0
    for table in numbers.rows.read(numbers.names):
        if not table.num_rows:
            continue
        fields = numbers.of_batch(table)
        columns = [fields[index].values for index in used]
        sums.add(cell_ids(fields, axes), row_numbers(table, row), columns)
        done += table.num_rows
        progress(done / numbers.rows.count, "finding singletons")
    return sums.found()


def _merged(sums: CellSums, progress: Progress) -> MergedSingletons | None:
    """Find the nearest larger bin of each singleton; None if there is no singleton or no larger bin."""
    single = sums.sizes == 1
    if not single.any() or single.all():
        return None
    means = sums.sums[~single] / sums.sizes[~single][:, np.newaxis]
    nearest = MeanTree(means, no_progress).nearest(sums.sums[single], progress)
    ascending = np.argsort(sums.first[single], kind="stable")
    return MergedSingletons(sums.first[single][ascending], sums.words[:, ~single][:, nearest[ascending]])
