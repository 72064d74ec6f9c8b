"""Claims queued jobs, hands them to the engine, and records each end exactly once."""

import asyncio
import json
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from app.engine.engine import (
    ATTEMPTS_EXHAUSTED,
    CANCELLED,
    INTERNAL_ERROR,
    WORKER_DIED,
    Engine,
    Failure,
    Outcome,
    TaskFunction,
)
from app.engine.progress import make_progress_file
from app.engine.worker import failure_of
from app.jobs.changes import Changes
from app.jobs.failures import problem_of
from app.jobs.kinds import Kind, kind_of, tables_given
from app.jobs.manifest import signed_manifest
from app.jobs.states import State, Step, after, outcome_of, sources
from app.jobs.stores import Stores, now
from app.jobs.tasks import FrontierTask, JobTask, MeasureTask, SwapTask
from app.jobs.weak_seeds import flagged, is_weak
from app.store import jobs
from app.store.models import Job
from app.store.seal import report_context, seed_context
from providers.choosing.seeds import candidate_seed

_log = logging.getLogger("rowveil.jobs")

MOST_CRASHES = 3
"""A job during which the service itself ended so often is not tried again."""

_RETRY_SECONDS = (0.2, 1.0, 5.0, 30.0)
_CRASHED = Failure(
    ATTEMPTS_EXHAUSTED,
    f"the service ended {MOST_CRASHES} times while this job ran; it is not tried again",
)
_UNREADABLE = "the job's source or seed cannot be opened; its log has why, under the job's id"


class Dispatcher:
    """An asyncio task that keeps the engine busy."""

    def __init__(
        self,
        stores: Stores,
        engine: Engine,
        changes: Changes,
        threads: Executor,
        work: TaskFunction,
        memory_bytes: int,
    ) -> None:
        """``memory_bytes``: what a job may take."""
        self._stores = stores
        self._engine = engine
        self._changes = changes
        self._threads = threads
        self._work = work
        self._memory_bytes = memory_bytes
        self._wake = asyncio.Event()
        self._may_be_queued = False
        self._event_loop = asyncio.get_running_loop()
        self._loop: asyncio.Task[None] | None = None
        self._following: dict[str, asyncio.Task[None]] = {}
        self._to_cancel: set[str] = set()
        self._stopping = False

    async def start(self) -> None:
        """Take back what a dead service left running, and start to claim."""
        await self._in_thread(self._recover)
        self._engine.on_capacity = self._wake.set
        self._loop = asyncio.create_task(self._claim_while_there_is_room())
        self.wake()

    def wake(self) -> None:
        """There may be a job to claim."""
        self._may_be_queued = True
        self._wake.set()

    async def cancel(self, job_id: str) -> None:
        """Stop the job if it runs here; returns when its end has been recorded."""
        following = self._following.get(job_id)
        if following is not None:
            self._to_cancel.add(job_id)
            await self._engine.cancel(job_id)
            await asyncio.wait([following])

    def claim_no_more(self) -> None:
        """Leave what is queued to the next start."""
        self._stopping = True
        self.wake()

    async def stop(self, grace: float) -> None:
        """Claim no more, give running jobs so many seconds, and put the rest back into the queue."""
        self._stopping = True
        if self._loop is not None:
            self.wake()
            await self._loop
        if self._following:
            await asyncio.wait(self._following.values(), timeout=grace)
        await asyncio.gather(*(self._engine.cancel(job_id) for job_id in list(self._following)))
        if self._following:
            await asyncio.wait(self._following.values())

    async def _claim_while_there_is_room(self) -> None:
        while not self._stopping:
            await self._wake.wait()
            self._wake.clear()
            while self._may_be_queued and self._engine.capacity() > 0 and not self._stopping:
                self._may_be_queued = False
                try:
                    claimed = await self._in_thread(self._claim)
                except Exception as error:
                    _log.error("claiming a job failed: %s", failure_of(error).trace)
                    self._event_loop.call_later(_RETRY_SECONDS[1], self.wake)
                    break
                if claimed is None:
                    break
                job, task, more = claimed
                self._may_be_queued |= more
                self._changes.expect(job.id)
                self._changes.tell(job.id, ended=False)
                running = self._engine.run(job.id, self._work, task)
                following = asyncio.create_task(self._follow(job, task, running))
                self._following[job.id] = following

    async def _follow(self, job: Job, task: JobTask, running: asyncio.Task[Outcome]) -> None:
        outcome = await running
        for wait in (*_RETRY_SECONDS, None):
            try:
                await self._in_thread(self._record, job, task, outcome)
                break
            except Exception as error:
                _log.error("job %s: its end is not recorded yet: %s", job.id, failure_of(error).trace)
                if wait is not None and not self._stopping:
                    await asyncio.sleep(wait)
        # A row that could not be changed stays running: the next start takes the job up again.
        del self._following[job.id]
        self._to_cancel.discard(job.id)
        self._changes.tell(job.id, ended=True)

    def _claim(self) -> tuple[Job, JobTask, bool] | None:
        while True:
            with self._stores.database.write() as session:
                job = jobs.claim_oldest(session, self._stores.instance, now())
                more = jobs.any_queued(session)
            if job is None:
                return None
            try:
                return job, self._task(job), more
            except Exception as error:
                _log.error("job %s cannot be started: %s", job.id, failure_of(error).trace)
                self._record_end(job, Step.FAIL, error=problem_of(Failure(INTERNAL_ERROR, _UNREADABLE)))
                self._event_loop.call_soon_threadsafe(self._changes.tell, job.id, True)

    def _task(self, job: Job) -> JobTask:
        stores = self._stores
        progress_path = stores.progress_path(job.id)
        make_progress_file(progress_path)
        assert job.source_blob is not None  # a job that has not ended has its source
        seed = stores.sealer.open(job.sealed_seed, seed_context(job.id))
        source = stores.blobs.access(job.source_blob)
        options = job.options or {}
        match kind_of(job.service):
            case Kind.MEASURES:
                assert job.destination_blob is not None  # and the table that it judges
                judged = stores.blobs.access(job.destination_blob)
                return MeasureTask(job.id, seed, source, judged, job.parameters, options, str(progress_path))
            case Kind.FRONTIER:
                return FrontierTask(
                    job.id, seed, job.seed_bits, source, job.parameters, options, str(progress_path)
                )
        return SwapTask(
            job_id=job.id,
            service=job.service,
            revision=job.revision,
            parameters=job.parameters,
            seed=seed,
            seed_bits=job.seed_bits,
            source=source,
            destination=stores.blobs.allocate(),
            rows=job.row_count,
            report=job.report_level,
            options=options,
            progress_path=str(progress_path),
            memory_bytes=self._memory_bytes,
            scratch_folder=str(stores.scratch_folder),
        )

    def _record(self, job: Job, task: JobTask, outcome: Outcome) -> None:
        values: dict[str, Any] = {}
        if not isinstance(outcome, Failure):
            try:
                values = self._result_values(job, task, outcome)
            except Exception as error:
                outcome = failure_of(error)
        if isinstance(outcome, Failure):
            self._record_failure(job, outcome)
            kept = False
        else:
            kept = self._record_end(job, Step.SUCCEED, **values)
        if not kept and isinstance(task, SwapTask):
            self._stores.delete_blobs([task.destination.id])
        self._stores.progress_path(job.id).unlink(missing_ok=True)

    def _result_values(self, job: Job, task: JobTask, result: dict[str, Any]) -> dict[str, Any]:
        outcome = outcome_of(State.SUCCEEDED, result["event_counts"])
        self._add_fingerprints(task.seed, result["report"] or {})
        if is_weak(job.seed_bits):
            result = flagged(result, job.seed_bits)
        values = {
            "outcome": outcome,
            "events": result["events"],
            "event_counts": result["event_counts"],
            "sealed_report": self._sealed_report(job, result["report"]),
            "manifest": signed_manifest(job, result, str(outcome), self._stores.signer),
        }
        if isinstance(task, SwapTask):
            destination = result["destination"]
            values |= {
                "destination_digest": destination["digest"],
                "destination_fields": destination["fields"],
                "destination_rows": destination["rows"],
                "destination_blob": task.destination.id,
            }
        return values

    def _sealed_report(self, job: Job, report: dict[str, Any] | None) -> bytes | None:
        if report is None:
            return None
        return self._stores.sealer.seal(json.dumps(report).encode(), report_context(job.id))

    def _add_fingerprints(self, seed: bytes, report: dict[str, Any]) -> None:
        """Say which candidate had which seed, which only the holder of the keys can."""
        fingerprint = self._stores.sealer.fingerprint
        for candidate in report.get("candidates", {}).get("table", []):
            candidate["seed_fingerprint"] = fingerprint(candidate_seed(seed, candidate["index"]))

    def _record_failure(self, job: Job, failure: Failure) -> None:
        if failure.trace:
            _log.error("job %s failed: %s", job.id, " < ".join(failure.trace))
        wanted = job.id in self._to_cancel
        if failure.code == CANCELLED and wanted:
            self._record_end(job, Step.CANCEL)
        elif failure.code == CANCELLED or (failure.code == WORKER_DIED and self._stopping):
            self._requeue(job, job.crashes)
        else:
            self._record_end(job, Step.FAIL, error=problem_of(failure))

    def _record_end(self, job: Job, step: Step, **values: Any) -> bool:
        """Record the end of this claim of the job, unless another one was recorded already."""
        stores = self._stores
        ended = after(State.RUNNING, step)
        given = tables_given(job)
        released = {} if job.retain_source else {f"{role}_blob": None for role in given}
        with stores.database.write() as session:
            if job.rerun_of is not None and ended is not State.CANCELLED:
                original = jobs.find(session, job.rerun_of, "manifest")
                if original is not None:
                    values |= _reproduced(original, values)
            moved = jobs.move(
                session,
                job.id,
                sources(step),
                ended,
                attempt=job.attempt,
                **{"finished_at": now(), "outcome": outcome_of(ended, {})} | values,
                **released,
            )
            blobs = jobs.unnamed(session, given.values()) if moved else []
        stores.delete_blobs(blobs)
        return moved

    def _recover(self) -> None:
        with self._stores.database.read() as session:
            left = jobs.left_running(session, self._stores.instance)
        for job in left:
            if job.crashes + 1 >= MOST_CRASHES:
                self._record_end(job, Step.FAIL, error=problem_of(_CRASHED), crashes=job.crashes + 1)
            else:
                self._requeue(job, job.crashes + 1)

    def _requeue(self, job: Job, crashes: int) -> None:
        with self._stores.database.write() as session:
            jobs.move(
                session,
                job.id,
                sources(Step.REQUEUE),
                after(State.RUNNING, Step.REQUEUE),
                attempt=job.attempt,
                started_at=None,
                claimed_by=None,
                crashes=crashes,
            )

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._event_loop.run_in_executor(self._threads, function, *arguments)


def _reproduced(original: Job, values: dict[str, Any]) -> dict[str, bool]:
    """Whether a rerun gave what the job gave: its bytes, or where no table comes out, its report."""
    if kind_of(original.service).has_rows:
        expected, found = original.destination_digest, values.get("destination_digest")
    else:
        expected, found = _report_digest(original.manifest), _report_digest(values.get("manifest"))
    return {} if expected is None else {"reproduced": found == expected}


def _report_digest(signed: dict[str, Any] | None) -> str | None:
    return None if signed is None else signed["manifest"]["report_digest"]
