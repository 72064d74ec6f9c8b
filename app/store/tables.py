"""Arrow tables in sealed blobs, as an Arrow IPC stream."""

import io
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import pyarrow as pa

from app.store.batches import pieces
from app.store.blobs import BlobAccess, SealedReader, SealedWriter

_BATCH_ROWS = 65_536  # what a reader in bounded memory holds at once


def write_table(access: BlobAccess, table: pa.Table, batch_rows: int | None = _BATCH_ROWS) -> None:
    """Write the table as a new blob, cut into batches of so many rows, or as it is chunked."""
    with SealedWriter(access) as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=batch_rows):
            for piece in pieces(batch):  # a batch of a wide table would be much
                writer.write_batch(piece)


def read_table(access: BlobAccess) -> pa.Table:
    """The whole table; its columns lie in the one buffer that the blob was opened into."""
    with SealedReader(access) as reader:
        return pa.ipc.open_stream(reader.read_whole()).read_all()


class TableReader:
    """A stored table that is read batch by batch, in bounded memory; an iterator of its batches."""

    def __init__(self, access: BlobAccess) -> None:
        self._file = io.BufferedReader(SealedReader(access))
        try:
            self._stream = pa.ipc.open_stream(self._file)
        except BaseException:
            self._file.close()
            raise
        self.schema: pa.Schema = self._stream.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return self._stream.read_next_batch()

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()
        self._file.close()


def read_batches(access: BlobAccess) -> Iterator[pa.RecordBatch]:
    """The table batch by batch, in bounded memory."""
    reader = TableReader(access)
    try:
        yield from reader
    finally:
        reader.close()


class TableWriter:
    """Writes a table as a new blob, batch by batch; leaving by an error leaves no blob."""

    def __init__(self, access: BlobAccess, schema: pa.Schema) -> None:
        self._sink = SealedWriter(access)
        self._writer = pa.ipc.new_stream(self._sink, schema)

    @property
    def plain_bytes(self) -> int:
        """Bytes of the table so far."""
        return self._sink.plain_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._writer.write_batch(batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._writer.close()
                self._sink.close()
        finally:
            self._sink.discard()  # nothing, once it is closed
