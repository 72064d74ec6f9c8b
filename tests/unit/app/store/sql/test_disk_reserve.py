"""Reserve of free space on the disk of an embedded database: what makes the database larger keeps it."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from app.errors import StorageFull
from app.settings import Settings
from app.store.blobs.disk_space import LEAST_SPARE_BYTES, SPARE_BYTES
from app.store.sql.db import Database
from app.store.sql.migration import migrate


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    settings = Settings(home=tmp_path / "home")
    migrate(settings)
    opened = Database(settings)
    yield opened
    opened.close()


def set_free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=size, f_frsize=1))


def refuses(database: Database, spare: int = SPARE_BYTES) -> bool:
    try:
        database.check_space(spare)
    except StorageFull:
        return True
    return False


def test_the_reserve_is_kept(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, refused in ((SPARE_BYTES, [False, False]), (SPARE_BYTES - 1, [True, False])):
        set_free(monkeypatch, free)
        assert [refuses(database), refuses(database, LEAST_SPARE_BYTES)] == refused
    set_free(monkeypatch, LEAST_SPARE_BYTES - 1)
    assert refuses(database, LEAST_SPARE_BYTES)
    with pytest.raises(StorageFull, match="less than 64 MiB are free"):
        database.check_space()


def test_pages_that_deletions_have_freed_count_up_to_half(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file does not become shorter; the log, however, needs the disk itself."""
    with database.write() as session:
        session.execute(sa.text("CREATE TABLE large (content BLOB)"))
        session.execute(sa.text(f"INSERT INTO large VALUES (zeroblob({SPARE_BYTES}))"))
    set_free(monkeypatch, SPARE_BYTES // 2)
    assert refuses(database)
    with database.write() as session:
        session.execute(sa.text("DROP TABLE large"))
    assert not refuses(database)
    set_free(monkeypatch, SPARE_BYTES // 2 - 1)
    assert refuses(database)


def test_a_server_or_a_folder_that_is_away_is_not_checked(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(path: Path) -> None:
        raise OSError("away")

    monkeypatch.setattr(os, "statvfs", away)
    assert not refuses(database)
    set_free(monkeypatch, 0)
    assert not refuses(Database(Settings(database_url="postgresql://host/rowveil")))


def test_a_log_that_cannot_be_truncated_is_due(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The deletion before it has been committed, and is no error."""

    def fail() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(database, "_truncate_log", fail)
        database.truncate_log()
    assert database.log_is_due
    assert "cannot be truncated now, and holds deleted rows: database or disk is full" in caplog.text
    database.truncate_log()
    assert not database.log_is_due
