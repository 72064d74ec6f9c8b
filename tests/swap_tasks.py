"""Tasks of a worker, made without a service."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from app.engine.progress_file import make_progress_file
from app.store.blobs.arrow_stream import write_table
from app.store.blobs.sealed_files import BlobStore
from app.worker.tasks import SwapTask
from providers import PROVIDERS
from tests.naive.agreement import SEED


def swap_task(
    store: BlobStore, folder: Path, service: str, table: pa.Table, parameters: dict[str, Any], memory: int,
    units: int = 1,
) -> SwapTask:  # fmt: skip
    """A task whose source is in the store."""
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    source = store.allocate()
    write_table(source, table)
    make_progress_file(folder / "progress")
    return SwapTask(
        job_id=f"job-{source.id}",
        service=service,
        revision=provider.revision,
        parameters=params.model_dump(mode="json", by_alias=True),
        seed=SEED,
        seed_bits=256,
        source=source,
        destination=store.allocate(),
        rows=table.num_rows,
        report="summary",
        options={},
        progress_path=str(folder / "progress"),
        memory_bytes=memory,
        scratch_folder=str(folder / "scratch"),
        units=units,
    )
