"""Fields that both tables have, as numbers or as codes of equal values; which types can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.arrays import Float64Array, Int32Array
from providers.measures.shared.finding import NotApplicable
from providers.tables.columns import combined, null_mask, words_of
from providers.tables.encodings import plain
from providers.tables.equality import equality_codes
from providers.tables.joining import arrow_take
from providers.tables.numbers import floats_of, is_numeric, nearest_floats
from providers.tables.type_names import value_type

Side = Literal["source", "destination"]

SIDES: tuple[Side, Side] = ("source", "destination")

Kind = Literal["number", "time", "category"]

# ---------------------------------------------------------------------------------- types of fields


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values below extension, dictionary and run-end types."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    kind = value_type(kind)
    return plain_type(kind) if isinstance(kind, pa.BaseExtensionType) else kind


def kind_of(kind: pa.DataType) -> Kind | None:
    """Return how values of the type are measured unless options say otherwise; None if they are not."""
    kind = plain_type(kind)
    if is_numeric(kind):
        return "number"
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return "time"
    if pa.types.is_boolean(kind) or _is_text(kind) or _is_bytes(kind):
        return "category"
    return None


def comparable(source: pa.DataType, destination: pa.DataType, categorical: bool = False) -> bool:
    """Whether values of the two types can be tested for equality and, if they are numbers, subtracted.

    Numbers of all types compare with each other, text of all widths, and bytes. Timestamps of all units
    compare, if both have a zone or neither has; other times compare if they have one type. Dates compare
    with numbers, which count days since 1970 as in a LOCALITY release.
    """
    one, two = plain_type(source), plain_type(destination)
    if kind_of(one) is None or kind_of(two) is None:
        return False
    if one == two or (is_numeric(one) and is_numeric(two)):
        return True
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(two):
        return (one.tz is None) == (two.tz is None)
    if pa.types.is_date(one) and (pa.types.is_date(two) or is_numeric(two)):
        return not (categorical and is_numeric(two))
    return (_is_text(one) and _is_text(two)) or (_is_bytes(one) and _is_bytes(two))


def not_measurable(source: pa.Field, destination: pa.Field, categorical: bool = False) -> str | None:
    """Return the reason for which a field is not measured, in plain words; None if it is."""
    for field_, side in ((source, "source"), (destination, "destination")):
        if kind_of(field_.type) is None:
            return (
                f"it has type {field_.type} in the {side}; measured are numbers, dates, times, text, "
                "bytes and booleans"
            )
    if not comparable(source.type, destination.type, categorical):
        return (
            f"its type is {source.type} in the source and {destination.type} in the destination, "
            "which do not compare"
        )
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


# ------------------------------------------------------------------------------- values of one field


@dataclass(slots=True)
class Column:
    """Field that both tables have."""

    name: str
    kind: Kind
    tables: dict[Side, pa.ChunkedArray]
    """Values of both tables without encodings, dates as days."""
    offset: int = 0
    """Subtracted from every number, so that large integers and nanoseconds stay distinct in float64."""
    _codes: dict[Side, Int32Array] = field(default_factory=dict)

    def numbers(self, side: Side, start: int = 0, stop: int | None = None) -> Float64Array:
        """Return the numbers of rows `start` to `stop`, less the offset; shape (rows,).

        Nulls, NaN and infinities are NaN. Times are in the units in which they are stored, dates in days.
        """
        column = self.tables[side]
        rows = column.slice(start, None if stop is None else stop - start)
        values = _numbers(rows, self.offset)
        values[~np.isfinite(values)] = np.nan
        return values

    def codes(self, side: Side) -> Int32Array:
        """Return an integer code for each value; two codes are equal if and only if their values are.

        Both tables share the codes, and null has its own. `common_type` defines equality across types.
        """
        if not self._codes:
            self._make_codes()
        return self._codes[side]

    @property
    def levels(self) -> int:
        """Upper bound of the codes, exclusive."""
        return int(max((self.codes(side).max(initial=-1) for side in self.tables), default=-1)) + 1

    @property
    def is_whole(self) -> bool:
        """Whether the numbers are whole in both tables."""
        return all(_is_whole(table.type) for table in self.tables.values())

    def missing(self, side: Side) -> npt.NDArray[np.int64]:
        """Indices of the rows that are null."""
        return np.flatnonzero(null_mask(self.tables[side]))

    def labels(self, codes: Sequence[int]) -> list[str]:
        """Return the values of these codes as text; every code must occur in the source."""
        if not codes:
            return []
        first_row = np.zeros(self.levels, np.int64)
        source_codes = self.codes("source")
        first_row[source_codes[::-1]] = np.arange(len(source_codes) - 1, -1, -1)
        values = arrow_take(self.tables["source"], pa.array(first_row[list(codes)]))
        try:
            nanoseconds = pa.types.is_temporal(values.type) and "[ns" in str(values.type)
            plain_values = _times_as_text(values) if nanoseconds else values.to_pylist()
        except OverflowError:  # beyond the range of Python's dates, times and durations
            plain_values = _times_as_text(values)
        return [value.hex() if isinstance(value, bytes) else str(value) for value in plain_values]

    def as_text(self, numbers: Sequence[float]) -> list[str] | None:
        """Return the dates or timestamps of these numbers as text; None for other fields."""
        kind = self.tables["source"].type
        if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return None
        unit = "D" if pa.types.is_date(kind) else kind.unit
        bound = 2.0**62
        whole = [int(min(bound, max(-bound, number))) for number in numbers]
        text: list[str] = np.array(whole, np.int64).astype(f"datetime64[{unit}]").astype(str).tolist()
        return text

    def _make_codes(self) -> None:
        # An integer or decimal beyond 2**53 may become the nearest float64, as in the destination.
        source, destination = in_one_type(self.tables["source"], self.tables["destination"])
        values = combined(pa.chunked_array([*source.chunks, *destination.chunks], source.type))
        codes = equality_codes(values)
        codes = codes - codes.min(initial=0)  # null is -1
        self._codes["source"] = codes[: len(source)].astype(np.int32)
        self._codes["destination"] = codes[len(source) :].astype(np.int32)


def column_of(name: str, source: pa.ChunkedArray, destination: pa.ChunkedArray, categorical: bool) -> Column:
    """Build the column of a field whose types compare (see `not_measurable`).

    Raises NotApplicable: timestamps of two units have no common one.
    """
    one, two = plain_column(source), plain_column(destination)
    kind = kind_of(source.type)
    assert kind is not None  # noqa: S101 - checked by `not_measurable`
    if kind == "time" and is_numeric(two.type):
        one, kind = one.cast(pa.int32()), "number"  # dates in the source, numbers of days in the destination
    if pa.types.is_timestamp(one.type):
        one, two = in_one_type(one, two)
    column = Column(name, "category" if categorical else kind, {"source": one, "destination": two})
    if column.kind != "category" and one.type == two.type and _is_whole(one.type):
        column.offset = min(
            (_smallest(side) for side in (one, two) if side.null_count < len(side)), default=0
        )
    return column


_UNITS = ("s", "ms", "us", "ns")


def in_one_type(
    one: pa.ChunkedArray, two: pa.ChunkedArray, place: str = "destination"
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return two plain columns of comparable types in one type, in which their values compare.

    Parameters
    ----------
    one, two : pa.ChunkedArray
        Columns of the source and of another table, as from `plain_column`.
    place : str
        Name of the other table in messages.

    Raises
    ------
    NotApplicable
        Timestamps of two units have no common one.
    """
    if one.type == two.type:
        return one, two
    if pa.types.is_timestamp(one.type) and pa.types.is_timestamp(two.type):
        return _in_one_unit(one, two, place)
    common = common_type(one.type, two.type)
    return as_common(one, common), as_common(two, common)


def _in_one_unit(
    one: pa.ChunkedArray, two: pa.ChunkedArray, place: str
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return both timestamps in the finer of their units and the first one's zone. Raises NotApplicable."""
    unit = max(one.type.unit, two.type.unit, key=_UNITS.index)
    common = pa.timestamp(unit, one.type.tz)
    try:
        return one.cast(common), two.cast(common)
    except pa.ArrowInvalid:
        raise NotApplicable(
            f"its type is {one.type} in the source and {two.type} in the {place}, and it has times "
            f"beyond the range of {common}: convert both to one unit"
        ) from None


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values without encodings, as one chunk, dates as days."""
    array = plain(combined(column))
    mask = null_mask(column)
    if pa.types.is_dictionary(column.type) and int(mask.sum()) > array.null_count:
        array = pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    return pa.chunked_array([array])


def _times_as_text(column: pa.ChunkedArray) -> list[str | None]:
    """Convert dates, times, timestamps and durations to text, beyond Python's range too."""
    kind = column.type
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        text: list[str | None] = column.cast(pa.string()).to_pylist()
        return text
    unit = "D" if pa.types.is_date(kind) else kind.unit
    moments = _integers(combined(column)).astype(np.int64).astype(f"datetime64[{unit}]").astype(str)
    missing = null_mask(column)
    return [None if absent else str(moment) for moment, absent in zip(moments, missing, strict=True)]


def common_type(one: pa.DataType, two: pa.DataType) -> pa.DataType:
    """Return the type to which values of two different comparable types are cast before comparing them.

    Integers of any two widths compare exactly. If one type is a float or a decimal, values of both compare
    as the nearest float64, since the destination holds no more digits.
    """
    if pa.types.is_integer(one) and pa.types.is_integer(two):
        return pa.decimal128(20, 0)  # exact for int64 and uint64
    if is_numeric(one):
        return pa.float64()
    text = pa.types.is_string(one) or pa.types.is_large_string(one)
    return pa.large_string() if text else pa.large_binary()


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind)))


def as_common(column: pa.ChunkedArray, common: pa.DataType) -> pa.ChunkedArray:
    """Return the column in the type that both tables share."""
    if pa.types.is_decimal(column.type) and common == pa.float64():
        return floats_of(column)
    return column.cast(common, safe=False)


def _integers(array: pa.Array) -> npt.NDArray[Any]:
    words = words_of(array)
    sign = "u" if pa.types.is_unsigned_integer(array.type) else "i"
    return words.view(f"{sign}{words.dtype.itemsize}")


def _smallest(column: pa.ChunkedArray) -> int:
    integers = _integers(combined(column))
    if column.null_count:
        integers = integers[~null_mask(column)]
    return int(integers.min())


def _numbers(column: pa.ChunkedArray, offset: int) -> Float64Array:
    """Copy the numbers less the offset, NaN for null."""
    array = combined(column)
    if _is_whole(array.type):
        integers = _integers(array)
        if offset:  # the minimum: differences fit unsigned words, where the subtraction may wrap around
            unsigned = integers.astype(np.int64 if integers.dtype.kind == "i" else np.uint64).view(np.uint64)
            values = (unsigned - np.uint64(offset % 2**64)).astype(np.float64)
        else:
            values = integers.astype(np.float64)
    elif pa.types.is_floating(array.type):
        words = words_of(array)
        values = words.view(f"f{words.dtype.itemsize}").astype(np.float64)
    else:
        values = nearest_floats(array)
    if array.null_count:
        values[null_mask(column)] = np.nan
    return np.asarray(values, np.float64)
