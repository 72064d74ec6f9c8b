"""Rows as points between which there are distances: numbers scaled to [0, 1], categories as codes.

- A number is (x - min) / (max - min) of the source, a constant 0; dates and times count as numbers.
- An ordinal is the place of its level, scaled like a number.
- A nominal is a code. One-hot it would be a point with a single 1, and two that differ would have a
  squared distance of 2: times the square of the weight, that is what a mismatch of codes adds.
- A missing number (null or NaN) is the median of the others, beside a flag that says so: a mismatch of
  flags adds 2. A missing category is a level of its own.

What is the same in all rows adds nothing and is left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.errors import ParameterError, SourceError, reference_token
from providers.literals import literal, value_type
from providers.numeric import counted, is_numeric, present_of
from providers.ordering import distinct, is_orderable, ranks

Kind = Literal["number", "ordinal", "nominal"]

Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Points:
    """A point for each row; the distance between two is in `providers.lanes`."""

    numbers: Float64Array
    """In the order of the fields; shape (n, numbers)."""
    codes: Int32Array
    """Nominals in the order of the fields, then missing flags in that of the numbers; shape (n, codes)."""
    flags: int
    """The first code that is a missing flag."""
    weight: float
    """What a mismatch of nominals adds to the squared distance."""

    def slice(self, start: int, stop: int) -> "Points":
        """The points of these rows, without a copy."""
        return Points(self.numbers[start:stop], self.codes[start:stop], self.flags, self.weight)


def kind_of(kind: pa.DataType) -> Kind | None:
    """How values of the type count in a distance by themselves; None where they cannot."""
    kind = _plain(kind)
    if is_numeric(kind) or _is_time(kind):
        return "number"
    return "nominal" if is_orderable(kind) and not pa.types.is_union(kind) else None


def check_kinds(fields: Sequence[str], ordinal: Mapping[str, Sequence[Any]], schema: pa.Schema) -> None:
    """Raise ParameterError where a field cannot be what it is said to be, or has no distance."""
    for at, name in enumerate(fields):
        field = schema.field(name)
        if kind_of(field.type) is None:
            raise ParameterError(
                f"distance field '{name}' has type {field.type}, between whose values there is no distance; "
                "name the others as distance_fields",
                f"/parameters/distance_fields/{at}",
            )
    for name in ordinal:
        field = schema.field(name)
        pointer = f"/parameters/ordinal_fields/{reference_token(name)}"
        levels = _levels(ordinal[name], field, pointer)
        if len(set(levels)) < len(levels):
            raise ParameterError(f"a level of '{name}' is named twice", pointer)


def encode(
    table: pa.Table,
    fields: Sequence[str],
    categorical: Sequence[str] = (),
    ordinal: Mapping[str, Sequence[Any]] | None = None,
    categorical_weight: float = 1.0,
    fitted_on: int | None = None,
) -> Points:
    """The rows as points.

    Parameters
    ----------
    table : pa.Table
        Left as it is.
    fields : sequence of str
        Those that count in a distance.
    categorical : sequence of str
        Which of them are nominal whatever their type; text, bytes and booleans always are.
    ordinal : mapping of str to sequence, optional
        Which of them are ordinal, and their levels from first to last.
    categorical_weight : float
        Weight of the nominals.
    fitted_on : int, optional
        So many rows from the first say minimum, maximum and median; by default all of them.

    Raises
    ------
    SourceError
        A number is infinite, or an ordinal has a value that is no level.

    Notes
    -----
    O(n) a field, and a median where numbers are missing.
    """
    ordinal = ordinal or {}
    fitted = slice(0, table.num_rows if fitted_on is None else fitted_on)
    numbers: list[Float64Array] = []
    nominals: list[Int32Array] = []
    flags: list[Int32Array] = []
    for name in fields:
        column = table.column(name)
        if name in categorical or (name not in ordinal and kind_of(column.type) == "nominal"):
            codes = category_codes(column)
            if categorical_weight > 0 and _varies(codes):
                nominals.append(codes)
            continue
        if name in ordinal:
            values = places(column, table.schema.field(name), ordinal[name])
            refuse_unknown(name, int(np.count_nonzero(values == UNKNOWN)))
        else:
            counts = counted(column)
            assert counts is not None  # noqa: S101 - by its kind
            refuse_infinite(name, int(np.count_nonzero(np.isinf(counts))))
            values = counts
        values, missing = _scaled(values, fitted)
        if _varies(values):
            numbers.append(values)
        if _varies(missing):
            flags.append(missing.astype(np.int32))
    rows = table.num_rows
    return Points(
        _columns(numbers, rows, np.float64),
        _columns(nominals + flags, rows, np.int32),
        len(nominals),
        2.0 * categorical_weight * categorical_weight,
    )


def _columns(columns: Sequence[npt.NDArray[Any]], rows: int, kind: Any) -> npt.NDArray[Any]:
    together = np.empty((rows, len(columns)), kind)
    for at, column in enumerate(columns):
        together[:, at] = column
    return together


def _varies(values: npt.NDArray[Any]) -> bool:
    return bool(len(values)) and bool((values != values[0]).any())


def _plain(kind: pa.DataType) -> pa.DataType:
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return value_type(kind)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


# ------------------------------------------------------------------------------------ field by field


def category_codes(column: pa.ChunkedArray) -> Int32Array:
    """The place of each value among the distinct ones in their order; null after the last."""
    codes, values = distinct(column)
    places = np.append(ranks(values).astype(np.int32), np.int32(len(values)))
    return np.asarray(places[codes], np.int32)


def _levels(levels: Sequence[Any], field: pa.Field, pointer: str) -> list[Any]:
    plain = field.with_type(_plain(field.type))
    return [literal(level, plain, "level", f"{pointer}/{at}").as_py() for at, level in enumerate(levels)]


UNKNOWN = -1.0
"""The place of what is no level."""


def places(column: pa.ChunkedArray, field: pa.Field, levels: Sequence[Any]) -> Float64Array:
    """The place of each value among the levels, `UNKNOWN` where it is none; NaN for null."""
    place = {level: at for at, level in enumerate(_levels(levels, field, "/parameters/ordinal_fields"))}
    codes, values = distinct(column)
    found = [place.get(value, UNKNOWN) for value in values.to_pylist()]
    return np.asarray(np.array([*found, np.nan], np.float64)[codes])


def refuse_unknown(name: str, unknown: int) -> None:
    """Raise SourceError where so many values of the field, one or more, are no level."""
    if unknown:
        raise SourceError(
            f"field '{name}' holds {unknown} values that are none of its levels in ordinal_fields",
            "/parameters/ordinal_fields",
        )


def refuse_infinite(name: str, infinite: int) -> None:
    """Raise SourceError where so many values of the field, one or more, are infinite."""
    if infinite:
        raise SourceError(
            f"field '{name}' holds {infinite} infinite values, to which there is no distance; "
            "make them null, or leave the field out of distance_fields",
        )


def scaled(values: Float64Array, low: float, high: float) -> Float64Array:
    """The values by a range, which is not 0 wide."""
    if math.isinf(high - low):  # the range of two huge numbers: halved, it is one
        values, low, high = values / 2, low / 2, high / 2
    return (values - low) / (high - low)


def median_of(middle: Sequence[float]) -> float:
    """The median, by the one or two scaled numbers in the middle."""
    return middle[0] if len(middle) == 1 else (middle[0] + middle[1]) / 2


def _scaled(values: Float64Array, fitted: slice) -> tuple[Float64Array, npt.NDArray[np.bool_]]:
    """The values by the range of those fitted on, missing ones at their median; and which are missing."""
    missing = np.isnan(values)
    present = present_of(values[fitted], missing[fitted])
    if not len(present):
        return np.zeros(len(values)), missing
    low, high = float(present.min()), float(present.max())
    if high == low:
        of_range = np.zeros(len(values)) if fitted.stop >= len(values) else values - low
    else:
        of_range = scaled(values, low, high)
    if missing.any():
        present = np.sort(of_range[fitted][~missing[fitted]])
        half = len(present) // 2
        of_range[missing] = median_of(present[half - 1 + len(present) % 2 : half + 1].tolist())
    return of_range, missing
