"""Ingest of an upload in a worker: check the table and write it to a blob, batch by batch."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.engine.engine import STORAGE_FULL, TOO_LARGE, Failure, Outcome
from app.engine.stop_request import check_stop
from app.errors import NO_ROOM
from app.formats import open_table
from app.formats.errors import FormatError
from app.store.blobs.arrow_stream import TableWriter
from app.store.blobs.background_digest import BackgroundDigest
from app.store.blobs.batches import cut_by_size, evened
from app.store.blobs.sealed_files import BlobAccess
from app.store.blobs.sealed_reader import SealedReader
from app.worker.run_swap import described_fields, returns_user_errors
from app.worker.tasks import IngestTask
from providers.errors import SourceError
from providers.tables.decoded_sizes import decoded_row_sizes
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
    decoded_bytes = 0
    with (
        BackgroundDigest(schema, task.digest_form) as digest,
        TableWriter(task.table, schema, draft=task.draft) as writer,
    ):
        for batch in evened(_limited(batches, task.max_bytes)):
            _refuse_large_table(writer.plain_bytes, digest.rows, task.max_bytes)  # of the batches before
            _refuse_large_rows(batch, digest.rows)
            sizes = decoded_row_sizes(batch)
            if sizes is None:
                digest.update(batch)
            else:
                decoded_bytes += int(sizes.sum())
                if decoded_bytes > task.max_bytes:
                    raise _TooLarge
                _refuse_large_decoded_rows(sizes, digest.rows)
                for piece in cut_by_size(batch, sizes, _MOST_DECODED):
                    digest.update(piece)
            writer.write(batch)
            if sizes is not None:  # the C library would keep the memory of decoded values
                pa.default_memory_pool().release_unused()
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


def _refuse_large_rows(batch: pa.RecordBatch, before: int) -> None:
    """Raise SourceError if a row is too large; `evened` leaves a large batch only for such a row."""
    if batch.nbytes <= MOST_ROW_BYTES:
        return
    raise SourceError(
        f"a row after row {before} (counting from 0) takes more than {MOST_ROW_BYTES >> 20} MiB by itself, "
        "or with the dictionaries of its fields; split the cell, or send the values without a dictionary"
    )


def _refuse_large_decoded_rows(sizes: npt.NDArray[np.int64], before: int) -> None:
    """Raise SourceError if the decoded values of a row are too large."""
    if not len(sizes) or sizes.max() <= MOST_ROW_BYTES:
        return
    raise SourceError(
        f"row {before + int(np.argmax(sizes > MOST_ROW_BYTES))} (counting from 0) takes more than "
        f"{MOST_ROW_BYTES >> 20} MiB when its dictionaries, runs and views are decoded; split the cell"
    )
