"""Database: its transactions and single queries.

A SQLite file is the embedded default. Its write-ahead log is flushed at every commit (``synchronous=FULL``),
so that an accepted job survives a killed service and a power cut. With NORMAL it would survive the former
only; the difference is one flush of the disk per commit, and a job has two or three commits. Deleted rows are
overwritten (``secure_delete``), so that a purge leaves no sealed seed or table in free pages.

PostgreSQL serves several replicas. Its write transactions are READ COMMITTED and lock the rows that a
concurrent transaction must not change. All such locks are in `jobs.unnamed`, `replicas.hold` and
`jobs.claim_first`.
"""

import logging
import os
import sqlite3
import threading
import time
from asyncio import Future, to_thread
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import StorageFull
from app.settings import Settings
from app.store.blobs.disk_space import SPARE_BYTES
from app.store.sql.connection.engines import (
    BEGIN,
    IDLE_SECONDS,
    LOCK_SECONDS,
    POOL_OVERFLOW,
    POOL_SIZE,
    engine_of,
    logged_cause,
)
from app.store.sql.connection.errors import DatabaseUnusable, translated_errors
from app.store.sql.connection.group_commit import GroupCommit
from app.store.sql.connection.quick_statements import QuickStatement, errors_of, give_driver, quick_statement
from app.store.sql.connection.write_lock import WriteLock

if TYPE_CHECKING:
    from app.store.sql.connection.server_looks import ServerLooks
    from app.store.sql.connection.silent_server import SilentServer

T = TypeVar("T")

_TRUNCATION_PAUSES = (0.0, 0.01, 0.02, 0.05)
"""Seconds before each attempt to truncate the log; most transactions that read from it are shorter."""

_LOOK_SECONDS = 0.2

_HARDLY_BYTES = 1 << 17
"""Free bytes with which SQLite may not even open a database: it makes a file of shared memory."""

_STEPS_OF_A_LOOK = 10_000
"""Instructions of SQLite between two looks at the time."""

_log = logging.getLogger("rowveil.database")

Transaction = Session
"""Session of one transaction, which all functions of `app.store.sql` take."""


class Database:
    """Transactions on one database. Raises DatabaseUnusable if its address is invalid.

    Temporary faults (the database is away, full or read-only, or a transaction is a deadlock's victim) leave
    a transaction as Unavailable or StorageFull, which callers get as problems. A value that PostgreSQL cannot
    store is InvalidRequest. A damaged file is DatabaseDamaged.
    """

    def __init__(self, settings: Settings, connections: int | None = None) -> None:
        """``connections``: largest number to a server at a time; None: `POOL_SIZE` and `POOL_OVERFLOW`."""
        try:
            self.engine = engine_of(settings.database_url, connections)
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
        self._most_connections = connections or POOL_SIZE + POOL_OVERFLOW
        self._write_lock = WriteLock(_lock_file(settings, self.engine.url))
        self._group: GroupCommit | None = None
        self._server_looks: ServerLooks | None = None
        self._silent_server: SilentServer | None = None
        self._look_lock = threading.Lock()
        self._look_connection: sa.PoolProxiedConnection | None = None
        self.log_is_due = not self.shared
        """Whether SQLite's log may hold deleted rows, also of an earlier process: see `truncate_log`."""
        file = self.engine.url.database
        self._folder = None if self.shared or not file or file == ":memory:" else Path(file).parent
        """Folder of an embedded database."""
        self.is_damaged = False
        """Whether a transaction has found that the file is damaged; only a restoration repairs it."""

    def _note_damage(self) -> None:
        self.is_damaged = True

    def _translated_errors(self) -> AbstractContextManager[None]:
        return translated_errors(self._note_damage, partial(logged_cause, url=self.engine.url))

    @property
    def shared(self) -> bool:
        """Whether several replicas may use the database."""
        return self.engine.dialect.name != "sqlite"

    def look(self, statement: sa.Select[Any], parameters: Mapping[str, Any]) -> sa.Row[Any] | None:
        """Run one query outside of a transaction, as `look_at_all`; return its row, None if it has none."""
        found = self.look_at_all(statement, parameters)
        if not found:
            return None
        (row,) = found
        return row

    def look_at_all(self, statement: sa.Select[Any], parameters: Mapping[str, Any]) -> list[sa.Row[Any]]:
        """Run one query outside of a transaction: a single statement sees one snapshot anyway.

        It takes a small part of the time of `read`, for the queries of every request: it runs a
        `QuickStatement`, whose rows have the same attributes. An embedded database has a connection of its
        own for them.
        """
        with self._translated_errors():
            quick = quick_statement(statement, self.engine.dialect, parameters)
            if self._server_looks is not None and self._server_looks.running is not None:
                return self._look_in_loop(self._server_looks, quick, parameters)
            if self.shared:
                return self._look_at_server(quick, parameters)
            with self._look_lock:
                try:
                    if self._look_connection is None:
                        self._look_connection = self.engine.raw_connection()
                    found, _ = quick.run(self._look_connection.driver_connection, parameters)
                except sqlite3.Error as error:
                    if self._look_connection is not None:
                        self._look_connection.close()
                        self._look_connection = None
                    raise quick.translated(error) from error
                return found

    def _look_at_server(self, quick: QuickStatement, parameters: Mapping[str, Any]) -> list[sa.Row[Any]]:
        """Run a query as a transaction of its own, without statements that begin and end it."""
        with self.engine.connect() as connection:  # `raw_connection` raises the driver's own errors
            driver: Any = connection.connection.driver_connection
            driver.autocommit = True
            try:
                found, _ = quick.run(driver, parameters)
            except errors_of(self.engine.dialect) as error:
                connection.invalidate(error)
                raise quick.translated(error) from error
            finally:
                if not driver.closed:
                    driver.autocommit = False
            return found

    def _look_in_loop(
        self, looks: "ServerLooks", quick: QuickStatement, parameters: Mapping[str, Any]
    ) -> list[sa.Row[Any]]:
        """Run a query in a function that `looking` has started."""
        with looks.connection() as connection:
            driver = connection.connection.driver_connection
            try:
                found, _ = quick.run(driver, parameters)
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
            with self._translated_errors(), group.snapshot() as session:
                yield session
            return
        with self._translated_errors(), self.engine.connect() as connection:
            if self.shared:
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            with Session(connection, expire_on_commit=False) as session:
                session.connection()  # begins
                give_driver(session, connection)
                yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Run a transaction that is committed if its block ends without an error.

        SQLite takes its write lock at the start. So two transactions never detect half-way that both want
        to write, and the rows that one has read do not change until it commits. Transactions of the service
        wait for a lock of their own: SQLite itself waits by sleeping, longer each time.
        """
        group = self._group
        if group is not None and group.running is not None:
            with self._translated_errors(), group.transaction() as session:
                yield session
            return
        if group is not None:
            group.check_may_block()
        with (
            self._alone(),
            self._translated_errors(),
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
        return self.engine.connect().execution_options(**{BEGIN: "BEGIN IMMEDIATE"})

    def use_loop(self, folder: Path | None) -> None:
        """Let functions wait for the database in the running event loop, until `close`.

        Functions of `looking` wait for a server. Those of `in_loop` wait for the commits of an embedded
        database on the disk of the ``folder`` of tables and progress. A folder elsewhere, or a bucket (None),
        may not respond, and must not stop the event loop.
        """
        file = self.engine.url.database
        if self.shared:
            # Which need the server's driver.
            from app.store.sql.connection.server_looks import ServerLooks
            from app.store.sql.connection.silent_server import SilentServer

            self._silent_server = SilentServer()
            self._server_looks = ServerLooks(self._connect_to_look, IDLE_SECONDS)
        elif folder is not None and file and Path(file).stat().st_dev == folder.stat().st_dev:
            self._group = GroupCommit(
                self._connect_to_write, self.engine.connect, self._write_lock, LOCK_SECONDS * 1000
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
        with self._translated_errors(), self.engine.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            take = sa.select(sa.func.pg_try_advisory_lock(number))
            while not connection.scalar(take):  # waiting within the server ends at its lock_timeout
                time.sleep(_LOOK_SECONDS)
            try:
                yield
            finally:
                connection.scalar(sa.select(sa.func.pg_advisory_unlock(number)))

    def check_space(self, spare: int = SPARE_BYTES) -> None:
        """Raise StorageFull if less than ``spare`` bytes are free on the disk of an embedded database.

        Transactions that make it larger call this first. So deletions, purges, revocations of keys, ends of
        running jobs and starts find room on a full disk: for their pages in the log, which grows to 32 MB,
        and for the copy of the log's pages into the file. Pages in the file that deletions have freed count
        up to the half of ``spare``: new rows go there, but the log needs the disk.
        """
        free = self._free_bytes()
        if free is not None and free < spare and free + min(self._free_pages(), spare // 2) < spare:
            raise StorageFull(
                f"the storage is full: less than {spare >> 20} MiB are free, which are kept for deletions; "
                "delete buffers and jobs, or try again later"
            )

    def lacks_space(self) -> bool:
        """Whether the disk of an embedded database has hardly a free byte."""
        free = self._free_bytes()
        return free is not None and free < _HARDLY_BYTES

    def _free_bytes(self) -> int | None:
        """Return the free bytes on the disk of an embedded database; None: unknown, or a server's."""
        if self._folder is None:
            return None
        try:
            status = os.statvfs(self._folder)
        except OSError:  # a transaction shows what is wrong
            return None
        return status.f_bavail * status.f_frsize

    def _free_pages(self) -> int:
        """Return the bytes of the pages of SQLite's file that have no content."""
        with self._translated_errors(), self.engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            pages, size = (
                raw.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_size")
            )
            return int(pages[0]) * int(size[0])

    def truncate_log(self) -> None:
        """Truncate SQLite's write-ahead log, so that it holds no deleted rows. Blocking.

        A transaction that reads from the log prevents the truncation. It is not waited for, because SQLite
        would keep its write lock meanwhile. A disk without space for the log's pages in the file also
        prevents it. In both cases `log_is_due` stays true, and the next purge tries again; the rows are
        deleted in any case.
        """
        if self.shared:
            return
        self.log_is_due = True
        if self._group is not None:
            self._group.check_may_block()
        try:
            self._truncate_log()
        except (sqlite3.Error, sa.exc.SQLAlchemyError) as error:
            cause = getattr(error, "orig", error)
            _log.error("the write-ahead log cannot be truncated now, and holds deleted rows: %s", cause)

    def _truncate_log(self) -> None:
        """Truncate the log as `truncate_log`. Raises sqlite3.Error, sqlalchemy.exc.SQLAlchemyError."""
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
                raw.execute(f"PRAGMA busy_timeout={LOCK_SECONDS * 1000}")

    def has_log(self) -> bool:
        """Whether SQLite's write-ahead log has content; after a clean stop there is none."""
        if self.shared or not (file := self.engine.url.database):
            return False
        try:
            return Path(f"{file}-wal").stat().st_size > 0
        except OSError:
            return False

    def find_fault(self, seconds: float) -> str | None:
        """Read the pages of SQLite's file, for ``seconds`` at most; return the first fault, or None.

        A file that takes longer is read in part; the log says so. Raises sqlalchemy.exc.DatabaseError: the
        file is so damaged that it cannot be opened.
        """
        deadline = time.monotonic() + seconds
        with self.engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            raw.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_OF_A_LOOK)
            try:
                (found,) = raw.execute("PRAGMA quick_check(1)").fetchone()
            except sqlite3.DatabaseError as error:
                if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
                    raise sa.exc.DatabaseError("PRAGMA quick_check(1)", None, error) from error
                _log.warning("the database was not closed, and is too large to be checked at a start")
                return None
            finally:
                raw.set_progress_handler(None, 0)
        return None if found == "ok" else str(found)

    def close(self) -> None:
        """Close all connections."""
        if self._group is not None:
            self._group.close()
            self._group = None
        if self._server_looks is not None:
            self._server_looks.close()
            self._server_looks = None
        if self._silent_server is not None:
            self._silent_server.close()
            self._silent_server = None
        with self._look_lock:
            if self._look_connection is not None:
                self._look_connection.close()
                self._look_connection = None
        self.engine.dispose()
        self._write_lock.close()


def _lock_file(settings: Settings, url: sa.URL) -> Path | None:
    """Return the file by which API processes exclude each other from writing to an embedded database."""
    if settings.api_processes == 1 or url.get_backend_name() != "sqlite" or not url.database:
        return None
    return Path(f"{url.database}-write-lock")
