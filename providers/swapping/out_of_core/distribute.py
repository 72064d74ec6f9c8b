"""Divide a swap into units for several workers.

A unit has the rows between two rows of the table in the order of the labels. Each piece of the source is
scattered among the units, which read their own parts of all pieces. If the table is one group, every unit
reads the source and selects the rows of a range of its random buckets. No data go from one unit to another.
Every unit writes its values by row range, and they are assembled as in a run by one worker.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.grouping.shuffle import ONE_BUCKET
from providers.kernels.radix_sort import radix_order
from providers.out_of_core.partitions import Rows
from providers.out_of_core.samplesort import (
    Labels,
    Splitters,
    UnitCuts,
    UnitParts,
    label_keys,
    sorted_spools,
)
from providers.params import SwapParams
from providers.progress import Progress, no_progress
from providers.provider import Division, Prepared, Run, Sharing, StreamedSection, UnitResult
from providers.results import SwapResult
from providers.sections import Section
from providers.storage import Scratch, Spool
from providers.swapping.out_of_core.assemble import AssemblyFigures
from providers.swapping.out_of_core.exchange import Tally
from providers.swapping.out_of_core.large_groups import Share
from providers.swapping.out_of_core.swap import Grouping, SortPass, SwapRun, Watcher
from providers.tables.columns import take_rows
from providers.tables.sort_keys import packed

P = TypeVar("P", bound=SwapParams)

# ------------------------------------------------------------------------------------- one large group


def sharing_of_everything() -> Sharing[Any]:
    """Divide a table that is one group: by fields that move on their own, and by ranges of buckets."""
    return Sharing(_divide_everything, _work_on_everything, _assemble_everything, _finish_everything)


def _divide_everything(run: Run[P], progress: Progress, wanted: int) -> Division:
    swap = _swap_run(run, ())
    swap.find_rate(None, by_count=False)
    # A table of one bucket is not divided: a single unit makes all moves.
    count = -(-wanted // len(swap.moves)) if run.source.rows > ONE_BUCKET else 1
    moves = len(swap.moves) if run.source.rows > ONE_BUCKET else 1
    shares = tuple(Share(index, number, count) for index in range(moves) for number in range(count))
    return swap.division(shares, params=swap.params)


def _work_on_everything(run: Run[P], division: Division, number: int, spool: Spool) -> Tally:
    swap = _swap_run(run, (), division)
    exchanger = swap.unit_exchanger(spool)
    if run.source.rows:
        swap.exchange_everything(exchanger, no_progress, division.units[number])
    return exchanger.tally


def _assemble_everything(
    run: Run[P], division: Division, done: Sequence[UnitResult], section: Section
) -> StreamedSection:
    tally = _tally_of_everything([unit.figures for unit in done])
    return _swap_run(run, (), division).section([unit.rows for unit in done], tally, section)


def _finish_everything(
    run: Run[P], division: Division, units: Sequence[Tally], sections: Sequence[AssemblyFigures]
) -> SwapResult:
    return _swap_run(run, (), division).finished(_tally_of_everything(units), None, sections)


def _tally_of_everything(units: Sequence[Tally]) -> Tally:
    tally = Tally.of_all(units)
    tally.unswappable_groups = min(tally.unswappable_groups, 1)  # the one group counts once
    return tally


# ------------------------------------------------------------------------------------------ many groups


@dataclass(frozen=True)
class Groupings(Generic[P]):
    """Functions that distinguish the services whose tables have many groups."""

    grouping: Callable[[P, pa.Schema, int, int], Grouping]
    """(params, schema, rows that take part, rank of the first row) -> grouping of the rows from there on."""
    watcher: Callable[[P, pa.Schema], Watcher]
    """(params, schema) -> watcher."""
    group_rows: Callable[[P], int]
    """Number of rows of each group in the order of the labels; 0 if the rows of one label are a group."""
    by_count: Callable[[P], bool]
    """Whether absent rows must be removed before groups are formed; see `swap_outside`."""


@dataclass(frozen=True)
class _Unit:
    """Run of whole groups, consecutive in the order of the labels, in one sort pass."""

    pass_number: int
    number: int
    """Number of the unit within the pass."""
    rank: int
    """Rank of its first row, if groups are formed by counting rows; else 0."""
    parts: tuple[int, int] = (0, 0)
    """First part of its rows in the spool of a piece, and the end."""


def sharing_of_groups(groupings: Groupings[P]) -> Sharing[P]:
    """Divide a table of many groups: each unit is a run of whole groups in the order of the labels."""

    def divide(run: Run[P], progress: Progress, wanted: int) -> Division:
        swap = _swap_run(run, groupings.grouping(run.params, run.source.schema, run.source.rows, 0).controls)
        swap.find_rate(
            lambda rows: groupings.grouping(run.params, run.source.schema, rows, 0),
            groupings.by_count(run.params),
        )
        progress(0.0, "finding the splitters")
        passes = swap.sort_passes(groupings.by_count(run.params))
        group_rows = groupings.group_rows(run.params)
        units: list[_Unit] = []
        all_cuts: list[tuple[SortPass, UnitCuts | None]] = []
        for pass_number, sort_pass in enumerate(passes):
            grouping = groupings.grouping(run.params, run.source.schema, sort_pass.rows, 0)
            wanted_units = -(-wanted // len(passes))
            cuts, ranks = _cuts(
                swap.rows_of(sort_pass), grouping, swap.row, group_rows, wanted_units, swap.sizes.unit_rows
            )
            before = units[-1].parts[1] if units else 0
            parts = [before] * (len(ranks) + 1)
            if cuts is not None:
                unit_parts = UnitParts(cuts, grouping.controls, grouping.labels, swap.row)
                parts = [before + first for first in unit_parts.firsts]
            spans = itertools.pairwise(parts)
            units += [
                _Unit(pass_number, number, rank, span)
                for number, (rank, span) in enumerate(zip(ranks, spans, strict=True))
            ]
            all_cuts.append((sort_pass, cuts))
        piece_files = tuple(unit.parts[0] for unit in units) if units and units[-1].parts[1] else ()
        return swap.division(tuple(units), all_cuts, swap.params, piece_files)

    def complete(run: Run[P], division: Division, number: int, kept: Scratch) -> Prepared:
        swap = swap_run(run, division)
        spool = kept.spool(division.units[-1].parts[1], swap.sizes.waiting)
        for pass_number, (sort_pass, cuts) in enumerate(division.common):
            if cuts is not None:
                grouping = groupings.grouping(run.params, run.source.schema, sort_pass.rows, 0)
                parts = UnitParts(cuts, grouping.controls, grouping.labels, swap.row)
                first = next(unit.parts[0] for unit in division.units if unit.pass_number == pass_number)
                rows, piece = swap.rows_of(sort_pass), (number, division.pieces)
                swap.scatter(rows, sort_pass.moves, parts, piece, spool, first)
        return Prepared(None, (spool,))

    def work(run: Run[P], division: Division, number: int, spool: Spool) -> tuple[Tally, Watcher]:
        unit: _Unit = division.units[number]
        sort_pass, cuts = division.common[unit.pass_number]
        grouping = groupings.grouping(run.params, run.source.schema, sort_pass.rows, unit.rank)
        swap = _swap_run(run, grouping.controls, division)
        exchanger, watcher = swap.unit_exchanger(spool), groupings.watcher(run.params, run.source.schema)
        if unit.number == 0:
            swap.keep_absent(sort_pass, exchanger)
        active = exchanger.limited_to(sort_pass.moves)
        if cuts is None:
            rows = swap.sorted_rows(swap.rows_of(sort_pass), grouping, active)
        else:
            rows = sorted_spools(run.piece_spools(), *unit.parts)
        if rows.count:
            swap.exchange_groups(rows, grouping, active, no_progress, watcher)
        return exchanger.tally, watcher

    def assemble(
        run: Run[P], division: Division, done: Sequence[UnitResult], section: Section
    ) -> StreamedSection:
        tally = Tally.of_all(unit.figures[0] for unit in done)
        return swap_run(run, division).section([unit.rows for unit in done], tally, section)

    def finish(
        run: Run[P],
        division: Division,
        units: Sequence[tuple[Tally, Watcher]],
        sections: Sequence[AssemblyFigures],
    ) -> SwapResult:
        watcher = groupings.watcher(run.params, run.source.schema)
        for _, of_unit in units:
            watcher.merge(of_unit)
        return swap_run(run, division).finished(Tally.of_all(tally for tally, _ in units), watcher, sections)

    def swap_run(run: Run[P], division: Division) -> SwapRun:
        grouping = groupings.grouping(run.params, run.source.schema, run.source.rows, 0)
        return _swap_run(run, grouping.controls, division)

    return Sharing(divide, work, assemble, finish, complete=complete)


def _cuts(
    rows: Rows, grouping: Grouping, row: str, group_rows: int, wanted: int, part_rows: int
) -> tuple[UnitCuts | None, tuple[int, ...]]:
    """Cut the rows into about `wanted` units.

    Parameters
    ----------
    rows : Rows
        Rows that take part in the pass.
    grouping : Grouping
    row : str
        Name of the column that holds row numbers.
    group_rows : int
        See `Groupings`.
    wanted : int
    part_rows : int
        Rows that a unit sorts together.

    Returns
    -------
    UnitCuts or None
        None if there is only one unit.
    tuple of int
        Rank of each unit's first row, if groups are formed by counting rows; else 0.
    """
    if rows.count <= wanted or (group_rows and wanted == 1):
        return None, (0,)
    cuts = UnitCuts.of_rows(
        rows, grouping.controls, grouping.labels, wanted, part_rows, whole_labels=not group_rows
    )
    if not group_rows:
        return cuts, (0,) * wanted
    splitters = Splitters(cuts.first_rows, grouping.labels, row)
    aligned, ranks = _align_to_blocks(rows, grouping.controls, splitters, row, group_rows)
    return None if aligned is None else replace(cuts, first_rows=aligned), ranks


def _align_to_blocks(
    rows: Rows, controls: Sequence[str], splitters: Splitters, row: str, group_rows: int
) -> tuple[pa.Table | None, tuple[int, ...]]:
    """Move splitters up to the next start of a group of `group_rows` rows; drop those that cannot move."""
    count = splitters.rows.num_rows
    # The first rows of each part in the order of the labels: candidates for the aligned splitter.
    candidates = [splitters.rows.slice(0, 0) for _ in range(count)]
    sizes = np.zeros(count + 1, np.int64)
    for table in rows.read(controls):
        bounds = _Bounds.of_candidates(splitters, candidates, group_rows)
        spans = bounds.rows.parts_of(table)
        sizes += bounds.part_sizes(spans)
        near = np.flatnonzero(bounds.is_near[spans])
        more, parts = take_rows(table, near), bounds.parts[spans[near]]
        for index in range(count) if len(near) else ():
            joining = take_rows(more, np.flatnonzero(parts == index + 1))
            if joining.num_rows:
                joined = pa.concat_tables([candidates[index], joining])
                candidates[index] = _first_rows(joined, splitters.labels, row, group_rows)
    aligned, ranks = [], [0]
    for index, rank in enumerate(np.cumsum(sizes)[:-1].tolist()):
        up = -rank % group_rows
        at_end = rank + up >= rows.count - 1  # a single remaining row joins the group before
        if up < candidates[index].num_rows and not at_end and rank + up > ranks[-1]:
            aligned.append(candidates[index].slice(up, 1))
            ranks.append(rank + up)
    return (pa.concat_tables(aligned) if aligned else None), tuple(ranks)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Rows that bound spans of rows in the order of the labels: splitters, and last candidates."""

    rows: Splitters
    parts: npt.NDArray[np.int64]
    """Part of the splitters that each span is in."""
    is_near: npt.NDArray[np.bool_]
    """Whether rows of a span can be among the first rows of their part."""

    @classmethod
    def of_candidates(cls, splitters: Splitters, candidates: Sequence[pa.Table], group_rows: int) -> _Bounds:
        """Bound the rows that may become candidates: none after `group_rows` candidates of the same part."""
        bounds, parts, is_near = [], [0], [False]
        for index, held in enumerate(candidates):
            bounds.append(splitters.rows.slice(index, 1))
            parts.append(index + 1)
            is_near.append(True)
            if held.num_rows == group_rows:
                bounds.append(held.slice(group_rows - 1).select(splitters.rows.column_names))
                parts.append(index + 1)
                is_near.append(False)
        return cls(replace(splitters, rows=pa.concat_tables(bounds)), np.array(parts), np.array(is_near))

    def part_sizes(self, spans: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of rows of each part of the splitters, from the span of each row."""
        sizes = np.zeros(self.parts[-1] + 1, np.int64)
        np.add.at(sizes, self.parts, np.bincount(spans, minlength=len(self.parts)))
        return sizes


def _first_rows(table: pa.Table, labels: Labels, row: str, count: int) -> pa.Table:
    """Return the first `count` rows in the order of the labels, ties by row number."""
    numbers = table.column(row).to_numpy().astype(np.uint64)
    order = radix_order(packed([*label_keys(labels(table)), numbers]))
    return take_rows(table, order[:count])


def _swap_run(run: Run[P], controls: tuple[str, ...], division: Division | None = None) -> SwapRun:
    """Return the run, with the parameters that its division has completed."""
    params = run.params if division is None or division.params is None else division.params
    return SwapRun(run.source, params, run.stream, run.resources, controls)
