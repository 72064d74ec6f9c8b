"""Tasks that look at stored tables: a profile of one, and a comparison of a release with its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from app.store.blobs.arrow_stream import TableReader
from app.store.blobs.sealed_files import BlobAccess
from app.worker.field_profile import MOST_FIELDS, profile_fields, rows_to_read, text_rows
from app.worker.row_comparison import Wanted, compare_rows
from app.worker.run_swap import returns_user_errors


@dataclass(frozen=True, slots=True)
class ProfileTask:
    """Profile the fields of a table, and return its first rows."""

    table: BlobAccess
    row_count: int
    """Rows of the table."""
    rows: int
    """Number of first rows to return."""


@dataclass(frozen=True, slots=True)
class RowComparisonTask:
    """Compare a release with its source, row by row and by categories."""

    source: BlobAccess
    destination: BlobAccess
    aligned: bool
    """Whether row i of the release was made of row i of the source."""
    rows: int
    """Number of rows to return of each table."""
    only_changed: bool
    """Whether to return the first rows in which a value differs, instead of the first rows."""
    field: str | None
    by: str | None
    """Fields of the cross table."""


@returns_user_errors
def run_profile(task: ProfileTask) -> dict[str, Any]:
    """Profile the first fields of the table."""
    schema = schema_of(task.table)
    profiled = pa.schema(list(schema)[:MOST_FIELDS])
    most = rows_to_read(len(schema))
    first = pa.Table.from_batches(limited_batches(task.table, task.rows), schema)
    return {
        "field_count": len(schema),
        "row_count": task.row_count,
        "rows_read": min(task.row_count, most),
        "fields": profile_fields(profiled, lambda: limited_batches(task.table, most)),
        "first_rows": text_rows(first.select(profiled.names)),
    }


@returns_user_errors
def run_row_comparison(task: RowComparisonTask) -> dict[str, Any]:
    """Compare the release with its source."""
    schema = schema_of(task.source)
    most = rows_to_read(2 * len(schema))
    return compare_rows(
        pa.schema(list(schema)[:MOST_FIELDS]),
        lambda: limited_batches(task.source, most),
        lambda: limited_batches(task.destination, most),
        Wanted(task.aligned, task.rows, task.only_changed, task.field, task.by),
    )


def schema_of(access: BlobAccess) -> pa.Schema:
    """Return the schema of a table, which its batches do not state if it has no rows."""
    reader = TableReader(access)
    reader.close()
    return reader.schema


def limited_batches(access: BlobAccess, most: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the table's first ``most`` rows."""
    reader = TableReader(access)
    try:
        left = most
        for batch in reader:
            if left <= 0:
                return
            yield batch.slice(0, left)
            left -= batch.num_rows
    finally:
        reader.close()
