"""Build the destination and the report of redrawn segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.errors import SourceError
from providers.kernels.exact_sum import exact_total
from providers.localities.redraw import RedrawnField
from providers.results import Event, Events, Summary, SwapResult, group_size_of_counts
from providers.tables.schemas import with_field_type
from providers.tables.type_names import below_encodings


def relations_kept(holding: int, found: int) -> float | None:
    """Return the share of the source's localities that hold in the destination; None without localities."""
    return holding / found if found else None


@dataclass(slots=True)
class FieldFigures:
    """Figures of a redrawn field; the figures of row ranges add up."""

    present: int = 0
    """Records with a value."""
    changed: int = 0
    """Records whose value changed."""
    segments: int = 0
    """Segments with a value."""
    relations_found: int = 0
    """Localities of the source."""
    relations_chosen: int = 0
    """Localities that are kept."""
    rows_after_pruning: int = 0
    """Localities left as constraints after pruning; the name is that of the published figure."""
    holding: int = 0
    """Localities of the source that hold in the destination."""
    violations: int = 0
    """Chosen localities, orders of neighbours and user's relations that do not hold in the destination."""
    segments_repaired: int = 0
    """Segments pulled towards their centre."""
    segments_collapsed: int = 0
    """Segments whose values became one value."""
    segments_not_rounded: int = 0
    """Segments that are not on the grid."""
    segments_without_localities: int = 0
    """Segments without a locality."""
    segments_unchanged: int = 0
    """Segments published with the source's values."""
    relations: Counter[int] = dataclass_field(default_factory=Counter)
    """Number of the user's relation -> segments to which it applies."""
    broken_relations: Counter[int] = dataclass_field(default_factory=Counter)
    """Number of the user's relation -> segments whose published values break it."""
    zeros: int = 0
    """Cells of the value zero, which have no relative change."""
    cells: int = 0
    """Cells with a relative change."""
    cells_beyond: int = 0
    """Cells whose relative change is beyond float64."""
    relative_change: Fraction = Fraction()
    """Sum of the relative changes of the other cells; exact, so that no division into row ranges shows."""
    dated: bool = False
    """Whether the field holds dates, which have no relative change."""
    walks: int = 0
    """Walks of three sweeps or more."""
    modes: npt.NDArray[np.object_] = dataclass_field(default_factory=lambda: np.full((2, 3), Fraction()))
    """Per slow mode, summed exactly over walks: sweeps, squares and neighbours' products about the mean."""

    def add(self, other: FieldFigures) -> None:
        """Add the figures of more rows."""
        for name in self.__slots__:
            if name != "dated":
                setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Figures:
    """Figures of a redrawn table; those of row ranges, added in row order, add up."""

    fields: dict[str, FieldFigures]
    """Figures by name of the field."""
    took_part: int = 0
    """Rows with a value in one of the fields."""
    absent: int = 0
    """Rows with a null in one of the fields."""

    @classmethod
    def empty(cls, schema: pa.Schema, names: Iterable[str]) -> Self:
        """Return the figures of a table without rows."""
        return cls({name: FieldFigures(dated=_is_dated(schema.field(name).type)) for name in names})

    def add(self, other: Figures) -> None:
        """Add the figures of more rows."""
        self.took_part += other.took_part
        self.absent += other.absent
        for name, figures in self.fields.items():
            figures.add(other.fields[name])


def destination(table: pa.Table, redrawn: Sequence[RedrawnField]) -> tuple[pa.Table, Figures]:
    """Return the table with its redrawn fields, and its figures."""
    columns, schema = list(table.columns), table.schema
    took_part: BoolArray = np.zeros(table.num_rows, np.bool_)
    absent: BoolArray = np.zeros(table.num_rows, np.bool_)
    fields = {}
    for field in redrawn:
        name, rows = field.source.name, field.source.numbers.rows
        index = schema.get_field_index(name)
        fields[name] = _figures(field, schema.field(index).type)
        column = _column(field, table.num_rows, schema.field(index))
        columns[index] = column
        schema = with_field_type(schema, index, column.type)
        took_part[rows] = True
        is_null = np.ones(table.num_rows, np.bool_)
        is_null[rows] = False
        absent |= is_null
    counts = int(np.count_nonzero(took_part)), int(np.count_nonzero(absent))
    return pa.Table.from_arrays(columns, schema=schema), Figures(fields, *counts)


def report(
    table: pa.Table, figures: Figures, rows: int, segments: Counter[int], disclosed: set[str]
) -> SwapResult:
    """Build the result of a run: summary, events and figures.

    Parameters
    ----------
    table : pa.Table
        Destination; a table without rows if the destination is streamed.
    figures : Figures
        Figures of the whole table.
    rows : int
        Number of rows of the whole table.
    segments : Counter
        Records of a segment -> number of such segments.
    disclosed : set of str
        Fields whose own range was their domain.
    """
    events = Events()
    by_field: dict[str, dict[str, Any]] = {}
    for name, field in figures.fields.items():
        by_field[name] = _field_report(field)
        _add_events(events, name, field, name in disclosed)
    fields = figures.fields.values()
    counts = {key: sum(field_report[key] for field_report in by_field.values()) for key in _COUNTED}
    kept = relations_kept(sum(field.holding for field in fields), counts["relations_found"])
    whole = FieldFigures()
    for field in fields:
        whole.add(field)
    provider = {
        "relations_kept": kept,
        "violations": counts["violations"],
        # equation 6, without the cells of the value zero
        "distortion": _mean_change(whole),
        "distortion_zeros_left_out": whole.zeros,
        "mixing": mixing(whole.walks, whole.modes),
        **{key: value for key, value in counts.items() if key != "violations"},
        "by_field": by_field,
    }
    if any(field.relations for field in fields):
        provider["segments_unchanged"] = sum(field.segments_unchanged for field in fields)
        provider["relations"] = _relation_report(fields)
    present = {name: field.present for name, field in figures.fields.items()}
    summary = Summary(
        rows=rows,
        groups=segments.total(),
        group_size=group_size_of_counts(segments),
        took_part=figures.took_part,
        took_part_by_field=present,
        changed={name: field.changed for name, field in figures.fields.items()},
        suppressed=0,
        unswapped=figures.absent,
        unswapped_reasons={"null": figures.absent} if figures.absent else {},
        achieved_rate=sum(present.values()) / (rows * len(present)) if rows else 0.0,
    )
    # The measure `distortion` covers the same fields for every service; the figure above covers only the
    # redrawn ones, and so is no measure.
    measures = {"relations_kept": kept} if kept is not None else {}
    return SwapResult(table, summary, events, provider, measures)


def _relation_report(fields: Iterable[FieldFigures]) -> dict[str, dict[str, int]]:
    """Return the segments to which each of the user's relations applies, and those that break it."""
    reported = {
        number: {"segments": kept, "violations": field.broken_relations[number]}
        for field in fields
        for number, kept in field.relations.items()
    }
    return {str(number): reported[number] for number in sorted(reported)}


_COUNTED = (
    "segments", "relations_found", "relations_chosen", "rows_after_pruning", "violations",
    "segments_repaired", "segments_collapsed", "segments_not_rounded", "segments_without_localities",
)  # fmt: skip
"""Figures that are reported per field, and summed over the fields."""


def _figures(field: RedrawnField, kind: pa.DataType) -> FieldFigures:
    """Return the figures of a redrawn field. Raise SourceError if a segment cannot be published."""
    if field.impossible:
        raise SourceError(
            f"in {field.impossible} segment{'s' * (field.impossible > 1)} of field '{field.source.name}' "
            "float64 numbers cannot keep both the relations and the localities; leave the relations more "
            "room, or give ties 'free'"
        )
    published = _published(field)
    modes = np.concatenate([*field.modes, np.zeros((0, 2, 3))])
    modes = modes[np.isfinite(modes).all(axis=(1, 2))]
    figures = FieldFigures(
        present=len(field.source.numbers.rows),
        changed=int(np.count_nonzero(_differs(field, published))),
        segments=len(field.source),
        relations_found=field.found,
        relations_chosen=field.chosen,
        rows_after_pruning=field.constraints,
        holding=field.holding,
        violations=field.broken + field.broken_properties.total(),
        segments_repaired=field.repaired,
        segments_collapsed=field.collapsed,
        segments_not_rounded=field.not_rounded,
        segments_unchanged=field.unchanged,
        relations=field.kept,
        broken_relations=field.broken_properties,
        segments_without_localities=field.without,
        dated=_is_dated(kind),
        walks=int(np.count_nonzero(modes[:, 0, 0])),
        modes=np.array([[exact_total(modes[:, mode, at]) for at in range(3)] for mode in range(2)]),
    )
    if not figures.dated:
        _add_relative_changes(figures, field.source.numbers.values, published)
    return figures


def _is_dated(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(below_encodings(kind)))


def _field_report(field: FieldFigures) -> dict[str, Any]:
    """Return the reported figures of one field."""
    reported: dict[str, Any] = {key: getattr(field, key) for key in _COUNTED}
    reported["relations_kept"] = relations_kept(field.holding, field.relations_found)
    if not field.dated:
        reported["distortion"] = _mean_change(field)
    return reported


def mixing(walks: int, modes: npt.NDArray[np.object_]) -> dict[str, float] | None:
    """Estimate how far the walks have mixed, by the autocorrelation of the slower of two slow modes.

    A sweep has as many steps as there are directions. The modes are the mean of a shape, which is its bend,
    and its first moment about the middle, which is the difference of bend between its sides. Their
    autocorrelation r from one sweep to the next is taken over all walks together, and corrected for the
    length of a walk by (1 + 3 r) / sweeps (Kendall 1954, Biometrika 41). A walk of T sweeps is equivalent to
    T (1 - r) / (1 + r) independent draws of the mode. The result is None if no walk had three sweeps.

    Parameters
    ----------
    walks : int
        Number of walks of three sweeps or more.
    modes : ndarray of Fraction, shape (2, 3)
        As in `FieldFigures`.
    """
    if not walks:
        return None
    sweeps = float(modes[0, 0]) / walks
    raw = [float(products / squares) for _, squares, products in modes if squares > 0]
    left = max((min(r + (1 + 3 * r) / sweeps, 1.0) for r in raw), default=1.0)
    return {
        "sweeps": sweeps,
        "autocorrelation_after_a_sweep": left,
        "independent_draws": sweeps * (1 - left) / (1 + left),
    }


# ------------------------------------------------------------------------------------ values


def _published(field: RedrawnField) -> Float64Array:
    """Return the published values as float64, dates in days, in the order of `Numbers.rows`."""
    numbers = field.source.numbers
    if not field.source.keeps_type:
        return field.values
    return (numbers.least + field.values) / 10.0**numbers.scale


def _differs(field: RedrawnField, published: Float64Array) -> BoolArray:
    """Whether each published value differs from the source's."""
    numbers = field.source.numbers
    if field.source.keeps_type:
        assert numbers.units is not None  # noqa: S101 - a type is kept only if its values are whole units
        return np.asarray(field.values.astype(np.uint64) != numbers.units)
    return np.asarray(published != numbers.values)


def _add_relative_changes(figures: FieldFigures, source: Float64Array, destination: Float64Array) -> None:
    """Add |y - x| / |x| of the cells whose source x is not zero, and count the cells."""
    nonzero = source != 0.0
    with np.errstate(over="ignore"):
        changes = np.abs(destination[nonzero] / source[nonzero] - 1.0)
    within = np.isfinite(changes)
    figures.cells = len(changes)
    figures.zeros = len(source) - len(changes)
    figures.cells_beyond = int(np.count_nonzero(~within))
    figures.relative_change = exact_total(changes[within])


def _mean_change(figures: FieldFigures) -> float | None:
    """Return the mean relative change; None without cells, or if a change is beyond float64."""
    if not figures.cells or figures.cells_beyond:
        return None
    return float(figures.relative_change / figures.cells)


def _column(redrawn: RedrawnField, rows: int, field: pa.Field) -> pa.ChunkedArray:
    """Return the column of the destination: float64, or the source's type without its encoding."""
    numbers = redrawn.source.numbers
    missing = np.ones(rows, np.bool_)
    missing[numbers.rows] = False
    mask = missing if missing.any() else None
    values = np.zeros(rows)
    values[numbers.rows] = redrawn.values
    if not redrawn.source.keeps_type:
        return pa.chunked_array([pa.array(values, pa.float64(), mask=mask)])
    return pa.chunked_array([_in_units(values, numbers.least, below_encodings(field.type), mask)])


def _in_units(steps: Float64Array, least: int, kind: pa.DataType, mask: BoolArray | None) -> pa.Array:
    """Return steps from the least value as values of the type."""
    words = steps.astype(np.int64)
    if pa.types.is_unsigned_integer(kind):
        return pa.array(words.astype(np.uint64) + np.uint64(least), pa.uint64(), mask=mask).cast(kind)
    whole = pa.array(words + np.int64(least), pa.int64(), mask=mask)
    if pa.types.is_decimal(kind):
        return _decimals(words + np.int64(least), kind, mask)
    if pa.types.is_date(kind):
        return whole.cast(pa.int32()).cast(pa.date32()).cast(kind)
    return whole.cast(kind)


def _decimals(units: Int64Array, kind: pa.DataType, mask: BoolArray | None) -> pa.Array:
    """Return whole units as decimals of the type: sign-extended words."""
    width = kind.bit_width // 8
    if width < 8:
        data: npt.NDArray[Any] = units.astype(f"i{width}")
    else:
        data = np.repeat((units >> 63)[:, None], width // 8, axis=1)
        data[:, 0] = units
    valid = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(kind, len(units), [valid, pa.py_buffer(np.ascontiguousarray(data))])


# ------------------------------------------------------------------------------------ events


def _add_events(events: Events, name: str, figures: FieldFigures, disclosed: bool) -> None:
    """Add the events of a field; `disclosed` if its own range was its domain."""

    def add_segments(code: str, count: int, message: str) -> None:
        if count:
            segments = "1 segment" if count == 1 else f"{count} segments"
            events.add(Event(code, f"{segments} {message}", field=name))

    if disclosed and figures.segments:
        events.add(
            Event(
                "domain_disclosed",
                "all values are published within the field's own range, which discloses that range; give "
                "a domain",
                field=name,
            )
        )
    add_segments(
        "no_localities", figures.segments_without_localities,
        "with too few distinct values, or only ties: only the order is kept",
    )  # fmt: skip
    add_segments(
        "collapsed", figures.segments_collapsed,
        "became one value each: float64 cannot distinguish values as close as theirs",
    )  # fmt: skip
    add_segments(
        "not_rounded", figures.segments_not_rounded,
        "without a rounding that keeps the relations: not rounded",
    )  # fmt: skip
    add_segments(
        "relations_leave_nothing", figures.segments_unchanged,
        "published unchanged: their relations allow no other values; raise at_most",
    )  # fmt: skip
    if figures.present and not figures.changed:
        events.add(Event("nothing_changed", "no row's value changed", field=name))
