"""Restoration of an embedded database, and the discovery of a damaged one."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.settings import Settings
from app.store.sql.connection.errors import DatabaseDamaged, DatabaseUnusable
from app.store.sql.db import Database
from app.store.sql.migration import check_after_crash, migrate
from app.store.sql.restoration import BackupUnusable, database_file, restore_database


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = Settings(home=tmp_path / "home")
    migrate(found)
    return found


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    opened = Database(settings)
    yield opened
    opened.close()


def backup_of(settings: Settings, backup: Path) -> Path:
    with (
        closing(sqlite3.connect(database_file(settings))) as used,
        closing(sqlite3.connect(backup)) as copy,
    ):
        used.backup(copy)
    return backup


def damage(path: Path) -> None:
    """Overwrite the second half of a database's pages."""
    with path.open("r+b") as file:
        size = path.stat().st_size
        file.seek(size // 2)
        file.write(b"\xff" * (size - size // 2))


def read_all(database: Database) -> None:
    """Read every row of every table."""
    with database.read() as session:
        for name in session.execute(sa.text("SELECT name FROM sqlite_master WHERE type = 'table'")).all():
            session.execute(sa.text(f"SELECT * FROM {name[0]}")).all()


def test_a_log_next_to_the_backup_is_part_of_it(settings: Settings, tmp_path: Path) -> None:
    """A copy of the files of a stopped service, which was killed before."""
    backup = backup_of(settings, tmp_path / "backup.db")
    with closing(sqlite3.connect(backup, isolation_level=None)) as used:
        used.execute("PRAGMA journal_mode=WAL")
        used.execute("CREATE TABLE newest (number INTEGER)")
        copied = tmp_path / "copied.db"
        for suffix in ("", "-wal"):
            copied.with_name(f"copied.db{suffix}").write_bytes(Path(f"{backup}{suffix}").read_bytes())
    done = restore_database(settings, copied)
    assert done.removed == []
    with closing(sqlite3.connect(done.database)) as restored:
        assert restored.execute("SELECT count(*) FROM newest").fetchone() == (0,)
    assert Path(f"{copied}-wal").stat().st_size > 0


def test_a_link_to_the_database_leads_to_the_restored_file(settings: Settings, tmp_path: Path) -> None:
    """The old log is next to the file that the link leads to."""
    link, disk = database_file(settings), tmp_path / "disk" / "rowveil.db"
    backup = backup_of(settings, tmp_path / "backup.db")
    disk.parent.mkdir()
    link.rename(disk)
    link.symlink_to(disk)
    log = disk.with_name("rowveil.db-wal")
    log.write_bytes(b"")
    done = restore_database(settings, backup)
    assert (done.database, done.removed, done.lost_releases) == (disk, [log], [])
    assert link.is_symlink()
    assert [path.name for path in disk.parent.iterdir()] == ["rowveil.db"]


def test_a_replaced_ledger_that_cannot_be_read_is_reported(settings: Settings, tmp_path: Path) -> None:
    backup = backup_of(settings, tmp_path / "backup.db")
    database_file(settings).unlink()
    assert restore_database(settings, backup).lost_releases is None


def test_a_backup_that_is_unusable_replaces_nothing(settings: Settings, tmp_path: Path) -> None:
    file = database_file(settings)
    damaged = backup_of(settings, tmp_path / "damaged.db")
    damage(damaged)
    log = file.with_name("rowveil.db-wal")
    log.write_bytes(b"")
    before = file.read_bytes()
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as made:
        made.execute("CREATE TABLE jobs (id TEXT)")
    text = tmp_path / "text.db"
    text.write_text("a list of backups" * 100)
    for backup, words in (
        (damaged, "is damaged|malformed"),
        (other, "is no database of Rowveil"),
        (text, "file is not a database"),
        (tmp_path / "missing.db", "is no file"),
        (tmp_path, "is no file"),
        (file, "is the database itself"),
    ):
        with pytest.raises(BackupUnusable, match=words):
            restore_database(settings, backup)
    assert file.read_bytes() == before
    assert log.exists()
    assert sorted(path.name for path in file.parent.glob("rowveil.db*")) == ["rowveil.db", "rowveil.db-wal"]


@pytest.mark.parametrize(
    "address", ["postgresql://host/rowveil", "sqlite://", "sqlite:///:memory:", "no address"]
)
def test_only_the_file_of_an_embedded_database_is_restored(tmp_path: Path, address: str) -> None:
    with pytest.raises(DatabaseUnusable, match="ROWVEIL_DATABASE_URL"):
        database_file(Settings(home=tmp_path, database_url=address))


def test_a_damaged_page_is_found_when_it_is_read(settings: Settings, database: Database) -> None:
    read_all(database)
    assert not database.is_damaged
    database.close()
    damage(database_file(settings))
    with pytest.raises(DatabaseDamaged, match="is damaged"):
        read_all(database)
    assert database.is_damaged


def test_a_start_checks_a_database_that_was_not_closed(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = database_file(settings).with_name("rowveil.db-wal")
    log.write_bytes(b"\0")
    with monkeypatch.context() as patch:
        patch.setattr("app.store.sql.migration._CHECK_SECONDS", -1.0)
        patch.setattr("app.store.sql.db._STEPS_OF_A_LOOK", 1)
        check_after_crash(settings)
    assert "too large to be checked" in caplog.text
    log.write_bytes(b"\0")
    check_after_crash(settings)
    log.unlink(missing_ok=True)
    damage(database_file(settings))
    check_after_crash(settings)  # no log: it was closed
    log.write_bytes(b"\0")
    with pytest.raises(DatabaseUnusable, match=r"is damaged: .*`rowveil restore-database FILE`"):
        check_after_crash(settings)
