"""Read selected fields of a stored table without decrypting and copying the others.

Arrow's reader of a stream reads whole messages. Here it sees the body of a message as memory that is not
filled yet, so that the system has given it no pages, and that cannot be written to, so that it does not count
towards the limit of the worker's memory. Then the buffers of the selected fields become writable and are
filled. A chunk of the blob is decrypted only if one of these buffers has bytes in it, and straight to its
place if all of its bytes belong there.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from app.store.blobs.batch_index import Entry
from app.store.blobs.reading import PlainReader, open_blob
from app.store.blobs.sealed_files import BlobAccess
from app.store.crypto.sealing import SealBroken
from providers.tables.columns import is_words
from providers.tables.type_names import has_dictionary

_PREFIX = 8
"""Bytes before the metadata of a message: a mark and the length of the metadata."""

_WRITABLE = mmap.PROT_READ | mmap.PROT_WRITE

_MARK = b"\xff\xff\xff\xff"


def can_select(schema: pa.Schema) -> bool:
    """Whether all buffers of the fields can be found in a message: it has no dictionaries."""
    return not any(has_dictionary(field.type) for field in schema)


def selected_batches(
    access: BlobAccess, indices: Sequence[int], rows: int, start: int = 0, begin: Entry | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of some fields of a table for whose schema `can_select` is true, from a row on.

    Parameters
    ----------
    access : BlobAccess
        Table in a file.
    indices : sequence of int
        Numbers of the fields, in ascending order.
    rows : int
        Rows of the whole table.
    start : int
        First row of the batches.
    begin : Entry, optional
        Batch that begins at that row or before it. Default: the first one.

    Raises
    ------
    BlobMissing
    SealBroken
        The blob was changed or truncated.
    """
    done = 0 if begin is None else begin[0]
    with open_blob(access) as reader:
        for batch, body in _unfilled(reader, access.id, rows, begin):
            done += batch.num_rows
            if done <= start and start:
                continue
            selected = batch.select(list(indices))
            for column in selected.columns:
                for buffer in filter(None, column.buffers()):
                    _fill(reader, body.position_of(buffer), body.writable(buffer), access.id)
            skipped = max(0, start - (done - batch.num_rows))
            yield selected.slice(skipped) if skipped else selected


def selected_words(
    access: BlobAccess, schema: pa.Schema, indices: Sequence[int], rows: int
) -> dict[int, pa.Array]:
    """Read whole fields into one array each, straight from the blob; a field with a null is left out.

    Parameters
    ----------
    access : BlobAccess
        Table in a file.
    schema : pa.Schema
        Its schema, for which `can_select` is true.
    indices : sequence of int
        Numbers of fields for which `are_whole_words` is true, in ascending order.
    rows : int
        Rows of the whole table.

    Returns
    -------
    dict of int to pa.Array

    Raises
    ------
    BlobMissing, SealBroken
        As `selected_batches`.
    """
    widths = {index: schema.field(index).type.bit_width // 8 for index in indices}
    # Memory of numpy, which requests huge pages; Arrow does not.
    words = {index: np.empty(rows * width, np.uint8) for index, width in widths.items()}
    done = 0
    with open_blob(access) as reader:
        for batch, body in _unfilled(reader, access.id, rows):
            for index in [*words]:
                column, width = batch.column(index), widths[index]
                if column.null_count:
                    del words[index]
                elif len(column):
                    target = words[index].data[done * width : (done + len(column)) * width]
                    _fill(reader, body.position_of(column.buffers()[1]), target, access.id)
            done += batch.num_rows
    return {
        index: pa.Array.from_buffers(schema.field(index).type, rows, [None, pa.py_buffer(values)])
        for index, values in words.items()
    }


def are_whole_words(kind: pa.DataType) -> bool:
    """Whether values of the type are words of whole bytes."""
    return is_words(kind) and kind.bit_width >= 8


def _unfilled(
    reader: PlainReader, blob: str, rows: int, begin: Entry | None = None
) -> Iterator[tuple[pa.RecordBatch, _Body]]:
    """Yield each batch, and the body of its message, which is not filled.

    ``begin``: batch to begin with. Default: the first one.
    """
    schema: pa.Schema | None = None
    position, seen = 0, 0 if begin is None else begin[0]
    while True:
        source = _Message(reader, position, blob)
        if not source.metadata_bytes:
            break
        message = pa.ipc.read_message(pa.PythonFile(source, "r"))
        if schema is None:
            schema = pa.ipc.read_schema(message)
            if begin is not None:
                position = begin[1]
                continue
        else:
            batch = pa.ipc.read_record_batch(message, schema)
            seen += batch.num_rows
            yield batch, source.body
        position = source.end + source.body.size
    if seen != rows:
        raise SealBroken(f"blob {blob} has {seen} rows, expected are {rows}")


class _Body:
    """Body of a message in memory of the system, which is read-only until a part of it is to be filled."""

    def __init__(self, position: int, size: int) -> None:
        """Request the memory. ``position``: where the body begins in the blob. Raises OSError: ENOMEM."""
        self.size = size
        self._position = position
        pages = mmap.mmap(-1, max(1, size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
        self.memory = memoryview(pages)[:size]
        self._address = pa.py_buffer(pages).address

    def position_of(self, buffer: pa.Buffer) -> int:
        """Return the position in the blob of a buffer of the body."""
        offset: int = buffer.address - self._address
        return self._position + offset

    def writable(self, buffer: pa.Buffer) -> memoryview:
        """Return the memory of a buffer, made writable. Raises MemoryError: it exceeds the limit."""
        first = buffer.address // mmap.PAGESIZE * mmap.PAGESIZE
        length = buffer.address + buffer.size - first
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(first), ctypes.c_size_t(length), _WRITABLE):
            raise MemoryError("the memory limit does not admit the selected fields")
        return memoryview((ctypes.c_ubyte * buffer.size).from_address(buffer.address)).cast("B")


class _Message:
    """File of one message, whose body Arrow gets as memory that is not filled."""

    def __init__(self, reader: PlainReader, position: int, blob: str) -> None:
        self._reader = reader
        self._position = position
        self._blob = blob
        self.body = _Body(0, 0)
        prefix = bytearray(_PREFIX)
        _fill(reader, position, memoryview(prefix), blob)
        if prefix[:4] != _MARK:
            raise SealBroken(f"blob {blob} has no message at byte {position}")
        self.metadata_bytes = int.from_bytes(prefix[4:], "little")
        """Length of the metadata; 0 at the end of the stream."""
        self.end = position + _PREFIX + self.metadata_bytes
        """Position of the body."""
        self.closed = False

    def read(self, size: int) -> bytes | memoryview:
        """Return bytes of the prefix or the metadata; memory for the body."""
        if self._position >= self.end:
            self.body = _Body(self.end, size)
            return self.body.memory
        piece = bytearray(size)
        _fill(self._reader, self._position, memoryview(piece), self._blob)
        self._position += size
        return bytes(piece)

    def close(self) -> None:
        """Do nothing: the blob stays open."""


def _fill(reader: PlainReader, position: int, target: memoryview, blob: str) -> None:
    """Read plain bytes from a position until the target is full. Raises SealBroken: there are fewer."""
    reader.seek(position)
    filled = 0
    while filled < len(target):
        count = reader.readinto(target[filled:])
        if not count:
            raise SealBroken(f"blob {blob} ends at byte {position + filled}")
        filled += count
