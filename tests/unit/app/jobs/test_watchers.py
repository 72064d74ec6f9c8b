"""Event streams of one job share one reader of its progress."""

import asyncio
import errno
from datetime import UTC, datetime
from typing import Any

import pytest

from app.engine.engine import Progress
from app.errors import NotFound
from app.jobs import watchers
from app.jobs.states import State
from app.jobs.watchers import Watchers
from app.store.sql.models import Job

STREAMS = 40
UPDATES = 5
PATIENCE = 20.0


def row(state: str, **values: Any) -> Job:
    return Job(id="job", state=state, attempt=1, **values)


def test_a_stream_goes_on_after_a_read_that_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(watchers, "_SECONDS_PER_WATCHER", 0.0001)
    reads: list[Job] = []

    async def progress_of(job: Job) -> Progress:
        reads.append(job)
        if len(reads) == 2:
            raise OSError(errno.ESTALE, "Stale file handle")
        return Progress(len(reads) / 10, "swapping")

    async def find(job_id: str) -> Job:
        return row(State.RUNNING)

    async def stream() -> list[float]:
        seen: list[float] = []
        async with asyncio.timeout(PATIENCE):
            async for _, progress in Watchers().updates("job", find, progress_of):
                seen.append(progress.fraction)
                if len(seen) == 2:
                    break
        return seen

    assert asyncio.run(stream()) == [0.1, 0.3]


def test_streams_of_a_job_read_its_progress_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stream shows every change; the row is read once a stream, not once an update."""
    monkeypatch.setattr(watchers, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(watchers, "_SECONDS_PER_WATCHER", 0.0001)
    reads, finds = [], []

    async def progress_of(job: Job) -> Progress:
        reads.append(job)
        return Progress(len(reads) / 1e6, "swapping")

    async def find(job_id: str) -> Job:
        finds.append(job_id)
        return row(State.RUNNING)

    async def stream(watched: Watchers) -> list[float]:
        seen = []
        updates = watched.updates("job", find, progress_of)
        async for _, progress in updates:
            seen.append(progress.fraction)
            if len(seen) == UPDATES:
                break
        await updates.aclose()  # type: ignore[attr-defined]
        return seen

    async def all_streams() -> list[list[float]]:
        watched = Watchers()
        found = await asyncio.gather(*(stream(watched) for _ in range(STREAMS)))
        assert not watched._followed
        assert not watched.watched()
        return list(found)

    found = asyncio.run(all_streams())
    assert all(seen == sorted(set(seen)) for seen in found)
    assert len(finds) == STREAMS
    assert len(reads) < STREAMS


def test_the_row_of_the_end_is_not_read_again() -> None:
    """The process that ran the job hands it to every stream."""
    finds = []

    async def find(job_id: str) -> Job:
        finds.append(job_id)
        return row(State.RUNNING)

    async def progress_of(job: Job) -> Progress:
        return Progress(0.5, job.state)

    async def run() -> list[str]:
        watched = Watchers()
        states = []
        async for job, _ in watched.updates("job", find, progress_of):
            states.append(str(job.state))
            ended = row(State.SUCCEEDED)
            ended.finished_at = datetime.now(UTC)
            watched.notify("job", ended=True, job=ended)
        return states

    assert asyncio.run(run()) == ["running", "succeeded"]
    assert len(finds) == 1


class _Row:
    """A job's row in the database, whose reads wait for the database."""

    def __init__(self) -> None:
        self.state: str = State.QUEUED
        self.reads = 0
        self.error: Exception | None = None

    async def find(self, _job_id: str) -> Job:
        self.reads += 1
        error, found = self.error, row(self.state)
        await asyncio.sleep(0)
        if error is not None:
            raise error
        return found


async def _no_progress(_job: Job) -> Progress:
    return Progress()


async def _opened(watched: Watchers, stored: _Row) -> list[Any]:
    """Open streams, of which each has sent its first update."""
    streams = [watched.updates("job", stored.find, _no_progress) for _ in range(STREAMS)]
    await asyncio.gather(*(anext(stream) for stream in streams))
    return streams


async def _next_states(streams: list[Any]) -> list[asyncio.Task[tuple[Job, Progress]]]:
    waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await asyncio.sleep(0)  # all wait for a change
    return waiting


def test_streams_of_a_job_read_a_changed_row_together() -> None:
    async def run() -> None:
        watched, stored = Watchers(), _Row()
        streams = await _opened(watched, stored)
        stored.reads = 0
        for state in (State.RUNNING, State.CANCELLED):
            waiting = await _next_states(streams)
            stored.state = state
            watched.notify("job", ended=False)
            assert {job.state for job, _ in await asyncio.gather(*waiting)} == {state}
        assert stored.reads == 2

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_a_change_during_a_read_is_read_again() -> None:
    """A read that began before the change may have seen the row without it."""

    async def run() -> None:
        watched, stored = Watchers(), _Row()
        streams = await _opened(watched, stored)
        waiting = await _next_states(streams[:1])
        stored.state = State.RUNNING
        watched.notify("job", ended=False)
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the first stream's read has begun
        stored.state = State.CANCELLED
        watched.notify("job", ended=False)
        others = await _next_states(streams[1:])
        assert {job.state for job, _ in await asyncio.gather(*others)} == {State.CANCELLED}
        job, _ = await waiting[0]
        assert job.state == State.RUNNING
        job, _ = await anext(streams[0])
        assert job.state == State.CANCELLED

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_the_error_of_a_common_read_ends_every_stream() -> None:
    async def run() -> None:
        watched, stored = Watchers(), _Row()
        waiting = await _next_states(await _opened(watched, stored))
        stored.error = NotFound("the job was deleted")
        watched.notify("job", ended=False)
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(end) for end in ends] == [NotFound] * STREAMS

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_many_streams_are_updated_less_often() -> None:
    """Sending an update to each takes time, which must not grow with their number."""
    updated_per_second = []

    async def find(job_id: str) -> Job:
        return row(State.RUNNING)

    async def progress_of(job: Job) -> Progress:
        return Progress(0.5, "a")

    async def run(streams: int) -> None:
        watched = Watchers()
        opened = [watched.updates("job", find, progress_of) for _ in range(streams)]
        for updates in opened:
            await anext(updates)
        updated_per_second.append(streams / watched._interval())
        for updates in opened:
            await updates.aclose()  # type: ignore[attr-defined]

    for streams in (1, 500, 1000):
        asyncio.run(run(streams))
    assert updated_per_second == [4.0, 200.0, 200.0]


def test_a_call_that_begins_to_wait_during_a_stop_gets_the_present_state() -> None:
    """It waited until the server cancelled it, and was then answered with 500 and a plain text."""

    async def has_ended(job_id: str) -> bool:
        return False

    async def find(job_id: str) -> Job:
        return row(State.QUEUED)

    async def wait(expected: bool) -> str:
        watched = Watchers()
        if expected:
            watched.expect("job")
        watched.close()
        async with asyncio.timeout(PATIENCE):
            return (await watched.wait_for_end("job", PATIENCE * 2, has_ended, find)).state

    assert [asyncio.run(wait(expected)) for expected in (True, False)] == [State.QUEUED, State.QUEUED]
