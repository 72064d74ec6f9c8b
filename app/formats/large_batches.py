"""Large batches of an Arrow stream, read piece by piece.

Arrow's reader of a stream reads a batch as a whole, and many writers put a whole table into one batch. Here
the reader gets memory without content as the body of a large batch, for which the system has no pages, and
finds where in the body the buffers of each column are. Then these are read for some rows at a time.

A batch whose body does not have the plain columns, because it is compressed or damaged, is read as a whole.
"""

from __future__ import annotations

import io
import math
import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.formats.bounded_file import BoundedFile
from app.formats.errors import damaged_field
from app.store.blobs.batches import BATCH_BYTES, BATCH_ROWS
from providers.tables.columns import is_text

_LEAST_READ = 1 << 20
"""Bytes of a column that are read at once on average: a sealed file is decrypted in chunks of this size."""

Bytes = npt.NDArray[np.uint8]


def can_cut(schema: pa.Schema) -> bool:
    """Whether some rows of every column can be read from the body of a batch."""
    return all(pa.types.is_null(each) or is_text(each) or _width(each) > 0 for each in schema.types)


def _offset_type(kind: pa.DataType) -> np.dtype[np.signedinteger[Any]]:
    """Return the type of the offsets of texts."""
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return np.dtype(np.int64 if wide else np.int32)


def _width(kind: pa.DataType) -> int:
    """Return the bits of a value; 0 if values differ in their bits."""
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return int(kind.bit_width)
    return 0


@dataclass(frozen=True, slots=True)
class _Body:
    """Body of a batch in the file, and the memory without content that Arrow has got for it."""

    start: int
    memory: Bytes

    @property
    def end(self) -> int:
        """Position after the body."""
        return self.start + len(self.memory)

    def place(self, buffer: pa.Buffer | None, least: int) -> int:
        """Return where in the file the content of a buffer of at least ``least`` bytes is.

        Raises _Elsewhere.
        """
        if buffer is None or buffer.size < least:
            raise _Elsewhere
        first = buffer.address - self.memory.ctypes.data
        if not 0 <= first <= len(self.memory) - buffer.size:
            raise _Elsewhere
        return self.start + int(first)


class _Elsewhere(Exception):
    """A buffer is not uncompressed in the body, or it is damaged."""


class StreamFile(BoundedFile):
    """File of an Arrow stream, which may leave the bodies of large batches unread."""

    def __init__(self, data: bytes | BinaryIO) -> None:
        super().__init__(data)
        self.most_read: int | None = None
        """Bytes of the largest body that is read; None: all bodies are."""
        self._body: _Body | None = None
        self.missed = False
        """Whether the last read found nothing: a stream without an end marker ends so."""

    def read(self, count: int | None = -1) -> bytes:
        """Read up to ``count`` bytes."""
        data = super().read(count)
        self.missed = not data
        return data

    def read_buffer(self, count: int) -> Bytes:
        """Read up to ``count`` bytes, or return memory without content for them."""
        start = self.tell()
        self.missed = count > 0 and start >= self.size
        if self.closed or self.most_read is None or not self.most_read < count <= self.size - start:
            return super().read_buffer(count)
        memory = np.frombuffer(mmap.mmap(-1, count, mmap.MAP_PRIVATE, mmap.PROT_READ), np.uint8)
        self._body = _Body(start, memory)
        self.seek(count, io.SEEK_CUR)
        return memory

    @property
    def has_unread(self) -> bool:
        """Whether a body was left unread since the last call of `take_body`."""
        return self._body is not None

    def take_body(self) -> _Body | None:
        """Return the body that was left unread since the last call."""
        body, self._body = self._body, None
        return body

    def read_at(self, position: int, size: int) -> Bytes:
        """Read bytes that the file has. The position moves."""
        self.seek(position)
        return super().read_buffer(size)


class _Column:
    """Column of a batch in the file."""

    def __init__(self, file: StreamFile, body: _Body, name: str, column: pa.Array) -> None:
        """Read which values are null. Raises _Elsewhere."""
        buffers: list[pa.Buffer | None] = [*column.buffers(), None, None]
        validity, values, texts = buffers[:3]
        rows, kind = len(column), column.type
        self._file = file
        self._name = name
        self._kind = kind
        self._bits = 8 * _offset_type(kind).itemsize if is_text(kind) else _width(kind)
        self._values = body.place(values, _bytes((rows + is_text(kind)) * self._bits)) if self._bits else 0
        self._texts, self._text_bytes = 0, 0
        if texts is not None and texts.size:
            self._texts, self._text_bytes = body.place(texts, 0), texts.size
        self._validity: Bytes | None = None
        if validity is not None:
            self._validity = file.read_at(body.place(validity, _bytes(rows)), _bytes(rows))
            present = pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(self._validity)])
            if present.true_count + column.null_count != rows:
                raise _Elsewhere

    def read(self, first: int, count: int) -> pa.Array:
        """Return the values of ``count`` rows from a multiple of 8 on. Raises FormatError."""
        if not self._bits:
            return pa.nulls(count)
        valid = None
        if self._validity is not None:
            valid = pa.py_buffer(self._validity[first // 8 : _bytes(first + count)])
        start = self._values + first * self._bits // 8
        if not is_text(self._kind):
            values = self._file.read_at(start, _bytes(count * self._bits))
            return pa.Array.from_buffers(self._kind, count, [valid, pa.py_buffer(values)])
        offsets = self._file.read_at(start, _bytes((count + 1) * self._bits)).view(_offset_type(self._kind))
        low, high = int(offsets[0]), int(offsets[-1])
        if not 0 <= low <= high <= self._text_bytes:
            raise damaged_field(self._name)
        texts = self._file.read_at(self._texts + low, high - low)
        offsets -= low
        return pa.Array.from_buffers(self._kind, count, [valid, pa.py_buffer(offsets), pa.py_buffer(texts)])


def _bytes(bits: int) -> int:
    return -(-bits // 8)


def in_pieces(
    file: StreamFile,
    reader: pa.ipc.RecordBatchStreamReader,
    open_reader: Callable[[], pa.ipc.RecordBatchStreamReader],
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream, large ones in pieces of about `BATCH_BYTES`.

    Parameters
    ----------
    file : StreamFile
    reader : pa.ipc.RecordBatchStreamReader
        Reader of the stream before its first batch. `can_cut` is true for its schema.
    open_reader : callable
        Opens the stream again, from the beginning of the file.

    Raises
    ------
    FormatError
        Texts of a large batch are damaged.
    pa.ArrowException, OSError
        The stream is damaged, as from Arrow's reader.
    """
    piece = max(BATCH_BYTES, len(reader.schema) * _LEAST_READ)
    file.most_read = 2 * piece
    done = 0
    while True:
        batch = _next(reader, file)
        body = file.take_body()
        if body is None:
            if batch is None:
                return
            yield batch
        elif batch is not None and (columns := _columns(file, batch, body)):
            most_rows = _rows_of(piece * batch.num_rows / len(body.memory))
            for first in range(0, batch.num_rows, most_rows):
                rows = min(most_rows, batch.num_rows - first)
                arrays = [column.read(first, rows) for column in columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
            file.seek(body.end)
        else:  # from here on Arrow reads all bodies
            file.most_read = None
            reader = open_reader()
            for _ in range(done):
                reader.read_next_batch()
            continue
        done += 1


def _rows_of(wanted: float) -> int:
    """Return the power of two that is nearest to a number of rows; 8 to `BATCH_ROWS`.

    Then the pieces of a field end where its digest's chunks do.
    """
    return min(BATCH_ROWS, max(8, 1 << round(math.log2(max(1.0, wanted)))))


def _next(reader: pa.ipc.RecordBatchStreamReader, file: StreamFile) -> pa.RecordBatch | None:
    """Return the next batch; None at the end, or if Arrow cannot use a body without content."""
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None
    except MemoryError:
        raise
    except Exception:
        if file.has_unread:
            return None
        raise


def _columns(file: StreamFile, batch: pa.RecordBatch, body: _Body) -> list[_Column]:
    """Return the columns of a batch, or an empty result if a column cannot be read from the body."""
    try:
        pairs = zip(batch.schema.names, batch.columns, strict=True)
        return [_Column(file, body, name, column) for name, column in pairs]
    except _Elsewhere:
        return []
