"""JSON writer: ``{"fields": [{"name", "type"}], "rows": [{field: value}]}``.

Integers are exact; NaN and the infinities are the strings "NaN", "Infinity", "-Infinity"; decimals, dates,
times, timestamps and binaries are strings in the forms of `app.formats.value_text`; a duration is an integer
of its unit; a map is an array of ``[key, value]`` pairs. Read back with its ``fields`` it gives the identical
table, apart from encodings.

Each column becomes an array of JSON texts, which Arrow joins to rows, so no value of a flat type becomes a
Python object. Arrow's functions cost the same however few the rows; the rows of a small table are Python
objects instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from app.formats.errors import FormatError
from app.formats.value_text import to_text
from app.store.blobs.batches import decoded_pieces
from providers.tables.encodings import list_children, list_lengths, plain, struct_children, validity
from providers.tables.type_names import canonical_type, is_list, type_name

BATCH_ROWS = 8192

_BATCH_BYTES = 1 << 20  # of Arrow, which as Python values take many times as much

_LEAST_PIECE = 1 << 16  # each chunk is encoded in a thread, and sent, by itself

SMALL_BYTES = 1 << 18
"""Size of rows as JSON, by `encoded_size`, up to which a thread costs more time than the work on them."""

_FEW_ROWS = 512
"""Rows up to which Python objects take less time than Arrow's functions."""

_ESCAPED = r'["\\\x00-\x1f]'  # RFC 8259, section 7

_COMMA = ord(",")


def json_chunks(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Encode the JSON document in chunks of rows. Raises FormatError before the first chunk."""
    before = b'{"fields":' + orjson.dumps(fields_of(schema)) + b',"rows":'
    return json_with_rows(before, schema, batches, b"}")


def json_with_rows(
    before: bytes, schema: pa.Schema, batches: Iterable[pa.RecordBatch], after: bytes
) -> Iterator[bytes]:
    """Encode the rows as a JSON array between two parts of a document; raises as `json_chunks`."""
    refuse_intervals(schema)
    return _gathered(chain((before,), _array(schema, batches), (after,)))


def json_rows(table: pa.Table) -> bytes:
    """Encode the rows alone as a JSON array; raises as `json_chunks`."""
    refuse_intervals(table.schema)
    return b"".join(_array(table.schema, table.to_batches()))


def encoded_size(table: pa.Table) -> int:
    """Estimate the bytes of the table's rows as JSON; every row repeats the names of the fields."""
    names: int = table.num_rows * sum(len(name) + 16 for name in table.column_names)
    return names + int(table.nbytes)


def fields_of(schema: pa.Schema) -> list[dict[str, str]]:
    """Return name and type name of each field, as in responses."""
    return [{"name": field.name, "type": type_name(field.type)} for field in schema]


def refuse_intervals(schema: pa.Schema) -> None:
    """Raise FormatError if a field has intervals at any depth, which JSON and CSV cannot represent."""
    for field in schema:
        if _has_interval(canonical_type(field.type)):
            raise FormatError(f"field '{field.name}' holds intervals, which only Arrow can carry")


def _has_interval(data_type: pa.DataType) -> bool:
    inside = (data_type.field(number).type for number in range(data_type.num_fields))
    return pa.types.is_interval(data_type) or any(map(_has_interval, inside))


def _gathered(parts: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Join small chunks up to the size of one output chunk."""
    held, size = [], 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= _LEAST_PIECE:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _array(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes | memoryview]:
    """Encode rows as a JSON array."""
    mark = b"["
    for rows in _rows(schema, batches):
        yield mark
        yield rows
        mark = b","
    yield b"[]" if mark == b"[" else b"]"


def _rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes | memoryview]:
    """Encode rows as comma-separated JSON objects, some at a time."""
    heads: list[pa.Scalar] = []
    end, nothing = pa.scalar("},", pa.large_string()), pa.scalar("", pa.large_string())
    for batch in batches:
        for piece in decoded_pieces(batch, _BATCH_BYTES, BATCH_ROWS):
            if not piece.num_rows:
                continue
            if not schema.names:
                yield b",".join([b"{}"] * piece.num_rows)
            elif piece.num_rows <= _FEW_ROWS and all(map(_is_native, piece.columns)):
                yield orjson.dumps(piece.to_pylist())[1:-1]
            else:
                heads = heads or _heads(schema.names)
                texts = map(_texts, piece.columns)
                members = chain.from_iterable(zip(heads, texts, strict=True))
                rows = pc.binary_join_element_wise(*members, end, nothing)
                yield memoryview(rows.buffers()[2])[:-1]  # the buffer has nothing but these rows


def _heads(names: Sequence[str]) -> list[pa.Scalar]:
    """Return the text before the value of each field."""
    texts = [f"{',' if at else '{'}{orjson.dumps(name).decode()}:" for at, name in enumerate(names)]
    return [pa.scalar(text, pa.large_string()) for text in texts]


def _is_native(array: pa.Array) -> bool:
    """Whether orjson writes the column's Python values as this module does."""
    kind, data_type = pa.types, array.type
    if kind.is_float32(data_type) or kind.is_float64(data_type):
        return pc.all(pc.is_finite(array)).as_py() is not False
    return bool(
        kind.is_integer(data_type)
        or kind.is_boolean(data_type)
        or kind.is_string(data_type)
        or kind.is_large_string(data_type)
        or kind.is_null(data_type)
    )


# ------------------------------------------------------------------------------ columns of JSON texts


def _texts(array: pa.Array) -> pa.Array:
    """Return each value of a column as JSON text."""
    array = plain(array)
    kind, data_type = pa.types, array.type
    if kind.is_floating(data_type):
        texts = _float_texts(array)
    elif kind.is_nested(data_type):
        texts = _value_texts(_values(array))
    elif kind.is_integer(data_type) or kind.is_boolean(data_type):
        texts = array.cast(pa.large_string())
    elif kind.is_duration(data_type):
        texts = array.cast(pa.int64()).cast(pa.large_string())
    elif kind.is_null(data_type):
        texts = pa.nulls(len(array), pa.large_string())
    elif kind.is_string(data_type) or kind.is_large_string(data_type):
        texts = _quoted(array) if not _any_escaped(array) else _value_texts(array.to_pylist())
    else:
        texts = _quoted(to_text(array))
    return texts.fill_null("null") if texts.null_count else texts


def _float_texts(array: pa.Array) -> pa.Array:
    """Encode floats with one call of orjson, and split at the commas, which no number contains."""
    numbers = np.asarray(array.cast(pa.float64()).fill_null(0.0))
    written = orjson.dumps(np.ascontiguousarray(numbers), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
    commas = np.flatnonzero(np.frombuffer(written, np.uint8) == _COMMA)
    digits = written.replace(b",", b"")
    starts = np.concatenate([[0], commas - np.arange(len(commas)), [len(digits)]])
    texts = pa.Array.from_buffers(
        pa.large_string(), len(array), [None, pa.py_buffer(starts), pa.py_buffer(digits)]
    )
    finite = np.isfinite(numbers)
    if not finite.all():
        infinities = np.where(numbers > 0, '"Infinity"', '"-Infinity"')
        names = pa.array(np.where(np.isnan(numbers), '"NaN"', infinities)).cast(pa.large_string())
        texts = pc.if_else(pa.array(finite), texts, names)
    if array.null_count:
        texts = pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.large_string()))
    return texts


def _any_escaped(array: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(array, _ESCAPED)).as_py())


def _quoted(array: pa.Array) -> pa.Array:
    """Quote texts without characters to escape."""
    quote = pa.scalar('"', pa.large_string())
    return pc.binary_join_element_wise(
        quote, array.cast(pa.large_string()), quote, pa.scalar("", pa.large_string())
    )


def _value_texts(values: list[Any]) -> pa.Array:
    return pa.array(
        [None if value is None else orjson.dumps(value).decode() for value in values], pa.large_string()
    )


# --------------------------------------------------------------- values that only Python can put together


def _values(array: pa.Array) -> list[Any]:
    """Return a column as JSON values."""
    array = plain(array)
    kind, data_type = pa.types, array.type
    if is_list(data_type):
        return _cut(array, _values(list_children(array)[0]))
    if kind.is_map(data_type):
        keys, items = list_children(array)
        return _cut(array, [[key, item] for key, item in zip(_values(keys), _values(items), strict=True)])
    if kind.is_struct(data_type):
        return _objects(array)
    if kind.is_floating(data_type):
        return _floats(array)
    if kind.is_duration(data_type):
        array = array.cast(pa.int64())
    elif not (
        kind.is_integer(data_type)
        or kind.is_boolean(data_type)
        or kind.is_string(data_type)
        or kind.is_large_string(data_type)
        or kind.is_null(data_type)
    ):
        array = to_text(array)
    values: list[Any] = array.to_pylist()
    return values


def _cut(array: pa.Array, elements: list[Any]) -> list[Any]:
    """Split the elements into one list per row, None for a null row."""
    borders = [0, *np.cumsum(list_lengths(array)).tolist()]
    valid_rows = validity(array).tolist()
    return [
        elements[start:end] if valid else None
        for (start, end), valid in zip(pairwise(borders), valid_rows, strict=True)
    ]


def _objects(array: pa.Array) -> list[Any]:
    names = [field.name for field in array.type]
    if not names:
        return [{} if valid else None for valid in validity(array).tolist()]
    children = [_values(child) for child in struct_children(array)]
    objects: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)]
    for index in np.flatnonzero(validity(array) == 0).tolist() if array.null_count else ():
        objects[index] = None
    return objects


def _floats(array: pa.Array) -> list[Any]:
    wide = array.cast(pa.float64())
    values: list[Any] = wide.to_pylist()
    for index in np.flatnonzero(~np.isfinite(np.asarray(wide.fill_null(0.0)))).tolist():
        number = values[index]
        values[index] = "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    return values
