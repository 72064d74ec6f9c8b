"""The database: how it is opened, what a transaction is, and how its tables come to be.

SQLite by file is the embedded default. Its write-ahead log is flushed at every commit
(``synchronous=FULL``): a job that was accepted survives a killed service and a power cut as well.
With NORMAL it would survive the former only; the difference is one flush of the disk a commit,
three commits a job. Deleted rows are overwritten (``secure_delete``): a purge leaves no sealed
seed behind in free pages.

PostgreSQL is for several replicas of the service. There a transaction that writes is READ COMMITTED,
and what it must not lose to another one it locks: see `app.store.jobs.unnamed`, `app.store.replicas.hold`
and `app.store.jobs.claim_oldest`, which are all of them.
"""

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy import event
from sqlalchemy.orm import Session

from app.errors import InvalidRequest, StorageFull, Unavailable
from app.settings import Settings

__all__ = ["Database", "DatabaseAway", "DatabaseUnusable", "Session", "migrate", "migration_config"]

_LOCK_SECONDS = 30
_BEGIN = "rowveil_begin"
_MIGRATING = 0x726F7776  # "rowv": any number that means this and nothing else in the database

_POSTGRESQL = {
    # So that a server, or a way to it, that is gone without a word is found out within seconds.
    "connect_timeout": 3,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "rowveil",
    "options": "-c statement_timeout=20s -c lock_timeout=10s -c idle_in_transaction_session_timeout=60s",
}
_BRIEFLY_AWAY = (
    sa.exc.OperationalError,
    sa.exc.InterfaceError,
    sa.exc.TimeoutError,  # of the pool
)
_FULL = ("database or disk is full", "No space left on device")

_log = logging.getLogger("rowveil.database")


Transaction = Session
"""What the functions of the store work within."""


class DatabaseUnusable(Exception):
    """The database of the settings cannot be used."""


class DatabaseAway(DatabaseUnusable):
    """The server of the settings does not answer, or turns Rowveil away; it may be starting itself."""


class Database:
    """Transactions on one database. Raises DatabaseUnusable where its address is none.

    What is wrong with the database for a while (it is away, it is full, it has chosen a transaction
    as a deadlock's victim) leaves a transaction as an error that a caller is told: Unavailable or
    StorageFull. What PostgreSQL cannot keep is InvalidRequest.
    """

    def __init__(self, settings: Settings) -> None:
        try:
            self.engine = _engine_of(settings.database_url)
        except (
            sa.exc.ArgumentError,
            ImportError,
            ValueError,
        ):  # none of them is quoted: it may hold a password
            raise DatabaseUnusable(
                "ROWVEIL_DATABASE_URL is not the address of a database whose driver is installed; it is like "
                "sqlite:////var/lib/rowveil/rowveil.db or postgresql://user:password@host/rowveil"
            ) from None
        self._in_line = nullcontext() if self.shared else threading.RLock()

    @property
    def shared(self) -> bool:
        """Whether several replicas may work on it."""
        return self.engine.dialect.name != "sqlite"

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that writes nothing; sees one state of the database throughout."""
        with _told_plainly(), self.engine.connect() as connection:
            if self.shared:
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            with Session(connection, expire_on_commit=False) as session:
                yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction, committed when its block ends well.

        SQLite takes its write lock at the start: two transactions never find out half-way that
        both want to write, and what one has read stands until it commits. Those of this process wait
        for each other in line: SQLite's own way of waiting is to sleep, longer each time.
        """
        with self._in_line, _told_plainly(), self.engine.connect() as connection:
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

    Raises DatabaseUnusable: it has no such address, or cannot be opened; of a server, DatabaseAway.
    """
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells of every plugin it has
    database = Database(settings)
    try:
        with database.engine.connect() as connection:
            if database.shared:  # another replica may be at it
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATING)))
            config = migration_config(connection)
            if revision == "base":
                command.downgrade(config, revision)
            else:
                command.upgrade(config, revision)
            connection.commit()
    except (sa.exc.OperationalError, sa.exc.InterfaceError) as error:
        shown = database.engine.url.render_as_string(hide_password=True)
        kind = DatabaseAway if database.shared else DatabaseUnusable
        raise kind(f"the database {shown} cannot be opened: {error.orig}") from None
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


def _engine_of(address: str) -> sa.Engine:
    url = sa.make_url(address)
    if url.get_backend_name() == "sqlite":
        engine = sa.create_engine(url)
        if url.database:
            _make_folder(Path(url.database).parent)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername != "postgresql+psycopg":
        raise ValueError(url.drivername)
    given = {name: value for name, value in _POSTGRESQL.items() if name not in url.query}
    return sa.create_engine(url, pool_pre_ping=True, connect_args=given)


@contextmanager
def _told_plainly() -> Iterator[None]:
    try:
        yield
    except _BRIEFLY_AWAY as error:
        cause = str(getattr(error, "orig", ""))
        _log.error("the database is not available: %s", type(getattr(error, "orig", error)).__qualname__)
        if any(words in cause for words in _FULL):
            raise StorageFull("the database is full; delete buffers and jobs, or try again later") from error
        raise Unavailable("the database is not available just now; try again") from error
    except sa.exc.DataError as error:
        raise InvalidRequest(
            "a name in the request is longer than the database keeps, or holds the character U+0000"
        ) from error


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
