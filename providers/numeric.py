"""Columns as float64 numbers: with a unit, for distances, or as they are, for numeric methods."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import ParameterError
from providers.literals import value_type
from providers.table import combined, null_mask, unwrapped, words_of

_IN_A_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MILLISECONDS_IN_A_DAY = 86_400_000
_EXACT = 2**53
"""Below it every integer is a float64."""
HIGH = float(2**32)
"""What one of `Measured.values` counts for where `Measured.low` holds the rest."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A column as numbers.

    Differences of whole numbers, dates and times are exact to the last rounding, and so the same in
    every part of a table, whose smallest value is another. A distance is ``|values[i] - values[j]|``, or,
    where there is `low`, ``|(values[i] - values[j]) * HIGH + (low[i] - low[j])|``, over `in_a_unit`.
    """

    values: npt.NDArray[np.float64]
    """From the smallest of an integer, date or time field, else from 0; NaN for null; shape (rows,)."""
    low: npt.NDArray[np.float64]
    """The lower 32 bits of integers too far apart for float64, shape (rows,); else empty."""
    unit: str
    """``days`` (dates), ``seconds`` (timestamps, times, durations), or ``field``: the field's own."""
    in_a_unit: int = 1
    """How much of what is stored makes one unit."""


def measured(column: pa.ChunkedArray) -> Measured | None:
    """The column as numbers whose differences are distances; None where it is not a number or a time."""
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
    """The column as numbers, dates and times in the units in which they are stored; NaN for null.

    None where it is not a number or a time. Counting from the smallest value keeps nanoseconds and
    large integers apart in float64. ``smallest``: of all pieces, where the column is one; `smallest_whole`.
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
        values = np.array(combined(pc.cast(column, pa.float64())).to_numpy(zero_copy_only=False), np.float64)
    else:
        return None
    if missing.any():
        values[missing] = np.nan
    return np.asarray(values)


def smallest_whole(column: pa.ChunkedArray) -> int | None:
    """The smallest whole number, date or time as it is stored; None where there is none."""
    kind = _plain_type(column)
    if not _is_whole(kind):
        return None
    present = present_of(*_stored(column, kind))
    return int(present.min()) if len(present) else None


def present_of(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """The values that are not missing; the values themselves where none is."""
    return values[~missing] if missing.any() else values


def _plain(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    column = unwrapped(column)
    return unwrapped(column.cast(kind)) if pa.types.is_dictionary(column.type) else column


def _offsets(
    column: pa.ChunkedArray, kind: pa.DataType, smallest: int | None = None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """How far each whole number is above the smallest, unsigned; and which are null."""
    numbers, missing = _stored(column, kind)
    present = present_of(numbers, missing)
    if smallest is None:
        smallest = present.min() if len(present) else 0
    return (numbers - numbers.dtype.type(smallest)).view(f"u{numbers.dtype.itemsize}"), missing


def _stored(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Whole numbers as they are stored; and which are null."""
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
    """Whether values of the type are integers, floats or decimals, in whatever encoding."""
    kind = value_type(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def check_numeric(field: pa.Field, method: str, pointer: str) -> None:
    """Raise ParameterError where the field's values are not numbers."""
    if not is_numeric(field.type):
        raise ParameterError(
            f"field '{field.name}' has type {field.type}; {method} computes with numbers: "
            "integers, floats or decimals",
            pointer,
        )


def float_values(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """The numbers of an `is_numeric` column, each the nearest float64; NaN for null; shape (rows,)."""
    column = unwrapped(column)
    if pa.types.is_dictionary(column.type):
        column = unwrapped(column.cast(value_type(column.type)))
    kind = column.type
    if pa.types.is_decimal(kind):
        column = pc.cast(column, pa.float64())
        kind = column.type
    array = combined(column)
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    values = words_of(array).view(f"{letter}{kind.bit_width // 8}").astype(np.float64)
    if array.null_count:
        values[null_mask(column)] = np.nan
    return values
