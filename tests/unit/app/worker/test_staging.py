"""Files of tasks on a machine without a shared folder: copies, what is sent, and what goes wrong."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.engine.engine import Failure
from app.store.blobs.arrow_stream import read_table, write_table
from app.store.blobs.bucket import Bucket, BucketUnusable
from app.store.blobs.bucket_blobs import BucketBlobs
from app.store.blobs.section_files import join_sections, write_section
from app.store.crypto.sealing import Sealer
from app.worker import staging as staging_module
from app.worker.staging import Staging, StagingSetup, spool_key
from app.worker.tasks import FinishTask, GatherTask, PieceTask, PrepareTask, SectionTask, SwapTask, UnitTask
from providers.tables.digest import table_digest
from tests.swap_tasks import swap_task

TABLE = pa.table({"x": range(1000)})


def never() -> bool:
    return False


@pytest.fixture
def store(new_bucket: Callable[[], Bucket], tmp_path: Path) -> BucketBlobs:
    return BucketBlobs(new_bucket(), tmp_path / "service" / "blobs", Sealer([bytes(32)]))


@pytest.fixture
def staging(store: BucketBlobs, tmp_path: Path) -> Iterator[Staging]:
    opened = StagingSetup(store.bucket, str(tmp_path / "machine"), remote=True).open()
    yield opened
    opened.close()


@pytest.fixture
def task(store: BucketBlobs, tmp_path: Path) -> SwapTask:
    return swap_task(store, tmp_path, "DSWAP", TABLE, {"swap_fields": ["x"]}, 10**6)


def files(tmp_path: Path) -> list[Path]:
    """Files of the machine, apart from the locks of its processes."""
    return [path for path in (tmp_path / "machine").rglob("*") if path.is_file() and path.name != "lock"]


def test_a_task_finds_its_files_and_what_it_writes_is_sent(
    staging: Staging, store: BucketBlobs, task: SwapTask, tmp_path: Path
) -> None:
    """The task in the worker names no object. Afterwards copies of both tables are here."""
    staged = staging.fetch(task, never)
    assert (staged.source.bucket, staged.destination.bucket) == (None, None)
    assert read_table(staged.source) == TABLE
    assert Path(staged.progress_path).is_file()
    assert staged.progress_path != task.progress_path
    assert staged.spool_folder.name == task.spool_folder.name
    write_table(staged.destination, TABLE)
    done: dict[str, Any] = {"destination": {}}
    assert staging.send(staged, done, never) is done
    staging.release(staged)
    assert read_table(task.destination) == TABLE
    assert len(files(tmp_path)) == 2
    store.bucket.delete([task.destination.key])
    again = staging.fetch(replace(task, source=task.destination), never)
    assert read_table(again.source) == TABLE
    staging.release(again)
    staging._delete_unused(0.0)
    assert not files(tmp_path)


def test_a_task_without_a_table_or_that_failed_sends_nothing(
    staging: Staging, store: BucketBlobs, task: SwapTask
) -> None:
    staged = staging.fetch(task, never)
    assert staging.send(staged, {"table": b"small"}, never) == {"table": b"small"}
    write_table(staged.destination, TABLE)
    failure = Failure("worker_died", "it died")
    assert staging.send(staged, failure, never) is failure
    staging.release(staged)
    assert store.names() == {task.source.id}


def test_tasks_of_one_source_share_a_copy_until_none_needs_it(
    staging: Staging, task: SwapTask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fetched: list[str] = []
    fetch = Bucket.fetch

    def counted(self: Bucket, key: str, *given: Any) -> int:
        fetched.append(key)
        return fetch(self, key, *given)

    monkeypatch.setattr(Bucket, "fetch", counted)
    with ThreadPoolExecutor(4) as threads:
        staged = list(threads.map(lambda _: staging.fetch(task, never), range(4)))
    assert fetched == [task.source.key]
    assert len({each.source.path for each in staged}) == 1
    assert len({each.destination.path for each in staged}) == 4
    for each in staged[1:]:
        staging.release(each)
    staging._delete_unused(0.0)
    assert read_table(staged[0].source) == TABLE
    staging.release(staged[0])
    staging._delete_unused(60.0)
    assert Path(staged[0].source.path).exists()
    staging._delete_unused(0.0)
    assert not files(tmp_path)


def test_a_fetch_that_another_task_began_and_stopped_is_repeated(
    staging: Staging, task: SwapTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first task is cancelled while the second one waits for its copy."""
    begun, stop = threading.Event(), threading.Event()
    fetch = Bucket.fetch

    def slow(self: Bucket, key: str, path: Path, stopped: Callable[[], bool]) -> int:
        begun.set()
        if stopped is stop.is_set:
            stop.wait()
        return fetch(self, key, path, stopped)

    monkeypatch.setattr(Bucket, "fetch", slow)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(staging.fetch, task, stop.is_set)
        begun.wait()
        second = threads.submit(staging.fetch, task, never)
        stop.set()
        ended = first.result()
        assert isinstance(ended, Failure)
        assert ended.code == "cancelled"
        staged = second.result()
    assert read_table(staged.source) == TABLE
    staging.release(staged)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (BucketUnusable(errno.EIO, "no response"), "storage_unavailable", "object storage"),
        (OSError(errno.ENOSPC, "No space left"), "storage_full", "ROWVEIL_SHARED_FOLDER"),
        (FileNotFoundError(), "blob_missing", "deleted before"),
        (ValueError("12345"), "internal_error", "its log"),
    ],
)
def test_a_transfer_that_fails_is_a_failure_with_its_cause(
    staging: Staging, task: SwapTask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception,
    code: str, words: str,
) -> None:  # fmt: skip
    """Both for a fetch and for a send; nothing is left on the machine."""
    kept = staging.fetch(task, never)
    write_table(kept.destination, TABLE)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Bucket, "fetch", fail)
    monkeypatch.setattr(Bucket, "send", fail)
    if not isinstance(error, FileNotFoundError):
        found = staging.send(kept, {}, never)
        assert isinstance(found, Failure)
        assert (found.code, words in found.message) == (code, True)
    staging.release(kept)
    staging._delete_unused(0.0)
    found = staging.fetch(task, never)
    assert isinstance(found, Failure)
    assert (found.code, words in found.message) == (code, True)
    assert "12345" not in f"{found}"
    assert not files(tmp_path)


def test_a_full_machine_gives_up_copies_that_nobody_uses(
    staging: Staging, store: BucketBlobs, task: SwapTask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    staging.release(staging.fetch(task, never))
    (unused,) = files(tmp_path)
    fetch = Bucket.fetch

    def full_at_first(self: Bucket, *given: Any) -> int:
        if unused.exists():
            raise OSError(errno.ENOSPC, "No space left")
        return fetch(self, *given)

    monkeypatch.setattr(Bucket, "fetch", full_at_first)
    (tmp_path / "other").mkdir()
    other = swap_task(store, tmp_path / "other", "DSWAP", TABLE, {"swap_fields": ["x"]}, 10**6)
    staged = staging.fetch(other, never)
    assert read_table(staged.source) == TABLE
    staging.release(staged)


def test_spools_go_from_a_unit_to_the_task_that_gathers_them(
    staging: Staging, store: BucketBlobs, task: SwapTask
) -> None:
    """Each is on another machine at the same path of its own work folder."""
    unit = staging.fetch(UnitTask(task, b"", None, 3, 1), never)
    name = f"3-1-{'0' * 32}"
    names = [f"{name}.0", f"{name}.1"]
    for number, file in enumerate((*names, f"{name}.key")):
        (unit.job.spool_folder / file).write_bytes(b"sealed %d" % number)
    assert staging.send(unit, {"spool": name}, never) == {"spool": name}
    staging.release(unit)
    assert [found.key for found in store.bucket.objects("scratch")] == [
        spool_key(task, file) for file in names
    ]
    gather = staging.fetch(GatherTask(task, b"", None, (), tuple(names)), never)
    assert (gather.job.spool_folder / names[1]).read_bytes() == b"sealed 1"
    staging.release(gather)
    assert not gather.job.spool_folder.exists()
    section = staging.fetch(SectionTask(task, b"", (), 1, spools=(names[1],)), never)
    assert [path.name for path in section.job.spool_folder.iterdir()] == [names[1]]
    staging.release(section)


def test_a_part_of_a_blob_is_sent_and_fetched_with_its_blob(
    staging: Staging, store: BucketBlobs, task: SwapTask
) -> None:
    """A section is written on one machine, joined on a second one, and read on a third one."""
    sections = []
    for number, rows in enumerate((TABLE, TABLE[:0])):
        staged = staging.fetch(SectionTask(task, b"", (), number), never)
        stored = write_section(staged.job.destination, TABLE.schema, [rows])
        sections.append(stored)
        outcome = {"part": stored.part.token}
        assert staging.send(staged, outcome, never) == outcome
        staging.release(staged)
    assert not store.names() - {task.source.id}
    staged = staging.fetch(FinishTask(task, b"", None, (), ()), never)
    assert join_sections(staged.job.destination, TABLE.schema, sections) == (table_digest(TABLE), 1000)
    assert staging.send(staged, {}, never) == {}
    staging.release(staged)
    assert store.names() == {task.source.id, task.destination.id}
    other = replace(task, source=task.destination, destination=store.allocate())
    staged = staging.fetch(other, never)
    assert staged.source.bucket is None
    assert read_table(staged.source) == TABLE
    assert read_table(task.destination) == TABLE  # straight from the bucket
    staging.release(staged)
    store.delete(task.destination.id)
    assert not store.bucket.objects("parts")


@pytest.mark.parametrize("token", ["../../keys/master.key", "", "0" * 32, None])
def test_a_worker_cannot_have_another_file_sent_as_a_part(
    staging: Staging, store: BucketBlobs, task: SwapTask, token: str | None
) -> None:
    staged = staging.fetch(SectionTask(task, b"", (), 0), never)
    found = staging.send(staged, {"part": token}, never)
    assert isinstance(found, Failure)
    staging.release(staged)
    assert not store.bucket.objects("parts")


def test_spools_of_a_preparation_go_to_every_unit(
    staging: Staging, store: BucketBlobs, task: SwapTask
) -> None:
    prepare = staging.fetch(PrepareTask(task, b"", 1), never)
    name = f"prepared-1-{'a' * 32}"
    file = f"{name}.0"
    (prepare.job.spool_folder / file).write_bytes(b"sealed")
    assert staging.send(prepare, {"spool": name}, never) == {"spool": name}
    staging.release(prepare)
    assert [found.key for found in store.bucket.objects("scratch")] == [spool_key(task, file)]
    for number in range(2):
        unit = staging.fetch(UnitTask(task, b"", b"", number, spools=(file,)), never)
        assert (unit.job.spool_folder / file).read_bytes() == b"sealed"
        staging.release(unit)
    again = staging.fetch(PrepareTask(task, b"", 2), never)
    assert isinstance(staging.send(again, {"spool": name}, never), Failure)  # of another run
    staging.release(again)


def test_spools_of_a_piece_go_to_every_unit(staging: Staging, store: BucketBlobs, task: SwapTask) -> None:
    piece = staging.fetch(PieceTask(task, b"", b"", 12, 1), never)
    name = f"piece12-1-{'a' * 32}"
    file = f"{name}.0"
    (piece.job.spool_folder / file).write_bytes(b"sealed")
    assert staging.send(piece, {"spool": name}, never) == {"spool": name}
    staging.release(piece)
    unit = staging.fetch(UnitTask(task, b"", b"", 0, spools=(file,), pieces=(b"",)), never)
    assert (unit.job.spool_folder / file).read_bytes() == b"sealed"
    staging.release(unit)
    other = staging.fetch(PieceTask(task, b"", b"", 1, 1), never)
    assert isinstance(staging.send(other, {"spool": name}, never), Failure)  # of another piece
    staging.release(other)


@pytest.mark.parametrize(
    "name", ["../../keys/master.key", "3-1-short", f"2-1-{'0' * 32}", f"3-1-{'0' * 32}/x", "", None]
)
def test_a_worker_cannot_have_other_files_sent(
    staging: Staging, store: BucketBlobs, task: SwapTask, name: str | None
) -> None:
    """The name of a spool comes from the worker process, which may run foreign code."""
    unit = staging.fetch(UnitTask(task, b"", None, 3, 1), never)
    found = staging.send(unit, {"spool": name}, never)
    assert isinstance(found, Failure)
    assert found.code == "internal_error"
    staging.release(unit)
    gather = staging.fetch(GatherTask(task, b"", None, (), (f"{name}",)), never)
    assert isinstance(gather, Failure)
    assert gather.code == "internal_error"
    assert not store.bucket.objects("scratch")


def test_a_link_in_the_place_of_a_table_or_spool_is_not_followed(
    staging: Staging, store: BucketBlobs, task: SwapTask, tmp_path: Path
) -> None:
    (tmp_path / "master.key").write_bytes(b"secret")
    staged = staging.fetch(task, never)
    Path(staged.destination.path).symlink_to(tmp_path / "master.key")
    found = staging.send(staged, {}, never)
    assert isinstance(found, Failure)
    assert store.names() == {task.source.id}
    staging.release(staged)


def test_the_folder_of_a_dead_process_is_deleted_and_that_of_a_live_one_stays(
    staging: Staging, store: BucketBlobs, tmp_path: Path
) -> None:
    root = tmp_path / "machine" / "blobs"
    (live,) = root.iterdir()
    dead, unfinished, other = root / f"staged-{'d' * 16}", root / f"staged-{'e' * 16}", root / "staged-notes"
    for folder in (dead, unfinished, other):
        folder.mkdir()
    (dead / "lock").touch()
    (dead / "copy").write_bytes(b"sealed")
    os.utime(unfinished, (0, 0))
    StagingSetup(store.bucket, str(tmp_path / "machine"), remote=True).open().close()
    assert set(root.iterdir()) == {live, other}


def test_on_the_machine_of_the_service_progress_and_scratch_stay_where_they_are(
    store: BucketBlobs, task: SwapTask, tmp_path: Path
) -> None:
    staging = StagingSetup(store.bucket, str(tmp_path / "machine"), remote=False).open()
    staged = staging.fetch(task, never)
    assert staged == replace(task, source=staged.source, destination=staged.destination)
    unit = staging.fetch(UnitTask(task, b"", None, 0), never)
    assert staging.send(unit, {"spool": "0-0-x"}, never) == {"spool": "0-0-x"}
    for each in (staged, unit):
        staging.release(each)
    assert not store.bucket.objects("scratch")
    staging.close()


def test_unused_copies_are_deleted_after_their_time(
    staging: Staging, task: SwapTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_module, "_KEPT_SECONDS", 0.05)
    staging.release(staging.fetch(task, never))
    deadline = time.monotonic() + 60
    while files(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.01)
