"""What a worker does with an upload: checks it, and writes it as a table of ours, batch by batch."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.engine.engine import STORAGE_FULL, TOO_LARGE, Failure, Outcome
from app.errors import NO_ROOM
from app.jobs.run import described_fields, tells_the_callers_errors
from app.jobs.tasks import IngestTask, Told
from app.store.batches import evened, pieces
from app.store.blobs import SealedReader
from app.store.hashing import DigestBeside
from app.store.tables import TableWriter
from providers.errors import SourceError

MOST_ROW_BYTES = 1 << 26
"""A row, with the dictionaries that it refers to, is held whole by whoever reads the table."""

_MOST_WRITTEN_OUT = 1 << 26


class _TooLarge(Exception):
    """The table takes more than it may."""


def run_ingest(task: IngestTask) -> Outcome:
    """Read the upload, write it as a table of ours, and say what it is."""
    try:
        return _ingest(task)
    except _TooLarge:
        return Failure(
            TOO_LARGE,
            f"the table takes more than {task.max_bytes} bytes when it is decoded, which is the most for "
            "an upload of its size (ROWVEIL_MAX_TABLE_BYTES; docs/buffers.md); upload it in parts, or less "
            "compressed",
        )
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        return Failure(STORAGE_FULL, "the storage is full; delete buffers and jobs, or try again later")


@tells_the_callers_errors
def _ingest(task: IngestTask) -> dict[str, Any]:
    try:
        with io.BufferedReader(SealedReader(task.upload)) as upload:
            schema, batches = task.open_table(task.media_type, upload, **task.options)
            return _written(task, schema.remove_metadata(), batches)  # pandas keeps row labels there
    except MemoryError:  # Arrow's is a ValueError as well
        raise
    except ValueError as error:
        if isinstance(error, Told):
            raise SourceError(error.message, error.pointer) from None
        raise


def _written(task: IngestTask, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> dict[str, Any]:
    said = 0
    with DigestBeside(schema) as digest, TableWriter(task.table, schema) as writer:
        for batch in evened(_limited(batches, task.max_bytes)):
            _refuse_large_rows(batch, digest.rows)
            referred, widest = _referred(batch)
            said += referred
            if said > task.max_bytes:
                raise _TooLarge
            for part in pieces(batch, most_rows=max(1, _MOST_WRITTEN_OUT // max(1, widest))):
                digest.update(part)
            writer.write(batch)
            pa.default_memory_pool().release_unused()  # the C library keeps what was freed
            # a row counts a byte at least: nulls take no room
            if max(writer.plain_bytes, digest.rows) > task.max_bytes:
                raise _TooLarge
        return {
            "fields": described_fields(schema),
            "rows": digest.rows,
            "digest": digest.finish(),
            "byte_size": writer.plain_bytes,
        }


def _limited(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The batches; one that promises more rows than there may be bytes is not even begun."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        if rows > most:
            raise _TooLarge
        yield batch


def _referred(batch: pa.RecordBatch) -> tuple[int, int]:
    """Bytes of the values that dictionaries stand for, all together, and of the largest of them.

    Whoever reads values writes them out, so that a few bytes of indices may be as much as they like.
    """
    total = widest = 0
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            sizes = _value_bytes(column.dictionary)
            total += pc.sum(sizes.take(column.indices)).as_py() or 0
            widest = max(widest, pc.max(sizes).as_py() or 0)
    return total, widest


def _value_bytes(values: pa.Array) -> pa.Array:
    """The bytes of each value; where that is not one figure, those of all together."""
    kind, data_type = pa.types, values.type
    if kind.is_string(data_type) or kind.is_binary(data_type):
        return pc.binary_length(values).cast(pa.int64())
    if kind.is_large_string(data_type) or kind.is_large_binary(data_type):
        return pc.binary_length(values)
    fixed = kind.is_primitive(data_type) or kind.is_fixed_size_binary(data_type)
    each = data_type.bit_width // 8 if fixed else values.nbytes
    return pa.array(np.full(len(values), each, np.int64))


def _refuse_large_rows(batch: pa.RecordBatch, before: int) -> None:
    """Raise SourceError where a row is too large; `evened` leaves a large batch only for such a row."""
    if batch.nbytes <= MOST_ROW_BYTES:
        return
    raise SourceError(
        f"a row after row {before} (counting from 0) takes more than {MOST_ROW_BYTES >> 20} MiB by itself, "
        "or with the dictionaries of its fields; split the cell, or send the values without a dictionary"
    )
