"""Arrow streams to and from record batches.

Arrow represents every type unchanged, including encodings and extension types; it is written uncompressed.
Views and run-end encodings, which Arrow cannot take rows from, are decoded when they are read, and are
encoded again when they are returned (`providers.tables.layouts`). Metadata of the schema and of its fields
are kept.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from app.formats.bounded_file import Batches
from app.formats.errors import FormatError, damaged_field
from app.formats.first_bytes import FIRST_BYTES, refuse_other_format
from app.formats.large_batches import StreamFile, can_cut, in_pieces
from app.formats.media_types import ARROW_STREAM
from app.formats.released_arrays import released
from app.formats.schema_checks import check_schema
from app.formats.written_batches import written_batches
from app.store.blobs.batches import BATCH_BYTES, decoded_pieces
from providers.tables.decoded_sizes import decoded_row_sizes
from providers.tables.encodings import can_take, canonical_array
from providers.tables.layouts import most_rows, original_schema, restored_batch, workable, workable_schema

_BATCH_ROWS = 1 << 16

_MOST_VIEWED = 1 << 30

_NOT_WHOLE = "the body is not a complete Arrow stream"

_NO_END = (
    "the body is an Arrow stream without its end marker, so that rows may be missing: close the writer "
    "before you send what it has written"
)


def invalid_data() -> tuple[type[Exception], ...]:
    """Return the exceptions that Arrow raises for invalid data."""
    return pa.ArrowException, OSError, ValueError, OverflowError, RecursionError


class ChunkSink(io.RawIOBase):
    """Output file that returns the bytes written since the last call of `take`."""

    def __init__(self, keeps: bool = False) -> None:
        """Create the file.

        ``keeps``: the writer does not change what it has written until the next `take`, so that nothing is
        copied before. An Arrow stream consists of the buffers of its batches; a CSV writer reuses one buffer.
        """
        super().__init__()
        self._keeps = keeps
        self._written: list[bytes | memoryview] = []
        self._size = 0

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any, /) -> int:
        """Store ``data``."""
        piece = memoryview(data).cast("B") if self._keeps else bytes(data)
        self._written.append(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        """Return the total number of bytes written."""
        return self._size

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        piece, self._written = b"".join(self._written), []
        return piece


def open_arrow(data: bytes | BinaryIO) -> Batches:
    """Open the table of an Arrow stream; every buffer is validated before it is used."""
    source = StreamFile(data)
    refuse_other_format(ARROW_STREAM, source.read(FIRST_BYTES))

    def open_reader() -> pa.ipc.RecordBatchStreamReader:
        source.seek(0)
        # each thread that decompresses would keep memory of its own
        return pa.ipc.open_stream(source, options=pa.ipc.IpcReadOptions(use_threads=False))

    try:
        reader = open_reader()
        schema = reader.schema
    except MemoryError:
        raise
    except invalid_data():
        raise FormatError(_NOT_WHOLE) from None
    check_schema(schema)
    batches = in_pieces(source, reader, open_reader) if can_cut(schema) else reader
    return checked(schema, _whole(batches, source), _NOT_WHOLE)


def _whole(batches: Iterable[pa.RecordBatch], source: StreamFile) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise FormatError if the stream has no end marker, or bytes after it.

    Arrow's reader accepts the end of the bytes after a batch as the end of the table, so that rows of a
    stopped writer would be missing. It leaves bytes after the marker unread.
    """
    yield from batches
    if source.missed:
        raise FormatError(_NO_END)
    if source.tell() < source.size:
        raise FormatError("the body has bytes after the end of its Arrow stream; send a single stream")


def checked(schema: pa.Schema, batches: Iterable[pa.RecordBatch], not_whole: str) -> Batches:
    """Validate each batch before its content is used, and decode views and run-end encodings.

    ``not_whole``: error message for a truncated stream.
    """
    plain_schema = workable_schema(schema)
    sound = _sound(iter(batches), not_whole)
    if plain_schema.types == schema.types:
        return plain_schema, sound
    return plain_schema, _laid_out(sound, plain_schema)


def _sound(batches: Iterator[pa.RecordBatch], not_whole: str) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = next(batches, None)
        except (MemoryError, FormatError):
            raise
        except invalid_data():
            raise FormatError(not_whole) from None
        if batch is None:
            return
        _refuse_endless_views(batch)
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid:
            raise _damaged(batch) from None
        _refuse_far_dates(batch)
        yield batch


def _refuse_far_dates(batch: pa.RecordBatch) -> None:
    """Raise FormatError for a date64 whose day does not fit 32 bits."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if "date64" in str(field.type):
            try:
                canonical_array(column)
            except pa.ArrowInvalid:
                what = "has a date64 that does not fit a date of 32 bits; send a timestamp"
                raise FormatError(f"field '{field.name}' {what}") from None


def _refuse_endless_views(batch: pa.RecordBatch) -> None:
    """Raise FormatError for views that reference the same bytes too often: validation reads all of them."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not can_take(field.type) and _viewed_bytes(column) > _MOST_VIEWED:
            what = f"its views refer to more than {_MOST_VIEWED >> 20} MiB in one batch; send smaller batches"
            raise FormatError(f"field '{field.name}': {what}")


def _viewed_bytes(array: pa.Array) -> int:
    """Return the number of bytes that views at every depth refer to, according to their lengths."""
    kind, data_type = pa.types, array.type
    if kind.is_string_view(data_type) or kind.is_binary_view(data_type):
        views = array.buffers()[1]
        lengths = np.frombuffer(views, "<i4", views.size // 16 * 4)[::4] if views is not None else np.zeros(0)
        return int(lengths.clip(0).sum(dtype=np.int64))
    if isinstance(data_type, pa.BaseExtensionType):
        return _viewed_bytes(array.storage)
    if kind.is_dictionary(data_type):
        return _viewed_bytes(array.dictionary)
    if kind.is_struct(data_type):
        return sum(_viewed_bytes(array.field(number)) for number in range(data_type.num_fields))
    if kind.is_map(data_type):
        return _viewed_bytes(array.keys) + _viewed_bytes(array.items)
    if kind.is_nested(data_type):  # all list layouts, and run-end encodings
        return _viewed_bytes(array.values)
    return 0


def _refuse_endless_rows(batch: pa.RecordBatch) -> None:
    """Raise FormatError for a row whose runs, views and dictionaries do not fit an array when decoded."""
    sizes = decoded_row_sizes(batch)
    if sizes is not None and len(sizes) and sizes.max() > _MOST_VIEWED:
        raise FormatError(
            f"a row takes more than {_MOST_VIEWED >> 20} MiB when its runs, views and dictionaries are "
            "decoded; split the cell"
        )


def _damaged(batch: pa.RecordBatch) -> FormatError:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return damaged_field(field.name)
    return FormatError("a batch of rows is damaged: offsets, indices or text that is not UTF-8")


def _laid_out(batches: Iterator[pa.RecordBatch], plain_schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):  # first by rows: a run may have 2^31
            rows = batch.slice(start, _BATCH_ROWS)
            _refuse_endless_rows(rows)
            for piece in decoded_pieces(rows, BATCH_BYTES):
                columns = [workable(column) for column in piece.columns]
                yield pa.RecordBatch.from_arrays(columns, schema=plain_schema)


def arrow_chunks(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Encode an Arrow stream, one chunk for each batch, with fields in their original types."""
    written, original = ChunkSink(keeps=True), original_schema(schema)
    batch_rows = min([_BATCH_ROWS, *(most_rows(field.type) for field in original)])
    with pa.ipc.new_stream(written, original) as writer:
        yield written.take()
        for batch in released(schema, written_batches(batches, batch_rows, BATCH_BYTES)):
            writer.write_batch(restored_batch(batch, original))
            yield written.take()
    yield written.take()
