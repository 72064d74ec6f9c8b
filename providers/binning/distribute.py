"""Divide an exchange within grid cells into units for several workers: each is a run of whole cells.

The division finds the ranges of the fields, the grid, and the bins that singletons join, in the order of the
table's rows, so that sums are the same as in a run by one worker. Each piece of the source is scattered among
the units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from providers.binning.grid import Axis
from providers.binning.out_of_core import (
    CellGrid,
    NumberRanges,
    Numbers,
    finished_cells,
    keep_absent,
    not_finite,
    run_in_cells,
)
from providers.binning.swap import BinParams
from providers.out_of_core.samplesort import RowSample, UnitCuts, UnitParts, sorted_spools
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
    """Data of the whole table that each unit needs."""

    ranges: NumberRanges
    grid: CellGrid
    cuts: UnitCuts | None
    """Cuts between units, in the order of the cells; None if there is one unit."""


def sharing_of_cells(cells: Cells[P]) -> Sharing[P]:
    """Divide a table by ranges of cells; the cells of a range hold about equally many rows."""

    def divide(run: Run[P], progress: Progress, wanted: int) -> Division:
        progress(0.0, "reading numbers")
        numbers, swap = _numbers(run), _swap_run(run)
        rows = numbers.rows
        axes = cells.axes(run.params, numbers) if rows.count else []
        merge = cells.merge(run.params)
        finding = sub_progress(progress, 0.3, 0.9)
        divides = wanted > 1 and rows.count > wanted
        sample = RowSample.for_units(rows.count, wanted, swap.sizes.unit_rows) if divides else None
        drawing = iter if sample is None else sample.drawing
        grid = CellGrid.of_numbers(numbers, axes, merge, swap, run.resources, finding, drawing)
        cuts = None
        piece_files: tuple[int, ...] = ()
        if sample is not None:
            if not merge:  # else the rows were read to find singletons
                sample.read(rows, numbers.names)
            labels = grid.grouping(numbers, swap.row).labels
            cuts = UnitCuts.of_sample(sample, labels, wanted, whole_labels=True)
            piece_files = UnitParts(cuts, numbers.names, labels, swap.row).firsts[:-1]
        units = 1 if cuts is None else wanted
        common = _Common(numbers.ranges, grid, cuts)
        return swap.division(tuple(range(units)), common, piece_files=piece_files)

    def complete(run: Run[P], division: Division, number: int, kept: Scratch) -> Prepared:
        common: _Common = division.common
        numbers, swap = _numbers(run, common.ranges), _swap_run(run)
        parts = _parts(common, numbers, swap)
        spool = kept.spool(parts.firsts[-1], swap.sizes.waiting)
        moves, piece = tuple(range(len(swap.moves))), (number, division.pieces)
        swap.scatter(numbers.rows, moves, parts, piece, spool, 0)
        return Prepared(None, (spool,))

    def work(run: Run[P], division: Division, number: int, spool: Spool) -> Tally:
        common: _Common = division.common
        numbers, swap = _numbers(run, common.ranges), _swap_run(run)
        exchanger = swap.unit_exchanger(spool)
        if number == 0:
            keep_absent(numbers, exchanger)
        grouping = common.grid.grouping(numbers, swap.row)
        if common.cuts is None:
            rows = swap.sorted_rows(numbers.rows, grouping, exchanger)
        else:
            first, stop = _parts(common, numbers, swap).firsts[number : number + 2]
            rows = sorted_spools(run.piece_spools(), first, stop)
        if rows.count:
            swap.exchange_groups(rows, grouping, exchanger, no_progress, None)
        return exchanger.tally

    def assemble(
        run: Run[P], division: Division, done: Sequence[UnitResult], section: Section
    ) -> StreamedSection:
        tally = Tally.of_all([unit.figures for unit in done])
        return _swap_run(run).section([unit.rows for unit in done], tally, section, not_finite)

    def finish(
        run: Run[P], division: Division, units: Sequence[Tally], sections: Sequence[AssemblyFigures]
    ) -> SwapResult:
        common: _Common = division.common
        numbers, widest = _numbers(run, common.ranges), cells.widest(run.params)
        return finished_cells(_swap_run(run), Tally.of_all(units), sections, numbers, common.grid, widest)

    def _parts(common: _Common, numbers: Numbers, swap: SwapRun) -> UnitParts:
        assert common.cuts is not None  # noqa: S101 - there are pieces
        labels = common.grid.grouping(numbers, swap.row).labels
        return UnitParts(common.cuts, numbers.names, labels, swap.row)

    def _numbers(run: Run[P], ranges: NumberRanges | None = None) -> Numbers:
        row = unused("row", run.source.schema.names)
        return Numbers(run.source, run.params.swap_fields, run.params.nulls, row, ranges)

    def _swap_run(run: Run[P]) -> SwapRun:
        params = cells.swap(run.params, run.source.schema)
        return run_in_cells(run.source, params, run.params.swap_fields, run.stream, run.resources)

    return Sharing(divide, work, assemble, finish, complete=complete)
