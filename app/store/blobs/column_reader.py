"""Read selected columns of a stored table, and write a table that arrives in batches."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from app.store.blobs.arrow_stream import TableReader, TableWriter, buffered, read_table, table_bytes
from app.store.blobs.background_digest import BackgroundDigest
from app.store.blobs.batch_index import BatchIndex, read_batch_index
from app.store.blobs.disk_space import Reservation
from app.store.blobs.field_digests import FieldDigests, read_field_digests
from app.store.blobs.reading import open_blob
from app.store.blobs.sealed_files import BlobAccess
from app.store.blobs.selected_fields import are_whole_words, can_select, selected_batches, selected_words
from providers.tables.columns import is_words
from providers.tables.digest import DigestForm
from providers.tables.joining import in_one_chunk


class BlobTable:
    """Stored table, read by fields and batch by batch; other fields are skipped."""

    def __init__(self, access: BlobAccess, rows: int) -> None:
        """Read the schema. Raises BlobMissing, SealBroken."""
        self.rows = rows
        self._access = access
        self._read_index: BatchIndex | None = None
        with open_blob(access) as reader:
            self.nbytes = reader.size
            """Stored bytes of the whole table, which are about its bytes in memory."""
            with pa.ipc.open_stream(io.BufferedReader(reader)) as stream:
                self.schema: pa.Schema = stream.schema

    def batches(self, fields: Sequence[str], start: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield batches of one or more named fields, in schema order, from a row on. Raises SealBroken."""
        indices = self._indices(fields)
        if start >= self.rows > 0:
            return
        if self._selects and (start or len(indices) < len(self.schema)):
            begin = self._index().before(start) if start else None
            yield from selected_batches(self._access, indices, self.rows, start, begin)
            return
        skipped = 0
        for batch in self._all_batches(indices):
            if skipped + batch.num_rows > start or not start:
                yield batch.slice(start - skipped) if start > skipped else batch
            skipped += batch.num_rows

    def _all_batches(self, indices: list[int]) -> Iterator[pa.RecordBatch]:
        options = pa.ipc.IpcReadOptions(included_fields=indices, use_threads=False)
        with (
            buffered(self._access) as reader,
            pa.ipc.open_stream(reader, options=options) as stream,
        ):
            yield from stream

    def _index(self) -> BatchIndex:
        """Return the index of the batches, which is read once. Raises SealBroken."""
        if self._read_index is None:
            with open_blob(self._access) as reader:
                self._read_index = read_batch_index(reader, reader.size, len(self.schema))
        return self._read_index

    def field_digests(self) -> FieldDigests | None:
        """Return the digests of the fields; None if the blob does not have them. Raises SealBroken."""
        with open_blob(self._access) as reader:
            found = read_field_digests(reader, reader.size, len(self.schema))
        return None if found is None or found.rows != self.rows else found

    def whole(self) -> pa.Table:
        """Read the whole table. Raises SealBroken."""
        return read_table(self._access)

    def read(self, fields: Sequence[str]) -> pa.Table:
        """Read the named fields of all rows, in schema order, with one chunk per column where possible."""
        indices = self._indices(fields)
        schema = pa.schema([self.schema.field(index) for index in indices], self.schema.metadata)
        words = [index for index in indices if are_whole_words(self.schema.field(index).type)]
        whole = selected_words(self._access, self.schema, words, self.rows) if words and self._selects else {}
        others = {index: self.schema.field(index).name for index in indices if index not in whole}
        chunks_by_column: dict[int, list[pa.Array]] = {index: [] for index in others}
        for batch in self.batches(list(others.values())) if others else ():
            for chunks, chunk in zip(chunks_by_column.values(), batch.columns, strict=True):
                chunks.append(chunk)
        columns = []
        for index in indices:
            if index in whole:
                columns.append(pa.chunked_array([whole[index]]))
                continue
            columns.append(
                _joined(pa.chunked_array(chunks_by_column[index], type=self.schema.field(index).type))
            )
            chunks_by_column[index].clear()  # so that only one column at a time exists twice
        return pa.Table.from_arrays(columns, schema=schema)

    def _indices(self, fields: Sequence[str]) -> list[int]:
        wanted = set(fields)
        return [index for index, name in enumerate(self.schema.names) if name in wanted]

    @property
    def _selects(self) -> bool:
        """Whether other fields can be left sealed."""
        return self._access.content is None and can_select(self.schema)


def digest_of_blob(access: BlobAccess, form: DigestForm) -> str:
    """Read a stored table in bounded memory, and return its digest. Raises BlobMissing, SealBroken."""
    reader = TableReader(access)
    try:
        with BackgroundDigest(reader.schema, form) as digest:
            for batch in reader:
                digest.update(batch)
            return digest.finish()
    finally:
        reader.close()


def _joined(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if is_words(kind) and kind.bit_width >= 8 and len(column) and not column.null_count:
        return pa.chunked_array([_copied(column)])
    if is_words(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return in_one_chunk(pa.table({"": column})).column(0)
    return column


def _copied(column: pa.ChunkedArray) -> pa.Array:
    """Copy words without nulls into memory of numpy, which requests huge pages; Arrow does not."""
    width = column.type.bit_width // 8
    words = np.empty(len(column) * width, np.uint8)
    start = 0
    for chunk in filter(len, column.chunks):
        size = len(chunk) * width
        words[start : start + size] = np.frombuffer(chunk.buffers()[1], np.uint8, size, chunk.offset * width)
        start += size
    return pa.Array.from_buffers(column.type, len(column), [None, pa.py_buffer(words)])


def write_tables(
    access: BlobAccess,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    small_bytes: int = 0,
    held_space: Reservation | None = None,
    form: DigestForm = DigestForm.PARTS,
    known: Sequence[bytes | None] | None = None,
) -> tuple[str, int, bytes | None]:
    """Write a table that arrives as several tables as a new blob, unless it is small.

    Parameters
    ----------
    access : BlobAccess
        The new blob.
    schema : pa.Schema
    tables : iterable of pa.Table
    small_bytes : int
        Largest stream in bytes that is returned and not written.
    held_space : Reservation
        Disk space for the table, which its file takes over.
    form : DigestForm
        Form of the digest.
    known : sequence of bytes or None, optional
        Digests of fields that are known and not computed: see `TableDigest`.

    Returns
    -------
    tuple of str, int, and bytes or None
        Digest, number of rows, and the stream of a small table.
    """
    with BackgroundDigest(schema, form, known) as digest:
        batches = digest.batches(tables)
        held: list[pa.RecordBatch] = []
        size = 0
        while size <= small_bytes and (batch := next(batches, None)) is not None:
            held.append(batch)
            size += batch.nbytes
        if size <= small_bytes and len(content := table_bytes(schema, held)) <= small_bytes:
            return digest.finish(), digest.rows, content
        expected = 0
        if held_space is not None:
            expected = held_space.size
            held_space.release()
        with TableWriter(access, schema, expected) as writer:
            for batch in chain(held, batches):
                writer.write(batch)
            found = digest.finish()
            writer.field_digests = digest.field_digests()
        return found, digest.rows, None
