"""Engine with worker processes on this machine, each with a socket of its own to the event loop.

Workers share nothing: the processes of a usual pool share a pipe and its locks, and one that is killed while
it holds a lock breaks the whole pool. Here a failing worker affects no other worker.

A cancelled task is requested to stop. If it does not stop within a second, its worker is killed. A worker
that was killed or lost is replaced. It takes tasks again when the new process has sent its id, so a free
worker is always up, and warm if the settings ask for that.

A worker that was killed counts as lost if the kernel has killed no process for lack of memory since the task
began. Otherwise, and after a crash, its end is the task's fault: another worker would end in the same way.
A task whose worker was lost before it had read the task has not begun: the next free worker takes it. A
worker that stands still and does not read its task, such as one that was stopped by a signal, is killed.

If the set-up separates owners, a process gets tasks of one owner only. A free worker of another owner gets a
new process before the task is sent.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from app.engine.engine import (
    CANCELLED,
    TIME_LIMIT,
    WORKER_DIED,
    WORKER_LOST,
    Failure,
    Outcome,
    Progress,
    Running,
    TaskFiles,
    TaskFilesSetup,
    TaskFunction,
)
from app.engine.oom_kills import oom_kills, open_statistics
from app.engine.progress_file import read_progress
from app.engine.worker_link import WorkerLink, exists
from app.engine.worker_process import WorkerSetup, failure_of

_log = logging.getLogger("rowveil.engine")

_RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0, 15.0, 30.0)

_CHECK_SECONDS = 1.0

_POLL_SECONDS = 0.01

_STOP_SECONDS = 1.0
"""Time in which a cancelled task may stop by itself, so that its worker stays; then the worker is killed."""

_MOST_UNREAD = 3
"""Times that a task is given to another worker, because one was lost before it had read the task."""

_MOST_LOOKS = 10
"""Looks in succession, one a second, at which a worker may not have read its task; then it is killed."""

_CANCELLED = Failure(CANCELLED, "the job was cancelled")


@dataclass(frozen=True, slots=True)
class _Call:
    """A task that was sent to a worker."""

    answer: asyncio.Future[Outcome]
    oom_kills: int | None
    """Number of processes that the kernel had killed for lack of memory when it was sent."""
    function: TaskFunction
    task: Any
    owner: str


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A task that waits for a worker."""

    worker: asyncio.Future[WorkerLink]
    owner: str


class EmbeddedEngine:
    """An `Engine` of worker processes on this machine."""

    def __init__(
        self, workers: int, setup: WorkerSetup, time_limit: float, files: TaskFilesSetup | None = None
    ) -> None:
        """Keep the arguments; `start` starts the workers.

        Parameters
        ----------
        workers
            Number of worker processes.
        setup
            Limits of each process.
        time_limit
            Seconds that a task may take, and as many before and after it to move its files.
        files
            How the files of tasks come to this machine; None: tasks find them in the shared folder.
        """
        self._files_setup = files
        self._files: TaskFiles | None = None
        self._progress_paths: dict[str, str] = {}
        """Progress files of running tasks whose files were moved."""
        self._movers = ThreadPoolExecutor(2 * workers, "rowveil-files")
        self.on_capacity: Callable[[], None] = lambda: None
        self._workers = [WorkerLink(setup) for _ in range(workers)]
        self._one_owner = setup.one_owner
        self._time_limit = time_limit
        self._free: deque[WorkerLink] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._running: dict[str, Running] = {}
        self._busy: set[WorkerLink] = set()
        self._starting: set[WorkerLink] = set()
        """Workers that get a new process, which has not run a task of any owner."""
        self._background: set[asyncio.Task[None]] = set()
        self._closing = False
        self._since: dict[str, float] = {}
        """Times at which the running tasks began, by `time.monotonic`."""
        self._oom_kills: int | None = None
        """Number of processes that the kernel had killed for lack of memory at the last check."""

    async def start(self) -> None:
        """Start the workers, without waiting for them."""
        open_statistics()
        self._oom_kills = oom_kills()
        if self._files_setup is not None:
            self._files = await asyncio.to_thread(self._files_setup.open)
        for worker in self._workers:
            self._renew(worker)
        self._spawn(self._check_workers())

    def capacity(self, apart_from: str | None = None) -> int:
        """Return the number of tasks that could start now: each has a process of its own."""
        return len(self._free)

    def ready(self) -> bool:
        """Whether at least one worker is up."""
        return bool(self._free or self._busy)

    def certificates(self) -> dict[str, float]:
        """Return nothing: workers of this machine present no certificate."""
        return {}

    def run(
        self,
        task_id: str,
        function: TaskFunction,
        task: Any,
        apart_from: str | None = None,
        *,
        owner: str = "",
    ) -> asyncio.Task[Outcome]:
        """Run ``function(task)`` in the next free worker; the asyncio task returns its outcome.

        A free worker has begun when this method returns, unless the files of the task are elsewhere or the
        process has run tasks of another owner.
        """
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        free = self._next_worker(owner)
        if free.done() and self._files is None:
            call = self._begin(task_id, free.result(), function, task, owner)
            work = self._work(task_id, free.result(), call, stop)
        else:
            work = self._run(task_id, free, function, task, owner, stop)
        running = asyncio.ensure_future(work)
        self._running[task_id] = Running(running, stop)
        running.add_done_callback(lambda _: self._ended(task_id))
        return running

    def running_since(self, task_id: str) -> float | None:
        """Return since when the task runs; None while it waits for a worker."""
        return self._since.get(task_id)

    def running(self) -> tuple[str, ...]:
        """Return the ids of the tasks that workers run."""
        return tuple(self._since)

    def progress(self) -> tuple[tuple[str, Progress], ...]:
        """Return the progress of the running tasks whose files were moved, without process ids."""
        found = ((task_id, read_progress(Path(path))) for task_id, path in self._progress_paths.items())
        return tuple((task_id, replace(each, pid=0)) for task_id, each in found if each is not None)

    def _ended(self, task_id: str) -> None:
        del self._running[task_id]
        self._progress_paths.pop(task_id, None)
        self._since.pop(task_id, None)

    async def cancel(self, task_id: str) -> None:
        """Stop the task, if necessary with its worker; its outcome is a Failure with code `CANCELLED`."""
        running = self._running.get(task_id)
        if running is not None:
            running.request_stop()
            await asyncio.wait([running.task])

    async def close(self) -> None:
        """Stop all workers at once."""
        self._closing = True
        left = list(self._running.values())
        for running in left:
            running.request_stop()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await asyncio.gather(*(running.task for running in left))  # nothing waits for a socket that closes
        await asyncio.gather(*(asyncio.to_thread(worker.close) for worker in self._workers))
        self._movers.shutdown(wait=False)
        if self._files is not None:
            await asyncio.to_thread(self._files.close)

    async def _run(
        self,
        task_id: str,
        free: asyncio.Future[WorkerLink],
        function: TaskFunction,
        task: Any,
        owner: str,
        stop: asyncio.Future[None],
    ) -> Outcome:
        worker = await self._wait_for_worker(free, stop)
        if worker is None:
            return _CANCELLED
        if self._files is None:
            call = self._begin(task_id, worker, function, task, owner)
            return await self._work(task_id, worker, call, stop)
        fetched = await self._moved(self._files.fetch, stop, task)
        if isinstance(fetched, Failure) or stop.done():
            self._give_back(worker)
            outcome: Outcome = fetched if isinstance(fetched, Failure) else _CANCELLED
        else:
            if path := getattr(fetched, "progress_path", ""):
                self._progress_paths[task_id] = path
            call = self._begin(task_id, worker, function, fetched, owner)
            outcome = await self._work(task_id, worker, call, stop)
            outcome = await self._moved(self._files.send, stop, fetched, outcome)
        if not isinstance(fetched, Failure):
            await asyncio.get_running_loop().run_in_executor(self._movers, self._files.release, fetched)
        return _CANCELLED if stop.done() else outcome

    async def _wait_for_worker(
        self, free: asyncio.Future[WorkerLink], stop: asyncio.Future[None]
    ) -> WorkerLink | None:
        """Wait for a free worker and return it; None if the task stops before."""
        # Stopped by a future and not by Task.cancel: a task that is cancelled before its first step would
        # never give its worker back.
        await _first_of(free, stop)
        if not free.done():
            free.cancel()
            return None
        if stop.done():
            self._give_back(free.result())
            return None
        return free.result()

    async def _moved(self, move: Callable[..., Any], stop: asyncio.Future[None], *given: Any) -> Any:
        """Call a method of `TaskFiles` in a thread, and request its stop if the task stops."""
        stopped = threading.Event()
        loop = asyncio.get_running_loop()
        moving = loop.run_in_executor(self._movers, lambda: move(*given, stopped.is_set))
        await _first_of(moving, stop, within=self._time_limit)
        if moving.done():
            return moving.result()
        stopped.set()
        await asyncio.wait([moving])
        result = moving.result()
        return _over(self._time_limit) if isinstance(result, Failure) and not stop.done() else result

    def _begin(
        self, task_id: str, worker: WorkerLink, function: TaskFunction, task: Any, owner: str
    ) -> _Call:
        """Send a task to a worker that is free."""
        self._since[task_id] = time.monotonic()
        answer: asyncio.Future[Outcome]
        try:
            answer = asyncio.ensure_future(worker.call(function, task, owner))
        except Exception as error:  # the task cannot be sent
            answer = asyncio.get_running_loop().create_future()
            answer.set_result(failure_of(error))
        return _Call(answer, self._oom_kills, function, task, owner)

    async def _work(
        self, task_id: str, worker: WorkerLink, call: _Call, stop: asyncio.Future[None]
    ) -> Outcome:
        """Return the outcome of a call. Make it again if its worker was lost before it had read the task."""
        for _ in range(_MOST_UNREAD):
            outcome, unread = await self._outcome(worker, call, stop)
            if not unread or stop.done():
                return outcome
            _log.warning("a worker was lost before it had read its task, which another worker takes")
            another = await self._wait_for_worker(self._next_worker(call.owner), stop)
            if another is None:
                return _CANCELLED
            worker, call = another, self._begin(task_id, another, call.function, call.task, call.owner)
        outcome, _ = await self._outcome(worker, call, stop)
        return outcome

    async def _outcome(
        self, worker: WorkerLink, call: _Call, stop: asyncio.Future[None]
    ) -> tuple[Outcome, bool]:
        """Wait for the outcome of a call, and give its worker back or replace it.

        Return the outcome, and whether the worker was lost before it had read the task.
        """
        calling = call.answer
        await _first_of(calling, stop, within=self._time_limit)
        if not calling.done() and stop.done() and not self._closing and worker.request_stop():
            await _first_of(calling, within=_STOP_SECONDS)
        if not calling.done():
            calling.cancel()
            await asyncio.wait([calling])
            await self._replace(worker)
            return (_CANCELLED if stop.done() else _over(self._time_limit)), False
        outcome, unread = _outcome_of(calling), False
        if isinstance(outcome, Failure) and outcome.code in (WORKER_DIED, WORKER_LOST):
            outcome = _judged(outcome, call.oom_kills)
            unread = worker.unread and outcome.lost
            await self._replace(worker)
        else:
            self._give_back(worker)
        return (_CANCELLED if stop.done() else outcome), unread

    async def _replace(self, worker: WorkerLink) -> None:
        """Start a replacement; return when the old process has ended, or the worker is free again."""
        self._busy.discard(worker)
        pid = worker.pid
        replacing = self._renew(worker)
        while replacing is not None and not replacing.done() and exists(pid):
            await asyncio.sleep(_POLL_SECONDS)

    def _next_worker(self, owner: str) -> asyncio.Future[WorkerLink]:
        next_worker: asyncio.Future[WorkerLink] = asyncio.get_running_loop().create_future()
        while self._free:
            worker = self._take_free(owner)
            if not worker.sound:
                self._renew(worker)
            elif self._may_serve(worker, owner):
                self._busy.add(worker)
                next_worker.set_result(worker)
                return next_worker
            else:  # of another owner, as all that are free
                if len(self._starting) <= len(self._unserved()):
                    self._renew(worker)
                else:  # more workers start than tasks wait
                    self._free.append(worker)
                break
        self._waiting.append(_Waiting(next_worker, owner))
        return next_worker

    def _unserved(self) -> list[_Waiting]:
        """Return the tasks that wait and were not stopped, in order."""
        return [each for each in self._waiting if not each.worker.done()]

    def _may_serve(self, worker: WorkerLink, owner: str) -> bool:
        return not self._one_owner or worker.owner in (owner, None)

    def _take_free(self, owner: str) -> WorkerLink:
        """Take a free worker: the last used one, whose caches are warm.

        If owners are separated, take the owner's last used worker; if there is none, a worker without an
        owner; otherwise the worker that has been idle for longest.
        """
        if not self._one_owner:
            return self._free.pop()
        for wanted in (owner, None):
            for worker in reversed(self._free):
                if worker.owner == wanted:
                    self._free.remove(worker)
                    return worker
        return self._free.popleft()

    def _give_back(self, worker: WorkerLink) -> None:
        """Give the worker to a task that waits, renew it for one, or note that it is free.

        The workers that start serve the first tasks. So a task after these is served before them if it is
        the first of the worker's owner.
        """
        self._busy.discard(worker)
        self._waiting = deque(self._unserved())
        for waiting in islice(self._waiting, len(self._starting) + 1):
            if self._may_serve(worker, waiting.owner):
                self._waiting.remove(waiting)
                self._busy.add(worker)
                waiting.worker.set_result(worker)
                return
        if len(self._starting) < len(self._waiting):
            self._renew(worker)
        else:
            self._free.append(worker)
            self.on_capacity()

    def _renew(self, worker: WorkerLink) -> asyncio.Task[None] | None:
        """Start a new process for the worker, which is free or given to a task as soon as it is up."""
        self._starting.add(worker)
        return self._spawn(self._bring_up(worker))

    async def _bring_up(self, worker: WorkerLink) -> None:
        failures = 0
        while True:
            try:
                await worker.start()
                break
            except Exception as error:
                wait = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
                kind = type(error).__qualname__
                _log.error("a worker does not start (%s); trying again in %s s", kind, wait)
                await asyncio.sleep(wait)
        self._starting.discard(worker)
        self._give_back(worker)

    async def _check_workers(self) -> None:
        """Replace workers that died while idle, before a task needs them; kill those that read no task."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            self._oom_kills = oom_kills()
            for worker in [busy for busy in self._busy if busy.look_for_unread() >= _MOST_LOOKS]:
                _log.warning("worker %s does not read its task and is killed", worker.pid)
                worker.kill()
            for worker in [idle for idle in self._free if not idle.sound]:
                _log.warning("idle worker %s died and is replaced", worker.pid)
                self._free.remove(worker)
                self._renew(worker)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        if self._closing:
            work.close()
            return None
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


async def _first_of(*futures: asyncio.Future[Any], within: float | None = None) -> None:
    await asyncio.wait(futures, timeout=within, return_when=asyncio.FIRST_COMPLETED)


def _over(time_limit: float) -> Failure:
    return Failure(
        TIME_LIMIT,
        f"the job ran longer than the {time_limit:g} seconds allowed "
        "(ROWVEIL_JOB_TIME_LIMIT) and was stopped",
    )


def _judged(failure: Failure, kills: int | None) -> Failure:
    """Return the failure of a dead worker, which is lost only if memory is known not to have run out.

    ``kills``: number of processes that the kernel had killed for lack of memory before the task began.
    """
    now = oom_kills()
    if not failure.lost or (now is not None and now == kills):
        return failure
    if now is None or kills is None:
        return replace(failure, code=WORKER_DIED, lost=False)
    message = f"{failure.message}; the machine ran out of memory while the job ran"
    return replace(failure, code=WORKER_DIED, message=message, lost=False)


def _outcome_of(calling: asyncio.Future[Outcome]) -> Outcome:
    try:
        return calling.result()
    except Exception as error:  # its outcome cannot be sent
        return failure_of(error)
