"""A numeric field cut into segments: its sorted distinct values, where they lie, and what they may become."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.errors import SourceError
from providers.localities import BOTH_SIDED, most_rows
from providers.publication import COLUMN, SEGMENT, Grid
from providers.radix import Int64Array, UInt64Array
from providers.rng import Key
from providers.units import FloatArray, Numbers
from providers.walk import Segments


def segments_of(rows: int, size: int) -> Int64Array:
    """Where segments of `size` consecutive rows start, and the end; shape (segments + 1,).

    A last piece of under half a segment joins the one before.
    """
    starts = np.append(np.arange(0, rows, size, dtype=np.int64), rows)
    if len(starts) > 2 and 2 * (rows - starts[-2]) < size:
        starts = np.delete(starts, -2)
    return starts if rows else starts[:1]


def segment_counts(rows: int, size: int) -> Counter[int]:
    """Rows of a segment -> how many segments have so many, as `segments_of` cuts them."""
    whole, left = divmod(rows, size)
    if whole and 2 * left < size:
        return Counter({size: whole - 1}) + Counter({size + left: 1})
    return Counter({size: whole}) + Counter({left: 1} if left else {})


@dataclass(slots=True)
class SegmentedField:
    """A field's segments that hold a value, one after the other."""

    name: str
    key: Key
    numbers: Numbers
    numbering: UInt64Array
    """The number of each segment."""
    records: Int64Array
    """Starts of each segment's records in `order`."""
    order: Int64Array
    """The values' places in `numbers`, by segment and value."""
    run: Int64Array
    """For each of `order` its variable within the segment."""
    starts: Int64Array
    """Starts of each segment's distinct values."""
    units: UInt64Array
    values: FloatArray
    first: Int64Array
    last: Int64Array
    variables: Int64Array
    """Variables of each segment."""
    place: FloatArray
    steps: float = 0.0
    """Steps of the grid in one; 0 where values are not rounded."""
    whole: bool = False
    """Whether the destination keeps the source's type."""
    factor: int = 0
    """Steps in a unit; 0 where the values are no whole units, or finer than the grid."""
    grid: Int64Array = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """The bounds of each segment on the grid, from its first value on where `factor`, else from 0."""

    def __len__(self) -> int:
        return len(self.numbering)


def segmented(name: str, numbers: Numbers, key: Key, starts: Int64Array, spread: bool) -> SegmentedField:
    """Sort a field's values within the segments that start at these rows."""
    segment = np.searchsorted(starts, numbers.rows, side="right") - 1
    compared = numbers.values if numbers.units is None else numbers.units
    order = np.lexsort((compared, segment))
    segment, compared = segment[order], compared[order]
    count = len(order)
    opens = np.ones(count, np.bool_)
    opens[1:] = segment[1:] != segment[:-1]
    is_new = opens.copy()
    is_new[1:] |= compared[1:] != compared[:-1]
    records = np.append(np.flatnonzero(opens), count)
    distinct = np.flatnonzero(is_new)
    at = np.cumsum(is_new) - 1  # of each value its distinct value
    distinct_starts = np.append(at[records[:-1]], len(distinct))
    within = np.arange(count) - np.repeat(records[:-1], np.diff(records))
    if spread:
        first = within[distinct]
        last = first + np.diff(np.append(distinct, count)) - 1
        run = within
        variables = np.diff(records)
    else:
        first = np.arange(len(distinct)) - np.repeat(distinct_starts[:-1], np.diff(distinct_starts))
        last = first
        run = first[at]
        variables = np.diff(distinct_starts)
    chosen = order[distinct]
    units = np.zeros(len(chosen), np.uint64) if numbers.units is None else numbers.units[chosen]
    return SegmentedField(
        name, key, numbers, segment[records[:-1]].astype(np.uint64), records, order, run, distinct_starts,
        units, numbers.values[chosen], first, last, variables, np.zeros((len(records) - 1, 8)),
    )  # fmt: skip


def own_range(numbers: Numbers) -> tuple[Any, Any] | None:
    """The least and the greatest value, in whole units where the field has such; None of none."""
    if not len(numbers.rows):
        return None
    if numbers.units is None:
        return float(numbers.values.min()) + 0.0, float(numbers.values.max()) + 0.0  # + 0.0: never -0.0
    return numbers.least, numbers.least + int(numbers.units.max())


def outside_of(numbers: Numbers, domain: tuple[Any, Any] | None) -> int:
    """How many values lie outside of the domain."""
    if domain is None:
        return 0
    if numbers.units is None:
        return int(np.count_nonzero((numbers.values < domain[0]) | (numbers.values > domain[1])))
    return _outside(numbers, *domain)


def refuse_outside(name: str, outside: int) -> None:
    """Raise SourceError where values lie outside of the field's domain."""
    if outside:
        raise SourceError(
            f"field '{name}' holds {outside} value{'s' * (outside > 1)} outside its domain; "
            "widen it in 'domain'"
        )


def set_places(
    of: SegmentedField, bounds: int, margin: float | None, domain: tuple[Any, Any] | None, whole: Any,
    own: tuple[Any, Any] | None = None,
) -> None:  # fmt: skip
    """Say what the values of each segment may become; see `providers.publication`.

    Parameters
    ----------
    margin : float, optional
        Share of a segment's range that it is widened by at each end; None for 1 / (n - 1).
    domain : tuple, optional
        Least and greatest value that may be published, in whole units where the field has such. None: the
        field's own range or, where segments are widened, whatever float64 or the type can hold.
    whole : tuple, optional
        Least and greatest whole unit of the destination's type, where that is no float64.
    own : tuple, optional
        As `own_range`, of all of the field's segments; None where these are all.

    Raises
    ------
    SourceError
        The source has values outside the domain.
    """
    numbers, place = of.numbers, of.place
    if not len(of):
        return
    firsts, lasts = of.starts[:-1], of.starts[1:] - 1
    gaps = np.maximum(np.diff(of.starts) - 1, 1)
    unit = 10.0**numbers.scale
    refuse_outside(of.name, outside_of(numbers, domain))
    own = own or own_range(numbers)
    assert own is not None  # noqa: S101 - there is a segment, and so a value
    least, greatest = domain or (own if bounds != SEGMENT else whole or (-math.inf, math.inf))
    exponent = math.frexp(max(abs(own[0]), abs(own[1])) / unit)[1]
    if domain:
        exponent = max(exponent, *(math.frexp(end / unit)[1] for end in domain))
    if bounds == SEGMENT:  # room for what it is widened by
        exponent += math.frexp(1.0 + 2.0 * (1.0 if margin is None else margin))[1]
    scaled = np.ldexp(of.values, -exponent)
    with np.errstate(over="ignore"):
        ends = np.ldexp(np.clip([least / unit, greatest / unit], -_LARGEST, _LARGEST), -exponent)
    if numbers.units is None:
        spans = scaled[lasts] - scaled[firsts]
        below, above = scaled[firsts] - ends[0], ends[1] - scaled[lasts]
    else:

        def length(units: npt.NDArray[Any], beyond: float) -> FloatArray:
            return np.ldexp((units.astype(np.float64) + float(beyond)) / unit, -exponent)

        spans = length(of.units[lasts] - of.units[firsts], 0)
        below = length(of.units[firsts], own[0] - least)
        above = length(np.uint64(own[1] - own[0]) - of.units[lasts], greatest - own[1])
    place[:, 0], place[:, 3], place[:, 4] = scaled[firsts], spans, scaled[lasts]
    place[:, 5], place[:, 6], place[:, 7] = ends[0], ends[1], exponent
    if bounds == SEGMENT:
        widened = spans * (1.0 / gaps if margin is None else margin)
        place[:, 1], place[:, 2] = -np.minimum(widened, below), spans + np.minimum(widened, above)
    elif bounds == COLUMN:
        place[:, 1], place[:, 2] = -below, spans + above
    else:
        place[:, 2] = spans


_LARGEST = float(np.finfo(np.float64).max)


def _outside(numbers: Numbers, least: int, greatest: int) -> int:
    """How many values lie outside."""
    assert numbers.units is not None  # noqa: S101 - the caller has asked
    low, high = max(0, least - numbers.least), greatest - numbers.least
    if high < 0 or low >= 2**64:
        return len(numbers.rows)
    inside = (numbers.units >= np.uint64(low)) & (numbers.units <= np.uint64(min(high, 2**64 - 1)))
    return int(np.count_nonzero(~inside))


def set_grid(of: SegmentedField, decimals: int, whole: bool) -> None:
    """Let the values of each segment be rounded to so many decimals, as their bounds are; after `set_places`.

    Raises
    ------
    SourceError
        float64 cannot tell the field's steps apart.
    """
    numbers, place = of.numbers, of.place
    of.steps, of.whole = 10.0**decimals, whole
    if not len(of):
        return
    lows, highs = _in_steps(of)
    refuse_steps(of.name, decimals, whole, float(lows.min()), float(highs.max()))
    if numbers.units is not None and decimals >= numbers.scale:
        of.factor = 10 ** (decimals - numbers.scale)
        edges = np.rint(np.ldexp(place[:, 1:3], place[:, 7:].astype(np.int64)) * of.steps)
    else:
        edges = np.rint(np.stack([lows, highs], axis=1))
    of.grid = edges.astype(np.int64)


def _in_steps(of: SegmentedField) -> tuple[FloatArray, FloatArray]:
    """The ends of what each segment's values may become, in steps of the grid."""
    exponents = of.place[:, 7].astype(np.int64)
    low, high = (np.ldexp(of.place[:, 0] + of.place[:, at], exponents) * of.steps for at in (1, 2))
    return low, high


def reach_in_steps(of: SegmentedField, decimals: int) -> tuple[float, float] | None:
    """What the values may become at the least and at the most, in steps; after `set_places`; None of none."""
    of.steps = 10.0**decimals
    if not len(of):
        return None
    lows, highs = _in_steps(of)
    return float(lows.min()), float(highs.max())


def refuse_steps(name: str, decimals: int, whole: bool, low: float, high: float) -> None:
    """Raise SourceError where float64 cannot tell the field's steps apart."""
    if not (high - low if whole else max(abs(low), abs(high))) < 2.0**53:
        raise SourceError(
            f"field '{name}' has more steps of {decimals} decimals than float64 tells apart; "
            "give fewer decimals, or none"
        )


# ------------------------------------------------------------------------------------ many at a time

Part = tuple[SegmentedField, int, int]
"""Segments of a field, from one up to another."""

_VARIABLES = 4096
"""Variables of the segments that are worked on at a time; a larger segment is alone."""


def parts_of(fields: Sequence[SegmentedField]) -> Iterator[list[Part]]:
    """All segments of all fields, in order, as many at a time as are worked on together."""
    parts: list[Part] = []
    room = _VARIABLES
    for of in fields:
        ends = np.cumsum(of.variables)
        start = 0
        while start < len(of):
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + room, side="right"))
            if stop == start and not parts:
                stop += 1
            if stop > start:
                parts.append((of, start, stop))
                room -= int(ends[stop - 1]) - before
            if stop < len(of):
                yield parts
                parts, room = [], _VARIABLES
            start = stop
    if parts:
        yield parts


def joined(parts: list[Part], ties: int) -> Segments:
    """These segments as kernels take them, with room for what they write."""

    def laid(pieces: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.ascontiguousarray(np.concatenate(pieces))

    def of_values(name: str) -> npt.NDArray[Any]:
        return laid([getattr(of, name)[of.starts[a] : of.starts[b]] for of, a, b in parts])

    sizes = laid([np.diff(of.starts[a : b + 1]) for of, a, b in parts])
    variables = laid([of.variables[a:b] for of, a, b in parts])
    count, total = len(sizes), int(variables.sum())
    room = np.array([most_rows(size, ties) for size in sizes.tolist()], np.int64)
    bases = starts_of(variables**2 if ties == BOTH_SIDED else np.zeros(count, np.int64))
    return Segments(
        keys=laid([np.repeat(of.key[None], b - a, axis=0) for of, a, b in parts]),
        identities=laid([of.numbering[a:b] for of, a, b in parts]),
        exact=laid([np.full(b - a, of.numbers.units is not None) for of, a, b in parts]),
        starts=starts_of(sizes),
        units=of_values("units"),
        values=of_values("values"),
        first=of_values("first"),
        last=of_values("last"),
        variables=starts_of(variables),
        point=np.zeros(total),
        centre=np.zeros(total),
        x=np.zeros(total),
        rows_at=starts_of(room),
        rows=np.zeros((4, int(room.sum())), np.int32),
        counts=np.zeros((count, 7), np.int64),
        newton=np.zeros((count, 3)),
        basis_at=bases,
        lattice=np.zeros(int(bases[-1]), np.int64),
        basis=np.zeros(int(bases[-1])),
        trace=np.zeros((count, 2, 6)),
        place=laid([of.place[a:b] for of, a, b in parts]),
    )


def grid_of(parts: list[Part], sweeps: int) -> Grid:
    """The grid on which these segments are published, none where `SegmentedField.steps` is 0."""
    count = sum(b - a for _, a, b in parts)
    grid = Grid(
        max(of.steps for of, _, _ in parts), np.zeros(count, np.bool_), np.zeros(count, np.int64),
        np.zeros(count, np.int64), np.zeros((count, 2), np.int64), sweeps,
    )  # fmt: skip
    at = 0
    for of, a, b in parts:
        here = slice(at, at + b - a)
        at += b - a
        if of.steps:
            grid.whole[here], grid.factor[here], grid.bounds[here] = of.whole, of.factor, of.grid[a:b]
            if of.factor:
                units = of.units[of.starts[a:b]].astype(np.int64) * of.factor
                grid.origin[here] = units if of.whole else units + of.numbers.least * of.factor
    return grid


def starts_of(sizes: npt.NDArray[Any]) -> Int64Array:
    """Where pieces of these sizes start, laid end to end, and the end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]).astype(np.int64)
