"""Whole tables from and to the bytes of every media type, JSON documents included."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
from pydantic_core import from_json

from app.formats import CsvDialect, Fields, essence, open_table, stream_chunks
from app.formats.errors import FormatError
from app.formats.json_input import table_from_columns, table_from_rows
from app.formats.json_text import check_text, is_doubtful


def parse_json(data: bytes) -> Any:
    """Parse a JSON text as the API does: exact integers, no duplicate names in an object."""
    document = from_json(data, allow_inf_nan=False, cache_strings="keys")
    if is_doubtful(data, document):
        check_text(data)
    return document


def read_json(data: bytes, fields: Fields | None = None) -> pa.Table:
    """Return the table of a JSON object with ``rows`` or ``columns``, and optionally ``fields``."""
    try:
        document = parse_json(data)
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError(f"not valid JSON: {error}") from None
    fields = document.get("fields") if fields is None else fields
    if "rows" in document:
        return table_from_rows(document["rows"], fields)
    return table_from_columns(document["columns"], fields)


def read_table(
    media_type: str, data: bytes | BinaryIO, fields: Fields | None = None, csv: CsvDialect | None = None
) -> pa.Table:
    """Return the whole table that the data contains. Raises FormatError."""
    if essence(media_type) == "application/json":
        return read_json(data if isinstance(data, bytes) else data.read(), fields)
    schema, batches = open_table(media_type, data, fields, csv)
    return pa.Table.from_batches(batches, schema)


def write_table(media_type: str, table: pa.Table) -> Iterator[bytes]:
    """Encode a table in memory, in chunks. Raises FormatError as `stream_chunks`."""
    return stream_chunks(media_type, table.schema, table.to_batches())
