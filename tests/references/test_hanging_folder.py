"""Storage of references that does not respond: calls with other places go on, its own ones are refused."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.engine.engine import CANCELLED, Failure
from app.errors import ReferenceUnavailable
from app.jobs import reference_reader, reference_writer
from app.jobs.reference_reader import ReferenceReader
from app.jobs.reference_writer import ReferenceWriter
from app.references import Reference
from app.settings import Settings
from app.store.reference_files import check_place, read_file
from app.store.sql.models import Job
from tests.faults.running import PATIENCE

MORE = 2 * reference_reader.THREADS


class Places:
    """Two folders, of which ``hanging`` does not respond before `responds` is set."""

    def __init__(self, root: Path) -> None:
        self.hanging, self.other = root / "hanging", root / "other"
        for folder in (self.hanging, self.other):
            folder.mkdir()
            (folder / "a.csv").write_bytes(b"income\n1\n")
        both = f"*=file://{self.hanging},*=file://{self.other}"
        self.settings = Settings(home=root / "home", source_prefixes=both, destination_prefixes=both)
        self.responds = threading.Event()

    def wait(self, reference: Reference) -> None:
        if "hanging" in reference.path:
            assert self.responds.wait(PATIENCE)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    made = Places(tmp_path)

    def read(reference: Reference, prefix: Reference, check: Callable[[int], None]) -> Iterator[bytes]:
        made.wait(reference)
        yield from read_file(reference, prefix, check)

    def look(reference: Reference, prefix: Reference, overwrite: bool) -> None:
        made.wait(reference)
        check_place(reference, prefix, overwrite)

    def write(self: ReferenceWriter, job: Job, task: Any, reference: Reference, *rest: Any) -> None:
        made.wait(reference)

    monkeypatch.setattr(reference_reader, "read_file", read)
    monkeypatch.setattr(reference_reader, "check_place", look)
    monkeypatch.setattr(ReferenceWriter, "_write", write)
    yield made
    made.responds.set()


async def read_all(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


def test_calls_with_another_folder_go_on(places: Places) -> None:
    """They waited for the threads that the folder held, for ever."""

    async def run() -> None:
        reader = ReferenceReader(places.settings)
        writer = ReferenceWriter(places.settings, reader)
        held = f"file://{places.hanging}/a.csv", f"file://{places.hanging}/new.csv"
        good = f"file://{places.other}/a.csv", f"file://{places.other}/new.csv"

        def writing(number: int, to: str) -> Any:
            job = Job(id=f"job {number}", destination_reference=to, project=None)
            return asyncio.ensure_future(writer.write(job, None))  # type: ignore[arg-type]

        waiting = [asyncio.ensure_future(read_all(reader.chunks(held[0], None))) for _ in range(MORE)]
        waiting += [writing(number, held[1]) for number in range(MORE)]
        async with asyncio.timeout(PATIENCE / 3):
            assert await read_all(reader.chunks(good[0], None)) == b"income\n1\n"
            await reader.check_destination(good[1], None, overwrite=False)
            assert await writing(MORE, good[1]) is None
        assert not any(call.done() for call in waiting)
        places.responds.set()
        await asyncio.gather(*waiting)
        writer.close()
        reader.close()

    asyncio.run(run())


def test_calls_with_the_folder_end(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_reader, "_SILENT_SECONDS", 0.2)

    async def run() -> None:
        reader = ReferenceReader(places.settings)
        calls = [read_all(reader.chunks(f"file://{places.hanging}/a.csv", None)) for _ in range(MORE)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, ReferenceUnavailable)
            assert "did not respond within" in error.message
        places.responds.set()
        reader.close()

    asyncio.run(run())


class Write:
    """A write to a bucket, whose last request the storage does not answer before `responds` is set."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.responds = threading.Event()
        settings = Settings(home=root / "home", destination_prefixes="*=s3://released")
        self._reader = ReferenceReader(settings)
        self.writer = ReferenceWriter(settings, self._reader)
        begun = threading.Event()

        def write(*_: Any) -> None:
            begun.set()
            assert self.responds.wait(PATIENCE)

        monkeypatch.setattr(ReferenceWriter, "_write", write)
        job = Job(id="job", destination_reference="s3://released/a.csv", project=None)
        self.ending = asyncio.ensure_future(self.writer.write(job, None))  # type: ignore[arg-type]
        self.begun = asyncio.ensure_future(asyncio.to_thread(begun.wait, PATIENCE))

    def close(self) -> None:
        self.responds.set()
        self.writer.close()
        self._reader.close()


@pytest.mark.parametrize("limit", ["_ABORT_SECONDS", "_ANSWER_SECONDS"])
def test_a_cancellation_waits_for_the_answer_of_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit: str
) -> None:
    """The job ended as cancelled, and its release could be there without an entry in the ledger."""
    monkeypatch.setattr(reference_writer, limit, 0.05)

    async def run() -> Failure | None:
        write = Write(tmp_path, monkeypatch)
        await write.begun
        write.writer.cancel("job")
        await asyncio.wait([write.ending], timeout=0.2 if limit == "_ABORT_SECONDS" else PATIENCE)
        assert write.ending.done() == (limit == "_ANSWER_SECONDS")
        write.close()
        return await write.ending

    ended = asyncio.run(run())
    if limit == "_ABORT_SECONDS":
        assert ended is None  # it was written: the job has succeeded
    else:
        assert ended is not None
        assert ended.code == CANCELLED
        (logged,) = [record.getMessage() for record in caplog.records]
        assert "a release that the ledger does not list" in logged


def test_a_stop_waits_only_a_short_time_for_the_answer_of_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The job runs again, and finds what was written."""
    monkeypatch.setattr(reference_writer, "_ABORT_SECONDS", 0.05)

    async def run() -> Failure | None:
        write = Write(tmp_path, monkeypatch)
        await write.begun
        write.writer.cancel("job", hurry=True)
        async with asyncio.timeout(PATIENCE / 3):
            ended = await write.ending
        write.close()
        return ended

    ended = asyncio.run(run())
    assert ended is not None
    assert ended.code == CANCELLED
    assert caplog.records == []
