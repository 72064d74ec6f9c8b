"""Restoration of an embedded database from a backup, while no service uses it.

SQLite keeps the newest commits in a write-ahead log next to the file. A service that was killed leaves this
log behind. SQLite would apply it to a file that was copied over the database, which undoes the restoration or
damages the file. So the log is removed before the restored file gets the database's name.
"""

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from app.settings import Settings
from app.store.blobs.folder_flush import flush_folder
from app.store.sql.audit.anchor import remove_anchors
from app.store.sql.connection.engines import embedded_file
from app.store.sql.connection.errors import DatabaseUnusable

_COMPANIONS = ("-wal", "-shm", "-journal")
"""Suffixes of SQLite's files next to a database; they belong to the state that is replaced."""

_TABLES = ("alembic_version", "jobs", "audit")
"""Tables by which a database of Rowveil is recognised, of any version."""


class BackupUnusable(DatabaseUnusable):
    """The backup cannot be read, is damaged, or is no database of Rowveil."""


class LostRelease(NamedTuple):
    """Entry of the replaced ledger that the restored one does not have."""

    released_at: str
    service: str
    job_id: str
    owner: str
    source_digest: str


@dataclass(frozen=True, slots=True)
class Restoration:
    """A database that has been restored."""

    database: Path
    jobs: int
    """Number of jobs in the restored database."""
    removed: list[Path]
    """Files of the replaced state that were removed."""
    lost_releases: list[LostRelease] | None
    """Releases that only the replaced ledger has; None: the replaced ledger cannot be read."""


def database_file(settings: Settings) -> Path:
    """Return the file of the embedded database. Raises DatabaseUnusable: the database is a server's."""
    try:
        file = embedded_file(settings.database_url)
    except sa.exc.ArgumentError:  # not quoted: it may hold a password
        raise DatabaseUnusable("ROWVEIL_DATABASE_URL is not the address of a database") from None
    if file is None:
        raise DatabaseUnusable(
            "ROWVEIL_DATABASE_URL is not the address of an embedded database, and only such a database is a "
            "file; restore a PostgreSQL database with `pg_restore`"
        )
    return file


def restore_database(settings: Settings, backup: Path) -> Restoration:
    """Replace the embedded database by a backup, and remove the files that belong to the replaced state.

    The caller holds the lock of the home. A write-ahead log next to the backup is part of the backup, which
    is not changed. Nothing is replaced unless the backup is intact. If the process dies meanwhile, the
    database is the old one, perhaps without its log: then the restoration must be repeated.

    Raises DatabaseUnusable, BackupUnusable, OSError.
    """
    database = database_file(settings).resolve()  # SQLite's log is next to the file that a link leads to
    if not backup.is_file():
        raise BackupUnusable(f"{backup} is no file")
    if database.exists() and backup.samefile(database):
        raise BackupUnusable(f"{backup} is the database itself")
    database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = database.with_name(f"{database.name}.restored")
    try:
        _copy(backup, draft)
        jobs = _checked(draft, backup)
        removed = [path for suffix in _COMPANIONS if (path := _companion(database, suffix)).exists()]
        lost = _lost_releases(database, draft)
        for suffix in _COMPANIONS:  # also those that the look at the ledger has made
            _companion(database, suffix).unlink(missing_ok=True)
        flush_folder(database.parent)  # the old log must not come back next to the new database
        draft.rename(database)
        flush_folder(database.parent)
    finally:
        for path in (draft, *(_companion(draft, suffix) for suffix in _COMPANIONS)):
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return Restoration(database, jobs, [*removed, *remove_anchors(settings.home)], lost)


def _companion(database: Path, suffix: str) -> Path:
    return database.with_name(f"{database.name}{suffix}")


def _copy(backup: Path, draft: Path) -> None:
    """Copy a backup and its write-ahead log, readable by the user only, and flush them to the disk.

    SQLite flushes what it writes into the copy itself.
    """
    for suffix in _COMPANIONS:
        _companion(draft, suffix).unlink(missing_ok=True)
    for suffix in ("", "-wal", "-journal"):
        source = _companion(backup, suffix)
        if not source.is_file():
            continue
        target = _companion(draft, suffix)
        target.unlink(missing_ok=True)
        with (
            source.open("rb") as given,
            os.fdopen(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as copied,
        ):
            shutil.copyfileobj(given, copied, 1 << 20)
            copied.flush()
            os.fsync(copied.fileno())


def _checked(draft: Path, backup: Path) -> int:
    """Check a copy of a backup, and write its log into it; return its number of jobs.

    Raises BackupUnusable.
    """
    try:
        with closing(sqlite3.connect(draft, isolation_level=None)) as copied:
            copied.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (found,) = copied.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise BackupUnusable(f"{backup} is damaged ({found}); restore an older backup")
            tables = copied.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not {name for (name,) in tables}.issuperset(_TABLES):
                raise BackupUnusable(f"{backup} is no database of Rowveil")
            (jobs,) = copied.execute("SELECT count(*) FROM jobs").fetchone()
    except sqlite3.Error as error:
        raise BackupUnusable(f"{backup} cannot be restored: {error}") from None
    return int(jobs)


def _lost_releases(database: Path, draft: Path) -> list[LostRelease] | None:
    """Return the releases that only the replaced ledger has; None: it cannot be read.

    A job that the backup has without its release runs again, which records the release again.
    """
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as replaced:
            replaced.execute("ATTACH ? AS restored", (f"{draft.as_uri()}?mode=ro",))
            found = replaced.execute(
                f"SELECT {', '.join(LostRelease._fields)} FROM main.ledger "  # noqa: S608 - names of this module
                "WHERE id NOT IN (SELECT id FROM restored.ledger) "
                "AND job_id NOT IN (SELECT id FROM restored.jobs) ORDER BY id"
            )
            return [LostRelease(*entry) for entry in found]
    except sqlite3.Error:
        return None
