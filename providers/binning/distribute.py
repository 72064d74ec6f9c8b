"""Divide an exchange within grid cells into units for several workers: each is a run of whole cells.

The division finds the ranges of the fields and the grid. Each piece of the source is scattered among the
units by cell. One more piece finds the bins that singletons join: it adds up the rows of each cell in the
order of the table, so that sums are the same as in a run by one worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import pyarrow as pa

from providers.binning.grid import Axis
from providers.binning.joined_parts import rejoined, scatter_joining
from providers.binning.out_of_core import (
    CellCounts,
    CellGrid,
    Drawing,
    NumberRanges,
    Numbers,
    finished_cells,
    keep_absent,
    not_finite,
    run_in_cells,
)
from providers.binning.swap import BinParams
from providers.out_of_core.samplesort import RowSample, SortedRows, UnitCuts, UnitParts, sorted_spools
from providers.params import SwapParams
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import Division, Prepared, Run, Sharing, StreamedSection, UnitResult
from providers.results import SwapResult
from providers.sections import Section
from providers.storage import Scratch, Spool
from providers.swapping.out_of_core.assemble import AssemblyFigures
from providers.swapping.out_of_core.exchange import Tally
from providers.swapping.out_of_core.swap import SwapRun
from providers.tables.columns import unused

P = TypeVar("P", bound=BinParams)


@dataclass(frozen=True)
class Cells(Generic[P]):
    """Functions that a service with grid cells declares."""

    axes: Callable[[P, Numbers], list[Axis]]
    """(params, numbers with at least one row) -> grid; raises ParameterError and SourceError."""
    swap: Callable[[P, pa.Schema], SwapParams]
    """(params, schema) -> parameters of the exchange: locked, of the fields that define the grid."""
    merge: Callable[[P], bool]
    """Whether singletons join the bin with the nearest mean."""
    widest: Callable[[P], float]
    """Widest cell for the measure `p_privacy`, as a share of each field's range."""


@dataclass(frozen=True, slots=True)
class _Common:
    """Data of the whole table that each piece and each unit needs."""

    ranges: NumberRanges
    grid: CellGrid
    """Without merged singletons if a piece finds them."""
    cuts: UnitCuts | None
    """Cuts between units, in the order of the cells; None if there is one unit, and no piece."""


@dataclass(frozen=True, slots=True)
class _UnitFigures:
    """Figures of a unit."""

    tally: Tally
    counts: CellCounts | None
    """Figures of all cells, from the piece that found singletons; None if the division found them."""


def sharing_of_cells(cells: Cells[P]) -> Sharing[P]:
    """Divide a table by ranges of cells; the cells of a range hold about equally many rows."""

    def divide(run: Run[P], progress: Progress, wanted: int) -> Division:
        progress(0.0, "reading numbers")
        swap = _swap_run(run)
        sample = _sample(run.source.rows, wanted, swap)
        numbers = _numbers(run, None, iter if sample is None else sample.drawing)
        if numbers.rows.count < run.source.rows:  # rows without all numbers take no part: draw others
            sample = _sample(numbers.rows.count, wanted, swap)
            if sample is not None:
                sample.read(numbers.rows, numbers.names)
        axes = cells.axes(run.params, numbers) if numbers.rows.count else []
        merge = cells.merge(run.params)
        if sample is None:
            finding = sub_progress(progress, 0.3, 0.9)
            grid = CellGrid.of_numbers(numbers, axes, merge, swap, run.resources, finding)
            return swap.division((0,), _Common(numbers.ranges, grid, None))
        grid = CellGrid(tuple(axes), merge)
        cuts = UnitCuts.of_sample(sample, grid.grouping(numbers, swap.row).labels, wanted, whole_labels=True)
        common = _Common(numbers.ranges, grid, cuts)
        units, firsts = tuple(range(wanted)), _parts(common, numbers, swap).firsts[:-1]
        if not merge:
            return swap.division(units, common, piece_files=firsts)
        pieces = 1 + _source_pieces(wanted)
        return swap.division(units, common, piece_files=firsts, pieces=pieces, whole_pieces=1)

    def complete(run: Run[P], division: Division, number: int, kept: Scratch) -> Prepared:
        common: _Common = division.common
        if number < division.whole_pieces:
            return singletons(run, common, kept)
        of_source = number - division.whole_pieces, division.pieces - division.whole_pieces
        return scattered(run, common, of_source, kept)

    def scattered(run: Run[P], common: _Common, piece: tuple[int, int], kept: Scratch) -> Prepared:
        numbers, swap = _numbers(run, common.ranges), _swap_run(run)
        parts = _parts(common, numbers, swap)
        spool = kept.spool(parts.firsts[-1], swap.sizes.waiting)
        swap.scatter(numbers.rows, tuple(range(len(swap.moves))), parts, piece, spool, 0)
        return Prepared(None, (spool,))

    def singletons(run: Run[P], common: _Common, kept: Scratch) -> Prepared:
        assert common.cuts is not None  # noqa: S101 - there are pieces
        numbers, swap = _numbers(run, common.ranges), _swap_run(run)
        grid = CellGrid.of_numbers(numbers, common.grid.axes, True, swap, run.resources, no_progress)
        parts = _parts(common, numbers, swap).firsts[-1]
        left, joined = (kept.spool(parts, swap.sizes.waiting // 2) for _ in range(2))
        scatter_joining(numbers, grid, common.cuts, swap.fields, swap.row, left, joined)
        return Prepared(grid.counts, (left, joined))

    def work(run: Run[P], division: Division, number: int, spool: Spool) -> _UnitFigures:
        common: _Common = division.common
        numbers, swap = _numbers(run, common.ranges), _swap_run(run)
        exchanger = swap.unit_exchanger(spool)
        if number == 0:
            keep_absent(numbers, exchanger)
        if common.cuts is None:
            grid = common.grid
            rows = swap.sorted_rows(numbers.rows, grid.grouping(numbers, swap.row), exchanger)
        else:
            grid, rows = from_pieces(run, common, number)
        if rows.count:
            swap.exchange_groups(rows, grid.grouping(numbers, swap.row), exchanger, no_progress, None)
        return _UnitFigures(exchanger.tally, grid.counts)

    def from_pieces(run: Run[P], common: _Common, number: int) -> tuple[CellGrid, SortedRows]:
        swap, spools = _swap_run(run), run.piece_spools()
        first, stop = _parts(common, _numbers(run, common.ranges), swap).firsts[number : number + 2]
        if not common.grid.merge:
            return common.grid, sorted_spools(spools, first, stop)
        assert run.prepared is not None  # noqa: S101 - the pieces are complete
        found = run.prepared.completed[0]
        left, joined = found.spools
        rows, merged = rejoined(spools[1:], left, joined, first, stop, swap.row)
        return replace(common.grid, counts=found.data, merged=merged), rows

    def assemble(
        run: Run[P], division: Division, done: Sequence[UnitResult], section: Section
    ) -> StreamedSection:
        tally = Tally.of_all([unit.figures.tally for unit in done])
        return _swap_run(run).section([unit.rows for unit in done], tally, section, not_finite)

    def finish(
        run: Run[P], division: Division, units: Sequence[_UnitFigures], sections: Sequence[AssemblyFigures]
    ) -> SwapResult:
        common: _Common = division.common
        numbers, widest = _numbers(run, common.ranges), cells.widest(run.params)
        grid = replace(common.grid, counts=units[0].counts)
        tally = Tally.of_all([unit.tally for unit in units])
        return finished_cells(_swap_run(run), tally, sections, numbers, grid, widest)

    def _parts(common: _Common, numbers: Numbers, swap: SwapRun) -> UnitParts:
        assert common.cuts is not None  # noqa: S101 - there are pieces
        labels = common.grid.grouping(numbers, swap.row).labels
        return UnitParts(common.cuts, numbers.names, labels, swap.row)

    def _numbers(run: Run[P], ranges: NumberRanges | None, drawing: Drawing = iter) -> Numbers:
        row = unused("row", run.source.schema.names)
        return Numbers(run.source, run.params.swap_fields, run.params.nulls, row, ranges, drawing)

    def _swap_run(run: Run[P]) -> SwapRun:
        params = cells.swap(run.params, run.source.schema)
        return run_in_cells(run.source, params, run.params.swap_fields, run.stream, run.resources)

    return Sharing(divide, work, assemble, finish, complete=complete)


def _sample(rows: int, wanted: int, swap: SwapRun) -> RowSample | None:
    """Return the sample of this many rows from which units are cut; None if one unit does."""
    return RowSample.for_units(rows, wanted, swap.sizes.unit_rows) if 1 < wanted < rows else None


def _source_pieces(units: int) -> int:
    """Return the number of pieces of the source, without the piece that finds singletons.

    The piece that finds singletons takes about a fifth as long as all others together. With one worker for
    each unit, workers are idle least if each other worker has one piece. With few workers, pieces should take
    about this fifth.
    """
    return units - 1 if units > 3 else 5
