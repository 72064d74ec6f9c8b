"""Segments redrawn out of core: in ranges of rows that begin and end where segments do."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from providers.external.parts import Reader, Span
from providers.params import Params
from providers.provider import (
    Division,
    Progress,
    Run,
    Sharing,
    Streamed,
    UnitDone,
    no_progress,
    part_of,
)
from providers.redrawing import RATES_BYTES, redraw
from providers.redrawn import Figures, destination
from providers.rng import Stream
from providers.segmentation import BYTES_OF_A_VALUE, Ends, Segmentation
from providers.segmented import outside_of, own_range, reach_in_steps, refuse_outside, refuse_steps
from providers.storage import Room, Source, Spool
from providers.units import NumberFaults, below_encodings, numbers_read

P = TypeVar("P", bound=Params)

Range = tuple[int, int]
"""Rows from one up to another."""

_RATES_OF_A_ROW = 4096
"""Bytes that a row's share of the slacks' rates takes in a field, at the most."""


def ranges_of(source: Source, segmentation: Segmentation, memory: int, wanted: int = 1) -> list[Range]:
    """The rows in ranges that fit, of whole segments each, and as many ranges as are wanted at the least."""
    fields, budget = len(segmentation.fields), int(0.6 * memory)
    of_row = 4 * source.nbytes // max(1, source.rows) + fields * BYTES_OF_A_VALUE + 64
    most = max(budget // (of_row + fields * _RATES_OF_A_ROW), (budget - 2 * RATES_BYTES) // of_row)
    most = min(most, -(-source.rows // wanted))
    size = segmentation.size
    step = max(1, most // size) * size
    starts = list(range(0, source.rows, step))
    if len(starts) > 1 and 2 * (source.rows - starts[-1]) < size:  # no segment of its own
        starts.pop()
    return list(itertools.pairwise([*starts, source.rows]))


def redraw_outside(source: Source, segmentation: Segmentation, progress: Progress, room: Room) -> Streamed:
    """The source with its fields redrawn, as in memory.

    Raises
    ------
    SourceError
        As in memory, and before there is a destination.
    """
    ranges = ranges_of(source, segmentation, room.memory_bytes)
    own = own_ranges(source, segmentation, ranges, part_of(progress, 0.0, 0.1))
    figures = Figures.none_of(source.schema, segmentation.fields)
    schema = schema_of(source.schema, segmentation)

    def pieces() -> Iterator[pa.Table]:
        reader = Reader(source, source.schema.names)
        for start, stop in ranges:
            told = part_of(progress, 0.1 + 0.9 * start / source.rows, 0.1 + 0.9 * stop / source.rows)
            piece, found = redrawn_range(reader.take(stop - start), start, segmentation, own, told)
            figures.add(found)
            yield piece

    return Streamed(schema, pieces(), lambda: segmentation.report(schema.empty_table(), figures, source.rows))


def sharing_of_segments(segmentation: Callable[[P, pa.Schema, Stream], Segmentation]) -> Sharing[P]:
    """How segments are shared: each unit is a stretch of the ranges, of the fields that are redrawn."""

    def laid(run: Run[P]) -> Segmentation:
        return segmentation(run.params, run.source.schema, run.stream)

    def divide(run: Run[P], progress: Progress, wanted: int) -> Division:
        ranges = ranges_of(run.source, laid(run), run.room.memory_bytes, wanted)
        bounds = sorted({len(ranges) * nth // wanted for nth in range(wanted + 1)})
        units = tuple(tuple(ranges[first:stop]) for first, stop in itertools.pairwise(bounds))
        return Division(units, 1, own_ranges(run.source, laid(run), ranges, progress))

    def work(run: Run[P], division: Division, number: int, spool: Spool) -> Figures:
        cut, ranges = laid(run), division.units[number]
        figures = Figures.none_of(run.source.schema, cut.fields)
        reader = Reader(run.source, list(cut.fields))
        reader.skip(ranges[0][0])
        for start, stop in ranges:
            table = reader.take(stop - start)
            piece, found = redrawn_range(table, start, cut, division.common, no_progress)
            figures.add(found)
            spool.add(0, piece)
        return figures

    def gather(run: Run[P], progress: Progress, division: Division, done: Sequence[UnitDone]) -> Streamed:
        cut, source = laid(run), run.source
        schema, figures = schema_of(source.schema, cut), Figures.none_of(source.schema, cut.fields)
        for unit in done:
            figures.add(unit.figures)
        pieces = _beside(source, schema, cut, Span([unit.rows for unit in done], 0, 1))
        return Streamed(schema, pieces, lambda: cut.report(schema.empty_table(), figures, source.rows))

    return Sharing(divide, work, gather, from_rows=_SHARED_FROM)


_SHARED_FROM = 1_000_000
"""Rows that take some 20 s a field on one core with the default parameters (0.92 s were measured of 50,000):
much beside the second or so that dividing and putting together take more."""


def _beside(source: Source, schema: pa.Schema, cut: Segmentation, redrawn: Span) -> Iterator[pa.Table]:
    """The fields that were redrawn beside all others, piece by piece."""
    others = [name for name in source.schema.names if name not in cut.fields]
    reader = Reader(source, others) if others else None
    for piece in redrawn.read(0):
        columns = dict(zip(piece.column_names, piece.columns, strict=True))
        if reader is not None:
            still = reader.take(piece.num_rows)
            columns.update(zip(still.column_names, still.columns, strict=True))
        yield pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def redrawn_range(
    table: pa.Table, first: int, segmentation: Segmentation, own: dict[str, Ends | None], progress: Progress
) -> tuple[pa.Table, Figures]:
    """A range of rows redrawn, and what is counted of it."""
    fields = segmentation.of_range(table, first, own)
    return destination(table, redraw(fields, segmentation.law, progress))


def schema_of(schema: pa.Schema, segmentation: Segmentation) -> pa.Schema:
    """The destination's: float64, or the source's type without its encoding where steps are whole."""
    for name, of in segmentation.fields.items():
        at = schema.get_field_index(name)
        kind = pa.float64() if of.whole is None else below_encodings(schema.field(at).type)
        schema = schema.set(at, schema.field(at).with_type(kind))
    return schema


# ------------------------------------------------------------------------------- what all rows have to say


@dataclass(slots=True)
class _Found:
    """What is found of a field in all rows."""

    own: Ends | None = None
    faults: NumberFaults = field(default_factory=NumberFaults)
    outside: int = 0
    reach: Ends | None = None
    """The least and the greatest that values may become, in steps."""


def own_ranges(
    source: Source, segmentation: Segmentation, ranges: list[Range], progress: Progress
) -> dict[str, Ends | None]:
    """The least and the greatest value of each field. Raises SourceError, field by field."""
    found = {name: _Found() for name in segmentation.fields}
    reader = Reader(source, list(found))
    for start, stop in ranges:
        progress(start / source.rows, "looking at the ranges of fields")
        table = reader.take(stop - start)
        for name, of in found.items():
            numbers, faults = numbers_read(table.column(name))
            of.faults.add(faults)
            if not (of.faults.not_finite or of.faults.long):
                of.outside += outside_of(numbers, segmentation.fields[name].domain)
                of.own = _together(of.own, own_range(numbers))
    if segmentation.decimals is not None:
        _reach(source, segmentation, ranges, found, progress)
    for name, of in found.items():
        of.faults.refuse(name)
        refuse_outside(name, of.outside)
        if segmentation.decimals is not None and of.reach is not None:
            whole = segmentation.fields[name].whole is not None
            refuse_steps(name, segmentation.decimals, whole, *of.reach)
    return {name: of.own for name, of in found.items()}


def _reach(
    source: Source,
    segmentation: Segmentation,
    ranges: list[Range],
    found: dict[str, _Found],
    progress: Progress,
) -> None:
    """Find how far the values of each field may reach, up to the first field that is refused anyway."""
    assert segmentation.decimals is not None  # noqa: S101 - the caller has asked
    sound: dict[str, _Found] = {}
    for name, of in found.items():
        if of.faults.not_finite or of.faults.long or of.outside:
            break
        sound[name] = of
    if not sound:
        return
    reader = Reader(source, list(sound))
    for start, stop in ranges:
        progress(1.0, "looking at the bounds of segments")
        table = reader.take(stop - start)
        for name, of in sound.items():
            numbers, _ = numbers_read(table.column(name))
            placed = segmentation.placed(name, numbers, stop - start, of.own)
            of.reach = _together(of.reach, reach_in_steps(placed, segmentation.decimals))


def _together(one: Ends | None, other: Ends | None) -> Ends | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])
