"""Parquet to and from record batches.

Parquet keeps the values and the digest, but not every type: ``time[s]`` and ``timestamp[s]`` are returned in
milliseconds; run-end encodings, and views inside nested values, are written as plain values; some
dictionaries are returned as plain values, and none contains a null. It cannot represent intervals, structs
without members, binaries of width 0, decimals of a negative scale, and ``timestamp[s]`` too far off for
milliseconds. Metadata of the schema and of its fields are kept. It is written with zstd in row groups of
131 072 rows, independent of the batches of the input; only if those exceed 32 MiB does a group end earlier,
with a batch.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from app.formats.arrow import ChunkSink, checked, invalid_data
from app.formats.bounded_file import Batches, BoundedFile
from app.formats.errors import FormatError
from app.formats.first_bytes import FIRST_BYTES, refuse_other_format
from app.formats.media_types import PARQUET
from app.formats.released_arrays import released
from app.formats.schema_checks import MOST_FIELDS, check_schema
from app.formats.written_batches import written_batches
from providers.tables.columns import without_null_entries
from providers.tables.encodings import canonical_array
from providers.tables.layouts import original_schema, restored
from providers.tables.type_names import canonical_type, type_name

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_BATCH_ROWS = 1 << 16

_BATCH_CELLS = 1 << 22

_BATCH_BYTES = 1 << 24

_PAGE_BUFFER = 1 << 18

_GROUP_ROWS = 1 << 17

_GROUP_BYTES = 1 << 25

_NOT_WHOLE = "the body is not a complete Parquet file"

_ARROW_SCHEMA = b"ARROW:schema"
"""Metadata key of the Arrow types. The writer adds its own; of two, a reader would use the wrong one."""

# ------------------------------------------------------------------------------------------ reading


def open_parquet(data: bytes | BinaryIO) -> Batches:
    """Open the table of a Parquet file; batches are decoded one at a time, pages are read when needed."""
    import pyarrow.parquet as pq  # imported late: it brings clients of cloud storages

    source = BoundedFile(data)
    refuse_other_format(PARQUET, source.read(FIRST_BYTES))
    try:
        # a row group's column is read through a buffer of this size, not completely
        file = pq.ParquetFile(source, buffer_size=_PAGE_BUFFER, pre_buffer=False)
        metadata = file.metadata
        if metadata.num_columns > MOST_FIELDS:
            raise FormatError(
                f"the table has {metadata.num_columns} columns; a table has at most {MOST_FIELDS} fields"
            )
        schema = file.schema_arrow
        batches = file.iter_batches(batch_size=_rows_at_once(metadata), use_threads=False)
    except (FormatError, MemoryError):
        raise
    except invalid_data():
        raise FormatError(_NOT_WHOLE) from None
    check_schema(schema)
    schema, sound = checked(schema, batches, _NOT_WHOLE)
    return schema, _as_many_as_promised(sound, metadata.num_rows)


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    """Return a number of rows per batch that takes little memory, estimated from the file's metadata."""
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
        raise FormatError("the Parquet file's number of rows differs from that of its columns")


# ------------------------------------------------------------------------------------------ writing


def parquet_chunks(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Encode a Parquet file, one chunk per row group. Raises FormatError before the first chunk.

    Only a ``timestamp[s]`` too far off for milliseconds is found when its row group is written, unless
    `check_parquet_values` was called before.
    """
    if not len(schema):
        raise FormatError("the table has no fields, which Parquet cannot carry; use JSON or Arrow")
    original = original_schema(schema)
    fields = [_parquet_field(came, field) for came, field in zip(original, schema, strict=True)]
    metadata = {key: value for key, value in (original.metadata or {}).items() if key != _ARROW_SCHEMA}
    groups = written_batches(batches, _GROUP_ROWS, _GROUP_BYTES)
    return _parquet_pieces(pa.schema(fields, metadata or None), released(schema, groups))


def has_doubtful_values(schema: pa.Schema) -> bool:
    """Return whether values, and not only types, decide if Parquet can represent the table."""
    return bool(_doubtful(schema))


def check_parquet_values(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write the doubtful fields to a null sink. Raises FormatError: a value cannot be written."""
    places = _doubtful(schema)
    fields = pa.schema([schema.field(place) for place in places])
    for _ in parquet_chunks(fields, (batch.select(places) for batch in batches)):
        pass


def _doubtful(schema: pa.Schema) -> list[int]:
    return [place for place, field in enumerate(schema) if "timestamp[s" in str(field.type)]


def _parquet_pieces(schema: pa.Schema, groups: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    import pyarrow.parquet as pq  # imported late: it brings clients of cloud storages

    pieces = ChunkSink()
    with pq.ParquetWriter(pieces, schema, compression="zstd") as writer:
        for group in groups:
            try:
                writer.write_batch(_carried(schema, group), max(1, group.num_rows))
            except pa.ArrowInvalid:
                raise FormatError("a timestamp is outside of Parquet's range; use Arrow") from None
            del group
            pa.default_memory_pool().release_unused()  # the allocator keeps freed memory
            yield pieces.take()
    yield pieces.take()


def _carried(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [_as_type(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_type(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):  # an ordered one has kept its null until here
        column = without_null_entries(column)
    if column.type == data_type:
        return column
    return canonical_array(column) if canonical_type(data_type) == data_type else restored(column, data_type)


def _parquet_field(came: pa.Field, field: pa.Field) -> pa.Field:
    """Return the field in the first form that Parquet accepts: original, stored, or without encodings."""
    carried = _parquet_type(came.type)
    if carried != came.type:
        carried = _parquet_type(field.type)
    if carried is None:
        raise FormatError(
            f"field '{field.name}' is of type {type_name(field.type)}, which Parquet cannot carry; use Arrow"
        )
    return field.with_type(carried)


@lru_cache(maxsize=1024)
def _parquet_type(data_type: pa.DataType) -> pa.DataType | None:
    """Return the type or its canonical type, whichever Parquet accepts in a trial; None if neither."""
    import pyarrow.parquet as pq  # imported late: it brings clients of cloud storages

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
