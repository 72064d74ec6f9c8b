"""What redrawing has made of a table: the destination, its events and its figures."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.measures.utility import distortion, relations_kept
from providers.provider import Event, Events, Summary, SwapResult
from providers.radix import Int64Array
from providers.redrawing import Redrawn
from providers.swapping import group_size
from providers.table import BoolArray
from providers.units import FloatArray, below_encodings


def report(
    table: pa.Table, redrawn: Sequence[Redrawn], starts: Int64Array, disclosed: set[str]
) -> SwapResult:
    """The destination and the report of it.

    Parameters
    ----------
    redrawn : sequence of Redrawn
        The fields, every segment gathered.
    starts : int64, shape (segments + 1,)
        The rows at which segments start.
    disclosed : set of str
        Fields whose own range was their domain.
    """
    columns, schema = list(table.columns), table.schema
    events = Events()
    took_part: BoolArray = np.zeros(table.num_rows, np.bool_)
    absent: BoolArray = np.zeros(table.num_rows, np.bool_)
    changed: dict[str, int] = {}
    by_field: dict[str, dict[str, Any]] = {}
    relative: list[FloatArray] = []
    zeros = 0
    for one in redrawn:
        name, numbers = one.of.name, one.of.numbers
        at = schema.get_field_index(name)
        column = _column(one, table.num_rows, schema.field(at))
        columns[at] = column
        schema = schema.set(at, schema.field(at).with_type(column.type))
        took_part[numbers.rows] = True
        here = np.ones(table.num_rows, np.bool_)
        here[numbers.rows] = False
        absent |= here
        published = _published(one)
        changed[name] = int(np.count_nonzero(_differs(one, published)))
        figures = _figures(one)
        if not pa.types.is_date(below_encodings(table.schema.field(name).type)):
            cells, left_out = _relative_changes(numbers.values, published)
            relative.append(cells)
            zeros += left_out
            figures["distortion"] = distortion(cells)
        by_field[name] = figures
        _add_events(events, one, name in disclosed, changed[name])
    counts = {key: sum(figures[key] for figures in by_field.values()) for key in _COUNTED}
    kept = relations_kept(sum(one.holding for one in redrawn), counts["relations_found"])
    together = distortion(np.concatenate(relative)) if relative else None
    provider = {
        "relations_kept": kept,
        "violations": counts["violations"],
        "distortion": together,
        "distortion_zeros_left_out": zeros,
        "mixing": mixing(redrawn),
        **{key: value for key, value in counts.items() if key != "violations"},
        "by_field": by_field,
    }
    rows, fields = table.num_rows, len(redrawn)
    present = {one.of.name: len(one.of.numbers.rows) for one in redrawn}
    summary = Summary(
        rows=rows,
        groups=len(starts) - 1,
        group_size=group_size(np.diff(starts)),
        took_part=int(np.count_nonzero(took_part)),
        took_part_by_field=present,
        changed=changed,
        suppressed=0,
        unswapped=int(np.count_nonzero(absent)),
        unswapped_reasons={"null": int(np.count_nonzero(absent))} if absent.any() else {},
        achieved_rate=sum(present.values()) / (rows * fields) if rows else 0.0,
    )
    measures = {"relations_kept": kept} if kept is not None else {}
    if together is not None:
        measures["distortion"] = together
    destination = pa.Table.from_arrays(columns, schema=schema)
    return SwapResult(destination, summary, events, provider, measures)


_COUNTED = (
    "segments", "relations_found", "relations_chosen", "rows_after_pruning", "violations",
    "segments_repaired", "segments_collapsed", "segments_not_rounded", "segments_without_localities",
)  # fmt: skip


def _figures(one: Redrawn) -> dict[str, Any]:
    return {
        "segments": len(one.of),
        "relations_found": one.found,
        "relations_chosen": one.chosen,
        "rows_after_pruning": one.rows,
        "relations_kept": relations_kept(one.holding, one.found),
        "violations": one.broken,
        "segments_repaired": one.repaired,
        "segments_collapsed": one.collapsed,
        "segments_not_rounded": one.not_rounded,
        "segments_without_localities": one.without,
    }


def mixing(redrawn: Sequence[Redrawn]) -> dict[str, float] | None:
    """How far the walks have come: what is left, after a sweep, of the slower of two slow modes.

    A sweep is as many steps as there are directions. The modes are a shape's mean, which is how far it is
    bent, and its first moment about the middle, which is how much more so on one side. Their autocorrelation
    from one sweep to the next, r, is taken over all walks together, corrected for the shortness of a walk by
    (1 + 3 r) / sweeps (Kendall 1954, Biometrika 41). A walk of T sweeps is worth T (1 - r) / (1 + r)
    independent draws of the mode. None where no walk had three sweeps.
    """
    modes = np.concatenate([part for one in redrawn for part in one.modes] or [np.zeros((0, 2, 3))])
    walks = int(np.count_nonzero(modes[:, 0, 0]))
    if not walks:
        return None
    sweeps = float(modes[:, 0, 0].sum()) / walks
    about, neighbours = modes[:, :, 1].sum(axis=0), modes[:, :, 2].sum(axis=0)
    raw = [float(part / whole) for part, whole in zip(neighbours, about, strict=True) if whole > 0]
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


def _add_events(events: Events, one: Redrawn, disclosed: bool, changed: int) -> None:
    name = one.of.name

    def said(code: str, count: int, message: str) -> None:
        if count:
            segments = "1 segment" if count == 1 else f"{count} segments"
            events.add(Event(code, f"{segments} {message}", field=name))

    if disclosed and len(one.of):
        events.add(
            Event(
                "domain_disclosed",
                "all values are published within the field's own range, which is disclosed; give a domain",
                field=name,
            )
        )
    said("no_localities", one.without, "with too few distinct values, or only ties: the order alone is kept")
    said("collapsed", one.collapsed, "whose values float64 cannot tell apart closely enough became one value")
    said("not_rounded", one.not_rounded, "without a rounding that keeps the relations: not rounded")
    if len(one.of.numbers.rows) and not changed:
        events.add(Event("nothing_changed", "no row's value changed", field=name))
