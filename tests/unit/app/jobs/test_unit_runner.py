"""Errors of the service itself while it runs a divided job."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.engine.engine import Failure, Outcome
from app.jobs.units.spools import FolderSpools
from app.jobs.units.unit_runner import JobRuns
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import Sealer
from app.worker.run_units import DIVISION, UNITS
from tests.swap_tasks import swap_task


class DividingEngine:
    """An engine whose first task has divided each job."""

    def run(self, task_id: str, function: Any, task: Any, *, owner: str) -> asyncio.Task[Outcome]:
        async def divided() -> Outcome:
            return {DIVISION: b"", UNITS: 2}

        return asyncio.ensure_future(divided())

    async def cancel(self, task_id: str) -> None:
        pass


@pytest.mark.parametrize(("error", "code"), [(errno.ENOSPC, "storage_full"), (errno.EIO, "internal_error")])
def test_a_spool_folder_that_cannot_be_made_fails_the_job(error: int, code: str, tmp_path: Path) -> None:
    """With the cause; nothing runs on, and what was made of the folder is deleted."""

    class FailingSpools(FolderSpools):
        def open(self, job: Any) -> None:
            super().open(job)
            raise OSError(error, os.strerror(error))

    store = BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))
    task = swap_task(
        store, tmp_path, "DSWAP", pa.table({"income": [1, 2]}), {"swap_fields": ["income"]}, 0, 2
    )
    engine: Any = DividingEngine()

    async def run() -> Outcome:
        runs = JobRuns(engine, lambda task: {}, 60.0, spools=FailingSpools())
        try:
            return await runs.run(task.job_id, task, "ann")
        finally:
            await runs.cancel(task.job_id)  # which finds no run
            runs.close()

    outcome = asyncio.run(run())
    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.trace[0]) == (code, "builtins.OSError")
    assert not task.spool_folder.exists()
