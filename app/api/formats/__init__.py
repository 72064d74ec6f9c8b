"""JSON, CSV, Arrow stream and Parquet <-> tables. Knows nothing of HTTP.

`open_table` and `stream_chunks` take and give a table batch by batch, `read_table` and `write_chunks`
whole. What each format carries, and how, stands in its module: `json_input`, `json_output`,
`csv_input`, `csv_output`, `arrow`, `parquet`; the text forms of values in `text`. Whatever carried a
table, its digest (`providers.digest`) is the same.
"""

from collections.abc import Iterable, Iterator
from typing import BinaryIO

import pyarrow as pa

from app.api.formats.arrow import arrow_chunks, open_arrow
from app.api.formats.csv_dialect import CsvDialect
from app.api.formats.csv_input import open_csv
from app.api.formats.csv_output import csv_chunks
from app.api.formats.errors import FormatError
from app.api.formats.json_input import Fields, read_json, table_from_columns, table_from_rows
from app.api.formats.json_output import fields_of, json_chunks, json_with_rows
from app.api.formats.media_types import ARROW_STREAM, CSV, JSON, MEDIA_TYPES, PARQUET, essence, negotiate
from app.api.formats.parquet import open_parquet, parquet_chunks
from app.api.formats.source import Batches

__all__ = [
    "ARROW_STREAM",
    "CSV",
    "JSON",
    "MEDIA_TYPES",
    "PARQUET",
    "Batches",
    "CsvDialect",
    "Fields",
    "FormatError",
    "essence",
    "fields_of",
    "json_with_rows",
    "negotiate",
    "open_table",
    "read_table",
    "stream_chunks",
    "table_from_columns",
    "table_from_rows",
    "write_chunks",
]


def open_table(
    media_type: str, data: bytes | BinaryIO, fields: Fields | None = None, csv: CsvDialect | None = None
) -> Batches:
    """The table that `data` carries, batch by batch, in bounded memory.

    Parameters
    ----------
    media_type : one of `MEDIA_TYPES`; parameters such as a charset are not looked at
    data : the body, or a binary file that can seek, read from its beginning; JSON is read whole
    fields : types of some of the fields, for JSON and CSV; the other two state their own
    csv : how a CSV is written

    Raises
    ------
    FormatError : the data is not right, found at once or when its batch is reached; the message
        quotes no value
    """
    match essence(media_type):
        case "application/json":
            table = read_json(data if isinstance(data, bytes) else _whole(data), fields)
            return table.schema, iter(table.to_batches())
        case "text/csv":
            return open_csv(data, fields, csv)
        case "application/vnd.apache.arrow.stream":
            _refuse_fields(fields)
            return open_arrow(data)
        case "application/vnd.apache.parquet":
            _refuse_fields(fields)
            return open_parquet(data)
    raise _unknown()


def read_table(
    media_type: str, data: bytes | BinaryIO, fields: Fields | None = None, csv: CsvDialect | None = None
) -> pa.Table:
    """The whole table that `open_table` reads; raises FormatError."""
    schema, batches = open_table(media_type, data, fields, csv)
    return pa.Table.from_batches(batches, schema)


def stream_chunks(media_type: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """The table in pieces; raises FormatError at once if the media type cannot carry it."""
    match essence(media_type):
        case "application/json":
            return json_chunks(schema, batches)
        case "text/csv":
            return csv_chunks(schema, batches)
        case "application/vnd.apache.arrow.stream":
            return arrow_chunks(schema, batches)
        case "application/vnd.apache.parquet":
            return parquet_chunks(schema, batches)
    raise _unknown()


def write_chunks(media_type: str, table: pa.Table) -> Iterator[bytes]:
    """`stream_chunks` of a table in memory."""
    return stream_chunks(media_type, table.schema, table.to_batches())


def _whole(data: BinaryIO) -> bytes:
    data.seek(0)
    return data.read()


def _refuse_fields(fields: Fields | None) -> None:
    if fields:
        raise FormatError("Arrow and Parquet state their own types; leave 'fields' out", "/fields")


def _unknown() -> FormatError:
    return FormatError(f"unknown media type; known are {', '.join(MEDIA_TYPES)}")
