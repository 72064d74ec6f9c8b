"""Redraw segments out of core and in units."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from providers.errors import ParameterError
from providers.localities.properties import Breach, refuse_breaches
from providers.localities.redraw import RATES_BYTES, redraw
from providers.localities.report import Figures, destination
from providers.localities.segmentation import Ends, Segmentation, reach_of
from providers.localities.segments import (
    count_outside,
    own_range,
    reach_in_steps,
    refuse_outside,
    refuse_steps,
)
from providers.out_of_core.partitions import Reader, Span
from providers.params import Params
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import Division, Run, Sharing, StreamedResult, StreamedSection, UnitResult
from providers.randomness.chacha20 import Stream
from providers.results import SwapResult
from providers.sections import Section, rows_of_section
from providers.storage import Resources, Source, Spool
from providers.tables.joining import empty_table
from providers.tables.numbers import NumberFaults, numbers_read
from providers.tables.schemas import with_field_type
from providers.tables.type_names import below_encodings

P = TypeVar("P", bound=Params)

Range = tuple[int, int]
"""A row range: the first row, and the one after the last."""

_RATES_OF_ROW = 4096
"""Most memory in bytes of a row's share of the slacks' rates in a field."""


def ranges_of(source: Source, segmentation: Segmentation, memory: int, wanted: int = 1) -> list[Range]:
    """Divide the rows into ranges of whole segments.

    Parameters
    ----------
    source : Source
        Table to divide.
    segmentation : Segmentation
        Segments of the table.
    memory : int
        Memory budget of a range in bytes.
    wanted : int
        Least number of ranges, if there are enough segments.
    """
    fields, budget = len(segmentation.fields), int(0.6 * memory)
    row_bytes = 4 * source.nbytes // max(1, source.rows) + segmentation.bytes_of_row + 64
    most = max(budget // (row_bytes + fields * _RATES_OF_ROW), (budget - 2 * RATES_BYTES) // row_bytes)
    most = min(most, -(-source.rows // wanted))
    size = segmentation.size
    step = max(1, most // size) * size
    starts = list(range(0, source.rows, step))
    if len(starts) > 1 and 2 * (source.rows - starts[-1]) < size:  # too short for a segment
        starts.pop()
    return list(itertools.pairwise([*starts, source.rows]))


def redraw_out_of_core(
    source: Source, segmentation: Segmentation, progress: Progress, resources: Resources
) -> StreamedResult:
    """Redraw the fields of the source range by range, with the same result as in memory.

    Raises
    ------
    SourceError
        As in memory, but before any row of the destination is produced.
    """
    ranges = ranges_of(source, segmentation, resources.memory_bytes)
    own = own_ranges(source, segmentation, ranges, sub_progress(progress, 0.0, 0.1))
    figures = Figures.empty(source.schema, segmentation.fields)
    schema = schema_of(source.schema, segmentation)

    def redrawn_ranges() -> Iterator[pa.Table]:
        reader = Reader(source, source.schema.names)
        for start, stop in ranges:
            range_progress = sub_progress(
                progress, 0.1 + 0.9 * start / source.rows, 0.1 + 0.9 * stop / source.rows
            )
            table = reader.take(stop - start)
            redrawn, range_figures = redraw_range(table, start, segmentation, own, range_progress)
            figures.add(range_figures)
            yield redrawn

    return StreamedResult(
        schema, redrawn_ranges(), lambda: segmentation.report(empty_table(schema), figures, source.rows)
    )


def sharing_of_segments(
    segmentation: Callable[[P, pa.Schema, Stream], Segmentation], check_rows: Callable[[P, int], None]
) -> Sharing[P]:
    """Divide a run into units for several workers: each redraws the fields of consecutive row ranges.

    Parameters
    ----------
    segmentation : callable
        (params, schema, stream) -> Segmentation.
    check_rows : callable
        (params, rows): raises ParameterError if the parameters do not fit a table of this many rows.
    """

    def segmentation_of(run: Run[P]) -> Segmentation:
        return segmentation(run.params, run.source.schema, run.stream)

    def divide(run: Run[P], progress: Progress, wanted: int) -> Division:
        check_rows(run.params, run.source.rows)
        ranges = ranges_of(run.source, segmentation_of(run), run.resources.memory_bytes, wanted)
        bounds = sorted({len(ranges) * unit // wanted for unit in range(wanted + 1)})
        units = tuple((first, tuple(ranges[first:stop])) for first, stop in itertools.pairwise(bounds))
        own = own_ranges(run.source, segmentation_of(run), ranges, progress)
        starts = tuple(start for start, _ in ranges)
        return Division(units, max(1, len(ranges)), own, starts=starts)

    def work(run: Run[P], division: Division, number: int, spool: Spool) -> Figures:
        cut, (first_range, ranges) = segmentation_of(run), division.units[number]
        figures = Figures.empty(run.source.schema, cut.fields)
        reader = Reader(run.source, list(cut.fields), ranges[0][0])
        for part, (start, stop) in enumerate(ranges, first_range):
            table = reader.take(stop - start)
            redrawn, range_figures = redraw_range(table, start, cut, division.common, no_progress)
            figures.add(range_figures)
            spool.add(part, redrawn)
        return figures

    def assemble(
        run: Run[P], division: Division, done: Sequence[UnitResult], section: Section
    ) -> StreamedSection:
        cut, source = segmentation_of(run), run.source
        schema = schema_of(source.schema, cut)
        redrawn = rows_of_section(
            Span([unit.rows for unit in done], 0, division.parts), section, division.starts
        )
        return StreamedSection(
            schema, _with_untouched_fields(source, schema, cut, section, redrawn), lambda: None
        )

    def finish(
        run: Run[P], division: Division, units: Sequence[Figures], sections: Sequence[None]
    ) -> SwapResult:
        cut, source = segmentation_of(run), run.source
        schema, figures = schema_of(source.schema, cut), Figures.empty(source.schema, cut.fields)
        for unit in units:
            figures.add(unit)
        return cut.report(empty_table(schema), figures, source.rows)

    return Sharing(divide, work, assemble, finish, from_rows=_SHARED_FROM)


_SHARED_FROM = 1_000_000
"""Number of rows from which a run in memory is divided too. They take about 20 s per field on one core with
the default parameters (50,000 rows were measured at 0.92 s); dividing and joining cost about a second."""


def _with_untouched_fields(
    source: Source, schema: pa.Schema, cut: Segmentation, section: Section, redrawn: Iterator[pa.Table]
) -> Iterator[pa.Table]:
    """Yield the redrawn fields of a section together with the untouched ones, in source order."""
    others = [name for name in source.schema.names if name not in cut.fields]
    reader = Reader(source, others, section.first) if others else None
    for table in redrawn:
        columns = dict(zip(table.column_names, table.columns, strict=True))
        if reader is not None:
            untouched = reader.take(table.num_rows)
            columns.update(zip(untouched.column_names, untouched.columns, strict=True))
        yield pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def redraw_range(
    table: pa.Table, first: int, segmentation: Segmentation, own: dict[str, Ends | None], progress: Progress
) -> tuple[pa.Table, Figures]:
    """Redraw a row range; return it with its figures.

    Parameters
    ----------
    table : pa.Table
        Rows of the range.
    first : int
        Number of its first row in the source, the start of a segment.
    segmentation : Segmentation
        Segments of the source.
    own : dict
        Range of each field in all rows.
    progress : Progress
        Called with the share of the range that is done.
    """
    fields = segmentation.of_range(table, first, own)
    return destination(table, redraw(fields, segmentation.settings, segmentation.anonymise, progress))


def schema_of(schema: pa.Schema, segmentation: Segmentation) -> pa.Schema:
    """Return the schema of the destination: float64, or the source's type without its encoding."""
    for name, settings in segmentation.fields.items():
        index = schema.get_field_index(name)
        kind = pa.float64() if settings.type_range is None else below_encodings(schema.field(index).type)
        schema = with_field_type(schema, index, kind)
    return schema


# ------------------------------------------------------------------------------------ pass over all rows


@dataclass(slots=True)
class _FieldScan:
    """Findings of the first pass about a field, over all rows."""

    own: Ends | None = None
    """Range of the field."""
    faults: NumberFaults = field(default_factory=NumberFaults)
    """Values that are no numbers to compute with."""
    outside: int = 0
    """Number of values outside the domain."""
    scale: int = 0
    """Decimals of a unit."""
    reach: Ends | None = None
    """Least and greatest publishable value, in steps."""


def own_ranges(
    source: Source, segmentation: Segmentation, ranges: list[Range], progress: Progress
) -> dict[str, Ends | None]:
    """Return the range of each field in all rows.

    Raises
    ------
    SourceError, ParameterError
        The values, or a relation on the source, do not fit the parameters; field by field.
    """
    scans = {name: _FieldScan() for name in segmentation.fields}
    reader = Reader(source, list(scans))
    for start, stop in ranges:
        progress(start / source.rows, "looking at the ranges of fields")
        table = reader.take(stop - start)
        for name, scan in scans.items():
            numbers, faults = numbers_read(table.column(name))
            scan.faults.add(faults)
            if not (scan.faults.not_finite or scan.faults.long):
                scan.outside += count_outside(numbers, segmentation.fields[name].domain)
                scan.own = _union(scan.own, own_range(numbers))
                scan.scale = numbers.scale
    if segmentation.decimals is not None:
        _reach(source, segmentation, ranges, scans, progress)
    for name, scan in scans.items():
        scan.faults.refuse(name)
        refuse_outside(name, scan.outside)
        if segmentation.decimals is not None and scan.reach is not None:
            relative = segmentation.fields[name].grid_is_relative()
            refuse_steps(name, segmentation.decimals, relative, *scan.reach)
        if segmentation.fields[name].properties:
            progress(1.0, "checking relations")
            _check_properties(source, segmentation, ranges, name, scan)
    return {name: scan.own for name, scan in scans.items()}


def _check_properties(
    source: Source, segmentation: Segmentation, ranges: list[Range], name: str, scan: _FieldScan
) -> None:
    """Raise ParameterError as in memory if a property of interest does not hold on the source."""
    reader, broken = Reader(source, [name]), dict[int, Breach]()
    nulls: list[tuple[int, ParameterError]] = []
    for start, stop in ranges:
        table = reader.take(stop - start)
        for one in segmentation.fields[name].properties:
            try:
                segmented_field = segmentation.field_of_range(table, start, name, scan.own, (one,))
            except ParameterError as error:
                nulls.append((one.number, error))
                continue
            for number, breach in segmentation.breaches(segmented_field).items():
                broken.setdefault(number, Breach()).add(breach)
    if nulls:
        raise min(nulls, key=lambda pair: pair[0])[1]
    refuse_breaches(broken, name, reach_of(scan.own, scan.scale), segmentation.size)


def _reach(
    source: Source,
    segmentation: Segmentation,
    ranges: list[Range],
    scans: dict[str, _FieldScan],
    progress: Progress,
) -> None:
    """Find the bounds of each field's published values, up to the first field that is refused anyway."""
    assert segmentation.decimals is not None  # noqa: S101 - the caller has asked
    sound: dict[str, _FieldScan] = {}
    for name, scan in scans.items():
        if scan.faults.not_finite or scan.faults.long or scan.outside:
            break
        sound[name] = scan
    if not sound:
        return
    reader = Reader(source, list(sound))
    for start, stop in ranges:
        progress(1.0, "looking at the bounds of segments")
        table = reader.take(stop - start)
        for name, scan in sound.items():
            numbers, _ = numbers_read(table.column(name))
            placed = segmentation.placed(name, numbers, stop - start, scan.own)
            scan.reach = _union(scan.reach, reach_in_steps(placed, segmentation.decimals))


def _union(one: Ends | None, other: Ends | None) -> Ends | None:
    """Return the range that covers both; None is an empty range."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])
