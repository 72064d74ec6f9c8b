"""The database: how it is opened, what a transaction is, and how its tables come to be.

SQLite by file is the embedded default. Its write-ahead log is flushed at every commit
(``synchronous=FULL``): a job that was accepted survives a killed service and a power cut as well.
With NORMAL it would survive the former only; the difference is one flush of the disk a commit,
three commits a job. Deleted rows are overwritten (``secure_delete``): a purge leaves no sealed
seed behind in free pages.
"""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy import event
from sqlalchemy.orm import Session

from app.settings import Settings

__all__ = ["Database", "DatabaseUnusable", "Session", "migrate", "migration_config"]

_LOCK_SECONDS = 30
_BEGIN = "rowveil_begin"


class DatabaseUnusable(Exception):
    """The database of the settings cannot be used."""


class Database:
    """Transactions on one database. Raises DatabaseUnusable where its address is none."""

    def __init__(self, settings: Settings) -> None:
        try:
            url = sa.make_url(settings.database_url)
            self.engine = sa.create_engine(url, pool_pre_ping=url.get_backend_name() != "sqlite")
        except (
            sa.exc.ArgumentError,
            ImportError,
            ValueError,
        ):  # none of them is quoted: it may hold a password
            raise DatabaseUnusable(
                "ROWVEIL_DATABASE_URL is not the address of a database whose driver is installed; "
                "one is like sqlite:////var/lib/rowveil/rowveil.db"
            ) from None
        if url.get_backend_name() == "sqlite":
            if url.database:
                _make_folder(Path(url.database).parent)
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that writes nothing; sees one state of the database throughout."""
        with self.engine.connect() as connection, Session(connection, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction, committed when its block ends well.

        SQLite takes its write lock at the start: two transactions never find out half-way that
        both want to write, and what one has read stands until it commits.
        """
        with self.engine.connect() as connection:
            connection = connection.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
            with Session(connection, expire_on_commit=False) as session, session.begin():
                yield session

    def forget(self) -> None:
        """Let nothing of deleted rows stay behind in SQLite's write-ahead log.

        A reader may hold the log for a moment; then the log's own next use does it.
        """
        if self.engine.url.get_backend_name() == "sqlite":
            with self.engine.connect() as connection:
                raw = connection.connection.driver_connection
                assert isinstance(raw, sqlite3.Connection)
                raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Let go of all connections."""
        self.engine.dispose()


def migrate(settings: Settings, revision: str = "head") -> None:
    """Bring the tables to a revision, by default the newest; makes the database if there is none.

    Raises DatabaseUnusable: it has no such address, or cannot be opened.
    """
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells of every plugin it has
    database = Database(settings)
    try:
        with database.engine.connect() as connection:
            config = migration_config(connection)
            if revision == "base":
                command.downgrade(config, revision)
            else:
                command.upgrade(config, revision)
            connection.commit()
    except sa.exc.OperationalError as error:
        shown = database.engine.url.render_as_string(hide_password=True)
        raise DatabaseUnusable(f"the database {shown} cannot be opened: {error.orig}") from None
    finally:
        database.close()


def migration_config(connection: sa.Connection) -> Config:
    """Alembic's configuration, on this connection."""
    config = Config()
    config.set_main_option("script_location", str(_migrations()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _migrations() -> Path:
    """Inside the installed package, or beside it in the source tree."""
    package = Path(__file__).parent.parent
    for folder in (package / "migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise FileNotFoundError("the migrations are neither in the package nor beside it")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"the database's folder {folder} cannot be made: {error.strerror}"
        raise DatabaseUnusable(message) from None


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # the driver starts no transaction: `_begin_sqlite` does
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "secure_delete=ON",
        f"busy_timeout={_LOCK_SECONDS * 1000}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))
