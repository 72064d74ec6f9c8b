"""Arrow -> JSON: ``{"fields": [{"name", "type"}], "rows": [{field: value}]}``.

Integers are exact; NaN and the infinities are the strings "NaN", "Infinity", "-Infinity"; decimals,
dates, times, timestamps and binaries are strings in the forms of `app.api.formats.text`; a duration
is an integer of its unit; a map is an array of ``[key, value]`` pairs. Read back with its ``fields``
it gives the identical table, encodings aside.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from app.api.formats.errors import FormatError
from app.api.formats.text import to_text
from providers.encodings import list_children, list_lengths, plain, struct_children, validity
from providers.types import canonical_type, is_list, type_name

BATCH_ROWS = 8192


def json_chunks(table: pa.Table, batch_rows: int = BATCH_ROWS) -> Iterator[bytes]:
    """The JSON document in pieces of `batch_rows` rows; raises FormatError before the first piece."""
    refuse_intervals(table.schema)
    return _chunks(table, batch_rows)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as JSON values, for an answer that carries them inline."""
    refuse_intervals(table.schema)
    rows: list[dict[str, Any]] = []
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        rows.extend(_rows(batch))
    return rows


def fields_of(schema: pa.Schema) -> list[dict[str, str]]:
    """Name and type name of each field, as the documents show them."""
    return [{"name": field.name, "type": type_name(field.type)} for field in schema]


def refuse_intervals(schema: pa.Schema) -> None:
    """Raise FormatError if a field holds intervals at any depth, which JSON and CSV cannot carry."""
    for field in schema:
        if _has_interval(canonical_type(field.type)):
            raise FormatError(f"field '{field.name}' holds intervals, which only Arrow can carry")


def _has_interval(data_type: pa.DataType) -> bool:
    inside = (data_type.field(number).type for number in range(data_type.num_fields))
    return pa.types.is_interval(data_type) or any(map(_has_interval, inside))


def _chunks(table: pa.Table, batch_rows: int) -> Iterator[bytes]:
    yield b'{"fields":' + orjson.dumps(fields_of(table.schema)) + b',"rows":['
    comma = b""
    for batch in table.to_batches(max_chunksize=batch_rows):
        if batch.num_rows:
            yield comma + orjson.dumps(_rows(batch))[1:-1]
            comma = b","
    yield b"]}"


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    # a copied dict already has its room, which takes half the time of one built from pairs
    empty: dict[str, Any] = dict.fromkeys(batch.schema.names)
    rows = [empty.copy() for _ in range(batch.num_rows)]
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for row, value in zip(rows, _values(column), strict=True):
            row[name] = value
    return rows


def _values(array: pa.Array) -> list[Any]:
    """A column as JSON values."""
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
    """The elements as one list a row, None where the row is null."""
    borders = [0, *np.cumsum(list_lengths(array)).tolist()]
    there = validity(array).tolist()
    return [
        elements[start:end] if valid else None
        for (start, end), valid in zip(pairwise(borders), there, strict=True)
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
