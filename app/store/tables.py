"""Arrow tables in sealed blobs, as an Arrow IPC stream."""

import io
from collections.abc import Iterator

import pyarrow as pa

from app.store.blobs import BlobAccess, SealedReader, SealedWriter

_BATCH_ROWS = 65_536  # what a reader in bounded memory holds at once


def write_table(access: BlobAccess, table: pa.Table, batch_rows: int | None = _BATCH_ROWS) -> None:
    """Write the table as a new blob, cut into batches of so many rows, or as it is chunked."""
    with SealedWriter(access) as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)


def read_table(access: BlobAccess) -> pa.Table:
    """The whole table; its columns lie in the one buffer that the blob was opened into."""
    with SealedReader(access) as reader:
        return pa.ipc.open_stream(reader.read_whole()).read_all()


def read_batches(access: BlobAccess) -> Iterator[pa.RecordBatch]:
    """The table batch by batch, in bounded memory."""
    with io.BufferedReader(SealedReader(access)) as reader, pa.ipc.open_stream(reader) as stream:
        yield from stream
