"""JSON, CSV, Arrow stream and Parquet <-> tables. Knows nothing of HTTP.

`read_table` and `write_chunks` do all four; what each carries, and how, stands in its module:
`json_input`, `json_output`, `csv_format`, `arrow`; the text forms of values in `text`. Whatever carried a
table, its digest (`providers.digest`) is the same.
"""

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from app.api.formats.arrow import arrow_chunks, parquet_chunks, read_arrow, read_parquet
from app.api.formats.csv_format import csv_chunks, read_csv
from app.api.formats.errors import FormatError
from app.api.formats.json_input import Fields, load_json, read_json, table_from_columns, table_from_rows
from app.api.formats.json_output import fields_of, json_chunks, rows_json
from app.api.formats.media_types import ARROW_STREAM, CSV, JSON, MEDIA_TYPES, PARQUET, essence, negotiate

__all__ = [
    "ARROW_STREAM",
    "CSV",
    "JSON",
    "MEDIA_TYPES",
    "PARQUET",
    "Fields",
    "FormatError",
    "essence",
    "fields_of",
    "json_chunks",
    "load_json",
    "negotiate",
    "read_table",
    "rows_json",
    "table_from_columns",
    "table_from_rows",
    "write_chunks",
]


def read_table(
    media_type: str, data: bytes | BinaryIO, fields: Fields | None = None, max_bytes: int | None = None
) -> pa.Table:
    """The table that `data` carries.

    Parameters
    ----------
    media_type : one of `MEDIA_TYPES`; parameters such as a charset are not looked at
    data : the body, or a binary file that can seek, read from its beginning
    fields : types of some of the fields, for JSON and CSV; the other two state their own
    max_bytes : the most that an Arrow stream or Parquet file may decode to

    Raises
    ------
    FormatError : the data is not right; the message quotes no value
    """
    match essence(media_type):
        case "application/json":
            return read_json(data if isinstance(data, bytes) else _whole(data), fields)
        case "text/csv":
            return read_csv(data, fields)
        case "application/vnd.apache.arrow.stream":
            _refuse_fields(fields)
            return read_arrow(data, max_bytes)
        case "application/vnd.apache.parquet":
            _refuse_fields(fields)
            return read_parquet(data, max_bytes)
    raise _unknown()


def write_chunks(media_type: str, table: pa.Table) -> Iterator[bytes]:
    """The table in pieces; raises FormatError at once if the media type cannot carry it."""
    match essence(media_type):
        case "application/json":
            return json_chunks(table)
        case "text/csv":
            return csv_chunks(table)
        case "application/vnd.apache.arrow.stream":
            return arrow_chunks(table)
        case "application/vnd.apache.parquet":
            return parquet_chunks(table)
    raise _unknown()


def _whole(data: BinaryIO) -> bytes:
    data.seek(0)
    return data.read()


def _refuse_fields(fields: Fields | None) -> None:
    if fields:
        raise FormatError("Arrow and Parquet state their own types; leave 'fields' out", "/fields")


def _unknown() -> FormatError:
    return FormatError(f"unknown media type; known are {', '.join(MEDIA_TYPES)}")
