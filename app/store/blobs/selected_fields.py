"""Read selected fields of a stored table without decrypting and copying the others.

Arrow's reader of a stream reads whole messages. Here it sees the body of a message as memory that is not
filled yet, so that the system has given it no pages. Then the buffers of the selected fields are filled. A
chunk of the blob is decrypted only if one of these buffers has bytes in it, and straight to its place if all
of its bytes belong there.
"""

from __future__ import annotations

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
        for batch, body, position in _unfilled(reader, access.id, rows, begin):
            done += batch.num_rows
            if done <= start and start:
                continue
            selected = batch.select(list(indices))
            for column in selected.columns:
                for buffer in filter(None, column.buffers()):
                    first = buffer.address - body.ctypes.data
                    _fill(reader, position + first, body.data[first : first + buffer.size], access.id)
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
        for batch, body, start in _unfilled(reader, access.id, rows):
            for index in [*words]:
                column, width = batch.column(index), widths[index]
                if column.null_count:
                    del words[index]
                elif len(column):
                    first = column.buffers()[1].address - body.ctypes.data
                    target = words[index].data[done * width : (done + len(column)) * width]
                    _fill(reader, start + first, target, access.id)
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
) -> Iterator[tuple[pa.RecordBatch, np.ndarray[tuple[int], np.dtype[np.uint8]], int]]:
    """Yield each batch, the memory of its message's body, which is not filled, and the body's position.

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
            yield batch, source.body, source.end
        position = source.end + len(source.body)
    if seen != rows:
        raise SealBroken(f"blob {blob} has {seen} rows, expected are {rows}")


class _Message:
    """File of one message, whose body Arrow gets as memory that is not filled."""

    def __init__(self, reader: PlainReader, position: int, blob: str) -> None:
        self._reader = reader
        self._position = position
        self._blob = blob
        self.body = np.empty(0, np.uint8)
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
            self.body = np.empty(size, np.uint8)
            return self.body.data
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
