"""Perturb a table larger than memory: one pass fits the moments, another perturbs ranges of rows.

Every row depends on the moments and on its own draws only, so that any ranges give the same bits. Units of
a divided run are ranges of rows. Before them, a piece for each unit takes the moments of the blocks of its
rows; every unit joins those of all blocks, in their order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.out_of_core.partitions import Reader, Span, in_ranges
from providers.out_of_core.random_order import Shuffle
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import Division, Prepared, Run, Sharing, StreamedResult, StreamedSection, UnitResult
from providers.randomness.chacha20 import Stream
from providers.results import Events, SwapResult, append_events
from providers.rotation.destination import destination_schema, destination_table
from providers.rotation.fit import Faults, read_numbers, varying_fields
from providers.rotation.moments import BLOCK, BlockMoments, Moments, MomentsSoFar, block_moments
from providers.rotation.report import add_unperturbed_events, constant_field_events, rotation_result
from providers.rotation.settings import RotationSettings
from providers.rotation.transform import Choice, choose, perturb
from providers.sections import Section, rows_of_section
from providers.storage import Resources, Scratch, Source, Spool
from providers.tables.joining import empty_table

_MOMENTS = "moments"
"""Field of the spools of pieces."""


@dataclass(frozen=True, slots=True)
class RotationRun:
    """Source, settings, random stream and resources of one run."""

    source: Source
    settings: RotationSettings
    stream: Stream
    resources: Resources

    @property
    def schema(self) -> pa.Schema:
        """Schema of the destination."""
        return destination_schema(self.source.schema, self.settings.fields)


@dataclass(frozen=True, slots=True, repr=False)
class _Fitted:
    """Fitted moments and the secret transform. `repr` shows neither."""

    moments: Moments
    has_faults: bool
    """Whether there are values that cannot be rotated."""
    varying: list[int]
    """Indices of the fields that are not constant."""
    choice: Choice


def perturb_out_of_core(run: RotationRun, progress: Progress) -> StreamedResult:
    """Perturb the table range by range; shuffled rows go through scratch space."""
    range_rows = _range_rows(run, 1)
    fitted = _fit(run, range_rows, progress)
    perturbation = _Perturbation(run, fitted, range_rows)
    in_order = perturbation.tables(0, run.source.rows, progress)
    tables = (
        _shuffled(run, range_rows, in_order) if run.settings.shuffle else (table for _, table in in_order)
    )
    return StreamedResult(
        run.schema, tables, lambda: _result(run, perturbation.figures(), perturbation.events)
    )


def _fit(run: RotationRun, range_rows: int, progress: Progress) -> _Fitted:
    """Fit the moments in one pass over the rows, and choose the transform; raise SourceError."""
    faults, so_far = Faults(), MomentsSoFar(len(run.settings.fields))
    for first, table in in_ranges(run.source, run.settings.fields, range_rows):
        progress(0.4 * first / run.source.rows, "fitting")
        values, absent, _ = read_numbers(table, run.settings.fields, faults, no_progress)
        so_far.add(values, absent, no_progress)
    return _fitted(run.settings, so_far, faults, sub_progress(progress, 0.4, 0.5))


def _fitted(settings: RotationSettings, so_far: MomentsSoFar, faults: Faults, progress: Progress) -> _Fitted:
    """Choose the transform by the moments of all rows; raise SourceError."""
    if not settings.pass_nulls:
        faults.refuse(settings.fields)
    moments = so_far.finish()
    varying = varying_fields(moments, settings.fields, faults)
    correlation = moments.correlation(np.array(varying, np.int64))
    return _Fitted(moments, bool(faults), varying, choose(correlation, settings.selection, progress))


def _range_rows(run: RotationRun, units: int) -> int:
    """Return the rows of a range: whole blocks, by which moments are summed, and as many ranges in each unit.

    A unit with one range more than the others would take longer.
    """
    source, rows = run.source, run.source.rows
    row_bytes = 40 * len(run.settings.fields) + 4 * source.nbytes // max(1, rows) + 64
    most_rows = min(int(0.3 * run.resources.memory_bytes) // row_bytes, rows // units)
    most_blocks = max(1, most_rows // BLOCK)
    blocks = max(1, -(-rows // BLOCK))
    ranges = -(-blocks // (most_blocks * units)) * units
    return -(-blocks // ranges) * BLOCK


@dataclass(frozen=True, slots=True)
class _Figures:
    """Figures of some or all rows for the report."""

    varying: list[int]
    """Indices of the fields that are not constant."""
    phi: float
    """Guarantee of the transform."""
    rows: int
    """Number of rows of the table that are perturbed."""
    totals: Int64Array
    """For each varying field the number of changed cells, and of cells outside the source's range, shape
    (2, varying)."""


class _Perturbation:
    """Perturbs ranges of rows and counts the changes."""

    def __init__(self, run: RotationRun, fitted: _Fitted, range_rows: int) -> None:
        """Perturb nothing yet.

        Parameters
        ----------
        run
        fitted
        range_rows
            Number of rows that are perturbed at a time.
        """
        self._run = run
        self._fitted = fitted
        self._range_rows = range_rows
        self._totals = np.zeros((2, len(fitted.varying)), np.int64)
        self.events = Events()
        """Rows that were passed unperturbed."""

    def figures(self) -> _Figures:
        """Return the figures of the rows that were perturbed."""
        fitted = self._fitted
        return _Figures(fitted.varying, fitted.choice.phi, fitted.moments.rows, self._totals)

    def tables(self, start: int, stop: int, progress: Progress) -> Iterator[tuple[int, pa.Table]]:
        """Iterate over (first row, perturbed table) of the ranges from row `start` to `stop`, in order."""
        run, fitted, settings = self._run, self._fitted, self._run.settings
        names = [settings.fields[index] for index in fitted.varying]
        reader = Reader(run.source, run.source.schema.names, start)
        for first in range(start, stop, self._range_rows):
            progress(0.5 + 0.4 * first / run.source.rows, "perturbing")
            table = reader.take(min(self._range_rows, stop - first))
            values, absent, valid = read_numbers(table, settings.fields, Faults(), no_progress)
            if absent.any():
                add_unperturbed_events(self.events, absent, first)
            self._totals += perturb(
                values, absent if fitted.has_faults else None, fitted.moments, fitted.varying, names,
                fitted.choice, settings.sigma, run.stream, no_progress, first,
            )  # fmt: skip
            yield first, destination_table(table, settings.fields, values, valid, None, no_progress)[0]


def _shuffle(run: RotationRun, range_rows: int) -> Shuffle:
    return Shuffle(run.schema, run.source.rows, run.stream.key("shuffle"), range_rows)


def _shuffled(
    run: RotationRun, range_rows: int, tables: Iterator[tuple[int, pa.Table]]
) -> Iterator[pa.Table]:
    """Scatter all rows to a spool, then read them in the random order."""
    shuffle = _shuffle(run, range_rows)
    spool = run.resources.scratch.spool(shuffle.parts, run.resources.memory_bytes // 8)
    for first, table in tables:
        shuffle.put(spool, first, table)
    yield from shuffle.pieces(spool, Section(0, run.source.rows))


def _result(run: RotationRun, figures: _Figures, row_events: Events) -> SwapResult:
    events = constant_field_events(run.settings, figures.varying)
    append_events(events, row_events)
    changed, outside = figures.totals
    return rotation_result(
        empty_table(run.schema), run.source.rows, run.settings, figures.varying, figures.phi, figures.rows,
        changed, outside, events,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------- divided runs


@dataclass(frozen=True, slots=True)
class _Common:
    """Data that each unit and each section needs."""

    range_rows: int
    """Number of rows that are perturbed at a time."""
    shuffle: Shuffle | None
    """Random order of the destination; None: that of the source."""


def sharing_of_row_ranges(settings_of: Callable[[Any], RotationSettings]) -> Sharing[Any]:
    """Divide a run into units that are ranges of rows; ``settings_of``: checked parameters -> settings."""

    def rotation_run(run: Run[Any]) -> RotationRun:
        return RotationRun(run.source, settings_of(run.params), run.stream, run.resources)

    def divide(run: Run[Any], progress: Progress, wanted: int) -> Division:
        of_run = rotation_run(run)
        range_rows = _range_rows(of_run, wanted)
        range_starts = list(range(0, max(1, run.source.rows), range_rows))
        unit_starts = [range_starts[len(range_starts) * unit // wanted] for unit in range(wanted)]
        units = list(itertools.pairwise([*dict.fromkeys(unit_starts), run.source.rows]))
        shuffle = _shuffle(of_run, range_rows) if of_run.settings.shuffle else None
        starts = tuple(range_starts) if shuffle is None else shuffle.starts
        common = _Common(range_rows, shuffle)
        return Division(tuple(units), max(1, len(starts)), common, starts=starts, pieces=len(units))

    def complete(run: Run[Any], division: Division, number: int, scratch: Scratch) -> Prepared:
        faults, spool = Faults(), scratch.spool(1, run.resources.memory_bytes // 8)
        fields = settings_of(run.params).fields
        start, stop = division.units[number]
        reader = Reader(run.source, fields, start)
        for first in range(start, stop, division.common.range_rows):
            table = reader.take(min(division.common.range_rows, stop - first))
            values, absent, _ = read_numbers(table, fields, faults, no_progress)
            for blocks in block_moments(values, absent, no_progress):
                spool.add(0, _table_of(blocks))
        return Prepared(faults, (spool,))

    def joined(run: Run[Any]) -> _Fitted:
        """Fit the moments of all rows from the pieces, which are in the order of the rows."""
        assert run.prepared is not None  # noqa: S101 - the pieces are complete
        settings = settings_of(run.params)
        faults, so_far = Faults(), MomentsSoFar(len(settings.fields))
        for piece in run.prepared.completed:
            faults.add_all(piece.data)
            for table in piece.spools[0].read(0):
                so_far.join(_blocks_of(table, len(settings.fields)))
        return _fitted(settings, so_far, faults, no_progress)

    def work(run: Run[Any], division: Division, number: int, spool: Spool) -> tuple[_Figures, Events]:
        common: _Common = division.common
        perturbation = _Perturbation(rotation_run(run), joined(run), common.range_rows)
        start, stop = division.units[number]
        for first, table in perturbation.tables(start, stop, no_progress):
            if common.shuffle is None:
                spool.add(first // common.range_rows, table)
            else:
                common.shuffle.put(spool, first, table)
        return perturbation.figures(), perturbation.events

    def assemble(
        run: Run[Any], division: Division, done: Sequence[UnitResult], section: Section
    ) -> StreamedSection:
        shuffle = division.common.shuffle
        spool = Span([unit.rows for unit in done], 0, division.parts)
        tables = (
            rows_of_section(spool, section, division.starts)
            if shuffle is None
            else shuffle.pieces(spool, section)
        )
        return StreamedSection(rotation_run(run).schema, tables, lambda: None)

    def finish(
        run: Run[Any],
        division: Division,
        units: Sequence[tuple[_Figures, Events]],
        sections: Sequence[None],
    ) -> SwapResult:
        events = Events()
        for _, of_unit in units:
            append_events(events, of_unit)
        totals = np.sum([figures.totals for figures, _ in units], axis=0)
        return _result(rotation_run(run), replace(units[0][0], totals=totals), events)

    return Sharing(divide, work, assemble, finish, complete=complete)


def _table_of(blocks: BlockMoments) -> pa.Table:
    """Return the moments as a table with a row for each block."""
    packed = blocks.packed()
    rows = pa.FixedSizeListArray.from_arrays(packed.ravel(), packed.shape[1])
    return pa.table({_MOMENTS: rows})


def _blocks_of(table: pa.Table, fields: int) -> BlockMoments:
    """Return the moments that `_table_of` has made a table."""
    packed = table.column(_MOMENTS).combine_chunks().flatten().to_numpy()
    return BlockMoments.unpacked(packed.reshape(table.num_rows, -1), fields)
