"""Ingest of an upload in a worker: check the table and write it to a blob, batch by batch."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.engine.engine import STORAGE_FULL, TOO_LARGE, Failure, Outcome
from app.engine.stop_request import check_stop
from app.errors import NO_ROOM
from app.formats import open_table
from app.formats.errors import FormatError
from app.store.blobs.arrow_stream import TableWriter
from app.store.blobs.background_digest import BackgroundDigest
from app.store.blobs.batches import evened, pieces
from app.store.blobs.sealed_files import BlobAccess
from app.store.blobs.sealed_reader import SealedReader
from app.worker.run_swap import described_fields, returns_user_errors
from app.worker.tasks import IngestTask
from providers.errors import SourceError
from providers.tables.digest import DigestForm

MOST_ROW_BYTES = 1 << 26
"""Largest row in bytes, with its dictionaries: every reader of the table holds a whole row in memory."""

_MOST_DECODED = 1 << 26
"""Bytes that the decoded values of one slice take at most while it is hashed."""


class _TooLarge(Exception):
    """The table takes more bytes than its task allows."""


def run_ingest(task: IngestTask) -> Outcome:
    """Read the upload, write its table to a blob, and return its digest, fields and size."""
    return reports_no_room(lambda: _ingest(task), task.max_bytes)


def reports_no_room(write: Callable[[], dict[str, Any] | Failure], max_bytes: int) -> Outcome:
    """Call the function that writes a table; return a Failure if the table or the storage has no room."""
    try:
        return write()
    except _TooLarge:
        return Failure(
            TOO_LARGE,
            f"the table takes more than {max_bytes} bytes when it is decoded, which is the most for "
            "an upload of its size (ROWVEIL_MAX_TABLE_BYTES; docs/buffers.md); upload it in parts, or less "
            "compressed",
        )
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        return Failure(STORAGE_FULL, "the storage is full; delete buffers and jobs, or try again later")


@returns_user_errors
def _ingest(task: IngestTask) -> dict[str, Any]:
    try:
        with io.BufferedReader(SealedReader(task.upload)) as upload:
            schema, batches = open_table(task.media_type, upload, **task.options)
            return write_checked(task, schema, batches)
    except FormatError as error:
        raise SourceError(error.message, error.pointer) from None


class NewTable(Protocol):
    """Blob of a table to write, with its limit."""

    @property
    def table(self) -> BlobAccess:
        """Blob to write."""
        ...

    @property
    def max_bytes(self) -> int:
        """Largest size of the decoded table in bytes."""
        ...

    @property
    def draft(self) -> str:
        """File with reserved disk space; empty: there is none."""
        ...

    @property
    def digest_form(self) -> DigestForm:
        """Form of the table's digest."""
        ...


def write_checked(task: NewTable, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> dict[str, Any]:
    """Write the table batch by batch within its limits; return its digest, fields and size."""
    dictionary_bytes = 0
    with (
        BackgroundDigest(schema, task.digest_form) as digest,
        TableWriter(task.table, schema, draft=task.draft) as writer,
    ):
        for batch in evened(_limited(batches, task.max_bytes)):
            _refuse_large_table(writer.plain_bytes, digest.rows, task.max_bytes)  # of the batches before
            _refuse_large_rows(batch, digest.rows)
            batch_bytes, widest = _decoded_bytes(batch)
            dictionary_bytes += batch_bytes
            if dictionary_bytes > task.max_bytes:
                raise _TooLarge
            for piece in pieces(batch, most_rows=max(1, _MOST_DECODED // max(1, widest))):
                digest.update(piece)
            writer.write(batch)
            pa.default_memory_pool().release_unused()  # otherwise the C library keeps freed memory
        _refuse_large_table(writer.plain_bytes, digest.rows, task.max_bytes)
        found = {
            "fields": described_fields(schema),
            "rows": digest.rows,
            "digest": digest.finish(),
            "byte_size": writer.plain_bytes,
        }
        writer.field_digests = digest.field_digests()
        return found


def _refuse_large_table(size: int, rows: int, most: int) -> None:
    """Raise if so far a table takes more bytes than it may. A row counts as one at least: nulls take none."""
    if max(size, rows) > most:
        raise _TooLarge


def _limited(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise before a batch that declares more rows than the table may have bytes."""
    rows = 0
    for batch in batches:
        check_stop()  # the caller may have disconnected
        rows += batch.num_rows
        if rows > most:
            raise _TooLarge
        yield batch


def _decoded_bytes(batch: pa.RecordBatch) -> tuple[int, int]:
    """Sum the bytes of all dictionary-encoded values as if decoded, and find the largest of them.

    Readers decode the values, so a few bytes of indices can stand for a table of any size.
    """
    total = widest = 0
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            sizes = _value_bytes(column.dictionary)
            total += pc.sum(sizes.take(column.indices)).as_py() or 0
            widest = max(widest, pc.max(sizes).as_py() or 0)
    return total, widest


def _value_bytes(values: pa.Array) -> pa.Array:
    """Return the bytes of each value; for nested types, the bytes of all values together."""
    kind, data_type = pa.types, values.type
    if kind.is_string(data_type) or kind.is_binary(data_type):
        return pc.binary_length(values).cast(pa.int64())
    if kind.is_large_string(data_type) or kind.is_large_binary(data_type):
        return pc.binary_length(values)
    fixed = kind.is_primitive(data_type) or kind.is_fixed_size_binary(data_type)
    width = data_type.bit_width // 8 if fixed else values.nbytes
    return pa.array(np.full(len(values), width, np.int64))


def _refuse_large_rows(batch: pa.RecordBatch, before: int) -> None:
    """Raise SourceError if a row is too large; `evened` leaves a large batch only for such a row."""
    if batch.nbytes <= MOST_ROW_BYTES:
        return
    raise SourceError(
        f"a row after row {before} (counting from 0) takes more than {MOST_ROW_BYTES >> 20} MiB by itself, "
        "or with the dictionaries of its fields; split the cell, or send the values without a dictionary"
    )
