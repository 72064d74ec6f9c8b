"""Arrow tables in sealed blobs or in rows, as an Arrow IPC stream.

A worker has written them, so `read_table` and `TableReader`, with which the service reads, check all
offsets, indices and texts. Arrow reads outside of its memory where they are wrong. `BlobTable`, with which
workers read the fields that they need, does not check them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import pyarrow as pa
from typing_extensions import Buffer

from app.store.blobs.batch_index import BatchIndex, IndexSoFar, index_bytes
from app.store.blobs.batches import pieces
from app.store.blobs.field_digests import FieldDigests
from app.store.blobs.reading import open_blob
from app.store.blobs.sealed_files import BlobAccess, SealedWriter
from app.store.blobs.selected_fields import can_select
from app.store.blobs.small_threads import submit
from app.store.crypto.sealing import SealBroken

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
    """Read the whole table; its columns are views of the one buffer that holds the decrypted blob.

    Raises BlobMissing, SealBroken.
    """
    with open_blob(access) as reader, _damage_reported(access):
        table = pa.ipc.open_stream(reader.read_whole()).read_all()
        table.validate(full=True)
        return table


@contextmanager
def _damage_reported(access: BlobAccess) -> Iterator[None]:
    """Raise SealBroken where Arrow finds the stream damaged, without Arrow's words: they may have values."""
    try:
        yield
    except (pa.ArrowException, ValueError, OverflowError, RecursionError, OSError) as error:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None):
            raise  # not of the content: Arrow's own errors of input have no number
        name = f"blob {access.id}" if access.id else "a small table"
        raise SealBroken(f"{name} has no valid Arrow table: its writer was faulty or hostile") from None


class TableReader:
    """Iterator over the batches of a stored table, in bounded memory. Raises BlobMissing, SealBroken."""

    def __init__(self, access: BlobAccess) -> None:
        self._access = access
        self._file = buffered(access)
        try:
            with _damage_reported(access):
                self._stream = pa.ipc.open_stream(self._file)
        except BaseException:
            self._file.close()
            raise
        self.schema: pa.Schema = self._stream.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        with _damage_reported(self._access):
            batch = self._stream.read_next_batch()
            batch.validate(full=True)
        return batch

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

    def __init__(
        self,
        access: BlobAccess,
        schema: pa.Schema,
        expected: int = 0,
        draft: str = "",
        is_part: bool = False,
    ) -> None:
        """See `SealedWriter`. A part of a blob has batches only, not the beginning and end of a stream.

        Raises OSError: ENOSPC.
        """
        self._sink = SealedWriter(access, expected=expected, draft=draft)
        self._is_part = is_part
        beginning = schema.serialize().size  # Arrow writes it with the first batch
        self._first_position = 0 if is_part else beginning
        stream = _WithoutBeginning(self._sink, beginning) if is_part else self._sink
        self._writer = pa.ipc.new_stream(stream, schema)
        self.field_digests: FieldDigests | None = None
        """Digests of all fields, to be kept with the table; set before the end of the block."""
        self._index = IndexSoFar() if len(schema) and can_select(schema) else None
        self._thread: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None

    @property
    def plain_bytes(self) -> int:
        """Plain bytes of all batches so far. Raises as `write`."""
        self._settle()
        return self._sink.plain_bytes

    @property
    def index(self) -> BatchIndex:
        """Index of all batches so far; empty if the schema permits none. Raises as `write`."""
        self._settle()
        return BatchIndex() if self._index is None else self._index.finish()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises OSError, also for the batch before."""
        self._settle()
        if batch.nbytes < _LEAST_BACKGROUND:
            self._write(batch)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "seal")
        self._pending = submit(self._thread, self._write, batch)

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._index is not None:
            self._index.add(batch.num_rows, max(self._first_position, self._sink.plain_bytes))
        self._writer.write_batch(batch)

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
                if not self._is_part:
                    self._end()
                self._sink.close()
        finally:
            if self._thread is not None:
                self._thread.shutdown(wait=True)
            self._sink.discard()  # no effect after close

    def _end(self) -> None:
        """End the stream, and write what is kept behind it."""
        self._writer.close()
        self._sink.write(index_bytes(self.index.entries))
        if self.field_digests is not None:
            self._sink.write(self.field_digests.to_bytes())


class _WithoutBeginning(io.RawIOBase):
    """Writable stream that drops the first bytes of another one."""

    def __init__(self, sink: SealedWriter, size: int) -> None:
        super().__init__()
        self._sink = sink
        self._left = size

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Buffer, /) -> int:
        """Append all of ``data``."""
        view = memoryview(data).cast("B")
        dropped = min(self._left, len(view))
        self._left -= dropped
        if dropped < len(view):
            self._sink.write(view[dropped:])
        return len(view)
