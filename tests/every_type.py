"""Columns of every type and encoding that an upload can have, with the extreme values of each."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

ROWS = 12
_BEYOND = 2**53 + 1
"""The smallest integer that is no float64."""
_ZONE = "Europe/Dublin"


def _array(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """The values, repeated to `ROWS` rows."""
    return pa.array([values[row % len(values)] for row in range(ROWS)], data_type)


def _floats(bits: int) -> pa.Array:
    values = [0.5, None, -0.0, float("nan"), float("-inf"), 5.0]
    number = np.dtype(f"f{bits // 8}").type
    data_type = {16: pa.float16(), 32: pa.float32(), 64: pa.float64()}[bits]
    return _array([None if value is None else number(value) for value in values], data_type)


def _dictionary(values: list[Any], data_type: pa.DataType | None = None) -> pa.Array:
    """A dictionary that holds a null where the values do."""
    indices = _array([*range(len(values)), None], pa.int8())
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, data_type))


def _runs(values: list[Any], data_type: pa.DataType, run_ends: pa.DataType) -> pa.Array:
    ends = pa.array([ROWS * (number + 1) // len(values) for number in range(len(values))], run_ends)
    return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, data_type))


def _extension(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, _array(values, kind.storage_type))


_DAYS = [datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1)]
_INTEGERS = {f"int{bits}": (pa.int8(), pa.int16(), pa.int32(), pa.int64())[at]
             for at, bits in enumerate((8, 16, 32, 64))}  # fmt: skip
_UNSIGNED = {f"uint{bits}": (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())[at]
             for at, bits in enumerate((8, 16, 32, 64))}  # fmt: skip

COLUMNS: dict[str, pa.Array] = {
    "null": pa.nulls(ROWS),
    "bool": _array([True, False, None], pa.bool_()),
    **{
        name: _array([-(2 ** (kind.bit_width - 1)), None, 2 ** (kind.bit_width - 1) - 1, 0, 5], kind)
        for name, kind in _INTEGERS.items()
    },
    **{name: _array([0, None, 2**kind.bit_width - 1, 3], kind) for name, kind in _UNSIGNED.items()},
    "int64 beyond float64": _array([_BEYOND, _BEYOND + 2, -_BEYOND, 7], pa.int64()),
    "uint64 beyond float64": _array([_BEYOND, _BEYOND + 2, 7], pa.uint64()),
    "int64 all null": pa.nulls(ROWS, pa.int64()),
    **{f"float{bits}": _floats(bits) for bits in (16, 32, 64)},
    "large float64": _array([float(_BEYOND), 1e300, -1e308, 1.0, 2.0**63], pa.float64()),
    "decimal32": _array([Decimal("1.50"), None, Decimal("-99.99")], pa.decimal32(9, 2)),
    "decimal64": _array([Decimal("1.50"), None, Decimal("-99.99")], pa.decimal64(18, 2)),
    "decimal128": _array([Decimal("1.50"), None, Decimal(10) ** 35], pa.decimal128(38, 2)),
    "decimal256": _array([Decimal(10) ** 75, None, Decimal(3)], pa.decimal256(76, 0)),
    "decimal32 of negative scale": _array([Decimal("12300"), None, Decimal("100")], pa.decimal32(5, -2)),
    "decimal of negative scale": _array([Decimal("12300"), None, Decimal("100")], pa.decimal128(5, -2)),
    "wide decimal of negative scale": _array([Decimal("12300"), None, Decimal("100")], pa.decimal256(50, -2)),
    **{
        str(kind): _array(["a", "", None, "Zoë"], kind)
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    },
    **{
        str(kind): _array([b"a", b"\xff", None], kind)
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view())
    },
    **{f"fixed_binary({width})": _array([b"x" * width, None], pa.binary(width)) for width in (0, 3, 8)},
    "date32": _array(_DAYS, pa.date32()),
    "date32 far off": _array([2**31 - 1, None, -(2**31)], pa.int32()).cast(pa.date32()),
    "date64": _array(_DAYS, pa.date64()),
    "time32[s]": _array([0, 1, None], pa.time32("s")),
    "time64[ns]": _array([0, 1, None], pa.time64("ns")),
    **{f"timestamp[{unit}]": _array([0, -1, None, 2**40], pa.timestamp(unit)) for unit in ("s", "ms", "ns")},
    "timestamp[us, zone]": _array([0, -1, None, 2**62], pa.timestamp("us", _ZONE)),
    **{f"duration[{unit}]": _array([0, -1, None, 2**62], pa.duration(unit)) for unit in ("s", "us")},
    "interval": _array([(1, 2, 3), None], pa.month_day_nano_interval()),
    "list": _array([[1], None, []], pa.list_(pa.int64())),
    "list of views": _array([["a", None], None, []], pa.list_(pa.string_view())),
    "list view": _array([[1, 2], None, []], pa.list_view(pa.int16())),
    "struct": _array([{"a": 1, "b": "x"}, None], pa.struct([("a", pa.int64()), ("b", pa.string_view())])),
    "map": _array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    "dictionary": _dictionary(["a", "b"]),
    "dictionary with a null": _dictionary(["a", None, "b"]),
    "dictionary of integers with a null": _dictionary([_BEYOND, 5, None]),
    "dictionary of floats with a null": _dictionary([0.5, float("nan"), None]),
    "dictionary of float16": _dictionary([np.float16(0.5), np.float16(-4.0)], pa.float16()),
    "dictionary of float16 with a null": _dictionary([np.float16(1.5), None], pa.float16()),
    "list of a dictionary of float16": pa.ListArray.from_arrays(
        pa.array(range(ROWS + 1), pa.int32()), _dictionary([np.float16(0.5), np.float16(-4.0)], pa.float16())
    ),
    "struct of a dictionary of float16": pa.StructArray.from_arrays(
        [_dictionary([np.float16(0.5), np.float16(-4.0)], pa.float16())], ["a"]
    ),
    "dictionary of views with a null": _dictionary(["a", None], pa.string_view()),
    "dictionary of nulls": _dictionary([None], pa.null()),
    "dictionary of lists with a null": _dictionary([[1], None], pa.list_(pa.int8())),
    "list of a dictionary with a null": pa.ListArray.from_arrays(
        pa.array(range(ROWS + 1), pa.int32()), _dictionary(["a", None])
    ),
    "runs of integers": _runs([1, None, _BEYOND], pa.int64(), pa.int32()),
    "runs of text": _runs(["a", None, "b", "a"], pa.string(), pa.int16()),
    "runs of views": _runs(["a", None, "b"], pa.string_view(), pa.int64()),
    "runs of wide decimals": _runs([Decimal("1.50"), None], pa.decimal128(38, 2), pa.int32()),
    "runs of a dictionary": pa.RunEndEncodedArray.from_arrays(
        pa.array([4, ROWS], pa.int32()), pa.array(["a", "b"]).dictionary_encode()
    ),
    "uuid": _extension(pa.uuid(), [b"a" * 16, None, b"b" * 16]),
    "bool8": _extension(pa.bool8(), [1, None, 0]),
    "json": _extension(pa.json_(), ["1", None, "{}"]),
    "json of views": _extension(pa.json_(pa.string_view()), ["1", None, "{}"]),
}
"""Name -> a column of `ROWS` rows."""


def in_two_chunks(array: pa.Array) -> pa.ChunkedArray:
    """The column in two chunks, each a slice."""
    return pa.chunked_array([array.slice(0, 5), array.slice(5)], array.type)


def halves_in_two_chunks() -> pa.ChunkedArray:
    """The half floats 1.5, 2.5, null, 2.5, -4.0, 1.5, null in two chunks with different dictionaries."""
    dictionaries = [pa.array([1.5, 2.5], pa.float16()), pa.array([2.5, -4.0, 1.5], pa.float16())]
    indices = [pa.array([0, 1, None], pa.int8()), pa.array([0, 1, 2, None], pa.int8())]
    return pa.chunked_array(
        [pa.DictionaryArray.from_arrays(*each) for each in zip(indices, dictionaries, strict=True)]
    )
