"""What redrawing has made of a table: the destination, its events and its figures."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.measures.utility import relations_kept
from providers.provider import Event, Events, Summary, SwapResult
from providers.radix import Int64Array
from providers.redrawing import Redrawn
from providers.swapping import group_size_of_counts
from providers.table import BoolArray
from providers.units import FloatArray, below_encodings


@dataclass(slots=True)
class FieldFigures:
    """What is counted of a field that was redrawn; figures of parts of the table add up."""

    present: int = 0
    changed: int = 0
    segments: int = 0
    relations_found: int = 0
    relations_chosen: int = 0
    rows_after_pruning: int = 0
    holding: int = 0
    violations: int = 0
    segments_repaired: int = 0
    segments_collapsed: int = 0
    segments_not_rounded: int = 0
    segments_without_localities: int = 0
    zeros: int = 0
    cells: int = 0
    """Cells that have a relative change: those of a number that is not zero."""
    relative_change: float = 0.0
    """Summed over these."""
    dated: bool = False
    """Whether the field holds dates, whose changes are relative to nothing."""
    walks: int = 0
    modes: FloatArray = dataclass_field(default_factory=lambda: np.zeros((2, 3)))
    """Of each slow mode, summed over the walks: sweeps, squares and neighbours' products about the mean."""

    def add(self, other: "FieldFigures") -> None:
        """Those of more rows."""
        for name in self.__slots__:
            if name != "dated":
                setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Figures:
    """What is counted of a table; figures of its parts, in the order of their rows, add up."""

    fields: dict[str, FieldFigures]
    took_part: int = 0
    absent: int = 0

    @classmethod
    def none_of(cls, schema: pa.Schema, names: Iterable[str]) -> Self:
        """Those of a table without rows."""
        return cls({name: FieldFigures(dated=_is_dated(schema.field(name).type)) for name in names})

    def add(self, other: "Figures") -> None:
        """Those of more rows."""
        self.took_part += other.took_part
        self.absent += other.absent
        for name, figures in self.fields.items():
            figures.add(other.fields[name])


def destination(table: pa.Table, redrawn: Sequence[Redrawn]) -> tuple[pa.Table, Figures]:
    """The table with its fields redrawn, every segment gathered; and what is counted of it."""
    columns, schema = list(table.columns), table.schema
    took_part: BoolArray = np.zeros(table.num_rows, np.bool_)
    absent: BoolArray = np.zeros(table.num_rows, np.bool_)
    fields = {}
    for one in redrawn:
        at = schema.get_field_index(one.of.name)
        fields[one.of.name] = _figures(one, schema.field(at).type)
        column = _column(one, table.num_rows, schema.field(at))
        columns[at] = column
        schema = schema.set(at, schema.field(at).with_type(column.type))
        took_part[one.of.numbers.rows] = True
        here = np.ones(table.num_rows, np.bool_)
        here[one.of.numbers.rows] = False
        absent |= here
    counts = int(np.count_nonzero(took_part)), int(np.count_nonzero(absent))
    return pa.Table.from_arrays(columns, schema=schema), Figures(fields, *counts)


def report(
    table: pa.Table, figures: Figures, rows: int, segments: Counter[int], disclosed: set[str]
) -> SwapResult:
    """The report of it.

    Parameters
    ----------
    table : pa.Table
        The destination, or one without rows where it comes in pieces.
    rows : int
        Rows of the whole.
    segments : Counter
        Rows of a segment -> how many segments have so many.
    disclosed : set of str
        Fields whose own range was their domain.
    """
    events = Events()
    by_field: dict[str, dict[str, Any]] = {}
    for name, of in figures.fields.items():
        by_field[name] = _told(of)
        _add_events(events, name, of, name in disclosed)
    every = figures.fields.values()
    counts = {key: sum(told[key] for told in by_field.values()) for key in _COUNTED}
    kept = relations_kept(sum(of.holding for of in every), counts["relations_found"])
    cells = sum(of.cells for of in every)
    together = sum(of.relative_change for of in every) / cells if cells else None
    provider = {
        "relations_kept": kept,
        "violations": counts["violations"],
        "distortion": together,
        "distortion_zeros_left_out": sum(of.zeros for of in every),
        "mixing": mixing(sum(of.walks for of in every), sum((of.modes for of in every), np.zeros((2, 3)))),
        **{key: value for key, value in counts.items() if key != "violations"},
        "by_field": by_field,
    }
    present = {name: of.present for name, of in figures.fields.items()}
    summary = Summary(
        rows=rows,
        groups=segments.total(),
        group_size=group_size_of_counts(segments),
        took_part=figures.took_part,
        took_part_by_field=present,
        changed={name: of.changed for name, of in figures.fields.items()},
        suppressed=0,
        unswapped=figures.absent,
        unswapped_reasons={"null": figures.absent} if figures.absent else {},
        achieved_rate=sum(present.values()) / (rows * len(present)) if rows else 0.0,
    )
    measures = {"relations_kept": kept} if kept is not None else {}
    if together is not None:
        measures["distortion"] = together
    return SwapResult(table, summary, events, provider, measures)


_COUNTED = (
    "segments", "relations_found", "relations_chosen", "rows_after_pruning", "violations",
    "segments_repaired", "segments_collapsed", "segments_not_rounded", "segments_without_localities",
)  # fmt: skip


def _figures(one: Redrawn, kind: pa.DataType) -> FieldFigures:
    published = _published(one)
    modes = np.concatenate([*one.modes, np.zeros((0, 2, 3))])
    found = FieldFigures(
        present=len(one.of.numbers.rows),
        changed=int(np.count_nonzero(_differs(one, published))),
        segments=len(one.of),
        relations_found=one.found,
        relations_chosen=one.chosen,
        rows_after_pruning=one.rows,
        holding=one.holding,
        violations=one.broken,
        segments_repaired=one.repaired,
        segments_collapsed=one.collapsed,
        segments_not_rounded=one.not_rounded,
        segments_without_localities=one.without,
        dated=_is_dated(kind),
        walks=int(np.count_nonzero(modes[:, 0, 0])),
        modes=modes.sum(axis=0),
    )
    if not found.dated:
        changes, found.zeros = _relative_changes(one.of.numbers.values, published)
        found.cells, found.relative_change = len(changes), float(changes.sum())
    return found


def _is_dated(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(below_encodings(kind)))


def _told(of: FieldFigures) -> dict[str, Any]:
    told: dict[str, Any] = {key: getattr(of, key) for key in _COUNTED}
    told["relations_kept"] = relations_kept(of.holding, of.relations_found)
    if not of.dated:
        told["distortion"] = of.relative_change / of.cells if of.cells else None
    return told


def mixing(walks: int, modes: FloatArray) -> dict[str, float] | None:
    """How far the walks have come: what is left, after a sweep, of the slower of two slow modes.

    A sweep is as many steps as there are directions. The modes are a shape's mean, which is how far it is
    bent, and its first moment about the middle, which is how much more so on one side. Their autocorrelation
    from one sweep to the next, r, is taken over all walks together, corrected for the shortness of a walk by
    (1 + 3 r) / sweeps (Kendall 1954, Biometrika 41). A walk of T sweeps is worth T (1 - r) / (1 + r)
    independent draws of the mode. None where no walk had three sweeps.

    Parameters
    ----------
    walks : int
        Walks of three sweeps or more.
    modes : ndarray of float64, shape (2, 3)
        As in `FieldFigures`.
    """
    if not walks:
        return None
    sweeps = float(modes[0, 0]) / walks
    raw = [float(part / whole) for _, whole, part in modes if whole > 0]
    left = max((min(r + (1 + 3 * r) / sweeps, 1.0) for r in raw), default=1.0)
    return {
        "sweeps": sweeps,
        "autocorrelation_after_a_sweep": left,
        "independent_draws": sweeps * (1 - left) / (1 + left),
    }


# ------------------------------------------------------------------------------------ values


def _published(one: Redrawn) -> FloatArray:
    """The destination's values as float64, dates in days; in the order of `Numbers.rows`."""
    numbers = one.of.numbers
    if not one.of.whole:
        return one.values
    return (numbers.least + one.values) / 10.0**numbers.scale


def _differs(one: Redrawn, published: FloatArray) -> npt.NDArray[np.bool_]:
    if one.of.whole:
        assert one.of.numbers.units is not None  # noqa: S101 - whole steps are of whole units
        return np.asarray(one.values.astype(np.uint64) != one.of.numbers.units)
    return np.asarray(published != one.of.numbers.values)


def _relative_changes(source: FloatArray, destination: FloatArray) -> tuple[FloatArray, int]:
    """|y - x| / |x| of every cell but those at zero, and how many those are."""
    some = source != 0.0
    with np.errstate(over="ignore"):
        changes = np.abs(destination[some] / source[some] - 1.0)
    return changes, int(len(source) - np.count_nonzero(some))


def _column(one: Redrawn, rows: int, field: pa.Field) -> pa.ChunkedArray:
    """The destination's column: float64, or the source's type without its encoding where steps are whole."""
    numbers = one.of.numbers
    missing = np.ones(rows, np.bool_)
    missing[numbers.rows] = False
    mask = missing if missing.any() else None
    values = np.zeros(rows)
    values[numbers.rows] = one.values
    if not one.of.whole:
        return pa.chunked_array([pa.array(values, pa.float64(), mask=mask)])
    return pa.chunked_array([_in_units(values, numbers.least, below_encodings(field.type), mask)])


def _in_units(steps: FloatArray, least: int, kind: pa.DataType, mask: BoolArray | None) -> pa.Array:
    """Whole steps from the least as values of the type."""
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
    """Whole units as decimals of the type: sign-extended words."""
    width = kind.bit_width // 8
    if width < 8:
        data: npt.NDArray[Any] = units.astype(f"i{width}")
    else:
        data = np.repeat((units >> 63)[:, None], width // 8, axis=1)
        data[:, 0] = units
    valid = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(kind, len(units), [valid, pa.py_buffer(np.ascontiguousarray(data))])


# ------------------------------------------------------------------------------------ events


def _add_events(events: Events, name: str, of: FieldFigures, disclosed: bool) -> None:
    def said(code: str, count: int, message: str) -> None:
        if count:
            segments = "1 segment" if count == 1 else f"{count} segments"
            events.add(Event(code, f"{segments} {message}", field=name))

    if disclosed and of.segments:
        events.add(
            Event(
                "domain_disclosed",
                "all values are published within the field's own range, which is disclosed; give a domain",
                field=name,
            )
        )
    said(
        "no_localities", of.segments_without_localities,
        "with too few distinct values, or only ties: the order alone is kept",
    )  # fmt: skip
    said(
        "collapsed", of.segments_collapsed,
        "whose values float64 cannot tell apart closely enough became one value",
    )  # fmt: skip
    said(
        "not_rounded", of.segments_not_rounded,
        "without a rounding that keeps the relations: not rounded",
    )  # fmt: skip
    if of.present and not of.changed:
        events.add(Event("nothing_changed", "no row's value changed", field=name))
