"""Cut a field into segments; bounds and grid of each."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import Float64Array, Int64Array, UInt64Array
from providers.errors import SourceError
from providers.localities.property_constraints import PropertyConstraints
from providers.localities.relations import BOTH_SIDED, max_constraints
from providers.localities.segment_arrays import (
    COLUMN,
    DOMAIN_HIGH,
    DOMAIN_LOW,
    EXPONENT,
    FIRST,
    HIGH,
    LAST,
    LOW,
    RANGE,
    SEGMENT,
    Grid,
    Segments,
)
from providers.randomness.chacha20 import Key
from providers.tables.numbers import Numbers


def segment_starts(records: int, size: int) -> Int64Array:
    """Return the starts of segments of `size` consecutive records, and the end; shape (segments + 1,).

    A last segment of under half the size joins the one before.
    """
    starts = np.append(np.arange(0, records, size, dtype=np.int64), records)
    if len(starts) > 2 and 2 * (records - starts[-2]) < size:
        starts = np.delete(starts, -2)
    return starts if records else starts[:1]


def segment_counts(records: int, size: int) -> Counter[int]:
    """Return records per segment -> number of such segments, as `segment_starts` cuts them."""
    whole, left = divmod(records, size)
    if whole and 2 * left < size:
        return Counter({size: whole - 1}) + Counter({size + left: 1})
    return Counter({size: whole}) + Counter({left: 1} if left else {})


@dataclass(slots=True)
class SegmentedField:
    """The segments of a field that hold a value, end to end."""

    name: str
    key: Key
    numbers: Numbers
    identities: UInt64Array
    """Number of each segment; shape (segments,)."""
    record_starts: Int64Array
    """Starts of each segment's records in `order`; shape (segments + 1,)."""
    order: Int64Array
    """Indices into `numbers`, by segment and then by value; shape (records,)."""
    record_variables: Int64Array
    """Variable of each entry of `order`, within its segment; shape (records,)."""
    value_starts: Int64Array
    """Starts of each segment's distinct values; shape (segments + 1,)."""
    units: UInt64Array
    """Sorted distinct values in whole units, or 0; shape (values,)."""
    values: Float64Array
    """Sorted distinct values; shape (values,)."""
    first: Int64Array
    """First variable of each distinct value, within its segment; shape (values,)."""
    last: Int64Array
    """Last variable of each distinct value, within its segment; shape (values,)."""
    variables: Int64Array
    """Number of variables of each segment; shape (segments,)."""
    place: Float64Array
    """Bounds of each segment's values, as in `Segments.place`; shape (segments, 8)."""
    steps: float = 0.0
    """Steps of the grid per 1; 0 if values are not rounded."""
    keeps_type: bool = False
    """Whether the destination keeps the source's type."""
    factor: int = 0
    """Steps per unit; 0 if the values are no whole units, or finer than the grid."""
    grid: Int64Array = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Bounds of each segment in steps, relative to its first value if `factor`, else to 0; (segments, 2)."""
    properties: PropertyConstraints | None = None
    """Constraints of the segments' properties of interest; None if the field has none."""

    def __len__(self) -> int:
        return len(self.identities)


def segmented(name: str, numbers: Numbers, key: Key, starts: Int64Array, spread: bool) -> SegmentedField:
    """Sort the values of a field within its segments.

    Parameters
    ----------
    name : str
        Name of the field.
    numbers : Numbers
        Values of the field.
    key : Key
        Random key of the field.
    starts : ndarray of int64, shape (segments + 1,)
        Starts of the segments, as from `segment_starts`.
    spread : bool
        Whether every value is a variable; else every distinct value is.
    """
    segment = np.searchsorted(starts, numbers.rows, side="right") - 1
    compared = numbers.values if numbers.units is None else numbers.units
    order = np.lexsort((compared, segment))
    segment, compared = segment[order], compared[order]
    count = len(order)
    opens_segment = np.ones(count, np.bool_)
    opens_segment[1:] = segment[1:] != segment[:-1]
    is_new = opens_segment.copy()
    is_new[1:] |= compared[1:] != compared[:-1]
    record_starts = np.append(np.flatnonzero(opens_segment), count)
    distinct = np.flatnonzero(is_new)
    distinct_index = np.cumsum(is_new) - 1  # of each record
    value_starts = np.append(distinct_index[record_starts[:-1]], len(distinct))
    rank = np.arange(count) - np.repeat(record_starts[:-1], np.diff(record_starts))
    if spread:
        first = rank[distinct]
        last = first + np.diff(np.append(distinct, count)) - 1
        record_variables = rank
        variables = np.diff(record_starts)
    else:
        first = np.arange(len(distinct)) - np.repeat(value_starts[:-1], np.diff(value_starts))
        last = first
        record_variables = first[distinct_index]
        variables = np.diff(value_starts)
    chosen = order[distinct]
    units = np.zeros(len(chosen), np.uint64) if numbers.units is None else numbers.units[chosen]
    return SegmentedField(
        name, key, numbers, segment[record_starts[:-1]].astype(np.uint64), record_starts, order,
        record_variables, value_starts, units, numbers.values[chosen], first, last, variables,
        np.zeros((len(record_starts) - 1, 8)),
    )  # fmt: skip


# ------------------------------------------------------------------------------------ bounds


def own_range(numbers: Numbers) -> tuple[Any, Any] | None:
    """Return the least and the greatest value, in whole units if the field has them; None without values."""
    if not len(numbers.rows):
        return None
    if numbers.units is None:
        return float(numbers.values.min()) + 0.0, float(numbers.values.max()) + 0.0  # + 0.0: never -0.0
    return numbers.least, numbers.least + int(numbers.units.max())


def count_outside(numbers: Numbers, domain: tuple[Any, Any] | None) -> int:
    """Return the number of values outside the domain."""
    if domain is None:
        return 0
    if numbers.units is None:
        return int(np.count_nonzero((numbers.values < domain[0]) | (numbers.values > domain[1])))
    low, high = max(0, domain[0] - numbers.least), domain[1] - numbers.least
    if high < 0 or low >= 2**64:
        return len(numbers.rows)
    inside = (numbers.units >= np.uint64(low)) & (numbers.units <= np.uint64(min(high, 2**64 - 1)))
    return int(np.count_nonzero(~inside))


def refuse_outside(name: str, outside: int) -> None:
    """Raise SourceError if values lie outside the field's domain."""
    if outside:
        raise SourceError(
            f"field '{name}' holds {outside} value{'s' * (outside > 1)} outside its domain; "
            "widen it in 'domain'"
        )


_LARGEST = float(np.finfo(np.float64).max)


def set_places(
    segmented_field: SegmentedField, bounds: int, margin: float | None, domain: tuple[Any, Any] | None,
    type_range: Any, own: tuple[Any, Any] | None = None,
) -> None:  # fmt: skip
    """Set the bounds of every segment's values: the constraints H of section 4.

    Parameters
    ----------
    segmented_field : SegmentedField
        Segments of a field; `place` is written.
    bounds : int
        SEGMENT, COLUMN or KEEP.
    margin : float, optional
        Share of a segment's range by which it is widened at each end; None for 1 / (n - 1).
    domain : tuple, optional
        Least and greatest value that may be published, in whole units if the field has them. None: the
        field's own range or, if segments are widened, the range of float64 or of the type.
    type_range : tuple, optional
        Least and greatest whole unit of the destination's type; None for float64.
    own : tuple, optional
        Range of all of the field's segments, as from `own_range`; None if these segments are all.

    Raises
    ------
    SourceError
        The source has values outside the domain.
    """
    numbers, place = segmented_field.numbers, segmented_field.place
    if not len(segmented_field):
        return
    value_starts = segmented_field.value_starts
    firsts, lasts = value_starts[:-1], value_starts[1:] - 1
    gaps = np.maximum(np.diff(value_starts) - 1, 1)
    unit = 10.0**numbers.scale
    refuse_outside(segmented_field.name, count_outside(numbers, domain))
    own = own or own_range(numbers)
    assert own is not None  # noqa: S101 - there is a segment, and so a value
    least, greatest = domain or (own if bounds != SEGMENT else type_range or (-math.inf, math.inf))
    # all arithmetic is on values divided by a power of two, so that sums do not overflow
    exponent = math.frexp(max(abs(own[0]), abs(own[1])) / unit)[1]
    if domain:
        exponent = max(exponent, *(math.frexp(end / unit)[1] for end in domain))
    if bounds == SEGMENT:  # room for the widening
        exponent += math.frexp(1.0 + 2.0 * (1.0 if margin is None else margin))[1]
    scaled = np.ldexp(segmented_field.values, -exponent)
    with np.errstate(over="ignore"):
        ends = np.ldexp(np.clip([least / unit, greatest / unit], -_LARGEST, _LARGEST), -exponent)
    if numbers.units is None:
        spans = scaled[lasts] - scaled[firsts]
        below, above = scaled[firsts] - ends[0], ends[1] - scaled[lasts]
    else:

        def length(units: npt.NDArray[Any], beyond: float) -> Float64Array:
            return np.ldexp((units.astype(np.float64) + float(beyond)) / unit, -exponent)

        units = segmented_field.units
        spans = length(units[lasts] - units[firsts], 0)
        below = length(units[firsts], own[0] - least)
        above = length(np.uint64(own[1] - own[0]) - units[lasts], greatest - own[1])
    place[:, FIRST], place[:, RANGE], place[:, LAST] = scaled[firsts], spans, scaled[lasts]
    place[:, DOMAIN_LOW], place[:, DOMAIN_HIGH], place[:, EXPONENT] = ends[0], ends[1], exponent
    if bounds == SEGMENT:
        widened = spans * (1.0 / gaps if margin is None else margin)
        place[:, LOW], place[:, HIGH] = -np.minimum(widened, below), spans + np.minimum(widened, above)
    elif bounds == COLUMN:
        place[:, LOW], place[:, HIGH] = -below, spans + above
    else:
        place[:, HIGH] = spans


# ------------------------------------------------------------------------------------ grid


def set_grid(segmented_field: SegmentedField, decimals: int, keeps_type: bool, relative: bool) -> None:
    """Set the grid to which the values of each segment are rounded, and its bounds; after `set_places`.

    Parameters
    ----------
    segmented_field : SegmentedField
        Segments of a field; `steps`, `keeps_type`, `factor` and `grid` are written.
    decimals : int
        Decimals of a step.
    keeps_type : bool
        Whether the destination keeps the source's type.
    relative : bool
        Whether float64 must distinguish only the steps between the least and the greatest value.

    Raises
    ------
    SourceError
        float64 cannot distinguish the field's steps.
    """
    numbers, place = segmented_field.numbers, segmented_field.place
    segmented_field.steps, segmented_field.keeps_type = 10.0**decimals, keeps_type
    if not len(segmented_field):
        return
    lows, highs = _bounds_in_steps(segmented_field)
    refuse_steps(segmented_field.name, decimals, relative, float(lows.min()), float(highs.max()))
    if numbers.units is not None and decimals >= numbers.scale:
        segmented_field.factor = 10 ** (decimals - numbers.scale)
        exponents = place[:, [EXPONENT]].astype(np.int64)
        edges = np.rint(np.ldexp(place[:, [LOW, HIGH]], exponents) * segmented_field.steps)
    else:
        edges = np.rint(np.stack([lows, highs], axis=1))
    segmented_field.grid = edges.astype(np.int64)


def _bounds_in_steps(segmented_field: SegmentedField) -> tuple[Float64Array, Float64Array]:
    """Return the lower and the upper bound of each segment's values, in steps of the grid."""
    place = segmented_field.place
    exponents = place[:, EXPONENT].astype(np.int64)
    low, high = (
        np.ldexp(place[:, FIRST] + place[:, bound], exponents) * segmented_field.steps
        for bound in (LOW, HIGH)
    )
    return low, high


def reach_in_steps(segmented_field: SegmentedField, decimals: int) -> tuple[float, float] | None:
    """Return the least and the greatest bound of all segments, in steps; None if there is no segment."""
    segmented_field.steps = 10.0**decimals
    if not len(segmented_field):
        return None
    lows, highs = _bounds_in_steps(segmented_field)
    return float(lows.min()), float(highs.max())


def refuse_steps(name: str, decimals: int, relative: bool, low: float, high: float) -> None:
    """Raise SourceError if float64 cannot distinguish the field's steps from `low` to `high`."""
    if not (high - low if relative else max(abs(low), abs(high))) < 2.0**53:
        raise SourceError(
            f"field '{name}' has more steps of {decimals} decimals than float64 can distinguish; give "
            "fewer decimals, or none"
        )


# ------------------------------------------------------------------------------------ batches

SegmentRange = tuple[SegmentedField, int, int]
"""A range of a field's segments: the field, the first segment, and the one after the last."""

_VARIABLES = 4096
"""Number of variables of the segments of a batch; a segment with more is a batch of its own."""


def batches_of(fields: Sequence[SegmentedField]) -> Iterator[list[SegmentRange]]:
    """Yield all segments of all fields in order, in batches of up to `_VARIABLES` variables."""
    batch: list[SegmentRange] = []
    left = _VARIABLES
    for segmented_field in fields:
        ends = np.cumsum(segmented_field.variables)
        start = 0
        while start < len(segmented_field):
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + left, side="right"))
            if stop == start and not batch:
                stop += 1
            if stop > start:
                batch.append((segmented_field, start, stop))
                left -= int(ends[stop - 1]) - before
            if stop < len(segmented_field):
                yield batch
                batch, left = [], _VARIABLES
            start = stop
    if batch:
        yield batch


def segment_arrays(batch: Sequence[SegmentRange], ties: int) -> Segments:
    """Return the segments of a batch as kernels take them, with zeros where they write."""

    def joined(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.ascontiguousarray(np.concatenate(arrays))

    def joined_values(name: str) -> npt.NDArray[Any]:
        return joined([getattr(f, name)[f.value_starts[a] : f.value_starts[b]] for f, a, b in batch])

    sizes = joined([np.diff(f.value_starts[a : b + 1]) for f, a, b in batch])
    variables = joined([f.variables[a:b] for f, a, b in batch])
    count, total = len(sizes), int(variables.sum())
    most = np.array([max_constraints(size, ties) for size in sizes.tolist()], np.int64)
    bases = starts_of(variables**2 if ties == BOTH_SIDED else np.zeros(count, np.int64))
    return Segments(
        keys=joined([np.repeat(f.key[None], b - a, axis=0) for f, a, b in batch]),
        identities=joined([f.identities[a:b] for f, a, b in batch]),
        exact=joined([np.full(b - a, f.numbers.units is not None) for f, a, b in batch]),
        value_starts=starts_of(sizes),
        units=joined_values("units"),
        values=joined_values("values"),
        first=joined_values("first"),
        last=joined_values("last"),
        variable_starts=starts_of(variables),
        point=np.zeros(total),
        centre=np.zeros(total),
        x=np.zeros(total),
        constraint_starts=starts_of(most),
        constraints=np.zeros((4, int(most.sum())), np.int32),
        counts=np.zeros((count, 7), np.int64),
        newton=np.zeros((count, 3)),
        basis_starts=bases,
        lattice=np.zeros(int(bases[-1]), np.int64),
        basis=np.zeros(int(bases[-1])),
        trace=np.zeros((count, 2, 6)),
        place=joined([f.place[a:b] for f, a, b in batch]),
    )


def property_arrays(batch: Sequence[SegmentRange]) -> PropertyConstraints | None:
    """Return the constraints of a batch's properties of interest; None if no field has any."""
    if all(segmented_field.properties is None for segmented_field, _, _ in batch):
        return None
    pieces: list[PropertyConstraints] = []
    for segmented_field, a, b in batch:
        properties = segmented_field.properties
        if properties is None:
            none = np.zeros(0, np.int64)
            pieces.append(
                PropertyConstraints(
                    np.zeros(b - a + 1, np.int64), none, none, np.zeros(0), none, np.zeros(0), none, none,
                    np.zeros(b - a, np.int64),
                )
            )  # fmt: skip
            continue
        first, stop = int(properties.starts[a]), int(properties.starts[b])
        terms = slice(int(properties.term_starts[first]), int(properties.term_starts[stop]))
        pieces.append(
            PropertyConstraints(
                properties.starts[a : b + 1] - first,
                np.diff(properties.term_starts[first : stop + 1]),  # lengths, until all are joined
                properties.variable[terms],
                properties.coefficient[terms],
                properties.multiple[terms],
                properties.bound[first:stop],
                properties.bound_multiple[first:stop],
                properties.relation[first:stop],
                properties.base[a:b],
            )
        )
    counts = [np.diff(piece.starts) for piece in pieces]
    joined = [np.ascontiguousarray(np.concatenate(arrays)) for arrays in zip(*pieces, strict=True)]
    return PropertyConstraints(starts_of(np.concatenate(counts)), starts_of(joined[1]), *joined[2:])


def grid_of(batch: Sequence[SegmentRange], sweeps: int) -> Grid:
    """Return the grid on which a batch is published; its `steps` are 0 if values are not rounded."""
    count = sum(b - a for _, a, b in batch)
    grid = Grid(
        max(segmented_field.steps for segmented_field, _, _ in batch), np.zeros(count, np.bool_),
        np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros((count, 2), np.int64), sweeps,
    )  # fmt: skip
    start = 0
    for segmented_field, a, b in batch:
        segments = slice(start, start + b - a)
        start += b - a
        if not segmented_field.steps:
            continue
        grid.keeps_type[segments] = segmented_field.keeps_type
        grid.factor[segments] = segmented_field.factor
        grid.bounds[segments] = segmented_field.grid[a:b]
        if segmented_field.factor:
            first_units = segmented_field.units[segmented_field.value_starts[a:b]].astype(np.int64)
            origin = first_units * segmented_field.factor
            if not segmented_field.keeps_type:
                origin = origin + segmented_field.numbers.least * segmented_field.factor
            grid.origin[segments] = origin
    return grid


def starts_of(sizes: npt.NDArray[Any]) -> Int64Array:
    """Return the starts of arrays of these sizes laid end to end, and the end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]).astype(np.int64)
