"""Plans of runs, computed by a worker; nothing is stored."""

import asyncio
from concurrent.futures import Executor
from typing import Any

import pyarrow as pa

from app.callers import Caller
from app.engine.engine import TaskFunction
from app.errors import InvalidRequest
from app.jobs.fairness.turns import Turns
from app.jobs.requests import GivenTable, StoredTable, TableOf
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.blobs.sealed_files import BlobAccess, BlobMissing
from app.store.sql import buffers
from app.store.sql.bindings import blob_of_buffer
from app.store.sql.replicas import moment
from app.worker.run_swap import run_plan
from app.worker.tasks import PlanTask
from app.worker.trial_run import TrialTask, run_trial
from providers.params import StrictModel


class Plans:
    """Computes plans in workers, each at its caller's turn."""

    def __init__(self, settings: Settings, stores: Stores, turns: Turns, threads: Executor) -> None:
        self._settings = settings
        self._stores = stores
        self._turns = turns
        self._threads = threads

    async def plan(
        self, service: str, params: StrictModel, source: GivenTable, caller: Caller
    ) -> dict[str, Any]:
        """Return a `providers.results.Plan` as plain values; the read of another caller's buffer is audited.

        Raises InvalidRequest (no such buffer), and as `Turns.result`.
        """
        loop = asyncio.get_running_loop()
        content, rows = await loop.run_in_executor(self._threads, self._content, source, caller, True)
        task = PlanTask(service, params.model_dump(mode="json", by_alias=True), content, rows)
        return await self._run(run_plan, task, source, caller)

    async def trial(
        self, service: str, params: StrictModel, source: GivenTable, rows: int, caller: Caller
    ) -> dict[str, Any]:
        """Return before and after of ``rows`` rows of a trial run. Raises as `plan`."""
        loop = asyncio.get_running_loop()
        content, _ = await loop.run_in_executor(self._threads, self._content, source, caller)
        task = TrialTask(service, params.model_dump(mode="json", by_alias=True), content, rows)
        return await self._run(run_trial, task, source, caller)

    async def _run(
        self, function: TaskFunction, task: Any, source: GivenTable, caller: Caller
    ) -> dict[str, Any]:
        missing = _no_buffer(source) if isinstance(source, str) else None
        return await self._turns.result(function, task, caller, self._settings.max_wait_seconds, missing)

    def _content(
        self, source: GivenTable, caller: Caller, audited: bool = False
    ) -> tuple[bytes | BlobAccess, int]:
        if isinstance(source, StoredTable):
            return source.access, source.rows
        if isinstance(source, str):
            with self._stores.database.read() as session:
                buffer = buffers.find(session, source, moment(session), caller)
            if buffer is None:
                raise _no_buffer(source)
            if audited and buffer.owner != caller.owner:
                with self._stores.database.write() as session:
                    self._stores.audit.append(session, caller, "buffer.read", source, moment(session))
            try:
                return self._stores.open_blob(blob_of_buffer(buffer)), buffer.row_count
            except BlobMissing:  # deleted since its row was read
                raise _no_buffer(source) from None
        assert not isinstance(source, TableOf)  # only attacks take a table of another job
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, source.schema) as writer:
            writer.write_table(source)
        plain: bytes = sink.getvalue().to_pybytes()
        return plain, source.num_rows


def _no_buffer(buffer_id: str) -> InvalidRequest:
    return InvalidRequest(f"there is no buffer '{buffer_id}'", "/source/buffer")
