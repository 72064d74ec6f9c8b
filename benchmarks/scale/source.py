"""Table of four fields of 8 bytes, or a household survey, in a sealed blob like an upload."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from app.capacity.costs import ROW_BYTES
from app.engine.engine import Failure
from app.formats.media_types import ARROW_STREAM
from app.store.blobs.column_reader import BlobTable
from app.store.blobs.sealed_files import BlobAccess, BlobStore, SealedWriter
from app.worker.run_ingest import run_ingest
from app.worker.tasks import IngestTask
from tests.household_survey import household_survey

_BATCH = 2**20

SCHEMA = pa.schema(
    [("a", pa.float64()), ("b", pa.float64()), ("class10000", pa.int64()), ("age", pa.float64())]
)
"""Two values in [0, 1), one of 10,000 classes, and a value in [0, 80)."""


def _batch(rows: int, generator: np.random.Generator) -> pa.RecordBatch:
    columns = [
        generator.random(rows),
        generator.random(rows),
        generator.integers(0, 10_000, rows),
        generator.random(rows) * 80,
    ]
    return pa.record_batch(columns, schema=SCHEMA)


@dataclass(frozen=True, slots=True)
class StoredSource:
    """Stored table."""

    access: BlobAccess
    schema: pa.Schema
    rows: int
    stored_bytes: int

    @property
    def reference_rows(self) -> float:
        """Number of rows of `ROW_BYTES` bytes that take as much."""
        return self.stored_bytes / ROW_BYTES


def numbers(store: BlobStore, rows: int) -> StoredSource:
    """Store a table of four fields. The same rows give the same table."""
    generator = np.random.default_rng(rows)
    sizes = [min(_BATCH, rows - first) for first in range(0, rows, _BATCH)]
    return _uploaded(store, SCHEMA, rows, (_batch(size, generator) for size in sizes))


def survey(store: BlobStore, rows: int) -> StoredSource:
    """Store a survey of ``rows`` persons."""
    table = household_survey(rows).slice(0, rows)
    return _uploaded(store, table.schema, rows, table.to_batches(_BATCH))


def _uploaded(
    store: BlobStore, schema: pa.Schema, rows: int, batches: Iterable[pa.RecordBatch]
) -> StoredSource:
    raw, access = store.allocate(), store.allocate()
    with SealedWriter(raw, durable=False) as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stored = run_ingest(IngestTask(raw, ARROW_STREAM, {}, access, 2**50))
    store.delete(raw.id)
    if isinstance(stored, Failure):
        raise RuntimeError(stored.message)
    return StoredSource(access, schema, rows, BlobTable(access, rows).nbytes)
