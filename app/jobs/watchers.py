"""Watch jobs for changes: long polling and event streams wait here.

A change is noticed when this process makes it, or when the heartbeat reads it from the database.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf

from app.engine.engine import Progress
from app.errors import Unavailable
from app.store.sql.models import Job

LOOK_SECONDS = 0.25
"""Interval at which a watcher reads progress, and retries a database that is away."""

FindJob = Callable[[str], Awaitable[Job]]


class ChangeSignal:
    """Signal of one watcher: set when the job has changed since the watcher last waited."""

    def __init__(self) -> None:
        self._change = asyncio.Event()
        self._end = asyncio.Event()
        self.job: Job | None = None
        """Row of the job that has ended, if the process that ran it is this one."""

    def set(self, ended: bool, job: Job | None = None) -> None:
        """Signal a change, and the end if the job has ended."""
        self._change.set()
        if ended:
            self.job = job
            self._end.set()

    async def within(self, seconds: float) -> bool:
        """Whether the job changes within ``seconds``, or has changed since the last call."""
        return await _set_within(self._change, seconds)

    async def ends_within(self, seconds: float) -> bool:
        """Whether the job ends within ``seconds``, or has ended since the last call."""
        return await _set_within(self._end, seconds)


class Watchers:
    """Watchers of each job, and the jobs whose end this process will signal."""

    def __init__(self) -> None:
        self._watched: dict[str, set[ChangeSignal]] = {}
        self._expected: set[str] = set()
        self._seen: dict[str, tuple[int, bool]] = {}
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

    async def wait_for_end(self, job_id: str, seconds: float, find: FindJob) -> Job:
        """Return the job when it has ended, or in its state after ``seconds``. Raises as ``find``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        with self.watch(job_id) as changed:
            while True:
                if not self.is_expected(job_id):
                    job = await self._find_by(job_id, deadline, find)
                    if job.ended:
                        return job
                if not await changed.ends_within(deadline - loop.time()) or self.closing:
                    return await find(job_id)
                if changed.job is not None:
                    return changed.job

    async def updates(
        self, job_id: str, find: FindJob, progress_of: Callable[[Job], Progress | None]
    ) -> AsyncIterator[tuple[Job, Progress]]:
        """Yield the job and its progress now and at every change, until it has ended. Raises as ``find``."""
        with self.watch(job_id) as changed:
            job = await find(job_id)
            last: tuple[str, Progress] | None = None
            while True:
                progress = progress_of(job)
                if progress is None:  # not started yet, or ended just now: the next read of the row shows it
                    progress = last[1] if last is not None and last[0] == job.state else Progress()
                if (job.state, progress) != last:
                    last = (job.state, progress)
                    yield job, progress
                if job.ended or self.closing:
                    return
                if await changed.within(LOOK_SECONDS):
                    job = await self._find_by(job_id, inf, find)

    async def _find_by(self, job_id: str, deadline: float, find: FindJob) -> Job:
        """Return the job; retry until the deadline while the database is away. Raises Unavailable."""
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
        for changed in self._watched.get(job_id, ()):
            changed.set(ended, job)

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
        for signals in self._watched.values():
            for changed in signals:
                changed.set(ended=True)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
