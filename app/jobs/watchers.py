"""Watch jobs for changes: long polling and event streams wait here.

A change is noticed when this process makes it, when another API process reports it, or when the heartbeat
reads it from the database.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any, TypeVar

from app.engine.engine import Progress
from app.errors import Unavailable
from app.jobs.states import State
from app.store.sql.models import Job

T = TypeVar("T")

_log = logging.getLogger("rowveil.jobs")

LOOK_SECONDS = 0.25
"""Interval at which a running job's progress is read, and a database that is away is tried again."""

_SECONDS_PER_WATCHER = 0.005
"""Least seconds between two updates of the progress, for each watcher. To send one takes about 0.2 ms."""

FindJob = Callable[[str], Awaitable[Job]]

ReadProgress = Callable[[Job], Awaitable[Progress | None]]
"""Reads the progress of a job; None if it has not started yet, or ended since its row was read."""


class ChangeSignal:
    """Signal of one watcher: set when the job has changed since the watcher last waited."""

    def __init__(self) -> None:
        self._change = asyncio.Event()
        self._end = asyncio.Event()
        self._row_changed = False
        self.job: Job | None = None
        """Row of the job that has ended, if the process that ran it is this one."""

    def set(self, ended: bool, job: Job | None = None) -> None:
        """Signal a change, and the end if the job has ended."""
        self._row_changed = True
        self._change.set()
        if ended:
            self.job = job
            self._end.set()

    def set_progress(self) -> None:
        """Signal a change of the progress, which is not in the job's row."""
        self._change.set()

    async def next(self) -> bool:
        """Wait for a change; return whether the job's row has changed, and not only its progress."""
        await self._change.wait()
        self._change.clear()
        changed, self._row_changed = self._row_changed, False
        return changed

    async def within(self, seconds: float) -> bool:
        """Whether the job changes within ``seconds``, or has changed since the last call."""
        return await _set_within(self._change, seconds)

    async def ends_within(self, seconds: float) -> bool:
        """Whether the job ends within ``seconds``, or has ended since the last call."""
        return await _set_within(self._end, seconds)


class _Follower:
    """Reads the row and the progress of one job for all its watchers, and wakes them at new progress."""

    def __init__(self, progress_of: ReadProgress, interval: Callable[[], float]) -> None:
        self.signals: set[ChangeSignal] = set()
        self._read = progress_of
        self._interval = interval
        self._row: Job | None = None
        self._last: Progress | None = None
        self._reading: asyncio.Task[Job] | None = None
        """Read of the row since its last change."""
        self._task = asyncio.ensure_future(self._follow())

    def keep(self, row: Job) -> Job:
        """Keep the job's row as a watcher has just read it, and return it."""
        if self._row is None or self._row.attempt != row.attempt:  # another attempt begins at 0
            self._last = None
        self._row = row
        return row

    async def reread(self, find: Callable[[], Coroutine[Any, Any, Job]]) -> Job:
        """Return the job's row; all watchers that one change has woken share one read. Raises as ``find``."""
        if self._reading is None:
            self._reading = asyncio.create_task(find())
            self._reading.add_done_callback(_ignore_error)
        return self.keep(await asyncio.shield(self._reading))

    def forget_row(self) -> None:
        """Note that the row has changed since it was last read."""
        self._reading = None

    async def progress_of(self, job: Job) -> Progress | None:
        """Return the job's progress: of a running job as it was last read, if it was."""
        if job.state != State.RUNNING:
            return await self._read(job)
        if self._last is None:
            self._last = await self._read(job)
        return self._last

    def stop(self) -> None:
        """Stop reading."""
        self._task.cancel()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._interval())
            row = self._row
            try:
                found = await self._read(row) if row is not None and row.state == State.RUNNING else None
            except Exception as error:  # the next read may succeed
                _log.warning("the progress of a job cannot be read: %s", type(error).__qualname__)
                continue
            if row is self._row and found != self._last:
                self._last = found
                for changed in self.signals:
                    changed.set_progress()


class Watchers:
    """Watchers of each job, and the jobs whose end this process will signal."""

    def __init__(self) -> None:
        self._watched: dict[str, set[ChangeSignal]] = {}
        self._expected: set[str] = set()
        self._seen: dict[str, tuple[int, bool]] = {}
        self._followed: dict[str, _Follower] = {}
        self.closing = False
        """Whether no further change will be signalled."""

    @contextmanager
    def watch(self, job_id: str) -> Iterator[ChangeSignal]:
        """Signal every change of the job within the block."""
        changed = ChangeSignal()
        signals = self._watched.setdefault(job_id, set())
        signals.add(changed)
        try:
            yield changed
        finally:
            signals.discard(changed)
            if not signals:
                self._watched.pop(job_id, None)
                self._seen.pop(job_id, None)

    async def wait_for_end(
        self, job_id: str, seconds: float, has_ended: Callable[[str], Awaitable[bool]], find: FindJob
    ) -> Job:
        """Return the job when it has ended, or in its state after ``seconds`` or while the service stops.

        Raises as the functions.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        with self.watch(job_id) as changed:
            while True:
                if not self.is_expected(job_id) and await self._retry(job_id, deadline, has_ended):
                    return await self._retry(job_id, deadline, find)
                if self.closing:  # it began before a request that arrived earlier waits: nothing wakes it
                    return await find(job_id)
                if not await changed.ends_within(deadline - loop.time()) or self.closing:
                    return await find(job_id)
                if changed.job is not None:
                    return changed.job

    async def updates(
        self, job_id: str, find: FindJob, progress_of: ReadProgress
    ) -> AsyncIterator[tuple[Job, Progress]]:
        """Yield the job and its progress now and at every change, until it has ended. Raises as ``find``."""
        with self.watch(job_id) as changed, self._following(job_id, changed, progress_of) as follower:
            job = follower.keep(await find(job_id))
            last: tuple[str, Progress] | None = None
            while True:
                progress = await follower.progress_of(job)
                if progress is None:  # not started yet, or ended just now: the next read of the row shows it
                    progress = last[1] if last is not None and last[0] == job.state else Progress()
                if (job.state, progress) != last:
                    last = (job.state, progress)
                    yield job, progress
                if job.ended or self.closing:
                    return
                if await changed.next():
                    if changed.job is not None:
                        job = follower.keep(changed.job)
                    else:
                        job = await follower.reread(partial(self._retry, job_id, inf, find))

    @contextmanager
    def _following(
        self, job_id: str, changed: ChangeSignal, progress_of: ReadProgress
    ) -> Iterator["_Follower"]:
        """Have the watcher signalled at changes of the progress; all watchers of a job share one reader."""
        follower = self._followed.get(job_id)
        if follower is None:
            follower = self._followed[job_id] = _Follower(progress_of, self._interval)
        follower.signals.add(changed)
        try:
            yield follower
        finally:
            follower.signals.discard(changed)
            if not follower.signals:
                del self._followed[job_id]
                follower.stop()

    def _interval(self) -> float:
        """Seconds between two reads of a job's progress: longer if many watchers have to be woken."""
        watchers = sum(len(follower.signals) for follower in self._followed.values())
        return max(LOOK_SECONDS, watchers * _SECONDS_PER_WATCHER)

    async def _retry(self, job_id: str, deadline: float, find: Callable[[str], Awaitable[T]]) -> T:
        """Call a function; retry until the deadline while the database is away. Raises Unavailable."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await find(job_id)
            except Unavailable:
                if self.closing or loop.time() + LOOK_SECONDS > deadline:
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    def expect(self, job_id: str) -> None:
        """Note that the job was accepted or claimed here: its end will be signalled by this process."""
        self._expected.add(job_id)

    def is_expected(self, job_id: str) -> bool:
        """Whether the job's end will be signalled; if not, only the database knows whether it has ended."""
        return job_id in self._expected

    def notify(self, job_id: str, ended: bool, job: Job | None = None) -> None:
        """Signal a change of the job to its watchers; ``job`` is its row now, if it is known."""
        if ended:
            self._expected.discard(job_id)
        if (follower := self._followed.get(job_id)) is not None:
            follower.forget_row()
        for changed in self._watched.get(job_id, ()):
            changed.set(ended, job)

    def is_watched(self, job_id: str) -> bool:
        """Whether the job has a watcher."""
        return job_id in self._watched

    def watched(self) -> list[str]:
        """Ids of the jobs that have a watcher."""
        return list(self._watched)

    def compare(self, states: Mapping[str, tuple[int, bool]]) -> None:
        """Notify the watchers of each job whose number of claims, or whether it has ended, is new."""
        for job_id, state in states.items():
            if job_id in self._watched and self._seen.get(job_id) != state:
                self._seen[job_id] = state
                self.notify(job_id, ended=state[1])

    def close(self) -> None:
        """Wake all watchers: no further change will be signalled."""
        self.closing = True
        for follower in self._followed.values():
            follower.forget_row()
        for signals in self._watched.values():
            for changed in signals:
                changed.set(ended=True)


def _ignore_error(read: asyncio.Task[Job]) -> None:
    """Retrieve the error of a read for which no watcher waits any more."""
    if not read.cancelled():
        read.exception()


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
