"""Database and shared folder get one deployment id, in any order of starts and with a crash at any step."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from errno import EPERM
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.settings import Settings
from app.store.blobs.places import load_folder_id
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import Sealer
from app.store.sql import deployment, replicas
from app.store.sql.db import Database
from app.store.sql.deployment import FolderMark, StorageMismatch, StorageUnusable, draw_id, pair
from app.store.sql.migration import migrate
from app.store.sql.models import Deployment, Replica
from tests.conftest import DATABASES, settings_on
from tests.postgres import Postgres
from tests.unit.app.store.stored_rows import add, buffer

BLOB, OTHER = "aa" + "0" * 30, "bb" + "0" * 30


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    yield from opened(settings_on(request.param, request, tmp_path / "home"))


def opened(settings: Settings) -> Iterator[Database]:
    migrate(settings)
    database = Database(settings)
    yield database
    database.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shared"


def paired(database: Database, folder: Path) -> str:
    return pair(database, BlobStore(folder / "blobs", Sealer([bytes(32)])), folder)


def put(folder: Path, blob: str) -> Path:
    path = folder / "blobs" / blob[:2] / blob
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"sealed")
    return path


def row(database: Database) -> tuple[str, bool]:
    with database.read() as session:
        found = session.scalars(sa.select(Deployment)).one()
        return found.deployment_id, found.in_folder


def test_a_new_database_and_a_new_folder_get_one_id(database: Database, folder: Path) -> None:
    first = paired(database, folder)
    assert paired(database, folder) == first
    assert row(database) == (first, True)
    assert (folder / "deployment").read_text() == f"{first}\n"
    assert [path.name for path in folder.iterdir()] == ["deployment"]


def test_replicas_that_start_at_once_get_one_id(postgres: Postgres, tmp_path: Path, folder: Path) -> None:
    settings = Settings(home=tmp_path, database_url=postgres.new_database())
    migrate(settings)
    databases = [Database(settings) for _ in range(6)]
    for database in databases:
        database.engine.connect().close()  # so that what comes next comes at once
    with ThreadPoolExecutor(len(databases)) as threads:
        ids = set(threads.map(lambda database: paired(database, folder), databases))
    assert len(ids) == 1
    assert ids == {FolderMark(folder).read()}
    assert row(databases[0]) == (*ids, True)
    for database in databases:
        database.close()


def test_of_two_databases_that_start_at_once_one_gets_the_folder(
    postgres: Postgres, tmp_path: Path, folder: Path
) -> None:
    every = [Settings(home=tmp_path, database_url=postgres.new_database()) for _ in range(4)]
    for settings in every:
        migrate(settings)
    databases = [Database(settings) for settings in every]

    def attempt(database: Database) -> str:
        try:
            return paired(database, folder)
        except StorageMismatch:
            return "refused"

    with ThreadPoolExecutor(len(databases)) as threads:
        results = list(threads.map(attempt, databases))
    assert sorted(result == "refused" for result in results) == [False, True, True, True]
    assert FolderMark(folder).read() in results
    for database in databases:
        database.close()


class Crash(Exception):
    """Ends a start between two steps."""


@pytest.mark.parametrize("step", ["write_once", "_note_marked"])
def test_a_start_goes_on_where_one_crashed(
    database: Database, folder: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the id in the database alone, and with the id in both and no note of it."""

    def crash(*_arguments: Any) -> None:
        raise Crash

    holder: Any = FolderMark if step == "write_once" else deployment
    monkeypatch.setattr(holder, step, crash)
    with pytest.raises(Crash):
        paired(database, folder)
    drawn, in_folder = row(database)
    assert not in_folder
    monkeypatch.undo()
    assert paired(database, folder) == drawn
    assert row(database) == (drawn, True)


def test_a_folder_without_a_mark_is_not_the_marked_one(database: Database, folder: Path) -> None:
    """It is not mounted, and nothing is written there."""
    first = paired(database, folder)
    folder.rename(folder.with_name("kept"))
    with pytest.raises(StorageMismatch, match=f"deployment {first[:8]}.*not mounted"):
        paired(database, folder)
    assert not folder.exists()
    folder.with_name("kept").rename(folder)
    assert paired(database, folder) == first


def test_a_database_of_before_gets_the_folder_that_it_has_used(database: Database, folder: Path) -> None:
    """A row names one of its tables."""
    put(folder, BLOB)
    put(folder, OTHER)
    add(database, buffer(blob=BLOB))
    assert paired(database, folder) == row(database)[0]


def test_a_database_of_before_whose_service_was_killed_gets_its_folder(
    database: Database, folder: Path
) -> None:
    """No row names a table there, but the lease that was left names the folder."""
    put(folder, BLOB)
    with pytest.raises(StorageMismatch, match="names 0 of 1 sealed tables"):
        paired(database, folder)
    with database.write() as session:
        session.add(
            Replica(
                id="a" * 12,
                lease_until=replicas.moment(session),
                key_id="key",
                folder_id=load_folder_id(folder),
            )
        )
    assert paired(database, folder) == row(database)[0]


@pytest.mark.parametrize("files", [[], [OTHER]])
def test_a_database_of_before_does_not_get_a_folder_without_its_tables(
    database: Database, folder: Path, files: list[str]
) -> None:
    add(database, buffer(blob=BLOB))
    for blob in files:
        put(folder, blob)
    with pytest.raises(StorageMismatch, match="rowveil adopt-storage"):
        paired(database, folder)
    assert not (folder / "deployment").exists()


def test_a_mark_of_another_deployment_is_a_mismatch(database: Database, folder: Path) -> None:
    """Also where the folder is empty: its database may name tables from the next moment on."""
    folder.mkdir()
    FolderMark(folder).write_once("ab" * 16)
    with pytest.raises(StorageMismatch, match=r"another database \(deployment abababab\)"):
        paired(database, folder)
    assert FolderMark(folder).write_once("cd" * 16) == "ab" * 16


@pytest.mark.parametrize("text", ["", "ab" * 15, "ab" * 16 + "\n\n", "\xff" * 32])
def test_a_damaged_mark_is_said(database: Database, folder: Path, text: str) -> None:
    paired(database, folder)
    (folder / "deployment").write_text(text)
    with pytest.raises(StorageUnusable, match="holds no deployment id"):
        paired(database, folder)


def test_a_folder_that_cannot_be_used_is_said(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in its place, and a file system without hard links; afterwards it goes on."""
    folder.write_text("")
    with pytest.raises(StorageUnusable, match="cannot be"):
        paired(database, folder)
    folder.unlink()

    def no_links(*_arguments: Any) -> None:
        raise PermissionError(EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(StorageUnusable, match="hard links and atomic renames"):
        paired(database, folder)
    assert list(folder.iterdir()) == []
    monkeypatch.undo()
    assert paired(database, folder) == row(database)[0]


def test_a_new_id_parts_the_database_from_its_copies(database: Database, folder: Path) -> None:
    """An adoption draws it: a copy with the former id no longer fits."""
    former = paired(database, folder)
    with database.write() as session:
        drawn = draw_id(session)
        FolderMark(folder).replace(drawn)
    assert drawn != former
    assert paired(database, folder) == drawn
    with database.write() as session:
        session.execute(sa.update(Deployment).values(deployment_id=former))
    with pytest.raises(StorageMismatch):
        paired(database, folder)


def test_a_crash_of_an_adoption_is_a_mismatch_and_no_wrong_pair(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = paired(database, folder)
    replace: Callable[..., None] = FolderMark.replace

    def crash_after(mark: FolderMark, deployment_id: str) -> None:
        replace(mark, deployment_id)
        raise Crash

    monkeypatch.setattr(FolderMark, "replace", crash_after)
    with pytest.raises(Crash), database.write() as session:
        FolderMark(folder).replace(draw_id(session))
    assert row(database) == (former, True)
    with pytest.raises(StorageMismatch):
        paired(database, folder)
