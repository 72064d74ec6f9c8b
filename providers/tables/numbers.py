"""Columns as float64 or as exact integers in units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.arrays import Float64Array, Int64Array, UInt64Array
from providers.errors import ParameterError, SourceError
from providers.tables.columns import combined, null_mask, unwrapped, words_of
from providers.tables.type_names import value_type

_IN_A_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_MILLISECONDS_IN_A_DAY = 86_400_000

_EXACT = 2**53
"""Bound below which every integer is a float64."""

_EXACT_POWER = 22
"""Greatest power of ten that is a float64."""

HIGH = float(2**32)
"""Weight of a unit of `Measured.values` if `Measured.low` holds the lower bits."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A column as numbers.

    Differences of whole numbers, dates and times are exact up to the last rounding, and so the same in
    every row range of a table, although its smallest value differs. A distance is
    ``|values[i] - values[j]|`` or, if `low` is not empty,
    ``|(values[i] - values[j]) * HIGH + (low[i] - low[j])|``, divided by `in_a_unit`.
    """

    values: npt.NDArray[np.float64]
    """Values relative to the smallest of an integer, date or time field, else to 0; NaN for null; (rows,)."""
    low: npt.NDArray[np.float64]
    """Lower 32 bits of integers whose differences exceed float64, shape (rows,); else empty."""
    unit: str
    """``days`` (dates), ``seconds`` (timestamps, times, durations), or ``field`` (the field's own unit)."""
    in_a_unit: int = 1
    """Number of stored units per `unit`."""


def measured(column: pa.ChunkedArray) -> Measured | None:
    """Return the column as numbers whose differences are distances; None if it holds no numbers or times."""
    kind = _plain_type(column)
    values, low = counted(column), np.empty(0)
    if values is None:
        return None
    if _is_whole(kind) and np.nanmax(values, initial=0.0) >= _EXACT:
        offsets, missing = _offsets(column, kind)
        values, low = (
            (offsets >> np.uint64(32)).astype(np.float64),
            offsets.astype(np.uint32).astype(np.float64),
        )
        values[missing] = np.nan
    if pa.types.is_date(kind):
        return Measured(values, low, "days", 1 if kind == pa.date32() else _MILLISECONDS_IN_A_DAY)
    if _is_time(kind):
        return Measured(values, low, "seconds", _IN_A_SECOND[kind.unit])
    return Measured(values, low, "field")


def counted(column: pa.ChunkedArray, smallest: int | None = None) -> npt.NDArray[np.float64] | None:
    """Return the column as numbers, dates and times in their stored units; NaN for null.

    Whole numbers count from the smallest value, so that float64 distinguishes nanoseconds and large integers.

    Parameters
    ----------
    column : pa.ChunkedArray
        Column of any type. The result is None if it holds no numbers or times.
    smallest : int, optional
        Smallest value of the whole table, as from `smallest_whole`, if the column is a row range of it.
    """
    kind = _plain_type(column)
    column = _plain(column, kind)
    missing = null_mask(column)
    if _is_whole(kind):
        offsets, _ = _offsets(column, kind, smallest)
        values = offsets.astype(np.float64)
    elif pa.types.is_floating(kind):
        words = words_of(combined(column))
        values = words.view(f"f{words.dtype.itemsize}").astype(np.float64, copy=bool(missing.any()))
    elif pa.types.is_decimal(kind):
        values = nearest_floats(combined(column))
    else:
        return None
    if missing.any():
        values[missing] = np.nan
    return np.asarray(values)


def smallest_whole(column: pa.ChunkedArray) -> int | None:
    """Return the smallest whole number, date or time as stored; None if there is none."""
    kind = _plain_type(column)
    if not _is_whole(kind):
        return None
    present = present_of(*_stored(column, kind))
    return int(present.min()) if len(present) else None


def present_of(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Return the values that are not missing, without a copy if none is."""
    return values[~missing] if missing.any() else values


def _plain(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the column without encodings, in its plain type `kind`."""
    column = unwrapped(column)
    return unwrapped(column.cast(kind)) if pa.types.is_dictionary(column.type) else column


def _offsets(
    column: pa.ChunkedArray, kind: pa.DataType, smallest: int | None = None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the unsigned difference of each whole number to the smallest, and the mask of nulls."""
    numbers, missing = _stored(column, kind)
    present = present_of(numbers, missing)
    if smallest is None:
        smallest = present.min() if len(present) else 0
    return (numbers - numbers.dtype.type(smallest)).view(f"u{numbers.dtype.itemsize}"), missing


def _stored(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return whole numbers as stored, and the mask of nulls."""
    column = _plain(column, kind)
    words = words_of(combined(column))
    letter = "u" if pa.types.is_unsigned_integer(kind) else "i"
    return words.view(f"{letter}{words.dtype.itemsize}"), null_mask(column)


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or _is_time(kind))


def _plain_type(column: pa.ChunkedArray) -> pa.DataType:
    kind = column.type
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return value_type(kind)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind))


def is_numeric(kind: pa.DataType) -> bool:
    """Whether values of the type are integers, floats or decimals, in any encoding."""
    kind = value_type(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def check_numeric(field: pa.Field, method: str, pointer: str) -> None:
    """Raise ParameterError if the field's values are not numbers."""
    if not is_numeric(field.type):
        raise ParameterError(
            f"field '{field.name}' has type {field.type}; {method} computes with numbers: "
            "integers, floats or decimals",
            pointer,
        )


def float_values(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Return the numbers of an `is_numeric` column as the nearest float64; NaN for null; shape (rows,)."""
    column = unwrapped(column)
    if pa.types.is_dictionary(column.type):
        column = unwrapped(column.cast(value_type(column.type)))
    kind = column.type
    array = combined(column)
    if pa.types.is_decimal(kind):
        values = nearest_floats(array)
    else:
        letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
        values = words_of(array).view(f"{letter}{kind.bit_width // 8}").astype(np.float64)
    if array.null_count:
        values[null_mask(column)] = np.nan
    return values


def nearest_floats(array: pa.Array) -> Float64Array:
    """Return decimals as the nearest float64, like ``float(Decimal)``; undefined for null; shape (rows,).

    Notes
    -----
    O(rows). Arrow's cast multiplies by a rounded power of ten and makes 0.30000000000000004 of 0.3. The
    quotient of two numbers that are exact as float64 is rounded once: of at most 2**53 units, and a power of
    ten up to 10**22. Other decimals are read from their text, which takes about twenty times as long.
    """
    kind = array.type
    units, is_long = _low_words(array)
    values = units.astype(np.float64)
    if 0 < kind.scale <= _EXACT_POWER:
        values /= 10.0**kind.scale
    elif -_EXACT_POWER <= kind.scale < 0:
        values *= 10.0**-kind.scale
    if abs(kind.scale) <= _EXACT_POWER:
        indirect = is_long | (units > _EXACT) | (units < -_EXACT)
    else:
        indirect = np.ones(len(units), np.bool_)
    if array.null_count:
        indirect &= array.is_valid().to_numpy(zero_copy_only=False)
    if indirect.any():
        rows = np.flatnonzero(indirect)
        texts = _wide(array.take(pa.array(rows))).cast(pa.string())
        values[rows] = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values


def floats_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a plain column of decimals as the nearest float64, null for null."""
    chunks = []
    for chunk in column.chunks:
        missing = chunk.is_null().to_numpy(zero_copy_only=False) if chunk.null_count else None
        chunks.append(pa.array(nearest_floats(chunk), pa.float64(), mask=missing))
    return pa.chunked_array(chunks, type=pa.float64())


def _wide(array: pa.Array) -> pa.Array:
    """Return the decimals in at least 128 bits, which Arrow writes as text for every scale."""
    kind = array.type
    return array.cast(pa.decimal128(kind.precision, kind.scale)) if kind.bit_width < 128 else array


def whole_units(kind: pa.DataType, decimals: int) -> tuple[int, int] | None:
    """Return the least and greatest whole unit of the type if `decimals` is its own scale; else None."""
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        return (max(-most, -(2**63)), min(most, 2**63 - 1)) if decimals == kind.scale else None
    if decimals:
        return None
    if pa.types.is_date(kind):  # the years 1 to 9999
        return -719_162, 2_932_896
    if not pa.types.is_integer(kind):
        return None
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


@dataclass(frozen=True, slots=True)
class Numbers:
    """Values of a field that are not null, in row order."""

    rows: Int64Array
    """Row of each value; shape (values,)."""
    values: Float64Array
    """Nearest float64 of each value; dates in days since 1970; shape (values,)."""
    units: UInt64Array | None
    """Values in whole units above the least, shape (values,); None for floats."""
    least: int
    """Least value in units."""
    scale: int
    """Number of decimals: a unit is 10**-scale."""


@dataclass(slots=True)
class NumberFaults:
    """Numbers of values of a field that cannot be computed with."""

    not_finite: int = 0
    """NaN and infinities."""
    long: int = 0
    """Decimals of over 64 bits without the point."""

    def add(self, other: NumberFaults) -> None:
        """Add the faults of more rows."""
        self.not_finite += other.not_finite
        self.long += other.long

    def refuse(self, name: str) -> None:
        """Raise SourceError if there is a fault."""
        if self.not_finite:
            several = self.not_finite > 1
            raise SourceError(
                f"field '{name}' holds {self.not_finite} value{'s' * several} that "
                f"{'are' if several else 'is'} not finite; make NaN and infinities null, which pass through"
            )
        if self.long:
            raise SourceError(
                f"field '{name}' holds {self.long} decimal{'s' * (self.long > 1)} whose digits, without "
                "the point, exceed 64 bits; cast it to double"
            )


def numbers_of(column: pa.ChunkedArray, name: str) -> Numbers:
    """Read the field's values as numbers. Raises SourceError if one is not finite, or a decimal too long."""
    numbers, faults = numbers_read(column)
    faults.refuse(name)
    return numbers


def numbers_read(column: pa.ChunkedArray) -> tuple[Numbers, NumberFaults]:
    """Read the values as numbers, and count the faults; the numbers are meaningful only without faults."""
    column = unwrapped(column)
    if pa.types.is_dictionary(column.type):
        column = unwrapped(column.cast(value_type(column.type)))
    missing = null_mask(column)
    if pa.types.is_date64(column.type):
        column = pc.cast(column, pa.date32())
    kind, array = column.type, combined(column)
    rows = np.flatnonzero(~missing)
    if pa.types.is_floating(kind):
        words = words_of(array)
        floats = words.view(f"f{words.dtype.itemsize}")[rows].astype(np.float64)
        wrong = int(np.count_nonzero(~np.isfinite(floats)))
        return Numbers(rows, floats, None, 0, 0), NumberFaults(not_finite=wrong)
    faults = NumberFaults()
    if pa.types.is_decimal(kind):
        scale = kind.scale
        units_of_scale, faults.long = unscaled(array)
        whole: npt.NDArray[Any] = units_of_scale[rows]
        values = nearest_floats(array)[rows]
    else:
        scale, whole = 0, _whole(array)[rows]
        values = whole.astype(np.float64)
    least = int(whole.min()) if len(whole) else 0
    units = (whole - whole.dtype.type(least)).view(f"u{whole.dtype.itemsize}").astype(np.uint64)
    return Numbers(rows, values, units, least, scale), faults


def counted_from(numbers: Numbers, least: int) -> Numbers:
    """Return the same numbers with units above `least`, the least value of a larger row range."""
    if numbers.units is None or numbers.least == least:
        return numbers
    units = numbers.units + np.uint64(numbers.least - least) if len(numbers.units) else numbers.units
    return replace(numbers, units=units, least=least)


def _whole(array: pa.Array) -> npt.NDArray[Any]:
    """Return integers or dates as stored."""
    words = words_of(array)
    letter = "u" if pa.types.is_unsigned_integer(array.type) else "i"
    return words.view(f"{letter}{words.dtype.itemsize}")


def unscaled(array: pa.Array) -> tuple[Int64Array, int]:
    """Return decimals as whole units, int64, and the number of decimals that are too long for this."""
    units, is_long = _low_words(array)
    if array.null_count and is_long.any():
        is_long &= array.is_valid().to_numpy(zero_copy_only=False)
    return units, int(np.count_nonzero(is_long))


def _low_words(array: pa.Array) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """Return the low 64 bits of decimals, and the mask of those that need more; undefined for null."""
    width = array.type.bit_width // 8
    if width <= 8:
        units = words_of(array).view(f"i{width}").astype(np.int64)
        return units, np.zeros(len(array), np.bool_)
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_)
    words = np.frombuffer(data, np.int64, len(array) * width // 8, array.offset * width)
    words = words.reshape(-1, width // 8)
    units = np.ascontiguousarray(words[:, 0])
    is_long = words[:, 1] != units >> 63
    for word in range(2, width // 8):
        is_long |= words[:, word] != units >> 63
    return units, is_long
