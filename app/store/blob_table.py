"""A table in a sealed blob, read by fields, and one that is written as it comes."""

import io
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from app.store.batches import pieces
from app.store.blobs import BlobAccess, SealedReader
from app.store.hashing import DigestBeside
from app.store.tables import TableWriter, read_table
from providers.table import is_words

_BATCH_ROWS = 65_536


class BlobTable:
    """A table in a blob, read by fields and batch by batch: what is not asked for is passed over."""

    def __init__(self, access: BlobAccess, rows: int) -> None:
        """Reads the schema. Raises BlobMissing, SealBroken."""
        self.rows = rows
        self._access = access
        with SealedReader(access) as reader:
            self.nbytes = reader.size
            """Bytes of the whole table as it is stored, which is about what it takes in memory."""
            with pa.ipc.open_stream(io.BufferedReader(reader)) as stream:
                self.schema: pa.Schema = stream.schema

    def batches(self, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The named fields, one or more, in the schema's order, batch by batch. Raises SealBroken."""
        wanted = set(fields)
        places = [at for at, name in enumerate(self.schema.names) if name in wanted]
        options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
        with (
            io.BufferedReader(SealedReader(self._access)) as reader,
            pa.ipc.open_stream(reader, options=options) as stream,
        ):
            yield from stream

    def whole(self) -> pa.Table:
        """The whole table. Raises SealBroken."""
        return read_table(self._access)

    def read(self, fields: Sequence[str]) -> pa.Table:
        """The named fields of all rows, in the schema's order, each in one piece where it can be."""
        wanted = set(fields)
        schema = pa.schema([field for field in self.schema if field.name in wanted], self.schema.metadata)
        columns_pieces: list[list[pa.Array]] = [[] for _ in schema]
        for batch in self.batches(fields) if columns_pieces else ():
            for column, piece in zip(columns_pieces, batch.columns, strict=True):
                column.append(piece)
        columns = []
        for field, chunks in zip(schema, columns_pieces, strict=True):
            columns.append(_joined(pa.chunked_array(chunks, type=field.type)))
            chunks.clear()  # so that two copies are there of one column at a time
        return pa.Table.from_arrays(columns, schema=schema)


def _joined(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if is_words(kind) and kind.bit_width >= 8 and len(column) and not column.null_count:
        return pa.chunked_array([_copied(column)])
    if is_words(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.table({"": column}).combine_chunks().column(0)
    return column


def _copied(column: pa.ChunkedArray) -> pa.Array:
    """Words, none of them null, in memory of numpy's, which asks for large pages where Arrow does not."""
    width = column.type.bit_width // 8
    words = np.empty(len(column) * width, np.uint8)
    at = 0
    for chunk in filter(len, column.chunks):
        size = len(chunk) * width
        words[at : at + size] = np.frombuffer(chunk.buffers()[1], np.uint8, size, chunk.offset * width)
        at += size
    return pa.Array.from_buffers(column.type, len(column), [None, pa.py_buffer(words)])


def write_tables(access: BlobAccess, schema: pa.Schema, tables: Iterable[pa.Table]) -> tuple[str, int]:
    """Write a table that arrives in pieces as a new blob; its digest and its number of rows."""
    with DigestBeside(schema) as digest, TableWriter(access, schema) as writer:
        for table in tables:
            for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
                for piece in pieces(batch):
                    digest.update(piece)
                    writer.write(piece)
            if not table.num_columns:
                digest.rows += table.num_rows
        return digest.finish(), digest.rows
