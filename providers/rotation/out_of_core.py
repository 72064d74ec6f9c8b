"""Perturb a table larger than memory: one pass fits the moments, another perturbs ranges of rows.

Every row depends on the moments and on its own draws only, so that any ranges give the same bits. Units of
a divided run are ranges of rows; the first pass is done once, before the units.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.out_of_core.partitions import Reader, Span, in_ranges
from providers.out_of_core.random_order import Shuffle
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import Division, Run, Sharing, StreamedResult, StreamedSection, UnitResult
from providers.randomness.chacha20 import Stream
from providers.results import Events, SwapResult, append_events
from providers.rotation.destination import destination_schema, destination_table
from providers.rotation.fit import Faults, read_numbers, varying_fields
from providers.rotation.moments import BLOCK, Moments, MomentsSoFar
from providers.rotation.report import add_unperturbed_events, constant_field_events, rotation_result
from providers.rotation.settings import RotationSettings
from providers.rotation.transform import Choice, choose, perturb
from providers.sections import Section, rows_of_section
from providers.storage import Resources, Source, Spool


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
    range_rows: int
    """Number of rows that are perturbed at a time."""


def perturb_out_of_core(run: RotationRun, progress: Progress) -> StreamedResult:
    """Perturb the table range by range; shuffled rows go through scratch space."""
    fitted = _fit(run, progress, 1)
    perturbation = _Perturbation(run, fitted)
    in_order = perturbation.tables(0, run.source.rows, progress)
    tables = _shuffled(run, fitted, in_order) if run.settings.shuffle else (table for _, table in in_order)
    return StreamedResult(
        run.schema, tables, lambda: _result(run, fitted, perturbation.totals, perturbation.events)
    )


def _fit(run: RotationRun, progress: Progress, units: int) -> _Fitted:
    """Fit the moments in one pass over the rows, and choose the transform; raise SourceError."""
    source, settings = run.source, run.settings
    row_bytes = 40 * len(settings.fields) + 4 * source.nbytes // max(1, source.rows) + 64
    most_rows = min(int(0.3 * run.resources.memory_bytes) // row_bytes, source.rows // units)
    range_rows = _range_rows(source.rows, max(1, most_rows // BLOCK), units)
    faults, so_far = Faults(), MomentsSoFar(len(settings.fields))
    for first, table in in_ranges(source, settings.fields, range_rows):
        progress(0.4 * first / source.rows, "fitting")
        values, absent, _ = read_numbers(table, settings.fields, faults, no_progress)
        so_far.add(values, absent, no_progress)
    if not settings.pass_nulls:
        faults.refuse(settings.fields)
    moments = so_far.finish()
    varying = varying_fields(moments, settings.fields, faults)
    correlation = moments.correlation(np.array(varying, np.int64))
    choice = choose(correlation, settings.selection, sub_progress(progress, 0.4, 0.5))
    return _Fitted(moments, bool(faults), varying, choice, range_rows)


def _range_rows(rows: int, most_blocks: int, units: int) -> int:
    """Return the rows of a range: whole blocks, by which moments are summed, and as many ranges in each unit.

    A unit with one range more than the others would take longer.
    """
    blocks = max(1, -(-rows // BLOCK))
    ranges = -(-blocks // (most_blocks * units)) * units
    return -(-blocks // ranges) * BLOCK


class _Perturbation:
    """Perturbs ranges of rows and counts the changes."""

    def __init__(self, run: RotationRun, fitted: _Fitted) -> None:
        self._run = run
        self._fitted = fitted
        self.totals = np.zeros((2, len(fitted.varying)), np.int64)
        """For each varying field the number of changed cells, and of cells outside the source's range."""
        self.events = Events()

    def tables(self, start: int, stop: int, progress: Progress) -> Iterator[tuple[int, pa.Table]]:
        """Iterate over (first row, perturbed table) of the ranges from row `start` to `stop`, in order."""
        run, fitted, settings = self._run, self._fitted, self._run.settings
        names = [settings.fields[index] for index in fitted.varying]
        reader = Reader(run.source, run.source.schema.names, start)
        for first in range(start, stop, fitted.range_rows):
            progress(0.5 + 0.4 * first / run.source.rows, "perturbing")
            table = reader.take(min(fitted.range_rows, stop - first))
            values, absent, valid = read_numbers(table, settings.fields, Faults(), no_progress)
            if absent.any():
                add_unperturbed_events(self.events, absent, first)
            self.totals += perturb(
                values, absent if fitted.has_faults else None, fitted.moments, fitted.varying, names,
                fitted.choice, settings.sigma, run.stream, no_progress, first,
            )  # fmt: skip
            yield first, destination_table(table, settings.fields, values, valid, None, no_progress)[0]


def _shuffle(run: RotationRun, fitted: _Fitted) -> Shuffle:
    return Shuffle(run.schema, run.source.rows, run.stream.key("shuffle"), fitted.range_rows)


def _shuffled(
    run: RotationRun, fitted: _Fitted, tables: Iterator[tuple[int, pa.Table]]
) -> Iterator[pa.Table]:
    """Scatter all rows to a spool, then read them in the random order."""
    shuffle = _shuffle(run, fitted)
    spool = run.resources.scratch.spool(shuffle.parts, run.resources.memory_bytes // 8)
    for first, table in tables:
        shuffle.put(spool, first, table)
    yield from shuffle.pieces(spool, Section(0, run.source.rows))


def _result(run: RotationRun, fitted: _Fitted, totals: Int64Array, row_events: Events) -> SwapResult:
    events = constant_field_events(run.settings, fitted.varying)
    append_events(events, row_events)
    changed, outside = totals
    return rotation_result(
        run.schema.empty_table(), run.source.rows, run.settings, fitted.varying, fitted.choice.phi,
        fitted.moments.rows, changed, outside, events,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------- divided runs


@dataclass(frozen=True, slots=True)
class _Common:
    """Data of the whole table that each unit and each section needs."""

    fitted: _Fitted
    shuffle: Shuffle | None
    """Random order of the destination; None: that of the source."""


def sharing_of_row_ranges(settings_of: Callable[[Any], RotationSettings]) -> Sharing[Any]:
    """Divide a run into units that are ranges of rows; ``settings_of``: checked parameters -> settings."""

    def rotation_run(run: Run[Any]) -> RotationRun:
        return RotationRun(run.source, settings_of(run.params), run.stream, run.resources)

    def divide(run: Run[Any], progress: Progress, wanted: int) -> Division:
        of_run = rotation_run(run)
        fitted = _fit(of_run, progress, wanted)
        range_starts = list(range(0, run.source.rows, fitted.range_rows))
        unit_starts = [range_starts[len(range_starts) * unit // wanted] for unit in range(wanted)]
        units = list(itertools.pairwise([*dict.fromkeys(unit_starts), run.source.rows]))
        shuffle = _shuffle(of_run, fitted) if of_run.settings.shuffle else None
        starts = tuple(range_starts) if shuffle is None else shuffle.starts
        return Division(tuple(units), max(1, len(starts)), _Common(fitted, shuffle), starts=starts)

    def work(run: Run[Any], division: Division, number: int, spool: Spool) -> tuple[Int64Array, Events]:
        common: _Common = division.common
        perturbation = _Perturbation(rotation_run(run), common.fitted)
        start, stop = division.units[number]
        for first, table in perturbation.tables(start, stop, no_progress):
            if common.shuffle is None:
                spool.add(first // common.fitted.range_rows, table)
            else:
                common.shuffle.put(spool, first, table)
        return perturbation.totals, perturbation.events

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
        units: Sequence[tuple[Int64Array, Events]],
        sections: Sequence[None],
    ) -> SwapResult:
        events = Events()
        for _, of_unit in units:
            append_events(events, of_unit)
        totals = np.sum([changes for changes, _ in units], axis=0)
        return _result(rotation_run(run), division.common.fitted, totals, events)

    return Sharing(divide, work, assemble, finish)
