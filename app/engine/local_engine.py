"""Engine with worker processes on this machine: one pebble pool with one process for each worker.

Workers do not share a pool, because the processes of a pool share a pipe and its locks: a process that is
killed while it holds a lock, or while it is idle, breaks the whole pool. With separate pools a failing worker
affects no other worker.

A worker that was stopped, killed or lost is replaced. It takes tasks again when the new process has responded
to a ping, so a free worker is always up, and warm if the settings ask for that.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from app.engine.engine import (
    CANCELLED,
    MEMORY_LIMIT,
    TIME_LIMIT,
    WORKER_DIED,
    Failure,
    Outcome,
    Running,
    TaskFunction,
)
from app.engine.worker_process import WorkerSetup, call, ping, set_up

_log = logging.getLogger("rowveil.engine")

_PING_SECONDS = 5.0  # counted after the process has been set up

_RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0, 15.0, 30.0)

_IDLE_CHECK_SECONDS = 1.0

_POLL_SECONDS = 0.01

_LOST = Failure(WORKER_DIED, "the worker that ran the job was lost")

_CANCELLED = Failure(CANCELLED, "the job was cancelled")

_ENDS_WORKER = (CANCELLED, TIME_LIMIT, WORKER_DIED)


class _Worker:
    """One process and its pool."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._pool = self._new_pool()
        self.pid = 0
        """Process id from the last ping."""

    @property
    def sound(self) -> bool:
        """Whether the process exists and the pool works; an idle process that dies breaks its pool."""
        return _exists(self.pid) and bool(self._pool.active)

    async def start(self, new_pool: bool = False) -> None:
        """Return when the process, or its replacement, is up. Raises the error of a failed start.

        With ``new_pool`` the pool is replaced as well, because the old one does not know that it must end
        its process.
        """
        # In a thread: starting a process takes milliseconds that would block the event loop.
        self.pid = await asyncio.wrap_future(await asyncio.to_thread(self._ping, new_pool))

    async def run(
        self, function: TaskFunction, task: Any, time_limit: float, stop: asyncio.Future[None]
    ) -> Outcome:
        """Run the task and return its outcome; stop it and the process if ``stop`` is done first."""
        try:
            future = self._pool.schedule(call, (function, task), {})
        except RuntimeError:
            return _LOST
        ended = asyncio.wrap_future(future)
        # Not pebble's own time limit, which uses the wall clock: that may jump.
        await _first_of(ended, stop, within=time_limit)
        if not ended.done() and future.cancel():  # type: ignore[no-untyped-call]  # False: it has just ended
            return _CANCELLED if stop.done() else _over(time_limit)
        await asyncio.wait([ended])
        return _outcome_of(ended)

    async def stop(self) -> None:
        """Stop the process at once."""
        await asyncio.to_thread(_stop_pool, self._pool)

    def _ping(self, new_pool: bool) -> ProcessFuture[int]:
        if new_pool or not self._pool.active:
            _stop_pool(self._pool)
            self._pool = self._new_pool()
        return self._pool.schedule(ping, (), {}, _PING_SECONDS)

    def _new_pool(self) -> ProcessPool:
        return ProcessPool(
            max_workers=1,
            initializer=set_up,
            initargs=(self._setup,),
            context=multiprocessing.get_context("spawn"),
        )


class EmbeddedEngine:
    """An `Engine` of worker processes on this machine."""

    def __init__(self, workers: int, setup: WorkerSetup, time_limit: float) -> None:
        self.on_capacity: Callable[[], None] = lambda: None
        self._workers = [_Worker(setup) for _ in range(workers)]
        self._time_limit = time_limit
        self._free: deque[_Worker] = deque()
        self._waiting: deque[asyncio.Future[_Worker]] = deque()
        self._running: dict[str, Running] = {}
        self._busy: set[_Worker] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._closing = False

    async def start(self) -> None:
        """Start the workers, without waiting for them."""
        for worker in self._workers:
            self._spawn(self._bring_up(worker))
        self._spawn(self._replace_dead_idle_workers())

    def capacity(self) -> int:
        """Return the number of tasks that could start now."""
        return len(self._free)

    def ready(self) -> bool:
        """Whether at least one worker is up."""
        return bool(self._free or self._busy)

    def run(self, task_id: str, function: TaskFunction, task: Any) -> asyncio.Task[Outcome]:
        """Run ``function(task)`` in the next free worker; the asyncio task returns its outcome."""
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        running = asyncio.ensure_future(self._run(self._next_worker(), function, task, stop))
        self._running[task_id] = Running(running, stop)
        running.add_done_callback(lambda _: self._running.pop(task_id))
        return running

    async def cancel(self, task_id: str) -> None:
        """Stop the task and its worker; its outcome is a Failure with code `CANCELLED`."""
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
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        await asyncio.gather(*(running.task for running in left))

    async def _run(
        self,
        free: asyncio.Future[_Worker],
        function: TaskFunction,
        task: Any,
        stop: asyncio.Future[None],
    ) -> Outcome:
        # Stopped by a future and not by Task.cancel: a task that is cancelled before its first step would
        # never give its worker back.
        await _first_of(free, stop)
        if not free.done():
            free.cancel()
            return _CANCELLED
        worker = free.result()
        outcome = _CANCELLED if stop.done() else await worker.run(function, task, self._time_limit, stop)
        if isinstance(outcome, Failure) and outcome.code in _ENDS_WORKER:
            await self._replace(worker)
        else:
            self._give_back(worker)
        return outcome

    async def _replace(self, worker: _Worker) -> None:
        """Start a replacement; return when the old process has ended, or the worker is free again."""
        self._busy.discard(worker)
        pid = worker.pid
        replacing = self._spawn(self._bring_up(worker))
        while replacing is not None and not replacing.done() and _exists(pid):
            await asyncio.sleep(_POLL_SECONDS)

    def _next_worker(self) -> asyncio.Future[_Worker]:
        next_worker: asyncio.Future[_Worker] = asyncio.get_running_loop().create_future()
        while self._free:
            worker = self._free.popleft()
            if worker.sound:
                self._busy.add(worker)
                next_worker.set_result(worker)
                return next_worker
            self._spawn(self._bring_up(worker, new_pool=True))
        self._waiting.append(next_worker)
        return next_worker

    def _give_back(self, worker: _Worker) -> None:
        self._busy.discard(worker)
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                self._busy.add(worker)
                waiting.set_result(worker)
                return
        self._free.append(worker)
        self.on_capacity()

    async def _bring_up(self, worker: _Worker, new_pool: bool = False) -> None:
        failures = 0
        while True:
            try:
                await worker.start(new_pool)
                break
            except Exception as error:
                wait = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
                kind = type(error).__qualname__
                _log.error("a worker does not start (%s); trying again in %s s", kind, wait)
                await asyncio.sleep(wait)
        self._give_back(worker)

    async def _replace_dead_idle_workers(self) -> None:
        """Replace workers that died while idle, before a task needs them."""
        while True:
            await asyncio.sleep(_IDLE_CHECK_SECONDS)
            for worker in [idle for idle in self._free if not idle.sound]:
                _log.warning("idle worker %s died and is replaced", worker.pid)
                self._free.remove(worker)
                self._spawn(self._bring_up(worker, new_pool=True))

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


def _outcome_of(future: asyncio.Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except MemoryError:  # too little memory was left even to return the Failure
        return Failure(MEMORY_LIMIT, "the job needed more memory than a worker may take")
    except ProcessExpired as error:
        return Failure(WORKER_DIED, f"the worker that ran the job {_end_of(error.exitcode)}")
    except Exception as error:
        _log.error("a worker's pool broke: %s", type(error).__qualname__)
        return _LOST


def _stop_pool(pool: ProcessPool) -> None:
    pool.stop()  # type: ignore[no-untyped-call]  # pebble has no types here
    pool.join()


def _exists(pid: int) -> bool:
    try:
        if hasattr(os, "waitid"):  # None while it runs; WNOWAIT leaves the ended process to its pool
            return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        os.kill(pid, 0)
    except (ChildProcessError, ProcessLookupError):
        return False
    return True


def _end_of(exitcode: int) -> str:
    if exitcode >= 0:
        return f"ended by itself with code {exitcode}"
    name = signal.Signals(-exitcode).name
    if -exitcode == signal.SIGKILL:
        return f"was killed ({name}); unless somebody killed it, the machine ran out of memory"
    return f"was ended by {name}"
