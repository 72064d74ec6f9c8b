"""Claims queued jobs, hands them to the engine, and has each end recorded (`app.jobs.record`)."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any

from app.engine.engine import (
    ATTEMPTS_EXHAUSTED,
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL_ERROR,
    WORKER_DIED,
    Engine,
    Failure,
    Outcome,
    TaskFunction,
)
from app.engine.progress import make_progress_file
from app.engine.worker import failure_of
from app.errors import StorageFull, Unavailable
from app.jobs.changes import Changes
from app.jobs.ends import Ends
from app.jobs.failures import problem_of
from app.jobs.kinds import Kind, kind_of
from app.jobs.record import End, Recorder, requeue
from app.jobs.sending import Sending
from app.jobs.sharing import JobRuns
from app.jobs.states import Step
from app.jobs.stores import Stores
from app.jobs.tasks import FrontierTask, JobTask, MeasureTask, SwapTask
from app.settings import Settings
from app.store import jobs, replicas
from app.store.models import Job
from app.store.seal import seed_context
from app.telemetry import tracing

_log = logging.getLogger("rowveil.jobs")

MOST_CRASHES = 3
"""A job during which the service itself ended so often, or lost its lease, is not tried again."""

_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0)
_DEADLINE_SECONDS = 1.0
_CRASHED = Failure(
    ATTEMPTS_EXHAUSTED,
    f"the service ended {MOST_CRASHES} times while this job ran; it is not tried again",
)
_OVERDUE = Failure(DEADLINE_EXCEEDED, "the job had not ended by its deadline, and was stopped")
_LATE = Failure(DEADLINE_EXCEEDED, "the job was still queued at its deadline, and did not run")
_UNREADABLE = "the job's source or seed cannot be opened; its log has why, under the job's id"


class Dispatcher:
    """An asyncio task that keeps the engine busy."""

    def __init__(
        self,
        stores: Stores,
        engine: Engine,
        sending: Sending,
        changes: Changes,
        threads: Executor,
        work: TaskFunction,
        settings: Settings,
        ends: Ends,
    ) -> None:
        self._stores = stores
        self._engine = engine
        self._sending = sending
        self._changes = changes
        self._threads = threads
        self._runs = JobRuns(engine, work, settings.job_time_limit)
        self._memory_bytes = settings.worker_memory_bytes
        self._units = settings.units_per_job
        self._ends = ends
        self._recorder = Recorder(stores, ends)
        self._wake = asyncio.Event()
        self._may_be_queued = False
        self._event_loop = asyncio.get_running_loop()
        self._loop: asyncio.Task[None] | None = None
        self._following: dict[str, asyncio.Task[None]] = {}
        self._to_cancel: set[str] = set()
        self._overdue: set[str] = set()
        self._unfollowed: set[tuple[str, int]] = set()
        """Claims of this replica that nobody here follows, as of the last look."""
        self._background: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._stopping = self._halted = False

    async def start(self) -> None:
        """Start to claim."""
        self._engine.on_capacity = self._wake.set
        self._loop = asyncio.create_task(self._claim_while_there_is_room())
        self._watching = asyncio.create_task(self._expire_queued())
        self.wake()

    def wake(self) -> None:
        """There may be a job to claim."""
        self._may_be_queued = True
        self._wake.set()

    async def cancel(self, job_id: str) -> bool:
        """Stop the job and return when its end has been recorded; False where it does not run here."""
        following = self._following.get(job_id)
        if following is None:
            return False
        self._to_cancel.add(job_id)
        await self._halt(job_id)
        await asyncio.wait([following])
        return True

    def cancel_soon(self, job_id: str) -> None:
        """Stop the job if it runs here and nobody has told it to; somebody at another replica wants it."""
        if job_id in self._following and job_id not in self._to_cancel:
            self._to_cancel.add(job_id)
            self._spawn(self._halt(job_id))

    async def drop_all(self) -> None:
        """Stop every job: they are others' now. Returns when nothing of them is left."""
        following = list(self._following.values())
        await asyncio.gather(*(self._halt(job_id) for job_id in list(self._following)))
        if following:
            await asyncio.wait(following)

    async def take_up_stalled(self, end_leases: bool) -> None:
        """Put back into the queue what dead replicas had claimed, and what was claimed here in vain.

        ``end_leases``: end those that have run out; else only what no lease covers is taken.
        """
        taken, ended = await self._in_thread(self._take_up_stalled, end_leases, set(self._following))
        if taken:
            self.wake()
        if ended:
            await self._in_thread(self._stores.sweep)

    def claim_no_more(self) -> None:
        """Leave what is queued to the next start."""
        self._stopping = True
        self.wake()

    async def stop(self, grace: float) -> None:
        """Claim no more, give running jobs so many seconds, and put the rest back into the queue."""
        self._stopping = True
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._loop is not None:
            self.wake()
            await self._loop
        if self._following:
            await asyncio.wait(self._following.values(), timeout=grace)
        self._halted = True
        await asyncio.gather(*(self._halt(job_id) for job_id in list(self._following)))
        if self._following:
            await asyncio.wait(self._following.values())

    async def _halt(self, job_id: str) -> None:
        """Stop whatever is being done for the job."""
        self._sending.cancel(job_id)
        await self._runs.cancel(job_id)

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
                self._ends.tell_started(job)
                _trace_waiting(job)
                self._may_be_queued |= more
                self._changes.expect(job.id)
                self._changes.tell(job.id, ended=False)
                running = self._runs.run(job.id, task)
                following = asyncio.create_task(self._follow(job, task, running))
                self._following[job.id] = following
                self._stop_at_deadline(job, following)

    def _stop_at_deadline(self, job: Job, following: asyncio.Task[None]) -> None:
        if job.deadline is None:
            return
        assert job.started_at is not None  # by its claim, just now

        def stop() -> None:
            self._overdue.add(job.id)
            self._spawn(self._halt(job.id))

        seconds = max(0.0, (job.deadline - job.started_at).total_seconds())
        at_deadline = self._event_loop.call_later(seconds, stop)
        following.add_done_callback(lambda _: at_deadline.cancel())

    async def _expire_queued(self) -> None:
        """Fail what is still queued at its deadline."""
        while True:
            try:
                for job_id in await self._in_thread(self._expire_overdue):
                    self._changes.tell(job_id, ended=True)
            except Exception as error:
                _log.error("looking for deadlines failed: %s", type(error).__qualname__)
            await asyncio.sleep(_DEADLINE_SECONDS)

    def _expire_overdue(self) -> list[str]:
        with self._stores.database.read() as session:
            overdue = jobs.overdue(session, replicas.moment(session))
        problem = problem_of(_LATE)
        return [job.id for job in overdue if self._recorder.record_end(job, Step.EXPIRE, error=problem)]

    async def _follow(self, job: Job, task: JobTask, running: asyncio.Task[Outcome]) -> None:
        outcome = await running
        if isinstance(task, SwapTask) and job.destination_reference is not None:
            outcome = await self._sent(job, task, outcome)
        for wait in chain(_RETRY_SECONDS, repeat(_RETRY_SECONDS[-1])):
            try:
                with _traced(job, "job.record"):
                    await self._in_thread(self._record, job, task, outcome)
                break
            except Exception as error:
                if isinstance(error, Unavailable | StorageFull):
                    _log.warning("job %s: its end is not recorded yet", job.id)
                else:  # what cannot be recorded is no result; that it failed can be
                    outcome = failure_of(error)
                    _log.error("job %s: its end cannot be recorded: %s", job.id, outcome.trace)
                if self._stopping:  # its row stays running: it is taken up again when the lease has run out
                    break
                await asyncio.sleep(wait)
        del self._following[job.id]
        self._to_cancel.discard(job.id)
        self._overdue.discard(job.id)
        self._changes.tell(job.id, ended=True)

    async def _sent(self, job: Job, task: SwapTask, outcome: Outcome) -> Outcome:
        """The outcome, when the destination is where the job's reference says."""
        if isinstance(outcome, Failure):
            return outcome
        if self._halted or job.id in self._to_cancel | self._overdue:  # since its worker ended
            return Failure(CANCELLED, "the job was cancelled")
        try:
            return await self._sending.send(job, task) or outcome
        except Exception as error:
            return failure_of(error)

    def _claim(self) -> tuple[Job, JobTask, bool] | None:
        while True:
            replica = self._stores.lease.replica
            with self._stores.database.write() as session:
                replicas.hold(session, [replica])
                job = jobs.claim_oldest(session, replica, replicas.moment(session))
                more = jobs.any_queued(session)
            if job is None:
                return None
            if job.cancel_requested:  # of the replica that had it before
                self._recorder.record_end(job, Step.CANCEL)
                self._event_loop.call_soon_threadsafe(self._changes.tell, job.id, True)
                continue
            try:
                return job, self._task(job), more
            except Exception as error:
                _log.error("job %s cannot be started: %s", job.id, failure_of(error).trace)
                self._recorder.record_end(
                    job, Step.FAIL, error=problem_of(Failure(INTERNAL_ERROR, _UNREADABLE))
                )
                self._event_loop.call_soon_threadsafe(self._changes.tell, job.id, True)

    def _task(self, job: Job) -> JobTask:
        stores = self._stores
        progress_path = stores.progress_path(job)
        make_progress_file(progress_path)
        assert job.source_blob is not None  # a job that has not ended has its source
        seed = stores.sealer.open(job.sealed_seed, seed_context(job.id))
        source = stores.blobs.access(job.source_blob)
        options = job.options or {}
        match kind_of(job.service):
            case Kind.MEASURES:
                assert job.destination_blob is not None  # and the table that it judges
                judged = stores.blobs.access(job.destination_blob)
                return MeasureTask(
                    job.id,
                    seed,
                    source,
                    judged,
                    job.parameters,
                    options,
                    str(progress_path),
                    job.trace_parent,
                )
            case Kind.FRONTIER:
                return FrontierTask(
                    job.id,
                    seed,
                    job.seed_bits,
                    source,
                    job.parameters,
                    options,
                    str(progress_path),
                    job.trace_parent,
                )
        return SwapTask(
            job_id=job.id,
            service=job.service,
            revision=job.revision,
            parameters=job.parameters,
            seed=seed,
            seed_bits=job.seed_bits,
            source=source,
            destination=stores.new_blob(),
            rows=job.row_count,
            report=job.report_level,
            options=options,
            progress_path=str(progress_path),
            memory_bytes=self._memory_bytes,
            scratch_folder=str(stores.scratch_folder),
            trace_parent=job.trace_parent,
            units=self._units,
        )

    def _record(self, job: Job, task: JobTask, outcome: Outcome) -> None:
        values: dict[str, Any] = {}
        if not isinstance(outcome, Failure):
            try:
                values = self._recorder.result_values(job, task, outcome)
            except Exception as error:
                outcome = failure_of(error)
        if isinstance(outcome, Failure):
            self._record_failure(job, outcome)
            kept = False
        else:
            kept = self._recorder.record_end(job, Step.SUCCEED, **values)
        if isinstance(task, SwapTask):
            if kept:
                self._stores.named([task.destination.id])
            else:
                self._stores.drop([task.destination.id])
        self._stores.progress_path(job).unlink(missing_ok=True)

    def _record_failure(self, job: Job, failure: Failure) -> None:
        if failure.trace:
            _log.error("job %s failed: %s", job.id, " < ".join(failure.trace))
        wanted = job.id in self._to_cancel
        if failure.code == CANCELLED and wanted:
            self._recorder.record_end(job, Step.CANCEL)
        elif failure.code == CANCELLED and job.id in self._overdue:
            self._recorder.record_end(job, Step.EXPIRE, error=problem_of(_OVERDUE))
        elif failure.code == CANCELLED or (failure.code == WORKER_DIED and self._stopping):
            with self._stores.database.write() as session:
                requeue(session, job, job.crashes)
            self._ends.tell_requeued()
        else:
            self._recorder.record_end(job, Step.FAIL, error=problem_of(failure))

    def _take_up_stalled(self, end_leases: bool, followed: Collection[str]) -> tuple[int, int]:
        """How many jobs were taken up, and how many leases ended.

        One transaction: no lease is gone while a job is still under it.
        """
        ends: list[End | None] = []
        replica = self._stores.lease.replica
        with self._stores.database.write() as session:
            # Where a claim's commit was not told, or its job could be neither started nor failed.
            unfollowed = [job for job in jobs.claimed(session, replica) if job.id not in followed]
            lost = [job for job in unfollowed if (job.id, job.attempt) in self._unfollowed]
            for job in lost:
                requeue(session, job, job.crashes)
            dead = replicas.remove_expired(session, replica) if end_leases else ()
            stalled = replicas.stalled_jobs(session)
            for job in stalled:
                if job.cancel_requested:
                    ends.append(self._recorder.end(session, job, Step.CANCEL))
                elif job.crashes + 1 >= MOST_CRASHES:
                    values = {"error": problem_of(_CRASHED), "crashes": job.crashes + 1}
                    ends.append(self._recorder.end(session, job, Step.FAIL, **values))
                else:
                    requeue(session, job, job.crashes + 1)
            ended = [end for end in ends if end is not None]
            unnamed = jobs.unnamed(session, [blob for end in ended for blob in end.released])
        self._recorder.tell(ended, unnamed)
        for job in (*stalled, *lost):
            self._stores.progress_path(job).unlink(missing_ok=True)
        for _ in range(len(stalled) + len(lost) - len(ended)):
            self._ends.tell_requeued()
        self._unfollowed = {(job.id, job.attempt) for job in unfollowed}
        for name in dead:
            _log.warning("replica %s is dead; what it left is taken up", name)
        return len(stalled) + len(lost), len(dead)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._event_loop.run_in_executor(self._threads, function, *arguments)


@contextmanager
def _traced(job: Job, name: str, started: float | None = None) -> Iterator[None]:
    """A span of the trace that the job's request began, if it did."""
    if job.trace_parent is None:
        yield
        return
    with tracing.span(name, {"rowveil.service": job.service}, job.trace_parent, started=started):
        yield


def _trace_waiting(job: Job) -> None:
    with _traced(job, "job.queue", job.created_at.timestamp()):
        """It ends now."""
