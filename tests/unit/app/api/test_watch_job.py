"""Event stream of a job that is deleted after the request has been accepted."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from app.api.routes.jobs import _known_job, watch_job
from app.engine.engine import Progress
from app.errors import NotFound
from app.jobs.states import State
from app.store.sql.models import Job


class _DeletedJob:
    """Jobs of which one is deleted after its first read, or after some updates."""

    def __init__(self, state: State, updates: int) -> None:
        ended = datetime(2026, 11, 28, tzinfo=UTC) if state.ended else None
        self._job = Job(id="job", state=state, finished_at=ended)
        self._updates = updates

    async def get(self, _: str) -> Job:
        return self._job

    async def progress(self, _: Job) -> Progress:
        return Progress(1.0 if self._job.ended else 0.5, self._job.state)

    async def updates(self, _: str) -> AsyncIterator[tuple[Job, Progress]]:
        for _number in range(self._updates):
            yield self._job, await self.progress(self._job)
        raise NotFound("there is no job 'job'")


@pytest.mark.parametrize(
    ("state", "updates", "events"),
    [
        (State.SUCCEEDED, 0, ["end"]),
        (State.RUNNING, 0, []),
        (State.RUNNING, 2, ["progress", "progress"]),
    ],
)
def test_the_stream_of_a_deleted_job_closes(state: State, updates: int, events: list[str]) -> None:
    async def stream() -> list[Any]:
        jobs: Any = _DeletedJob(state, updates)
        known = await _known_job("job", jobs)
        return [event.event async for event in watch_job("job", jobs, known)]

    assert asyncio.run(stream()) == events
