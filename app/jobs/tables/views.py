"""Looks at stored tables, computed by a worker for a request that waits; nothing is stored."""

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from app.callers import Caller
from app.engine.engine import TaskFunction
from app.errors import Conflict, Gone
from app.jobs.failure_errors import rows_gone
from app.jobs.fairness.turns import Turns
from app.jobs.stores import Stores
from app.jobs.tables.digests import digest_of_buffer
from app.jobs.transactions import JobTransactions
from app.settings import Settings
from app.store.blobs.sealed_files import BlobAccess, BlobMissing
from app.store.sql.bindings import blob_of_buffer
from app.store.sql.models import Buffer, Job
from app.worker.run_profile import ProfileTask, RowComparisonTask, run_profile, run_row_comparison
from providers.tables.digest import form_of


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """Rows and cross table of a comparison."""

    rows: int
    only_changed: bool = False
    field: str | None = None
    by: str | None = None


class TableViews:
    """Profiles and comparisons of stored tables, each at its caller's turn."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        turns: Turns,
        transactions: JobTransactions,
        threads: Executor,
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._turns = turns
        self._transactions = transactions
        self._threads = threads

    async def profile(self, buffer: Buffer, rows: int, caller: Caller) -> dict[str, Any]:
        """Return the profile of a buffer's fields and its first rows; audited as a read of the buffer.

        Raises NotFound, and as `Turns.result`.
        """
        access = await self._in_thread(self._open_buffer, buffer, caller)
        return await self._run(run_profile, ProfileTask(access, buffer.row_count, rows), caller)

    async def compare(
        self, job: Job, source: Buffer, options: ComparisonOptions, caller: Caller
    ) -> dict[str, Any]:
        """Compare a job's destination with a buffer of its source; audited as a read of both.

        The source comes from a buffer that the caller may read, never from the job: so the comparison shows
        nothing that the caller cannot compute from the rows of both.

        Raises Conflict (the buffer is no source of the job), Gone, NotFound, and as `profile`.
        """
        before, after = await self._in_thread(self._open_both, job, source, caller)
        aligned = _is_aligned(job, source)
        task = RowComparisonTask(
            before, after, aligned, options.rows, options.only_changed, options.field, options.by
        )
        return await self._run(run_row_comparison, task, caller)

    def _open_both(self, job: Job, source: Buffer, caller: Caller) -> tuple[BlobAccess, BlobAccess]:
        try:
            digest = digest_of_buffer(self._stores, source, form_of(job.source_digest))
        except BlobMissing:
            raise rows_gone() from None
        if digest != job.source_digest:
            raise Conflict("the buffer has other rows than the job's source; give the buffer that it ran on")
        before = self._open_buffer(source, caller)
        self._transactions.audit(caller, "rows.read", job.id)
        try:
            return before, self._stores.open_table(job, "destination")
        except BlobMissing:
            raise Gone("the destination buffer has expired; rerun the job") from None

    def _open_buffer(self, buffer: Buffer, caller: Caller) -> BlobAccess:
        self._transactions.audit(caller, "buffer.read", buffer.id)
        try:
            return self._stores.open_blob(blob_of_buffer(buffer))
        except BlobMissing:
            raise rows_gone() from None

    async def _run(self, function: TaskFunction, task: Any, caller: Caller) -> dict[str, Any]:
        seconds = self._settings.max_wait_seconds
        return await self._turns.result(function, task, caller, seconds, missing=rows_gone())

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


def _is_aligned(job: Job, source: Buffer) -> bool:
    """Return whether row i of the destination was made of row i of the source."""
    counted = (job.event_counts or {}).get("dropped", 0)
    return not counted and not job.parameters.get("shuffle", False) and source.row_count == job.row_count
