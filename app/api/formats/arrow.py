"""Arrow stream and Parquet <-> tables.

Arrow carries every type unchanged, encodings and extension types too; it is written uncompressed.
Views and runs, which Arrow cannot rearrange, are laid out plainly when they are read.

Parquet keeps the values and the digest, but not every type: ``time[s]`` and ``timestamp[s]`` come
back in milliseconds; run-end, view and list-view encodings are written as plain values; some
dictionaries come back as plain values. It cannot carry intervals, structs without members, binaries
of width 0, decimals of a negative scale, and ``timestamp[s]`` too far off for milliseconds. It is
written in row groups of a fixed number of rows with zstd, so that the bytes depend on the table
alone and not on its chunks.
"""

import io
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from app.api.formats.errors import FormatError
from app.api.formats.schema import check_schema
from providers.encodings import can_take, canonical_array
from providers.types import canonical_type, type_name

_BATCH_ROWS = 1 << 16
_GROUP_ROWS = 1 << 17
_BROKEN = (pa.ArrowException, OSError, ValueError, OverflowError, RecursionError)


class _Pieces(io.RawIOBase):
    """A file that hands out what was written since it was last asked."""

    def __init__(self) -> None:
        super().__init__()
        self._written: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        piece = bytes(data)
        self._written.append(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        piece, self._written = b"".join(self._written), []
        return piece


def read_arrow(data: bytes | BinaryIO, max_bytes: int | None = None) -> pa.Table:
    """The table of an Arrow stream; every buffer is checked before anything uses it."""
    if _starts_with(data, b"ARROW1"):
        raise FormatError("this is an Arrow file; send the Arrow stream format")
    try:
        with pa.ipc.open_stream(_source(data)) as reader:
            check_schema(reader.schema)
            return _gathered(reader.schema, iter(reader), max_bytes)
    except FormatError:
        raise
    except _BROKEN:
        raise FormatError("the body is not a whole Arrow stream") from None


def read_parquet(data: bytes | BinaryIO, max_bytes: int | None = None) -> pa.Table:
    """The table of a Parquet file, decoded a batch at a time."""
    try:
        file = pq.ParquetFile(_source(data))
        schema = file.schema_arrow
        check_schema(schema)
        return _gathered(schema, file.iter_batches(batch_size=_BATCH_ROWS), max_bytes)
    except FormatError:
        raise
    except _BROKEN:
        raise FormatError("the body is not a whole Parquet file") from None


def _source(data: bytes | BinaryIO) -> Any:
    if isinstance(data, bytes):
        return pa.BufferReader(data)
    data.seek(0)
    return data


def _starts_with(data: bytes | BinaryIO, magic: bytes) -> bool:
    if isinstance(data, bytes):
        return data.startswith(magic)
    data.seek(0)
    return data.read(len(magic)) == magic


class _Size:
    """What has been decoded so far, against what may be."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.bytes = 0

    def add(self, more: int) -> None:
        self.bytes += more
        if self.most is not None and self.bytes > self.most:
            what = f"the table is larger than {self.most} bytes when decoded"
            raise FormatError(f"{what}; send a smaller one")


def _gathered(schema: pa.Schema, batches: Iterable[pa.RecordBatch], max_bytes: int | None) -> pa.Table:
    gathered, size = [], _Size(max_bytes)
    takeable = [can_take(field.type) for field in schema]
    plain_schema = pa.schema(
        [
            field if takes else field.with_type(canonical_type(field.type))
            for field, takes in zip(schema, takeable, strict=True)
        ],
        schema.metadata,
    )
    for batch in batches:
        for field, column in zip(batch.schema, batch.columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                what = "is damaged: offsets, indices or text that is not UTF-8"
                raise FormatError(f"field '{field.name}' {what}") from None
        # only now may anything look inside; a row counts a byte where runs and nulls take no room
        size.add(batch.nbytes + batch.num_rows)
        if all(takeable):
            gathered.append(batch)
            continue
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            columns = batch.slice(start, _BATCH_ROWS).columns
            pairs = zip(columns, takeable, strict=True)
            laid_out = [column if takes else canonical_array(column) for column, takes in pairs]
            gathered.append(pa.RecordBatch.from_arrays(laid_out, schema=plain_schema))
            size.add(gathered[-1].nbytes)
    return pa.Table.from_batches(gathered, plain_schema)


def arrow_chunks(table: pa.Table) -> Iterator[bytes]:
    """The Arrow stream in pieces, a batch of rows each."""
    pieces = _Pieces()
    with pa.ipc.new_stream(pieces, table.schema) as writer:
        yield pieces.take()
        for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
            writer.write_batch(batch)
            yield pieces.take()
    yield pieces.take()


def parquet_chunks(table: pa.Table) -> Iterator[bytes]:
    """The Parquet file in pieces, a row group each; raises FormatError before the first piece.

    Only a ``timestamp[s]`` too far off for milliseconds is found out when its row group is written.
    """
    if not table.num_columns:
        raise FormatError("the table has no fields, which Parquet cannot carry; use JSON or Arrow")
    schema = pa.schema([_parquet_field(field) for field in table.schema], table.schema.metadata)
    return _parquet_pieces(table, schema)


def _parquet_pieces(table: pa.Table, schema: pa.Schema) -> Iterator[bytes]:
    pieces = _Pieces()
    with pq.ParquetWriter(pieces, schema, compression="zstd") as writer:
        for start in range(0, table.num_rows, _GROUP_ROWS):
            rows = table.slice(start, _GROUP_ROWS)
            columns = [
                pa.chunked_array(map(canonical_array, column.chunks), field.type)
                if column.type != field.type
                else column
                for column, field in zip(rows.columns, schema, strict=True)
            ]
            try:
                # one chunk a row group: page borders follow chunks, and bytes must not
                group = pa.Table.from_arrays(columns, schema=schema).combine_chunks()
                writer.write_table(group, _GROUP_ROWS)
            except pa.ArrowInvalid:
                raise FormatError("a timestamp is too far off for Parquet; use Arrow") from None
            yield pieces.take()
    yield pieces.take()


def _parquet_field(field: pa.Field) -> pa.Field:
    """The field as Parquet can carry it: itself, or without its encodings."""
    canonical = canonical_type(field.type)
    for candidate in (field.type, canonical):
        if pa.types.is_nested(candidate) and candidate != canonical:
            continue
        try:
            with pq.ParquetWriter(io.BytesIO(), pa.schema([pa.field("field", candidate)])) as writer:
                writer.write_table(pa.table({"field": pa.nulls(1, candidate)}))
        except (pa.ArrowException, OSError):
            continue
        return field.with_type(candidate)
    raise FormatError(
        f"field '{field.name}' is of type {type_name(field.type)}, which Parquet cannot carry; use Arrow"
    )
