"""Arrow stream <-> record batches.

Arrow carries every type unchanged, encodings and extension types too; it is written uncompressed.
Views and runs, which Arrow cannot rearrange, are laid out plainly when they are read.
"""

import io
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from app.api.formats.errors import FormatError
from app.api.formats.schema import check_schema
from app.api.formats.source import Batches, Bounded
from app.store.batches import pieces
from providers.encodings import can_take, canonical_array
from providers.types import canonical_type

BROKEN = (pa.ArrowException, OSError, ValueError, OverflowError, RecursionError)
"""What Arrow raises on data that is not what it says it is."""

_BATCH_ROWS = 1 << 16
_MOST_VIEWED = 1 << 30
_NOT_WHOLE = "the body is not a whole Arrow stream"


class Pieces(io.RawIOBase):
    """A file that hands out what was written since it was last asked."""

    def __init__(self) -> None:
        super().__init__()
        self._written: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any, /) -> int:
        """Keep a copy of all of ``data``."""
        piece = bytes(data)
        self._written.append(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        """Bytes written in all."""
        return self._size

    def take(self) -> bytes:
        """What was written since."""
        piece, self._written = b"".join(self._written), []
        return piece


def open_arrow(data: bytes | BinaryIO) -> Batches:
    """The table of an Arrow stream; every buffer is checked before anything uses it."""
    source = Bounded(data)
    if source.read(6) == b"ARROW1":
        raise FormatError("this is an Arrow file; send the Arrow stream format")
    source.seek(0)
    try:
        # each thread that decompresses would keep memory of its own
        reader = pa.ipc.open_stream(source, options=pa.ipc.IpcReadOptions(use_threads=False))
        schema = reader.schema
    except MemoryError:
        raise
    except BROKEN:
        raise FormatError(_NOT_WHOLE) from None
    check_schema(schema)
    return checked(schema, reader, _NOT_WHOLE)


def checked(schema: pa.Schema, batches: Iterable[pa.RecordBatch], not_whole: str) -> Batches:
    """The batches, each found sound before anything looks inside, views and runs laid out plainly.

    ``not_whole``: what to say where they break off.
    """
    takeable = [can_take(field.type) for field in schema]
    if all(takeable):
        return schema, _sound(iter(batches), not_whole)
    plain_schema = pa.schema(
        [
            field if takes else field.with_type(canonical_type(field.type))
            for field, takes in zip(schema, takeable, strict=True)
        ],
        schema.metadata,
    )
    return plain_schema, _laid_out(_sound(iter(batches), not_whole), plain_schema, takeable)


def _sound(batches: Iterator[pa.RecordBatch], not_whole: str) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = next(batches, None)
        except MemoryError:
            raise
        except BROKEN:
            raise FormatError(not_whole) from None
        if batch is None:
            return
        _refuse_endless_views(batch)
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid:
            raise _damaged(batch) from None
        yield batch


def _refuse_endless_views(batch: pa.RecordBatch) -> None:
    """Raise FormatError where views show the same bytes over and over: to check them is to read them all."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not can_take(field.type) and _viewed_bytes(column) > _MOST_VIEWED:
            what = f"its views refer to more than {_MOST_VIEWED >> 20} MiB in one batch; send smaller batches"
            raise FormatError(f"field '{field.name}': {what}")


def _viewed_bytes(array: pa.Array) -> int:
    """Bytes that views refer to at every depth, as far as the views say."""
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
    if kind.is_nested(data_type):  # lists of every layout, and runs
        return _viewed_bytes(array.values)
    return 0


def _damaged(batch: pa.RecordBatch) -> FormatError:
    what = "is damaged: offsets, indices or text that is not UTF-8"
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return FormatError(f"field '{field.name}' {what}")
    return FormatError(f"a batch of rows {what}")


def _laid_out(
    batches: Iterator[pa.RecordBatch], plain_schema: pa.Schema, takeable: list[bool]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            columns = batch.slice(start, _BATCH_ROWS).columns
            pairs = zip(columns, takeable, strict=True)
            laid_out = [column if takes else canonical_array(column) for column, takes in pairs]
            yield pa.RecordBatch.from_arrays(laid_out, schema=plain_schema)


def arrow_chunks(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """The Arrow stream in pieces, a batch of rows each."""
    written = Pieces()
    with pa.ipc.new_stream(written, schema) as writer:
        yield written.take()
        for batch in batches:
            for piece in pieces(batch, most_rows=_BATCH_ROWS):
                writer.write_batch(piece)
                yield written.take()
    yield written.take()
