"""Database: connections, transactions and migrations.

A SQLite file is the embedded default. Its write-ahead log is flushed at every commit (``synchronous=FULL``),
so that an accepted job survives a killed service and a power cut. With NORMAL it would survive the former
only; the difference is one flush of the disk per commit, and a job has two or three commits. Deleted rows are
overwritten (``secure_delete``), so that a purge leaves no sealed seed or table in free pages.

PostgreSQL serves several replicas. Its write transactions are READ COMMITTED and lock the rows that a
concurrent transaction must not change. All such locks are in `jobs.unnamed`, `replicas.hold` and
`jobs.claim_first`.
"""

import json
import logging
import os
import sqlite3
import sys
import threading
import time
from asyncio import Future, to_thread
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session

from app.errors import InvalidRequest, StorageFull, Unavailable
from app.settings import Settings
from app.store.sql import schema
from app.store.sql.group_commit import GroupCommit
from app.store.sql.quick_statements import QuickStatement, errors_of, give_driver, quick_statement
from app.store.sql.write_lock import WriteLock

if TYPE_CHECKING:
    from alembic.config import Config

    from app.store.sql.server_looks import ServerLooks

T = TypeVar("T")

__all__ = [
    "DATABASE_ERRORS",
    "Database",
    "DatabaseAway",
    "DatabaseUnusable",
    "Session",
    "migrate",
    "migration_config",
]

NEWEST_REVISION = "2026_11_25b_ledger_indexes"
"""Revision of the newest migration, which this version was made for."""

_LOCK_SECONDS = 30

_LOG_PAGES = 8000
"""Pages of SQLite's write-ahead log, 32 MB, after which a commit copies them into the database file.

Most calls change the same pages. A copy takes the last change of each, so that rare copies are less work.
With SQLite's own 1,000 pages, every seventeenth small call waited for one.
"""

_TRUNCATION_PAUSES = (0.0, 0.01, 0.02, 0.05)
"""Seconds before each attempt to truncate the log; most transactions that read from it are shorter."""

_POOL_SIZE, _POOL_OVERFLOW = 5, 10
"""Connections that are kept open, and further ones that are opened when those are in use: SQLAlchemy's
defaults, which SQLite files have, too."""

_LOOK_SECONDS = 0.2

_USED_AT, _IDLE_SECONDS = "rowveil_used_at", 1.0
"""Key of the time of a pooled connection's last use; idle time after which it is tested."""

_BEGIN = "rowveil_begin"

_MIGRATING = 0x726F7776  # "rowv": id of the advisory lock of migrations

_POSTGRESQL = {
    # A server or network that has failed silently is detected within seconds.
    "connect_timeout": 3,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "rowveil",
    "options": "-c statement_timeout=20s -c lock_timeout=10s -c idle_in_transaction_session_timeout=60s",
}

_TEMPORARY = (
    sa.exc.OperationalError,
    sa.exc.InterfaceError,
    sa.exc.TimeoutError,  # of the pool
)

_READ_ONLY, _NOT_SUPPORTED = "25006", "0A000"
"""SQLSTATE of a write on a server that takes none, and of a feature that the server does not have."""

DATABASE_ERRORS = (
    sa.exc.OperationalError,
    sa.exc.InterfaceError,
    sa.exc.InternalError,
    sa.exc.NotSupportedError,
    sa.exc.ProgrammingError,  # such as a missing right or table
)
"""Errors that do not come from the values that a transaction stores."""

_FULL = ("database or disk is full", "No space left on device")

_log = logging.getLogger("rowveil.database")

Transaction = Session
"""Session of one transaction, which all functions of `app.store.sql` take."""


class DatabaseUnusable(Exception):
    """The settings' database cannot be used."""


class DatabaseAway(DatabaseUnusable):
    """The database server does not respond, or rejects the connection; it may be starting."""


class Database:
    """Transactions on one database. Raises DatabaseUnusable if its address is invalid.

    Temporary faults (the database is away, full or read-only, or a transaction is a deadlock's victim) leave
    a transaction as Unavailable or StorageFull, which callers get as problems. A value that PostgreSQL cannot
    store is InvalidRequest.
    """

    def __init__(self, settings: Settings, connections: int | None = None) -> None:
        """``connections``: largest number to a server at a time; None: `_POOL_SIZE` and `_POOL_OVERFLOW`."""
        try:
            self.engine = _engine_of(settings.database_url, connections)
        except (
            sa.exc.ArgumentError,
            ImportError,
            ValueError,
        ):  # none of them is quoted: it may hold a password
            raise DatabaseUnusable(
                "ROWVEIL_DATABASE_URL is not the address of a database whose driver is installed; "
                "examples are sqlite:////var/lib/rowveil/rowveil.db or "
                "postgresql://user:password@host/rowveil"
            ) from None
        self._most_connections = connections or _POOL_SIZE + _POOL_OVERFLOW
        self._write_lock = WriteLock(_lock_file(settings, self.engine.url))
        self._group: GroupCommit | None = None
        self._server_looks: ServerLooks | None = None
        self._look_lock = threading.Lock()
        self._look_connection: sa.PoolProxiedConnection | None = None
        self.log_is_due = not self.shared
        """Whether SQLite's log may hold deleted rows, also of an earlier process: see `truncate_log`."""

    @property
    def shared(self) -> bool:
        """Whether several replicas may use the database."""
        return self.engine.dialect.name != "sqlite"

    def look(self, statement: sa.Select[Any], parameters: Mapping[str, Any]) -> sa.Row[Any] | None:
        """Run one query outside a transaction: a single statement sees one snapshot anyway. Return its row.

        It takes a small part of the time of `read`, for the queries of every request: it runs a
        `QuickStatement`, whose rows have the same attributes. An embedded database has a connection of its
        own for them.
        """
        with _translated_errors():
            quick = quick_statement(statement, self.engine.dialect, parameters)
            if self._server_looks is not None and self._server_looks.running is not None:
                return self._look_in_loop(self._server_looks, quick, parameters)
            if self.shared:
                return self._look_at_server(quick, parameters)
            with self._look_lock:
                try:
                    if self._look_connection is None:
                        self._look_connection = self.engine.raw_connection()
                    found: sa.Row[Any] | None = quick.one_or_none(
                        self._look_connection.driver_connection, parameters
                    )
                except sqlite3.Error as error:
                    if self._look_connection is not None:
                        self._look_connection.close()
                        self._look_connection = None
                    raise quick.translated(error) from error
                return found

    def _look_at_server(self, quick: QuickStatement, parameters: Mapping[str, Any]) -> sa.Row[Any] | None:
        """Run a query as a transaction of its own, without statements that begin and end it."""
        with self.engine.connect() as connection:  # `raw_connection` raises the driver's own errors
            driver: Any = connection.connection.driver_connection
            driver.autocommit = True
            try:
                found: sa.Row[Any] | None = quick.one_or_none(driver, parameters)
            except errors_of(self.engine.dialect) as error:
                connection.invalidate(error)
                raise quick.translated(error) from error
            finally:
                if not driver.closed:
                    driver.autocommit = False
            return found

    def _look_in_loop(
        self, looks: "ServerLooks", quick: QuickStatement, parameters: Mapping[str, Any]
    ) -> sa.Row[Any] | None:
        """Run a query in a function that `looking` has started."""
        with looks.connection() as connection:
            driver = connection.connection.driver_connection
            try:
                found: sa.Row[Any] | None = quick.one_or_none(driver, parameters)
            except errors_of(self.engine.dialect) as error:
                raise quick.translated(error) from error
            return found

    async def looking(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that waits for nothing but `look`, and return its result.

        It needs no thread. A query of an embedded database takes less time than a hand-over to one, and waits
        for no writer; the event loop waits for the response of a server.
        """
        if not self.shared:
            return function(*arguments)
        if self._server_looks is None:
            return await to_thread(function, *arguments)
        return await self._server_looks.run(function, *arguments)

    def connections(self) -> tuple[int, int]:
        """Return the number of connections in use, and the largest number; 0 and 0 without a pool."""
        pool = self.engine.pool
        if not isinstance(pool, sa.QueuePool):
            return 0, 0
        idle = 0 if self._server_looks is None else self._server_looks.idle
        return pool.checkedout() - idle, self._most_connections

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Run a read-only transaction, which sees one snapshot of the database."""
        group = self._group
        if group is not None and group.running is not None:
            with _translated_errors(), group.snapshot() as session:
                yield session
            return
        with _translated_errors(), self.engine.connect() as connection:
            if self.shared:
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            with Session(connection, expire_on_commit=False) as session:
                session.connection()  # begins
                give_driver(session, connection)
                yield session
                if self.shared:
                    session.commit()  # at a rollback the driver forgets its prepared statements

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Run a transaction that is committed if its block ends without an error.

        SQLite takes its write lock at the start. So two transactions never detect half-way that both want
        to write, and the rows that one has read do not change until it commits. Transactions of the service
        wait for a lock of their own: SQLite itself waits by sleeping, longer each time.
        """
        group = self._group
        if group is not None and group.running is not None:
            with _translated_errors(), group.transaction() as session:
                yield session
            return
        if group is not None:
            group.check_may_block()
        with (
            self._alone(),
            _translated_errors(),
            self._connect_to_write() as connection,
            Session(connection, expire_on_commit=False) as session,
            session.begin(),
        ):
            session.connection()  # begins
            give_driver(session, connection)
            yield session

    def _alone(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.shared else self._write_lock

    def _connect_to_write(self) -> sa.Connection:
        return self.engine.connect().execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})

    def use_loop(self, folder: Path | None) -> None:
        """Let functions wait for the database in the running event loop, until `close`.

        Functions of `looking` wait for a server. Those of `in_loop` wait for the commits of an embedded
        database on the disk of the ``folder`` of tables and progress. A folder elsewhere, or a bucket (None),
        may not respond, and must not stop the event loop.
        """
        file = self.engine.url.database
        if self.shared:
            from app.store.sql.server_looks import ServerLooks  # which needs the server's driver

            self._server_looks = ServerLooks(self._connect_to_look, _IDLE_SECONDS)
        elif folder is not None and file and Path(file).stat().st_dev == folder.stat().st_dev:
            self._group = GroupCommit(
                self._connect_to_write, self.engine.connect, self._write_lock, _LOCK_SECONDS * 1000
            )

    def _connect_to_look(self) -> sa.Connection:
        return self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def in_loop(self, function: Callable[..., T], *arguments: Any) -> Future[T] | None:
        """Start a short function with transactions in the event loop: see `GroupCommit.run`.

        Returns None, and does not call it, if the database needs a thread for it.
        """
        return None if self._group is None else self._group.run(function, *arguments)

    @property
    def runs_in_loop(self) -> bool:
        """Whether the caller was started by `in_loop`, and may not block."""
        return self._group is not None and self._group.running is not None

    def aside(self, threads: Executor, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that may take long: in a thread if the caller was started by `in_loop`."""
        return (
            function(*arguments) if self._group is None else self._group.aside(threads, function, *arguments)
        )

    @contextmanager
    def only_one(self, number: int) -> Iterator[None]:
        """Hold the database's lock of this number; other processes wait for it. Raises Unavailable.

        No transaction is open meanwhile, so the block may take its time. On SQLite other processes start when
        the first one has opened the database.
        """
        if not self.shared:
            yield
            return
        with _translated_errors(), self.engine.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            take = sa.select(sa.func.pg_try_advisory_lock(number))
            while not connection.scalar(take):  # waiting within the server ends at its lock_timeout
                time.sleep(_LOOK_SECONDS)
            try:
                yield
            finally:
                connection.scalar(sa.select(sa.func.pg_advisory_unlock(number)))

    def truncate_log(self) -> None:
        """Truncate SQLite's write-ahead log, so that it holds no deleted rows. Blocking.

        A transaction that reads from the log prevents that, and is not waited for: SQLite would keep its
        write lock meanwhile. Then `log_is_due` stays true, and the next purge tries again.
        """
        if self.shared:
            return
        self.log_is_due = True
        if self._group is not None:
            self._group.check_may_block()
        with self.engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            raw.execute("PRAGMA busy_timeout=0")
            try:
                for pause in _TRUNCATION_PAUSES:
                    time.sleep(pause)
                    with self._write_lock:
                        (busy, *_) = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    if not busy:
                        self.log_is_due = False
                        return
            finally:
                raw.execute(f"PRAGMA busy_timeout={_LOCK_SECONDS * 1000}")

    def close(self) -> None:
        """Close all connections."""
        if self._group is not None:
            self._group.close()
            self._group = None
        if self._server_looks is not None:
            self._server_looks.close()
            self._server_looks = None
        with self._look_lock:
            if self._look_connection is not None:
                self._look_connection.close()
                self._look_connection = None
        self.engine.dispose()
        self._write_lock.close()


def migrate(settings: Settings, alone: bool = False) -> None:
    """Upgrade the tables to the newest revision; create the database file if there is none.

    A database that has the newest revision is only read, without Alembic, which takes long to import.

    Parameters
    ----------
    settings
        Settings with the address of the database.
    alone
        Whether the caller makes sure that no other process uses the database. Otherwise a step that older
        replicas cannot work with is refused while one lives.

    Raises
    ------
    DatabaseUnusable
        The address is invalid, the file cannot be opened, or the tables cannot be migrated now.
    DatabaseAway
        The server does not respond.
    """
    database = Database(settings)
    try:
        with _translated_migration(database), database.engine.connect() as connection:
            at_newest = schema.current_revision(connection) == NEWEST_REVISION
            if at_newest and schema.supports(connection, NEWEST_REVISION):
                return
        with _migrating(database) as connection:
            schema.upgrade(connection, migration_config(connection), alone)
    finally:
        database.close()


def downgrade(
    settings: Settings, to: str, alone: bool = False, prepare: Callable[[Collection[str]], None] | None = None
) -> None:
    """Bring the tables back to an older revision, for an older version.

    Parameters
    ----------
    settings
        Settings with the address of the database.
    to
        The revision.
    alone
        As for `migrate`.
    prepare
        Function that changes what the older version could not read. It gets the revisions that are about to
        be undone, and is called when nothing refuses the downgrade.

    Raises
    ------
    DatabaseUnusable
        As `migrate`, or there is no such older revision, or a step cannot be undone now.
    DatabaseAway
        The server does not respond.
    """
    database = Database(settings)
    try:
        with _migrating(database) as connection:
            config = migration_config(connection)
            undone = schema.check_downgrade(connection, config, to, alone)
            if prepare is not None:
                connection.rollback()  # it has transactions of its own
                prepare(undone)
            schema.downgrade(connection, config, to, alone)
    finally:
        database.close()


@contextmanager
def _migrating(database: Database) -> Iterator[sa.Connection]:
    """Open a transaction that changes the tables, while no other process does; it is committed at the end."""
    with (
        _translated_migration(database),
        database.only_one(_MIGRATING),
        database.engine.connect() as connection,
    ):
        yield connection
        connection.commit()


@contextmanager
def _translated_migration(database: Database) -> Iterator[None]:
    try:
        yield
    except schema.MigrationRefused as error:
        raise DatabaseUnusable(str(error)) from None
    except Unavailable as error:
        raise DatabaseAway(error.message) from None
    except DATABASE_ERRORS as error:
        if not _is_temporary(error):
            raise
        shown = shown_url(database.engine.url)
        kind = DatabaseAway if database.shared else DatabaseUnusable
        cause = _shown_cause(error, database.engine.url)
        raise kind(f"the database {shown} cannot be opened: {cause}") from None


def shown_url(url: sa.URL) -> str:
    """Return the address without password and query; a query may have a password, too.

    An ``@`` in a password must be escaped. If it is not, what follows it is read as the start of the host, or
    of the database after a slash. That is left out.
    """
    host, name = url.host, url.database
    if host and name and "@" in name:
        host, name = None, name.rpartition("@")[2]
    host = host.rpartition("@")[2] if host else None
    return sa.URL.create(url.drivername, url.username, None, host, url.port, name).render_as_string()


def _shown_cause(error: sa.exc.DBAPIError, url: sa.URL) -> str:
    """Return the driver's message; it names the host, which has a part of the password: see `shown_url`."""
    misread = any("@" in part for part in (url.host or "", url.database or "")) and url.host
    return type(error.orig).__qualname__ if misread else str(error.orig)


def migration_config(connection: sa.Connection) -> "Config":
    """Return Alembic's configuration for this connection."""
    from alembic.config import Config

    config = Config(stdout=sys.stdout)  # its default is what it was when Alembic was imported
    config.set_main_option("script_location", str(_migrations()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _migrations() -> Path:
    """Return the folder of migrations, in the installed package or next to it in the source tree."""
    package = Path(__file__).parents[2]
    for folder in (package / "migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise FileNotFoundError("the migrations are neither in the package nor next to it")


def _engine_of(address: str, connections: int | None) -> sa.Engine:
    url = sa.make_url(address)
    if url.get_backend_name() == "sqlite":
        engine = sa.create_engine(url, json_serializer=_json)
        if url.database:
            _make_folder(Path(url.database).parent)
            event.listen(engine, "do_connect", _make_private_file)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername != "postgresql+psycopg":
        raise ValueError(url.drivername)
    given = {name: value for name, value in _POSTGRESQL.items() if name not in url.query}
    size, overflow = (_POOL_SIZE, _POOL_OVERFLOW) if connections is None else (connections, 0)
    engine = sa.create_engine(url, connect_args=given, pool_size=size, max_overflow=overflow)
    _ping_idle_connections(engine)
    from app.store.sql.server_looks import use_fiber_connections  # which needs the server's driver

    use_fiber_connections(engine)
    return engine


def _ping_idle_connections(engine: sa.Engine) -> None:
    """Test each connection that was not used for a second before it is used; replace all if it is broken.

    One that was used just now is not tested, which saves a message to the server and its response. If the
    server has gone since, the transaction fails, as it does where the server goes a moment later.
    """

    def note(driver: Any, record: Any, *_: Any) -> None:
        record.info[_USED_AT] = time.monotonic()

    def test(driver: Any, record: Any, _: Any) -> None:
        if time.monotonic() - record.info[_USED_AT] < _IDLE_SECONDS:
            return
        try:
            engine.dialect.do_ping(driver)
        except errors_of(engine.dialect) as error:
            raise sa.exc.InvalidatePoolError from error

    event.listen(engine, "connect", note)
    event.listen(engine, "checkin", note)
    event.listen(engine, "checkout", test)


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except sa.exc.DataError as error:
        raise InvalidRequest(
            "a name in the request is longer than the database allows, or holds the character U+0000"
        ) from error
    except sa.exc.SQLAlchemyError as error:
        if not _is_temporary(error):
            raise
        cause = str(getattr(error, "orig", ""))
        _log.error("the database is not available: %s", type(getattr(error, "orig", error)).__qualname__)
        if any(words in cause for words in _FULL):
            raise StorageFull("the database is full; delete buffers and jobs, or try again later") from error
        raise Unavailable("the database is temporarily not available; try again") from error


def _is_temporary(error: sa.exc.SQLAlchemyError) -> bool:
    """Whether the database is away, or takes no writes now, such as a standby that is not promoted yet."""
    if isinstance(error, _TEMPORARY):
        return True
    cause = getattr(error, "orig", None)
    state = getattr(cause, "sqlstate", None)
    return state == _READ_ONLY or (state == _NOT_SUPPORTED and "during recovery" in str(cause))


def _json(value: Any) -> str:
    """Return a value of a column as JSON; one may be an integer beyond 64 bits, or half a surrogate pair."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value)


def _lock_file(settings: Settings, url: sa.URL) -> Path | None:
    """Return the file by which API processes exclude each other from writing to an embedded database."""
    if settings.api_processes == 1 or url.get_backend_name() != "sqlite" or not url.database:
        return None
    return Path(f"{url.database}-write-lock")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"the database's folder {folder} cannot be made: {error.strerror}"
        raise DatabaseUnusable(message) from None


def _make_private_file(_dialect: Any, _record: Any, given: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Create the database file for its user only. SQLite gives its log and shared memory the same mode."""
    if options.get("uri") or given[0] == ":memory:":
        return
    with suppress(OSError):  # it exists, or SQLite reports what is wrong
        os.close(os.open(given[0], os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # the driver starts no transaction: `_begin_sqlite` does
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "secure_delete=ON",
        f"wal_autocheckpoint={_LOG_PAGES}",
        f"busy_timeout={_LOCK_SECONDS * 1000}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    if not (begin := connection.get_execution_options().get(_BEGIN, "BEGIN")):
        return
    raw = connection.connection.driver_connection  # SQLAlchemy's way takes longer than the statement
    assert isinstance(raw, sqlite3.Connection)
    try:
        raw.execute(begin)
    except sqlite3.Error as error:
        raise sa.exc.OperationalError(begin, None, error) from error
