"""Arrow tables in sealed blobs or in rows, as an Arrow IPC stream."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import pyarrow as pa

from app.store.blobs.batches import pieces
from app.store.blobs.field_digests import FieldDigests
from app.store.blobs.sealed_files import BlobAccess, SealedWriter, open_blob
from app.store.blobs.small_threads import submit

_BATCH_ROWS = 65_536  # rows that a reader in bounded memory holds

_LEAST_BACKGROUND = 1 << 18
"""Least bytes of a batch that is written in a thread; handing over a smaller one costs more."""


def write_table(
    access: BlobAccess,
    table: pa.Table,
    batch_rows: int | None = _BATCH_ROWS,
    field_digests: FieldDigests | None = None,
) -> None:
    """Write the table as a new blob.

    Parameters
    ----------
    access : BlobAccess
        The new blob.
    table : pa.Table
    batch_rows : int or None
        Rows of a batch; None: the table's own chunks.
    field_digests : FieldDigests, optional
        Digests of the fields to keep with the table.
    """
    with TableWriter(access, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=batch_rows):
            for piece in pieces(batch):  # a batch of a wide table may be too large
                writer.write(piece)
        writer.field_digests = field_digests


def table_bytes(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Return the stream of a small table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_table(access: BlobAccess) -> pa.Table:
    """Read the whole table; its columns are views of the one buffer that holds the decrypted blob."""
    with open_blob(access) as reader:
        return pa.ipc.open_stream(reader.read_whole()).read_all()


class TableReader:
    """Iterator over the batches of a stored table, in bounded memory."""

    def __init__(self, access: BlobAccess) -> None:
        self._file = buffered(access)
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
        """Close the file."""
        self._stream.close()
        self._file.close()


def buffered(access: BlobAccess) -> io.BufferedIOBase:
    """Open the table for reading in small pieces. Raises BlobMissing."""
    opened = open_blob(access)
    return opened if isinstance(opened, io.BytesIO) else io.BufferedReader(opened)


class TableWriter:
    """Writes a table as a new blob, batch by batch; an error within the block leaves no blob.

    A large batch is sealed and written in a thread, while its writer makes the next one.
    """

    def __init__(self, access: BlobAccess, schema: pa.Schema, expected: int = 0, draft: str = "") -> None:
        """See `SealedWriter`. Raises OSError: ENOSPC."""
        self._sink = SealedWriter(access, expected=expected, draft=draft)
        self._writer = pa.ipc.new_stream(self._sink, schema)
        self.field_digests: FieldDigests | None = None
        """Digests of all fields, to be kept with the table; set before the end of the block."""
        self._thread: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None

    @property
    def plain_bytes(self) -> int:
        """Plain bytes of all batches so far. Raises as `write`."""
        self._settle()
        return self._sink.plain_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises OSError, also for the batch before."""
        self._settle()
        if batch.nbytes < _LEAST_BACKGROUND:
            self._writer.write_batch(batch)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "seal")
        self._pending = submit(self._thread, self._writer.write_batch, batch)

    def _settle(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._settle()
                self._writer.close()
                if self.field_digests is not None:
                    self._sink.write(self.field_digests.to_bytes())
                self._sink.close()
        finally:
            if self._thread is not None:
                self._thread.shutdown(wait=True)
            self._sink.discard()  # no effect after close
