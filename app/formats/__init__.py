"""Tables to and from JSON, CSV, Arrow streams and Parquet, without any HTTP.

`open_table` reads and `stream_chunks` writes a table batch by batch. The modules document what each
format can represent: `json_input`, `json_output`, `csv_input`, `csv_output`, `arrow`, `parquet`; the
text forms of values are in `value_text`. A table has the same digest (`providers.tables.digest`) in
every format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

import pyarrow as pa

from app.formats.arrow import arrow_chunks, open_arrow
from app.formats.bounded_file import Batches
from app.formats.csv_dialect import CsvDialect
from app.formats.csv_input import open_csv
from app.formats.csv_output import PLAIN, CsvStyle, csv_chunks
from app.formats.errors import FormatError
from app.formats.json_input import Fields
from app.formats.json_output import json_chunks
from app.formats.media_types import MEDIA_TYPES, PARQUET, essence
from app.formats.parquet import check_parquet_values, has_doubtful_values, open_parquet, parquet_chunks

__all__ = [
    "MEDIA_TYPES",
    "PARQUET",
    "Batches",
    "CsvDialect",
    "CsvStyle",
    "Fields",
    "FormatError",
    "check_values",
    "essence",
    "needs_values",
    "open_table",
    "stream_chunks",
]


def open_table(
    media_type: str, data: bytes | BinaryIO, fields: Fields | None = None, csv: CsvDialect | None = None
) -> Batches:
    """Open a table in a file format; its batches are read in bounded memory.

    Parameters
    ----------
    media_type : str
        CSV, Arrow stream or Parquet; parameters such as a charset are ignored.
    data : bytes or binary file
        A file must be seekable, and is read from its beginning.
    fields : mapping of str to str, or list of dict
        Types of some of the fields, only for CSV; the other two formats contain their types.
    csv : CsvDialect
        Dialect of a CSV.

    Raises
    ------
    FormatError
        The data is invalid. Raised at once, or when the batch is reached. The message quotes no value.
    """
    match essence(media_type):
        case "text/csv":
            return open_csv(data, fields, csv)
        case "application/vnd.apache.arrow.stream":
            _refuse_fields(fields)
            return open_arrow(data)
        case "application/vnd.apache.parquet":
            _refuse_fields(fields)
            return open_parquet(data)
    raise _unknown()


def stream_chunks(
    media_type: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    style: CsvStyle = PLAIN,
) -> Iterator[bytes]:
    """Encode the table in chunks. Raises FormatError at once if the media type cannot represent it."""
    match essence(media_type):
        case "application/json":
            return json_chunks(schema, batches)
        case "text/csv":
            return csv_chunks(schema, batches, style)
        case "application/vnd.apache.arrow.stream":
            return arrow_chunks(schema, batches)
        case "application/vnd.apache.parquet":
            return parquet_chunks(schema, batches)
    raise _unknown()


def needs_values(media_type: str, schema: pa.Schema) -> bool:
    """Return whether only `check_values` can decide if the media type can represent the table."""
    return essence(media_type) == PARQUET and has_doubtful_values(schema)


def check_values(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Read all batches. Raises FormatError: Parquet cannot represent a value."""
    check_parquet_values(schema, batches)


def _refuse_fields(fields: Fields | None) -> None:
    if fields:
        raise FormatError("Arrow and Parquet state their own types; leave 'fields' out", "/fields")


def _unknown() -> FormatError:
    return FormatError(f"unknown media type; known are {', '.join(MEDIA_TYPES)}")
