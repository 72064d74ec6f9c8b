"""Encode rows as points: scaled numbers, category codes, missing flags.

- A number is scaled to (x - min) / (max - min) of the source; a constant is 0. Dates and times are numbers.
- An ordinal value is the position of its level, scaled like a number.
- A nominal value is a code. One-hot encoded, two different values would have a squared distance of 2. Hence a
  mismatch of codes adds 2 times the square of the categorical weight.
- A missing number (null or NaN) is the median of the others, with a flag that marks it; a mismatch of flags
  adds 2. A missing category is a category of its own.

Dimensions that are constant in all rows add nothing and are left out.

References
----------
Perry, Matloff and Tendick 2024, arXiv:2210.06687, section 4.1, step 2: the encoding of records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.arrays import Float64Array, Int32Array, Int64Array
from providers.errors import ParameterError, SourceError, reference_token
from providers.tables.literals import literal
from providers.tables.numbers import counted, is_numeric, present_of
from providers.tables.sort_keys import distinct, is_orderable, ranks
from providers.tables.type_names import value_type

Kind = Literal["number", "ordinal", "nominal"]


class Points(NamedTuple):
    """One point for each row, in the form that kernels take; `simd_distances` defines their distances."""

    numbers: Float64Array
    """Scaled numbers in the order of the fields; shape (n, numbers)."""
    codes: Int32Array
    """Codes of nominal fields in their order, then missing flags in that of the numbers; shape (n, codes)."""
    flags: int
    """Index of the first code that is a missing flag."""
    weight: float
    """Squared distance that a mismatch of a nominal field adds."""

    def slice(self, start: int, stop: int) -> Points:
        """Return the points of a row range, without a copy."""
        return Points(self.numbers[start:stop], self.codes[start:stop], self.flags, self.weight)

    def rows(self, indices: Int64Array) -> Points:
        """Return a copy of the points of some rows; `indices` has shape (rows,)."""
        return Points(self.numbers[indices], self.codes[indices], self.flags, self.weight)


def kind_of(kind: pa.DataType) -> Kind | None:
    """Return how values of a type count in a distance by default; None if they have no distance."""
    kind = _plain(kind)
    if is_numeric(kind) or _is_time(kind):
        return "number"
    return "nominal" if is_orderable(kind) and not pa.types.is_union(kind) else None


def check_kinds(fields: Sequence[str], ordinal: Mapping[str, Sequence[Any]], schema: pa.Schema) -> None:
    """Raise ParameterError if a field has no distance, or if its ordinal levels do not fit."""
    for index, name in enumerate(fields):
        field = schema.field(name)
        if kind_of(field.type) is None:
            raise ParameterError(
                f"distance field '{name}' has type {field.type}, which has no distance between values; "
                "name only the other fields in distance_fields",
                f"/parameters/distance_fields/{index}",
            )
    for name in ordinal:
        field = schema.field(name)
        pointer = f"/parameters/ordinal_fields/{reference_token(name)}"
        levels = _levels(ordinal[name], field, pointer)
        if len(set(map(_comparable, levels))) < len(levels):
            raise ParameterError(f"a level of '{name}' is named twice; name it once", pointer)


def encode(
    table: pa.Table,
    fields: Sequence[str],
    categorical: Sequence[str] = (),
    ordinal: Mapping[str, Sequence[Any]] | None = None,
    categorical_weight: float = 1.0,
    fitted_on: int | Callable[[str], Float64Array] | None = None,
) -> Points:
    """Encode rows as points.

    Parameters
    ----------
    table : pa.Table
        Not modified.
    fields : sequence of str
        Fields that count in a distance.
    categorical : sequence of str
        Fields that are nominal whatever their type; text, bytes and booleans always are.
    ordinal : mapping of str to sequence, optional
        Ordinal fields, and their levels from first to last.
    categorical_weight : float
        Weight of the nominal fields.
    fitted_on : int or callable, optional
        Number of rows, from the first, that determine minimum, maximum and median. Or a function that
        returns for a field of numbers the values that do, NaN where missing. Default: all rows.

    Raises
    ------
    SourceError
        A number is infinite, or an ordinal value is none of the levels.

    Notes
    -----
    O(n) for each field, and a sort for the median if numbers are missing.
    """
    ordinal = ordinal or {}
    fitted_rows = fitted_on if isinstance(fitted_on, int) else table.num_rows
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
            values = level_positions(column, table.schema.field(name), ordinal[name])
            refuse_unknown(name, int(np.count_nonzero(values == UNKNOWN)))
        else:
            counts = counted(column)
            assert counts is not None  # noqa: S101 - by its kind
            refuse_infinite(name, int(np.count_nonzero(np.isinf(counts))))
            values = counts
        fitted = fitted_on(name) if callable(fitted_on) else values[:fitted_rows]
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
    """Join columns to a matrix of shape (rows, columns)."""
    matrix = np.empty((rows, len(columns)), kind)
    for index, column in enumerate(columns):
        matrix[:, index] = column
    return matrix


def _varies(values: npt.NDArray[Any]) -> bool:
    """Whether two of the values differ."""
    return bool(len(values)) and bool((values != values[0]).any())


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values below extension and other encodings."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return value_type(kind)


def _is_time(kind: pa.DataType) -> bool:
    """Whether the type is a date, time, timestamp or duration."""
    return bool(pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


# ------------------------------------------------------------------------------------ field by field


def category_codes(column: pa.ChunkedArray) -> Int32Array:
    """Return the rank of each value among the distinct ones, from 0; null comes after the last."""
    codes, values = distinct(column)
    code_ranks = np.append(ranks(values).astype(np.int32), np.int32(len(values)))
    return np.asarray(code_ranks[codes], np.int32)


def _levels(levels: Sequence[Any], field: pa.Field, pointer: str) -> list[pa.Scalar]:
    """Convert levels given as JSON to scalars of the field's type."""
    plain = field.with_type(_plain(field.type))
    return [literal(level, plain, "level", f"{pointer}/{index}") for index, level in enumerate(levels)]


def _comparable(level: pa.Scalar) -> Any:
    """Return a Python value that is equal for equal levels."""
    return level.value if pa.types.is_temporal(level.type) else level.as_py()  # as_py loses nanoseconds


UNKNOWN = -1.0
"""Position of a value that is none of the levels."""


def level_positions(column: pa.ChunkedArray, field: pa.Field, levels: Sequence[Any]) -> Float64Array:
    """Return the position of each value among the levels: `UNKNOWN` if it is none of them, NaN for null."""
    scalars = _levels(levels, field, "/parameters/ordinal_fields")
    codes, values = distinct(column)
    if pa.types.is_floating(values.type):  # by value: -0.0 is 0.0
        position = {level.as_py(): float(index) for index, level in enumerate(scalars)}
        positions = np.array([position.get(value, UNKNOWN) for value in values.to_pylist()], np.float64)
    else:  # in Arrow: Python has no nanoseconds, and no dates beyond the year 9999
        listed = pa.array([level.cast(values.type) for level in scalars], values.type)
        found = pc.index_in(values, value_set=listed).cast(pa.float64()).fill_null(UNKNOWN)
        positions = found.to_numpy(zero_copy_only=False)
    return np.asarray(np.append(positions, np.nan)[codes], np.float64)


def refuse_unknown(name: str, unknown: int) -> None:
    """Raise SourceError if `unknown` values of the field, one or more, are none of its levels."""
    if unknown:
        raise SourceError(
            f"field '{name}' holds {unknown} values that are not among its levels in ordinal_fields",
            "/parameters/ordinal_fields",
        )


def refuse_infinite(name: str, infinite: int) -> None:
    """Raise SourceError if `infinite` values of the field, one or more, are infinite."""
    if infinite:
        raise SourceError(
            f"field '{name}' holds {infinite} infinite values, which have no distance to other values; "
            "make them null, or leave the field out of distance_fields",
        )


def scale(values: Float64Array, low: float, high: float) -> Float64Array:
    """Scale values so that the range from `low` to a larger `high` becomes [0, 1]."""
    if math.isinf(high - low):  # the difference overflows; that of halved numbers does not
        values, low, high = values / 2, low / 2, high / 2
    return (values - low) / (high - low)


def median_of(middle: Sequence[float]) -> float:
    """Return the median of the one or two scaled numbers in the middle."""
    return middle[0] if len(middle) == 1 else (middle[0] + middle[1]) / 2


def _scaled(values: Float64Array, fitted: Float64Array) -> tuple[Float64Array, npt.NDArray[np.bool_]]:
    """Return values scaled by the range of the fit, missing ones as the median, and the mask of these."""
    missing = np.isnan(values)
    present = present_of(fitted, np.isnan(fitted))
    if not len(present):
        return np.zeros(len(values)), missing
    low, high = float(present.min()), float(present.max())
    numbers = values - low if high == low else scale(values, low, high)
    if missing.any():
        half = len(present) // 2
        middle = np.sort(present)[half - 1 + len(present) % 2 : half + 1]
        numbers[missing] = median_of((middle - low if high == low else scale(middle, low, high)).tolist())
    return numbers, missing
