"""Tells those who wait for a job that something has changed: here, or as it is seen that others did it."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Changed:
    """Whether something has changed since it was last looked at."""

    def __init__(self) -> None:
        self._change = asyncio.Event()
        self._end = asyncio.Event()

    def tell(self, ended: bool) -> None:
        """Something has changed."""
        self._change.set()
        if ended:
            self._end.set()

    async def within(self, seconds: float) -> bool:
        """Whether it changes within so many seconds, or has already."""
        return await _set_within(self._change, seconds)

    async def ends_within(self, seconds: float) -> bool:
        """Whether it ends within so many seconds, or has already."""
        return await _set_within(self._end, seconds)


class Changes:
    """Who watches which job, and which jobs this process will tell the end of."""

    def __init__(self) -> None:
        self._watched: dict[str, set[Changed]] = {}
        self._expected: set[str] = set()
        self._seen: dict[str, tuple[int, bool]] = {}
        self.closing = False
        """Whether nothing more will be told."""

    @contextmanager
    def watch(self, job_id: str) -> Iterator[Changed]:
        """Every change of the job from now on."""
        changed = Changed()
        watchers = self._watched.setdefault(job_id, set())
        watchers.add(changed)
        try:
            yield changed
        finally:
            watchers.discard(changed)
            if not watchers:
                self._watched.pop(job_id, None)
                self._seen.pop(job_id, None)

    def expect(self, job_id: str) -> None:
        """The job was accepted or claimed here, and has not ended: its end will be told."""
        self._expected.add(job_id)

    def is_expected(self, job_id: str) -> bool:
        """Whether its end is still to be told; where it is not, only the database knows."""
        return job_id in self._expected

    def tell(self, job_id: str, ended: bool) -> None:
        """The job has changed."""
        if ended:
            self._expected.discard(job_id)
        for changed in self._watched.get(job_id, ()):
            changed.tell(ended)

    def watched(self) -> list[str]:
        """The jobs that somebody watches."""
        return list(self._watched)

    def see(self, standing: Mapping[str, tuple[int, bool]]) -> None:
        """How often each job was claimed by now, and whether it has ended: news where that has changed."""
        for job_id, now in standing.items():
            if job_id in self._watched and self._seen.get(job_id) != now:
                self._seen[job_id] = now
                self.tell(job_id, ended=now[1])

    def tell_all(self) -> None:
        """Wake everybody: nothing more will be told."""
        self.closing = True
        for watchers in self._watched.values():
            for changed in watchers:
                changed.tell(ended=True)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
