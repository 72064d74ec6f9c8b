"""Reserved disk space is allocated at once, and what is not needed is freed."""

import ctypes
import errno
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from app.engine.engine import Progress
from app.engine.progress_file import read_progress
from app.store.blobs.disk_space import SPARE_BYTES, Reservation, free, reserve
from app.store.blobs.scratch import Record, SealedScratch, SpoolReader, SpoolWriter
from app.store.blobs.sealed_files import BlobStore, SealedWriter, extend_draft, reserve_draft
from app.store.crypto.sealing import Sealer
from app.worker.run_swap import run_swap
from tests.swap_tasks import swap_task

MIB = 2**20


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def test_space_is_allocated_and_the_file_stays_empty(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        reserve(file.fileno(), 8 * MIB)
        assert (path.stat().st_size, allocated(path) >= 8 * MIB) == (0, True)


def test_more_than_there_is_is_refused_and_nothing_is_allocated(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file, pytest.raises(OSError, match="No space") as caught:
        reserve(file.fileno(), free_bytes(tmp_path) + 2**40)
    assert caught.value.errno == errno.ENOSPC
    assert allocated(path) == 0


def test_space_that_another_process_takes_meanwhile_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both saw enough free space; with both reservations the spare would be gone."""
    free = [8 * MIB + SPARE_BYTES, SPARE_BYTES - 1]
    monkeypatch.setattr(os, "fstatvfs", lambda handle: SimpleNamespace(f_bavail=free.pop(0), f_frsize=1))
    path = tmp_path / "file"
    with path.open("wb") as file, pytest.raises(OSError, match="No space"):
        reserve(file.fileno(), 8 * MIB)
    assert (allocated(path), free) == (0, [])


def test_a_reservation_has_no_name_and_ends_at_its_release(tmp_path: Path) -> None:
    with Reservation(tmp_path, 8 * MIB) as held:
        assert held._file is not None
        handle = held._file.fileno()
        assert os.fstat(handle).st_blocks * 512 >= 8 * MIB
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_a_blob_keeps_only_the_space_that_it_needs(tmp_path: Path) -> None:
    access = BlobStore(tmp_path, Sealer([bytes(32)])).allocate()
    with SealedWriter(access, expected=16 * MIB) as writer:
        (draft,) = tmp_path.rglob("*.draft")
        assert allocated(draft) >= 16 * MIB
        writer.write(bytes(2 * MIB))
    path = Path(access.path)
    assert path.stat().st_size <= allocated(path) < 4 * MIB


def test_a_blob_without_room_leaves_no_draft(tmp_path: Path) -> None:
    access = BlobStore(tmp_path, Sealer([bytes(32)])).allocate()
    with pytest.raises(OSError, match="No space"):
        SealedWriter(access, expected=free_bytes(tmp_path) + 2**40)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_swap_without_room_for_its_destination_ends_before_it_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = np.random.default_rng(1).integers(0, 2**60, 300_000)
    table = pa.table({"income": pa.array(number)})
    store = BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))
    task = swap_task(store, tmp_path, "DSWAP", table, {"swap_fields": ["income"]}, 2**30)
    room = Path(task.source.path).stat().st_size + SPARE_BYTES - 1
    monkeypatch.setattr(os, "fstatvfs", lambda handle: SimpleNamespace(f_bavail=room, f_frsize=1))
    with pytest.raises(OSError, match="No space"):
        run_swap(task)
    assert read_progress(Path(task.progress_path)) == Progress(0.0, "reading")
    assert [path.name for path in store.files()] == [task.source.id]


def test_a_run_out_of_core_reserves_its_scratch_file_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes its field more often than that, so nothing is reserved in vain."""
    table = pa.table({"income": pa.array(np.random.default_rng(1).integers(0, 2**60, 300_000))})
    store = BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))
    task = swap_task(store, tmp_path, "DSWAP", table, {"swap_fields": ["income"]}, 2**20)
    written, reserved = [], []
    write, take = SealedScratch.write, SealedScratch.reserve

    def counted(scratch: SealedScratch, plain: pa.Buffer) -> Record:
        record = write(scratch, plain)
        written.append(record[2])
        return record

    def taken(scratch: SealedScratch, size: int) -> None:
        assert written == []
        take(scratch, size)
        reserved.append(os.fstat(scratch._handle()).st_blocks * 512)

    monkeypatch.setattr(SealedScratch, "write", counted)
    monkeypatch.setattr(SealedScratch, "reserve", taken)
    run_swap(task)
    assert table.nbytes <= reserved[0] < sum(written)


def test_a_run_out_of_core_without_room_for_its_scratch_file_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"income": pa.array(np.random.default_rng(1).integers(0, 2**60, 300_000))})
    store = BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))
    task = swap_task(store, tmp_path, "DSWAP", table, {"swap_fields": ["income"]}, 2**20)
    size = Path(task.source.path).stat().st_size
    free = [2 * size + SPARE_BYTES] * 2 + [SPARE_BYTES + 1000]  # enough for the destination alone
    monkeypatch.setattr(os, "fstatvfs", lambda handle: SimpleNamespace(f_bavail=free.pop(0), f_frsize=1))
    written: list[object] = []
    monkeypatch.setattr(SealedScratch, "write", lambda *given: written.append(given))
    with pytest.raises(OSError, match="No space"):
        run_swap(task)
    assert written == []


def test_space_is_reserved_step_by_step(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, Sealer([bytes(32)]))
    access = store.allocate()
    draft = reserve_draft(store.allocate(), 0)
    with SealedWriter(access) as writer:
        (own,) = [path for path in tmp_path.rglob("*.draft") if str(path) != draft]
        for start, size in ((0, 2 * MIB), (2 * MIB, 8 * MIB)):
            writer.reserve(size, start)
            extend_draft(draft, size, start)
            for path in (own, Path(draft)):
                assert size <= allocated(path) < size + MIB
        with pytest.raises(OSError, match="No space"):
            writer.reserve(free_bytes(tmp_path) + 2**40, 8 * MIB)
        writer.write(b"table")
    assert allocated(Path(access.path)) < MIB


def test_one_writer_takes_a_reserved_draft_over(tmp_path: Path) -> None:
    """A cluster may restart a task whose worker is only lost: the second writer begins a file of its own."""
    store = BlobStore(tmp_path, Sealer([bytes(32)]))
    access = store.allocate()
    draft = reserve_draft(access, 16 * MIB)
    inode = Path(draft).stat().st_ino
    first, second = (SealedWriter(access, draft=draft) for _ in range(2))
    try:
        assert os.fstat(first._file.fileno()).st_ino == inode
        assert os.fstat(second._file.fileno()).st_ino != inode
        first.write(b"table")
        first.close()
        assert allocated(Path(access.path)) < MIB
    finally:
        second.discard()
    assert store.files() == [Path(access.path)]


def test_a_reserved_draft_is_deleted_with_its_blob(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, Sealer([bytes(32)]))
    access = store.allocate()
    reserve_draft(access, MIB)
    store.delete(access.id)
    assert store.files() == []


def stored_in(scratch: SealedScratch | SpoolWriter | SpoolReader) -> int:
    files = [scratch] if isinstance(scratch, SealedScratch) else scratch._files
    return sum(os.fstat(file._handle()).st_blocks * 512 for file in files)


def test_a_cleared_partition_gives_its_disk_space_back(tmp_path: Path) -> None:
    """The others stay as they are, also those between its records."""
    rows = pa.table({"x": np.random.default_rng(1).random(MIB // 8)})
    with SealedScratch(tmp_path) as scratch:
        spool = scratch.spool(3, 0)
        for _ in range(4):
            for part in range(3):
                spool.add(part, rows)
        before = stored_in(scratch)
        spool.clear(1)
        assert 4 * MIB - 16 * 4096 < before - stored_in(scratch) < 4.1 * MIB
        for part in (0, 2):
            assert [table.equals(rows) for table in spool.read(part)] == 4 * [True]
        spool.clear(0)
        spool.clear(2)
        assert stored_in(scratch) < MIB


def test_a_reader_frees_nothing_of_a_spool_that_others_read(tmp_path: Path) -> None:
    rows = pa.table({"x": np.random.default_rng(1).random(MIB // 8)})
    with SpoolWriter(tmp_path) as writer:
        spool = writer.spool(1, 0)
        spool.add(0, rows)
        (shared,) = writer.shared(spool)
        before = stored_in(writer)
    for _ in range(2):
        with SpoolReader(tmp_path, [shared]) as reader:
            parts = reader.parts()
            assert pa.concat_tables(parts.read(0)).equals(rows)
            parts.clear(0)
            assert stored_in(reader) == before


@pytest.mark.parametrize("library", [SimpleNamespace(), SimpleNamespace(fallocate=lambda *given: -1)])
def test_a_file_system_that_frees_nothing_keeps_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: SimpleNamespace
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *given, **options: library)
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 64)
    with path.open("r+b") as file:
        free(file.fileno(), 0, 8192)
    assert path.read_bytes() == bytes(range(256)) * 64
