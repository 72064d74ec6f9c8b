"""Parquet <-> record batches.

Parquet keeps the values and the digest, but not every type: ``time[s]`` and ``timestamp[s]`` come
back in milliseconds; run-end, view and list-view encodings are written as plain values; some
dictionaries come back as plain values. It cannot carry intervals, structs without members, binaries
of width 0, decimals of a negative scale, and ``timestamp[s]`` too far off for milliseconds. It is
written with zstd in row groups of 131 072 rows, whatever batches the rows come in; only where those
take more than 32 MiB does a group end earlier, with a batch.
"""

import io
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from app.api.formats.arrow import BROKEN, Pieces, checked
from app.api.formats.errors import FormatError
from app.api.formats.schema import MOST_FIELDS, check_schema
from app.api.formats.source import Batches, Bounded
from providers.encodings import canonical_array
from providers.types import canonical_type, type_name

_BATCH_ROWS = 1 << 16
_BATCH_CELLS = 1 << 22
_BATCH_BYTES = 1 << 24
_PAGE_BUFFER = 1 << 18
_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 1 << 25
_NOT_WHOLE = "the body is not a whole Parquet file"


# ------------------------------------------------------------------------------------------ reading


def open_parquet(data: bytes | BinaryIO) -> Batches:
    """The table of a Parquet file, decoded a batch at a time, pages read as they are needed."""
    try:
        # a row group's column is read through a buffer of this size, not whole
        file = pq.ParquetFile(Bounded(data), buffer_size=_PAGE_BUFFER, pre_buffer=False)
        metadata = file.metadata
        if metadata.num_columns > MOST_FIELDS:
            raise FormatError(
                f"the table has {metadata.num_columns} columns; a table has at most {MOST_FIELDS} fields"
            )
        schema = file.schema_arrow
        batches = file.iter_batches(batch_size=_rows_at_once(metadata), use_threads=False)
    except (FormatError, MemoryError):
        raise
    except BROKEN:
        raise FormatError(_NOT_WHOLE) from None
    check_schema(schema)
    schema, sound = checked(schema, batches, _NOT_WHOLE)
    return schema, _as_many_as_promised(sound, metadata.num_rows)


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    """Rows of a batch that takes little memory, as far as the file says how large its rows are."""
    rows: int = min(_BATCH_ROWS, _BATCH_CELLS // max(1, metadata.num_columns))
    for number in range(min(metadata.num_row_groups, 64)):
        group = metadata.row_group(number)
        if group.num_rows > 0 and group.total_byte_size > 0:
            rows = min(rows, _BATCH_BYTES * group.num_rows // group.total_byte_size)
    return max(1, rows)


def _as_many_as_promised(batches: Iterator[pa.RecordBatch], promised: int) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    if rows != promised:
        raise FormatError("the Parquet file's number of rows is not that of its columns")


# ------------------------------------------------------------------------------------------ writing


def parquet_chunks(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """The Parquet file in pieces, a row group each; raises FormatError before the first piece.

    Only a ``timestamp[s]`` too far off for milliseconds is found out when its row group is written.
    """
    if not len(schema):
        raise FormatError("the table has no fields, which Parquet cannot carry; use JSON or Arrow")
    carried = pa.schema([_parquet_field(field) for field in schema], schema.metadata)
    return _parquet_pieces(carried, batches)


def _parquet_pieces(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    pieces = Pieces()
    with pq.ParquetWriter(pieces, schema, compression="zstd") as writer:
        for group in _row_groups(schema, batches):
            try:
                # one chunk a row group: page borders follow chunks, and bytes must not
                writer.write_table(group.combine_chunks(), max(1, group.num_rows))
            except pa.ArrowInvalid:
                raise FormatError("a timestamp is too far off for Parquet; use Arrow") from None
            del group
            pa.default_memory_pool().release_unused()  # the allocator keeps what was freed
            yield pieces.take()
    yield pieces.take()


def _row_groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables of `_GROUP_ROWS`, or of fewer batches once those have bytes enough."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            carried = _carried(schema, batch.slice(start, _GROUP_ROWS - rows))
            start += carried.num_rows
            gathered.append(carried)
            rows, size = rows + carried.num_rows, size + carried.nbytes
            if rows == _GROUP_ROWS or size >= _GROUP_BYTES:
                yield pa.Table.from_batches(gathered, schema)
                gathered, rows, size = [], 0, 0
    if gathered:
        yield pa.Table.from_batches(gathered, schema)


def _carried(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        column if column.type == field.type else canonical_array(column)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _parquet_field(field: pa.Field) -> pa.Field:
    """The field as Parquet can carry it: itself, or without its encodings."""
    carried = _parquet_type(field.type)
    if carried is None:
        raise FormatError(
            f"field '{field.name}' is of type {type_name(field.type)}, which Parquet cannot carry; use Arrow"
        )
    return field.with_type(carried)


@lru_cache(maxsize=1024)
def _parquet_type(data_type: pa.DataType) -> pa.DataType | None:
    """The type itself, or its canonical one, whichever a trial shows that Parquet takes."""
    canonical = canonical_type(data_type)
    for candidate in (data_type, canonical):
        if pa.types.is_nested(candidate) and candidate != canonical:
            continue
        try:
            with pq.ParquetWriter(io.BytesIO(), pa.schema([pa.field("field", candidate)])) as writer:
                writer.write_table(pa.table({"field": pa.nulls(1, candidate)}))
        except (pa.ArrowException, OSError):
            continue
        return candidate
    return None
