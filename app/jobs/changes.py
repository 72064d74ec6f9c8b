"""Tells those who wait for a job that something has changed. Within this process alone."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Changed:
    """Whether something has changed since it was last looked at."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Something has changed."""
        self._event.set()

    async def within(self, seconds: float) -> bool:
        """Whether it changes within so many seconds, or has already."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class Changes:
    """Who watches which job."""

    def __init__(self) -> None:
        self._watched: dict[str, set[Changed]] = {}

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

    def tell(self, job_id: str) -> None:
        """The job has changed."""
        for changed in self._watched.get(job_id, ()):
            changed.tell()
