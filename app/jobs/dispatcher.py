"""Claim queued jobs, run them in the engine, and record each end by `app.jobs.recorder`."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar

from app.callers import THE_SERVICE
from app.engine.engine import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL_ERROR,
    JOB_ALTERED,
    Engine,
    Failure,
    Outcome,
)
from app.engine.progress_file import make_progress_file
from app.engine.worker_process import failure_of
from app.errors import NO_ROOM, StorageFull, Unavailable
from app.file_threads import ServiceThreads
from app.jobs.failure_errors import problem_of
from app.jobs.fairness.turns import Turns
from app.jobs.job_metrics import JobMetrics
from app.jobs.maintenance.storage_gate import StorageGate
from app.jobs.maintenance.takeover import Takeover
from app.jobs.recorder import MOST_ATTEMPTS, NOT_STOPPED, Recorder, StopReason, requeue
from app.jobs.reference_writer import ReferenceWriter
from app.jobs.states import State, Step
from app.jobs.stores import Stores
from app.jobs.task_builder import KeptWorker, SeedBroken, TaskBuilder
from app.jobs.units.unit_runner import JobRuns
from app.jobs.watchers import Watchers
from app.processes.api_process import ApiProcess
from app.store.crypto.sealing import KeyMissing
from app.store.sql import jobs, replicas
from app.store.sql.connection.errors import DATABASE_ERRORS
from app.store.sql.models import Job
from app.store.sql.series import SeriesMoved
from app.telemetry import tracing
from app.worker.tasks import JobTask, SwapTask

T = TypeVar("T")

_log = logging.getLogger("rowveil.jobs")

_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0)
"""Pauses between the attempts to record an end; the last one repeats."""

_ARRIVAL_SECONDS = 0.1
"""Longest time for which a new job waits for a busy worker before it is queued."""

_DEADLINE_SECONDS = 1.0
"""Interval at which queued jobs are checked for their deadlines."""

_LATE = Failure(
    DEADLINE_EXCEEDED,
    "the job was still queued at its deadline, and did not run; submit it with a later 'deadline_seconds'",
)

_ALTERED = (
    "the job did not run: its row was changed outside of the service, or a master key is missing; the "
    "service's log has the cause under the job's id"
)

_UNREADABLE = "the job's source or seed cannot be opened; the service's log has the cause under the job's id"


class Dispatcher:
    """An asyncio task that keeps the engine busy with queued jobs.

    Each claimed job is tracked by a task of its own until its end has been recorded.
    """

    def __init__(
        self,
        stores: Stores,
        engine: Engine,
        turns: Turns,
        runs: JobRuns,
        tasks: TaskBuilder,
        recorder: Recorder,
        takeover: Takeover,
        reference_writer: ReferenceWriter,
        watchers: Watchers,
        threads: ServiceThreads,
        job_metrics: JobMetrics,
        process: ApiProcess,
    ) -> None:
        self._stores = stores
        self._engine = engine
        self._turns = turns
        self._runs = runs
        self._tasks = tasks
        self._recorder = recorder
        self._takeover = takeover
        self._reference_writer = reference_writer
        self._watchers = watchers
        self._threads = threads
        self._job_metrics = job_metrics
        self._process = process
        self._wake = asyncio.Event()
        self._may_be_queued = False
        """Whether a job may be queued that no claim has looked for since. See `_claim_while_capacity`."""
        self._event_loop = asyncio.get_running_loop()
        self._claiming: asyncio.Task[None] | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._tracked: dict[str, asyncio.Task[None]] = {}
        """Claimed jobs and the tasks that track them."""
        self._starting: set[str] = set()
        """Claimed jobs that are not tracked yet: a task is being built, or an acceptance ends."""
        self._to_cancel: set[str] = set()
        self._overdue: set[str] = set()
        self._background: set[asyncio.Task[Any]] = set()
        self._stopping = self._halted = False
        self._sweeping = self._sweep_wanted = False
        self._storage = StorageGate(stores, self.wake)
        self._reserved = 0
        """Free workers that are kept for jobs being accepted or claimed."""
        self._arrivals: deque[asyncio.Future[bool]] = deque()
        """New jobs that wait for a worker before they are accepted: see `_wait_for_worker`."""

    async def start(self) -> None:
        """Start to claim queued jobs, and to expire jobs past their deadline."""
        self._engine.on_capacity = self._turns.on_wait = self._wake.set
        self._claiming = asyncio.create_task(self._claim_while_capacity())
        self._expiring = asyncio.create_task(self._expire_queued())
        self.wake()

    def wake(self) -> None:
        """Check for a job to claim."""
        self._may_be_queued = True
        self._wake.set()

    async def accept(self, job_id: str, accept: Callable[[KeptWorker | None], Job], short: bool) -> Job:
        """Store a new job by ``accept``, and start it at once if a worker is free and no job waits.

        Parameters
        ----------
        job_id
            Id of the new job.
        accept
            Stores the job and returns it, or an earlier one. With a worker it may claim the job for this
            replica, and then starts it. Blocking.
        short
            Whether it takes less time than a change of thread, apart from transactions.
        """
        # The caller may go meanwhile: what was claimed must be started all the same.
        return await asyncio.shield(self._spawn(self._accept(job_id, accept, short)))

    async def _accept(self, job_id: str, accept: Callable[[KeptWorker | None], Job], short: bool) -> Job:
        worker: KeptWorker | None = None
        if self._reserve() or await self._wait_for_worker():
            worker = KeptWorker(self._stores, self._tasks, self._run_reserved)
        try:
            # A job without files that is only queued waits for no folder.
            threads = self._threads.database if short and worker is None else self._threads.files
            call = self._shortly if short else self._in
            job, task = await call(threads, self._accept_and_build, job_id, accept, worker)
            accepted: Job = job
            if task is not None:
                accepted = job.as_it_is()  # it may end before the caller looks at it
                self._begin(job, task, None if worker is None else worker.running)
        except (Exception, asyncio.CancelledError):
            if worker is not None and worker.task is not None:
                self._spawn(self._abandon(job_id, worker.task))
            raise
        finally:
            if worker is not None and worker.running is None:
                self._reserved -= 1
            self._wake.set()  # a job may have been queued behind the reserved worker
        if job.state == State.QUEUED:
            self.wake()
            if self._free_workers() <= 0:
                self._process.notify_job_queued()
        return accepted

    def _run_reserved(self, task: JobTask, owner: str) -> asyncio.Task[Outcome]:
        """Start a job in a worker that is kept for it."""
        self._starting.add(task.job_id)
        self._reserved -= 1
        return self._runs.run(task.job_id, task, owner)

    def _reserve(self) -> bool:
        """Keep a free worker for a new job; False if there is none, or a plan or an upload is before it."""
        if self._stopping or self._free_workers() <= 0 or self._turns.waiting():
            return False
        self._reserved += 1
        return True

    async def _wait_for_worker(self) -> bool:
        """Wait a moment for a busy worker if no job is before this one; return whether one is kept for it.

        A job that is claimed when it is accepted takes one transaction. One that is queued takes a second,
        which reads its row again. As many jobs wait as run here; if one more comes, all are queued, in order.
        """
        if self._stopping or self._may_be_queued or self._turns.waiting():
            return False
        if not self._process.alone:  # another process may have a free worker: it learns of queued jobs
            return False
        arrival: asyncio.Future[bool] = self._event_loop.create_future()
        self._arrivals.append(arrival)
        if len(self._arrivals) > len(self._tracked):
            self._event_loop.call_soon(self._queue_arrivals)  # when this one waits like the others
        timer = self._event_loop.call_later(_ARRIVAL_SECONDS, self._queue_arrival, arrival)
        try:
            return await arrival
        finally:
            timer.cancel()

    def _queue_arrival(self, arrival: asyncio.Future[bool]) -> None:
        """Let a new job that waits for a worker be queued."""
        if not arrival.done():
            self._arrivals.remove(arrival)
            arrival.set_result(False)

    def _queue_arrivals(self) -> None:
        """Let all new jobs that wait for a worker be queued, in the order of their arrival."""
        while self._arrivals:
            self._queue_arrival(self._arrivals[0])

    def _serve_arrival(self) -> bool:
        """Keep a free worker for the new job that has waited longest; False if none waits."""
        if not self._arrivals:
            return False
        self._reserved += 1
        self._arrivals.popleft().set_result(True)
        return True

    def _accept_and_build(
        self, job_id: str, accept: Callable[[KeptWorker | None], Job], worker: KeptWorker | None
    ) -> tuple[Job, JobTask | None]:
        try:
            job = accept(worker)
        finally:
            if worker is not None:
                worker.discard()
        if job.id != job_id or job.state != State.RUNNING:
            return job, None
        return job, (worker and worker.task) or self._built(job)

    async def _abandon(self, job_id: str, task: JobTask) -> None:
        """Stop a job whose acceptance was not committed, and delete its files."""
        await self._runs.cancel(job_id)
        self._starting.discard(job_id)
        if isinstance(task, SwapTask):
            await self._in_thread(self._stores.drop, [task.destination.id])
        await self._in_thread(self._stores.delete_progress, Path(task.progress_path))

    def _free_workers(self) -> int:
        return self._engine.capacity() - self._reserved

    async def cancel(self, job_id: str, seconds: float | None = None) -> bool:
        """Stop the job and return when its end has been recorded; False if it does not run here.

        ``seconds``: longest time to wait for that; the job is stopped all the same.
        """
        tracking = self._tracked.get(job_id)
        if tracking is None:
            return False
        self._to_cancel.add(job_id)
        await self._halt(job_id)
        await asyncio.wait([tracking], timeout=seconds)
        return True

    def cancel_soon(self, job_id: str) -> None:
        """Start to stop the job if it runs here; the request came to another replica."""
        if job_id in self._tracked and job_id not in self._to_cancel:
            self._to_cancel.add(job_id)
            self._spawn(self._halt(job_id))

    async def drop_all(self) -> None:
        """Stop every job, since other replicas own them now; return when all have been stopped."""
        tracking = list(self._tracked.values())
        await asyncio.gather(*(self._halt(job_id, hurry=True) for job_id in list(self._tracked)))
        if tracking:
            await asyncio.wait(tracking)

    async def take_over_stalled(self, end_leases: bool, now: datetime | None = None) -> None:
        """Requeue or end running jobs that no live replica tracks: see `Takeover.run`."""
        followed, background = {*self._tracked, *self._starting}, self._threads.background
        taken, ended = await self._in(background, self._takeover.run, end_leases, followed, now)
        if taken:
            self.wake()
        if ended:
            self._sweep_soon()

    async def take_unrunnable(self) -> None:
        """Run queued jobs that no living replica can run: see `Takeover.take_unrunnable`."""
        taken, failed = await self._in_thread(self._takeover.take_unrunnable)
        for job_id in taken:
            self._watchers.notify(job_id, ended=False)
        for job_id in failed:
            self._watchers.notify(job_id, ended=True)
        if taken:
            self.wake()

    def _sweep_soon(self) -> None:
        """Sweep in the background: a folder that answers slowly must not delay the next takeover."""
        self._sweep_wanted = True
        if not self._sweeping:
            self._sweeping = True
            self._spawn(self._sweep())

    async def _sweep(self) -> None:
        try:
            while self._sweep_wanted:
                self._sweep_wanted = False
                await self._in(self._threads.background, self._stores.sweep)
        except Exception as error:
            _log.error("sweeping failed: %s", type(error).__qualname__)
        finally:
            self._sweeping = False

    def stop_claiming(self) -> None:
        """Leave queued jobs to the next start, or to other replicas; plans and uploads go on."""
        self._stopping = True
        self._turns.release()
        self._queue_arrivals()
        self.wake()

    async def stop(self, grace: float) -> None:
        """Stop claiming, let running jobs end within ``grace`` seconds, and requeue the rest."""
        self._stopping = True
        self._turns.release()
        self._queue_arrivals()
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.wait([self._expiring])
        if self._claiming is not None:
            self.wake()
            await self._claiming
            if self._background:  # jobs that are being accepted, perhaps with a claim
                await asyncio.wait(set(self._background), timeout=grace)
        if self._tracked:
            await asyncio.wait(self._tracked.values(), timeout=grace)
        self._halted = True
        await asyncio.gather(*(self._halt(job_id, hurry=True) for job_id in list(self._tracked)))
        if self._tracked:
            await asyncio.wait(self._tracked.values())

    async def _halt(self, job_id: str, hurry: bool = False) -> None:
        """Stop the job's worker, units and destination write: see `ReferenceWriter.cancel`."""
        self._reference_writer.cancel(job_id, hurry)
        await self._runs.cancel(job_id)

    async def _claim_while_capacity(self) -> None:
        """Claim queued jobs and start plans and uploads while a worker is free, at every wake-up.

        No job stays queued while a worker is free. The mark `_may_be_queued` is taken away only before a
        claim reads the queue. Each way into the queue sets it after its commit, in the event loop: an
        acceptance, a job that returns, a takeover, and the end of a pause of claims. So a job that this
        claim does not see is marked while the claim runs, or after it. A claim that finds a job reports
        whether there are more, and one that fails is repeated. Where another process may have queued a job,
        or has locked its row for a moment, or the response to a commit was lost, the next poll of the
        heartbeat sets the mark.
        """
        while not self._stopping:
            await self._wake.wait()
            self._wake.clear()
            while self._free_workers() > 0 and not self._stopping:
                waiting = self._turns.waiting()
                first = waiting[0] if waiting else None
                if not self._may_be_queued and first is None:
                    if self._serve_arrival():
                        continue
                    break
                if not self._may_be_queued and len(waiting) == 1:  # nobody else waits: turns do not matter
                    self._turns.start(waiting[0])
                    continue
                self._may_be_queued = False
                self._reserved += 1
                try:
                    until_turn = None if first is None else first.turn
                    claimed = await self._shortly(self._threads.background, self._claim, until_turn)
                    if claimed is not None:
                        job, task, more = claimed
                        self._may_be_queued |= more
                        self._begin(job, task)
                    elif first is not None:  # its turn is before those of all queued jobs
                        self._may_be_queued = True
                        self._turns.start(first)
                except Exception as error:
                    _log.error("claiming a job failed: %s", failure_of(error).trace)
                    self._event_loop.call_later(_RETRY_SECONDS[1], self.wake)
                    break
                finally:
                    self._reserved -= 1

    def _begin(self, job: Job, task: JobTask, running: asyncio.Task[Outcome] | None = None) -> None:
        """Start a claimed job in a free worker, unless it is ``running`` already, and follow it."""
        self._job_metrics.count_start(job)
        _trace_waiting(job)
        self._watchers.expect(job.id)
        self._watchers.notify(job.id, ended=False)
        running = running or self._runs.run(job.id, task, job.owner)
        tracking = asyncio.create_task(self._track(job, task, running))
        self._tracked[job.id] = tracking
        tracking.add_done_callback(partial(self._forget_failed, job.id))
        self._starting.discard(job.id)
        self._stop_at_deadline(job, tracking)

    def _forget_failed(self, job_id: str, tracking: asyncio.Task[None]) -> None:
        """Forget a tracking task if it has failed: the next takeovers put its job back into the queue."""
        error = None if tracking.cancelled() else tracking.exception()
        if not isinstance(error, Exception):
            return
        _log.error("job %s is not tracked any more: %s", job_id, failure_of(error).trace)
        if self._tracked.get(job_id) is tracking:
            del self._tracked[job_id]
            self._to_cancel.discard(job_id)
            self._overdue.discard(job_id)

    def _stop_at_deadline(self, job: Job, tracking: asyncio.Task[None]) -> None:
        if job.deadline is None:
            return
        assert job.started_at is not None  # set by the claim

        def stop() -> None:
            self._overdue.add(job.id)
            self._spawn(self._halt(job.id))

        seconds = max(0.0, (job.deadline - job.started_at).total_seconds())
        timer = self._event_loop.call_later(seconds, stop)
        tracking.add_done_callback(lambda _: timer.cancel())

    async def _expire_queued(self) -> None:
        """Fail jobs that are still queued at their deadline."""
        while True:
            try:
                for job_id in await self._in_thread(self._expire_overdue):
                    self._watchers.notify(job_id, ended=True)
            except Exception as error:
                _log.error("the search for deadlines failed: %s", type(error).__qualname__)
            await asyncio.sleep(_DEADLINE_SECONDS)

    def _expire_overdue(self) -> list[str]:
        if not jobs.any_overdue(self._stores.database):
            return []
        with self._stores.database.read() as session:
            overdue = jobs.overdue(session, replicas.moment(session))
        problem = problem_of(_LATE)
        return [job.id for job in overdue if self._recorder.record_end(job, Step.EXPIRE, error=problem)]

    async def _track(self, job: Job, task: JobTask, running: asyncio.Task[Outcome]) -> None:
        """Wait for the run, write the destination to its reference, and record the end."""
        outcome = await running
        ended = False
        if isinstance(task, SwapTask) and job.destination_reference is not None:
            outcome = await self._write_destination(job, task, outcome)
        for wait in chain(_RETRY_SECONDS, repeat(_RETRY_SECONDS[-1])):
            try:
                with _traced(job, "job.record"):
                    call = self._shortly if _is_small(job, outcome) else self._in
                    stops = self._stops_of(job.id)
                    record = self._recorder.record_run
                    ended = await call(self._threads.database, record, job, task, outcome, stops)
                break
            except Exception as error:
                if isinstance(error, Unavailable | StorageFull):
                    _log.warning("job %s: its end is not recorded yet", job.id)
                elif isinstance(error, DATABASE_ERRORS):  # the outcome counts when the database works again
                    trace = failure_of(error).trace
                    _log.error("job %s: its end is not recorded yet: %s", job.id, trace)
                else:  # the result cannot be recorded, but a failure can
                    outcome = failure_of(error)
                    _log.error("job %s: its end cannot be recorded: %s", job.id, outcome.trace)
                if self._stopping:  # the row stays running until its lease expires and it is taken over
                    break
                await asyncio.sleep(wait)
        if self._tracked.get(job.id) is asyncio.current_task():  # a requeued job may be claimed again by now
            del self._tracked[job.id]
        self._to_cancel.discard(job.id)
        self._overdue.discard(job.id)
        if not self._watchers.is_watched(job.id):  # the call that waits for it may be at another process
            self._process.notify_job_ended(job.id)
        self._watchers.notify(job.id, ended=True, job=job if ended else None)
        if not ended:  # it may be in the queue again
            self.wake()

    async def _write_destination(self, job: Job, task: SwapTask, outcome: Outcome) -> Outcome:
        """Write the destination to the job's reference. Return the outcome, or the failure to write."""
        if isinstance(outcome, Failure):
            return outcome
        if self._halted or job.id in self._to_cancel | self._overdue:  # requested since its worker ended
            return Failure(CANCELLED, "the job was cancelled")
        try:
            if not await self._has_kept_wave(job, task, outcome):
                return Failure(CANCELLED, "the job's pairs were not stored, and nothing was written")
            return await self._reference_writer.write(job, task) or outcome
        except Exception as error:
            return failure_of(error)

    async def _has_kept_wave(self, job: Job, task: SwapTask, result: dict[str, Any]) -> bool:
        """Store the wave of the job's series; False if the job must run again, or stops: see `Recorder`."""
        for wait in chain(_RETRY_SECONDS, repeat(_RETRY_SECONDS[-1])):
            try:
                return bool(await self._in_thread(self._recorder.keep_wave, job, task, result))
            except SeriesMoved:
                return False
            except (Unavailable, StorageFull, *DATABASE_ERRORS) as error:
                _log.warning("job %s: its pairs are not stored yet: %s", job.id, type(error).__qualname__)
            if self._stopping or job.id in self._to_cancel | self._overdue:
                return False
            await asyncio.sleep(wait)
        raise AssertionError("the pauses have no end")

    def _claim(self, until_turn: datetime | None) -> tuple[Job, JobTask, bool] | None:
        """Claim the first job, if its turn is not after ``until_turn``; return it and whether more wait.

        If there is no such job, the virtual time moves to ``until_turn``, whose plan or upload starts.
        """
        while self._storage.is_open():
            replica = self._stores.lease.replica
            with self._stores.database.write() as session:
                replicas.hold(session, [replica])
                job = jobs.claim_first(session, replica, replicas.moment(session), until_turn=until_turn)
                more = jobs.any_queued(session)
                if job is None and until_turn is not None:
                    jobs.advance(session, until_turn)
            if job is None:
                return None
            if job.cancel_requested:  # requested while another replica ran it
                self._recorder.record_end(job, Step.CANCEL)
                self._event_loop.call_soon_threadsafe(self._watchers.notify, job.id, True)
                continue
            task = self._built(job)
            if task is not None:
                return job, task, more
        return None

    def _built(self, job: Job) -> JobTask | None:
        """Build the task of a claimed job; None: the job cannot be started now, or has failed.

        The job fails if its tables or its seed do not open. If the storage does not work, or another replica
        may have the master key, the job returns to the queue. If the database does not respond, the next
        takeovers find a claim that nobody tracks, and put the job back into the queue.
        """
        self._starting.add(job.id)
        try:
            progress_path = self._stores.progress_path(job)
            make_progress_file(progress_path)
            return self._tasks.build(job, progress_path)
        except (Unavailable, StorageFull) as error:
            self._starting.discard(job.id)
            _log.warning("job %s is not started yet: %s", job.id, failure_of(error).trace)
            return None
        except Exception as error:
            self._starting.discard(job.id)
            if self._may_start_later(job, error):
                _log.warning("job %s returns to the queue: %s", job.id, _cause(error))
                self._return_to_queue(job)
                return None
            _log.error("job %s cannot be started: %s", job.id, _cause(error))
            full = isinstance(error, OSError) and error.errno in NO_ROOM
            failure = failure_of(error) if full else Failure(INTERNAL_ERROR, _UNREADABLE)
            if isinstance(error, SeedBroken):
                failure = Failure(JOB_ALTERED, _ALTERED)
                self._note_altered(job)
            self._recorder.record_end(job, Step.FAIL, error=problem_of(failure))
            self._event_loop.call_soon_threadsafe(self._watchers.notify, job.id, True)
            return None

    def _note_altered(self, job: Job) -> None:
        with self._stores.database.write() as session:
            now = replicas.moment(session)
            self._stores.audit.append(session, THE_SERVICE, "job.altered", job.id, now, "it did not run")

    def _may_start_later(self, job: Job, error: Exception) -> bool:
        """Whether a job that cannot be opened now may be opened later, or by another replica."""
        if (key_id := _missing_key(error)) is not None:
            return job.attempt < MOST_ATTEMPTS and self._others_may_have(key_id)
        if self._storage.explains(error):
            return True
        is_passing = isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
        return is_passing and job.attempt < MOST_ATTEMPTS

    def _others_may_have(self, key_id: str) -> bool:
        """Whether another replica may have a master key that this one lacks."""
        with self._stores.database.read() as session:
            return replicas.others_may_have(session, self._stores.lease.replica, key_id)

    def _return_to_queue(self, job: Job) -> None:
        """Put a claimed job that was not started back into the queue, and claim none for a while."""
        self._storage.close()
        try:
            with self._stores.database.write() as session:
                requeue(session, job, job.crashes)
        except (Unavailable, StorageFull):  # the next takeovers do
            return
        self._job_metrics.count_requeue()
        self._stores.delete_progress(self._stores.progress_path(job))

    def _stops_of(self, job_id: str) -> StopReason:
        """Return all reasons for which the job may have been stopped."""
        return (
            (StopReason.CANCEL if job_id in self._to_cancel else NOT_STOPPED)
            | (StopReason.OVERDUE if job_id in self._overdue else NOT_STOPPED)
            | (StopReason.SERVICE if self._stopping else NOT_STOPPED)
        )

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._in(self._threads.database, function, *arguments)

    async def _in(self, threads: Executor, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._event_loop.run_in_executor(threads, function, *arguments)

    async def _shortly(self, threads: Executor, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that takes little time apart from transactions: in a thread only if it has to."""
        started = self._stores.database.in_loop(function, *arguments)
        return await (self._in(threads, function, *arguments) if started is None else started)


def _missing_key(error: Exception) -> str | None:
    """Return the id of the master key without which a seed or a table does not open; None: another cause."""
    broken = error.__cause__ if isinstance(error, SeedBroken) else error
    return broken.key_id if isinstance(broken, KeyMissing) else None


def _cause(error: Exception) -> str:
    """Return the trace of an error for the log, without its message, but with the id of a missing key."""
    trace, key_id = failure_of(error).trace, _missing_key(error)
    return str(trace) if key_id is None else f"{trace}; the master key {key_id} is not among those given"


def _is_small(job: Job, outcome: Outcome) -> bool:
    """Whether a run has made a table that goes into the job's row, and no full report."""
    if isinstance(outcome, Failure) or job.report_level == "full":
        return False
    return outcome.get("table") is not None


@contextmanager
def _traced(job: Job, name: str, started: float | None = None) -> Iterator[None]:
    """Record a span in the trace of the job's request, if the request was traced."""
    if job.trace_parent is None:
        yield
        return
    with tracing.span(name, {"rowveil.service": job.service}, job.trace_parent, started=started):
        yield


def _trace_waiting(job: Job) -> None:
    with _traced(job, "job.queue", job.created_at.timestamp()):
        pass  # the span ends now
