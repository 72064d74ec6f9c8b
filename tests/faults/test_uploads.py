"""Uploads and buffers with real workers: what becomes of them, and what is refused before it is read."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.engine import local_engine
from app.errors import (
    AppError,
    InvalidRequest,
    MemoryLimit,
    NotFound,
    StorageFull,
    TooLarge,
    Unavailable,
)
from app.jobs.tables.uploads import Upload, UploadSpace
from app.store.blobs.disk_space import SPARE_BYTES
from app.store.sql.models import Buffer
from providers import PROVIDERS
from providers.errors import SourceError
from providers.tables.digest import table_digest
from tests.faults import doings
from tests.faults.conftest import Running, blobs_of, embedded, in_folder, new_job, people
from tests.faults.running import PATIENCE
from tests.faults.uploads import upload

pytestmark = pytest.mark.faults

SEED = bytes(range(32))


def test_an_upload_becomes_a_buffer_and_a_job_reads_it(service: Running) -> None:
    buffer = upload(service)
    assert (buffer.row_count, [field["name"] for field in buffer.fields]) == (500, ["income", "city"])
    reader = service.loop.do(service.jobs.buffers.open(buffer))
    table = pa.Table.from_batches(reader, reader.schema)
    reader.close()
    assert buffer.digest == table_digest(table)
    assert buffer.expires_at - buffer.created_at == timedelta(seconds=service.settings.buffer_ttl)
    job = service.run(buffer.id, seed=SEED)
    assert job.source_digest == buffer.digest
    assert service.rows(job).equals(service.rows(service.run(table, seed=SEED)))
    again = service.end(service.loop.do(service.jobs.rerun(job.id)))
    assert again.reproduced is True
    plan_params = new_job(table).parameters
    assert service.loop.do(service.jobs.plan("DSWAP", plan_params, buffer.id))["rows"] == 500


def test_the_same_table_has_one_digest_however_it_came(service: Running) -> None:
    table = people()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=77)
    stream = sink.getvalue().to_pybytes()
    assert upload(service, stream, "application/vnd.apache.arrow.stream").digest == table_digest(table)


def test_a_deleted_buffer_stays_for_the_job_that_reads_it(start: Callable[..., Running]) -> None:
    one = start(workers=1)
    buffer = upload(one)
    held, queued = one.submit(people(), seed=doings.HELD), one.submit(buffer.id)
    one.wait_until_held(held)
    one.loop.do(one.jobs.buffers.delete(buffer.id))
    with pytest.raises(NotFound):
        one.loop.do(one.jobs.buffers.get(buffer.id))
    one.open_gate(held)
    assert one.end(queued).state == "succeeded"
    assert str(buffer.blob) not in blobs_of(one.settings)


@in_folder  # of a bucket the service has a copy of the table for a minute
def test_a_buffer_that_is_deleted_while_a_request_waits_for_a_worker_is_not_found(
    start: Callable[..., Running],
) -> None:
    one = start(workers=1)
    buffer = upload(one)
    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)
    params = PROVIDERS["DSWAP"].params.model_validate({"swap_fields": ["income"]})
    jobs = one.jobs
    requests: dict[Any, type[AppError]] = {
        one.loop.start(jobs.profile(buffer.id, 5)): NotFound,
        one.loop.start(jobs.buffers.copy(buffer.id, [], {}, [])): NotFound,
        one.loop.start(jobs.plan("DSWAP", params, buffer.id)): InvalidRequest,
        one.loop.start(jobs.trial("DSWAP", params, buffer.id, 5)): InvalidRequest,
    }

    async def wait_for_requests() -> None:
        while len(jobs._dispatcher._turns.waiting()) < len(requests):
            await asyncio.sleep(0.001)

    one.loop.do(wait_for_requests())
    one.loop.do(jobs.buffers.delete(buffer.id))
    one.open_gate(held)
    for request, kind in requests.items():
        with pytest.raises(kind) as caught:
            request.result(PATIENCE)
        assert type(caught.value) is kind
        assert caught.value.pointer == ("/source/buffer" if kind is InvalidRequest else "")
    assert one.end(held).state == "succeeded"
    assert not blobs_of(one.settings)


@in_folder
def test_an_unexpected_failure_of_a_profile_is_logged(
    start: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    one = start(workers=1)
    buffer = upload(one)
    blob = one.settings.home / "blobs" / str(buffer.blob)[:2] / str(buffer.blob)
    sealed = bytearray(blob.read_bytes())
    sealed[-30] ^= 1
    blob.write_bytes(sealed)
    with pytest.raises(AppError, match="under the request's id") as caught:
        one.loop.do(one.jobs.profile(buffer.id, 5))
    assert (caught.value.status, caught.value.code) == (500, "internal_error")
    (logged,) = [
        record.getMessage() for record in caplog.records if "of the request failed" in record.getMessage()
    ]
    assert "SealBroken" in logged
    assert "run_profile" in logged


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"a,b\n1,2,3\n", "text/csv"),
        (b"not parquet at all", "application/vnd.apache.parquet"),
        (b"", "application/vnd.apache.arrow.stream"),
    ],
)
def test_an_upload_that_is_no_table_is_refused_and_leaves_nothing(
    service: Running, data: bytes, media_type: str
) -> None:
    before = blobs_of(service.settings)
    with pytest.raises(SourceError):
        upload(service, data, media_type)
    assert blobs_of(service.settings) == before


@embedded
def test_an_upload_over_the_limit_is_refused_while_it_arrives(start: Callable[..., Running]) -> None:
    one = start(max_buffer_bytes=2000)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1000
            yield b"x" * 1000

    with pytest.raises(TooLarge, match="2000 bytes"):
        one.loop.do(one.jobs.buffers.create(endless(), "text/csv"))
    assert sent == 3000
    assert not blobs_of(one.settings)


def _zeros(rows: int, times: int) -> bytes:
    """Arrow stream of compressed zeros, with a given number of batches and of rows in each."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"zeros": np.zeros(rows, np.int64)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for _ in range(times):
            writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    assert len(stream) < 2**20
    return stream


@embedded
def test_an_upload_larger_than_memory_is_read_and_a_compressed_batch_that_is_larger_is_stopped(
    start: Callable[..., Running],
) -> None:
    one = start(worker_memory_bytes=192 * 2**20, warm_workers=True)
    arrow = "application/vnd.apache.arrow.stream"
    assert upload(one, _zeros(10**6, 30), arrow).row_count == 30 * 10**6
    table = pa.table({"a": np.arange(20 * 10**6), "text": pa.nulls(20 * 10**6, pa.string())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)  # in one batch, which is read piece by piece
    assert upload(one, sink.getvalue().to_pybytes(), arrow).digest == table_digest(table)
    with pytest.raises(MemoryLimit):
        upload(one, _zeros(40 * 10**6, 1), arrow)
    assert upload(one).row_count == 500


def test_hanging_up_during_an_upload_keeps_its_worker(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "_STOP_SECONDS", PATIENCE)  # a batch takes milliseconds
    running = start(workers=1)
    engine = running.jobs._lifecycle.engine
    assert isinstance(engine, local_engine.EmbeddedEngine)
    line = b"123456,some text of this row,0.25\n"

    async def chunks() -> AsyncIterator[bytes]:
        yield b"number,text,share\n"
        for _ in range(60):
            yield line * 10_000

    async def hang_up() -> None:
        while not engine._busy:
            await asyncio.sleep(0.001)

    async def create() -> None:
        await running.jobs.buffers.create(chunks(), "text/csv", hang_up)

    async def pid() -> int:
        while not engine.capacity():
            await asyncio.sleep(0.001)
        return engine._free[0].pid

    before = running.loop.do(pid())
    with pytest.raises(Unavailable, match="disconnected"):
        running.loop.do(create())
    assert running.loop.do(pid()) == before
    assert not blobs_of(running.settings)


class SmallDisk:
    """File system with little room: counts what the service has allocated below a folder."""

    def __init__(self, folder: Path, capacity: int) -> None:
        self.folder = folder
        self.capacity = capacity

    def allocated(self) -> int:
        """Bytes of the files in the folder, and of the unnamed ones that this process has open."""
        blocks = 0
        for path in self.folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                blocks += path.stat().st_blocks if path.is_file() else 0
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                target = str(link.readlink())
                if target.startswith(str(self.folder)) and target.endswith("(deleted)"):
                    blocks += link.stat().st_blocks
        return blocks * 512

    def status(self, handle: int) -> Any:
        """Status of the file system, as `os.fstatvfs` returns it."""
        return SimpleNamespace(f_bavail=max(0, self.capacity - self.allocated()), f_frsize=1)


@in_folder
def test_an_upload_without_a_length_reserves_space_before_its_bytes_are_written(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for the upload, and not for its table: it ends long before all of it has arrived."""
    running = start(workers=1)
    disk = SmallDisk(running.settings.home, 0)
    disk.capacity = disk.allocated() + SPARE_BYTES + (36 << 20)
    monkeypatch.setattr(os, "fstatvfs", disk.status)
    read = []

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(36):
            read.append(number)
            yield b"12345678" * (1 << 17)

    with pytest.raises(StorageFull):
        running.loop.do(running.jobs.buffers.create(chunks(), "text/csv"))
    assert len(read) < 20
    assert not [path for path in running.settings.home.rglob("*") if path.parent.parent.name == "blobs"]


def test_a_table_by_reference_reserves_its_size_with_its_first_bytes(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_bytes(b"number\n" + b"12345\n" * 2_000_000)
    running = start(workers=1, source_prefixes=f"*=file://{tmp_path}/data/")
    wanted: list[tuple[int, int]] = []
    extend = UploadSpace.extend

    def extended(space: UploadSpace, size: int, declared: int) -> None:
        wanted.append((size, declared))
        extend(space, size, declared)

    monkeypatch.setattr(UploadSpace, "extend", extended)

    async def decode(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            yield chunk

    async def gone() -> None:
        await asyncio.Event().wait()

    reading = running.jobs.buffers.read_reference(
        f"file://{tmp_path}/data/a.csv", Upload("text/csv"), decode, gone
    )
    stored = running.loop.do(reading)
    assert wanted == [(1 << 20, 12_000_007)]
    assert stored.rows == 2_000_000
    running.loop.do(running.jobs.buffers.discard(stored))


def uploads_at_once(
    running: Running, content: bytes, count: int, refused: int
) -> tuple[list[Any], list[int]]:
    """Send uploads whose bodies arrive after some refusals; return the outcomes, and which were read."""
    read = []

    async def together() -> list[Any]:
        gate = asyncio.Event()

        async def upload(name: int) -> Any:
            async def chunks() -> AsyncIterator[bytes]:
                read.append(name)
                await gate.wait()
                yield content

            return await running.jobs.buffers.create(chunks(), "text/csv", declared=len(content))

        uploads = [asyncio.ensure_future(upload(name)) for name in range(count)]
        while sum(each.done() for each in uploads) < refused:
            await asyncio.sleep(0.001)
        gate.set()
        return await asyncio.gather(*uploads, return_exceptions=True)

    return running.loop.do(together()), read


@in_folder
def test_of_uploads_that_cannot_all_fit_some_are_refused_before_they_are_read(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(workers=1)
    content = b"number\n" + b"12345\n" * 700_000
    home = running.settings.home
    disk = SmallDisk(home, 0)
    disk.capacity = disk.allocated() + SPARE_BYTES + 5 * len(content)  # each takes its length twice
    monkeypatch.setattr(os, "fstatvfs", disk.status)
    outcomes, read = uploads_at_once(running, content, 6, refused=4)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Buffer"] * 2 + ["StorageFull"] * 4
    assert [name for name, outcome in enumerate(outcomes) if isinstance(outcome, Buffer)] == sorted(read)
    stored = [path for path in home.rglob("*") if path.parent.parent.name == "blobs"]
    assert len(stored) == 2
    assert disk.allocated() < disk.capacity - SPARE_BYTES - len(content)


def test_of_uploads_that_declare_more_than_the_quota_together_some_are_refused_before_they_are_read(
    start: Callable[..., Running],
) -> None:
    content = b"number\n" + b"1234567890\n" * 1000  # its table is smaller
    running = start(workers=1, caller_buffer_bytes=len(content) * 5 // 2)
    outcomes, read = uploads_at_once(running, content, 4, refused=2)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Buffer"] * 2 + ["LimitReached"] * 2
    assert [name for name, outcome in enumerate(outcomes) if isinstance(outcome, Buffer)] == sorted(read)
