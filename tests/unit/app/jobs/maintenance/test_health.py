"""Readiness: its checks write nothing, and find a folder that cannot take another table."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from app.engine.engine import Engine
from app.jobs.maintenance.health import LEAST_FREE_BYTES, HealthCheck
from app.jobs.stores import Stores
from app.settings import Settings

READY = {"database": "ok", "storage": "ok", "workers": "ok"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.utime"}

_watches: list[tuple[str, list[str]]] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watches:
        return
    folder, seen = _watches[-1]
    changes = event in CHANGES or (event == "open" and arguments[2] & WRITING)
    if changes and str(arguments[0]).startswith(folder):
        seen.append(f"{event} {arguments[0]}")


sys.addaudithook(_watch)


@contextmanager
def changes_of(folder: Path) -> Iterator[list[str]]:
    """Record each call of this process that creates, opens for writing, moves or deletes in the folder."""
    _watches.append((str(folder), []))
    try:
        yield _watches[-1][1]
    finally:
        _watches.pop()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    opened = Stores.open(Settings(home=tmp_path / "home", shared_folder=tmp_path / "shared"))
    opened.blobs.folder.mkdir()
    yield opened
    opened.close()


def health(stores: Stores) -> dict[str, str]:
    engine = cast(Engine, SimpleNamespace(ready=lambda: True))
    return asyncio.run(HealthCheck(stores, engine).run())


def test_nothing_is_written_to_the_shared_folder(stores: Stores) -> None:
    """Anyone may request the checks without a key, as often as they like."""
    shared = stores.blobs.folder.parent
    with changes_of(shared) as seen:
        (shared / "watched").write_text("")
    assert len(seen) == 1
    with changes_of(shared) as seen:
        assert health(stores) == READY
        stores.blobs.folder.rmdir()  # a folder that no table has been written to
        seen.clear()
        assert health(stores) == READY
    assert not seen
    assert not stores.blobs.folder.exists()


def test_the_query_of_a_job_reads_one_short_column(stores: Stores) -> None:
    """The fields of a wide table take megabytes of a row, and anyone may request the checks."""
    statements: list[str] = []

    def record(_connection: object, _cursor: object, statement: str, *_arguments: object) -> None:
        statements.append(" ".join(statement.split()))

    sa.event.listen(stores.database.engine, "before_cursor_execute", record)
    assert health(stores) == READY
    (query,) = [statement for statement in statements if "FROM jobs" in statement]
    assert query.startswith("SELECT jobs.state FROM jobs ORDER BY jobs.id DESC")


@pytest.mark.parametrize(
    ("lack", "ready"),
    [
        ({}, True),
        ({"f_bavail": LEAST_FREE_BYTES // 4096}, True),
        ({"f_bavail": LEAST_FREE_BYTES // 4096 - 1}, False),
        ({"f_favail": 0}, False),
        ({"f_favail": 0, "f_files": 0}, True),  # a file system that does not count inodes
    ],
)
def test_a_full_file_system_is_not_ready(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, lack: dict[str, int], ready: bool
) -> None:
    plenty = {"f_bavail": 2**30, "f_frsize": 4096, "f_files": 2**20, "f_favail": 2**20}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**plenty | lack))
    assert health(stores)["storage"] == ("ok" if ready else "not available")


def test_a_folder_that_may_not_be_written_is_not_ready(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No access right, or a read-only mount; root has every right, so that the answer is replaced here."""
    asked = []

    def refused(path: Path, mode: int) -> bool:
        asked.append((path, mode))
        return False

    monkeypatch.setattr(os, "access", refused)
    assert health(stores) == READY | {"storage": "not available"}
    assert asked == [(stores.blobs.folder, os.W_OK | os.X_OK)]
    assert "storage is not available: this user may not write to the shared folder" in caplog.text


@pytest.mark.parametrize("name", ["progress", "scratch"])
def test_a_folder_for_the_files_of_jobs_that_may_not_be_written_is_not_ready(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Such as after a copy by root: no job could be claimed. Root has every right."""
    folder = stores.blobs.folder.parent / name
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder)
    assert health(stores) == READY | {"storage": "not available"}
    assert f"this user may not write to the shared folder: {folder}" in caplog.text


def test_a_database_with_a_damaged_page_is_not_ready(stores: Stores) -> None:
    stores.database.is_damaged = True
    assert health(stores) == READY | {"database": "not available"}


def test_a_folder_without_its_deployment_id_is_not_ready(stores: Stores) -> None:
    (stores.blobs.folder.parent / "deployment").unlink()
    assert health(stores) == READY | {"storage": "not available"}


def test_a_folder_that_does_not_respond_holds_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is checked meanwhile, and the folder again when it responds."""
    monkeypatch.setattr("app.jobs.maintenance.health._CHECK_SECONDS", 0.05)
    responds, begun = Event(), []

    def check() -> None:
        begun.append(current_thread())
        responds.wait(60)

    async def use() -> list[dict[str, str]]:
        checked = HealthCheck(cast(Stores, None), cast(Engine, SimpleNamespace(ready=lambda: True)))
        monkeypatch.setattr(checked, "_read_database", lambda: None)
        monkeypatch.setattr(checked, "_check_storage", check)
        found = [await checked.run() for _ in range(10)]
        assert len(begun) == 1
        responds.set()
        while not checked._running["storage"].done():
            await asyncio.sleep(0.01)
        monkeypatch.setattr("app.jobs.maintenance.health._CHECK_SECONDS", 60)
        return [*found, await checked.run()]

    *found, last = asyncio.run(use())
    assert found == [READY | {"storage": "not available"}] * 10
    assert last == READY
    assert len(begun) == 2  # none was queued behind the one that hung
    assert begun[0] is begun[1]
