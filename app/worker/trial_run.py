"""Trial run of a service on the first rows of its source, for a preview; nothing of it is stored."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from app.store.blobs.sealed_files import BlobAccess
from app.worker.field_profile import MOST_FIELDS
from app.worker.row_comparison import Wanted, compare_rows
from app.worker.run_profile import limited_batches, schema_of
from app.worker.run_swap import returns_user_errors
from providers import PROVIDERS
from providers.compiled_services import wait_until_compiled
from providers.errors import ProviderError
from providers.progress import no_progress
from providers.tables.columns import take_rows
from providers.tables.joining import in_one_chunk

TRIAL_ROWS = 1_000
"""Largest number of rows of a trial run."""

_NOTHING: dict[str, Any] = {"fields": [], "rows": [], "categories": []}


@dataclass(frozen=True, slots=True)
class TrialTask:
    """Run a service on the first rows of a source."""

    service: str
    parameters: dict[str, Any]
    source: bytes | BlobAccess = field(repr=False)
    """An Arrow IPC stream, or the blob that holds one."""
    rows: int
    """Number of rows to return."""


@returns_user_errors
def run_trial(task: TrialTask) -> dict[str, Any]:
    """Run the service on the first rows with a seed that is thrown away.

    Returns
    -------
    dict
        Comparison of the rows, as `compare_rows`; or ``error``: the reason for which the service cannot
        run on these few rows.
    """
    wait_until_compiled(task.service)
    provider = PROVIDERS[task.service]
    params = provider.params.model_validate(task.parameters)
    sample = _first_rows(task.source)
    stream = provider.stream(secrets.token_bytes(16))
    try:
        result = provider.swap(sample, params, stream, no_progress)
    except ProviderError as error:
        return {"error": error.message, "rows_read": sample.num_rows, "aligned": False} | _NOTHING
    before = sample if result.origin is None else take_rows(sample, result.origin)
    return compare_rows(
        pa.schema(list(sample.schema)[:MOST_FIELDS]),
        lambda: in_one_chunk(before).to_batches(),
        lambda: in_one_chunk(result.table).to_batches(),
        Wanted(aligned=True, rows=task.rows, only_changed=False, field=None, by=None),
    )


def _first_rows(source: bytes | BlobAccess) -> pa.Table:
    if isinstance(source, bytes):
        return pa.ipc.open_stream(source).read_all().slice(0, TRIAL_ROWS)
    return pa.Table.from_batches(limited_batches(source, TRIAL_ROWS), schema_of(source))
