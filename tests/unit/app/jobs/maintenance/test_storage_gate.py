"""Claims pause while further results would take the reserve of the disk; faults of the storage."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.errors import StorageFull
from app.jobs.maintenance.storage_gate import StorageGate
from app.jobs.stores import Stores
from app.store.blobs.bucket import BucketUnusable
from app.store.blobs.sealed_files import BlobMissing
from app.store.sql.deployment import StorageUnusable


class Database:
    """A database on a disk that may be full."""

    full = False

    def check_space(self) -> None:
        if self.full:
            raise StorageFull("the storage is full: less than 64 MiB are free")


def test_no_job_is_claimed_while_the_disk_has_only_its_reserve(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.jobs.maintenance.storage_gate._PAUSE_SECONDS", 0.01)
    database, looks = Database(), 0

    def check_storage() -> None:
        nonlocal looks
        looks += 1

    stores: Any = SimpleNamespace(database=database, check_storage=check_storage)

    async def run() -> None:
        woken = asyncio.Event()
        gate = StorageGate(cast(Stores, stores), woken.set)
        assert gate.is_open()
        assert looks == 0  # the folder is looked at only after a fault
        database.full = True
        for _ in range(2):
            assert not gate.is_open()
            assert not gate.is_open()  # a pause, without another look
            await woken.wait()
            woken.clear()
        database.full = False
        assert gate.is_open()
        assert looks == 1

    asyncio.run(run())
    assert caplog.text.count("no job is claimed: the storage is full: less than 64 MiB are free") == 2


@pytest.mark.parametrize("error", [OSError("stale"), BlobMissing("gone")])
@pytest.mark.parametrize("works", [True, False])
def test_a_fault_of_the_storage_explains_a_file_that_cannot_be_opened(error: Exception, works: bool) -> None:
    """A job returns to the queue then. Where the storage works, the file is at fault, and the job fails."""

    def check_storage() -> None:
        if not works:
            raise StorageUnusable("the folder is not mounted")

    async def run() -> None:
        stores: Any = SimpleNamespace(check_storage=check_storage)
        gate = StorageGate(stores, lambda: None)
        assert gate.explains(error) is not works
        assert not gate.explains(ValueError("of the task"))
        assert gate.explains(BucketUnusable(5, "away"))  # its requests have been repeated for long

    asyncio.run(run())
