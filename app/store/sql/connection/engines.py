"""Engines of SQLAlchemy: the address of a database, and how its connections are opened and tested."""

import json
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy import event

from app.store.sql.connection.errors import DatabaseUnusable, kind_of, missing_right
from app.store.sql.connection.quick_statements import errors_of

_LOG_PAGES = 8000
"""Pages of SQLite's write-ahead log, 32 MB, after which a commit copies them into the database file.

Most calls change the same pages. A copy takes the last change of each, so that rare copies are less work.
With SQLite's own 1,000 pages, every seventeenth small call waited for one.
"""

LOCK_SECONDS = 30
"""Time for which a transaction waits for the write lock of SQLite."""

_LOCKED_SECONDS = 0.01
"""Pause between two attempts to let a database write ahead."""

_PRIMARY = 0xFF
"""Bits of an error code of SQLite that name the error; the others say more about it."""

POOL_SIZE, POOL_OVERFLOW = 5, 10
"""Connections that are kept open, and further ones that are opened when those are in use: SQLAlchemy's
defaults, which SQLite files have, too."""

_USED_AT, IDLE_SECONDS = "rowveil_used_at", 1.0
"""Key of the time of a pooled connection's last use; idle time after which it is tested."""

BEGIN = "rowveil_begin"
"""Option of a connection: the statement that begins a transaction on SQLite."""

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


def shown_address(address: str) -> str:
    """Return a valid address of a database as `shown_url`."""
    return shown_url(sa.make_url(address))


def shown_cause(error: sa.exc.DBAPIError, url: sa.URL) -> str:
    """Return the driver's message; it names the host, which has a part of the password: see `shown_url`."""
    misread = any("@" in part for part in (url.host or "", url.database or "")) and url.host
    return type(error.orig).__qualname__ if misread else str(error.orig)


def logged_cause(error: Exception, url: sa.URL) -> str:
    """Return the log's words for an error: the reason of a missing connection, or else the kind of the error.

    The server's answers to statements have an SQLSTATE, and may have values of rows, but not those about a
    right.
    """
    if (missing := missing_right(error)) is not None:
        return missing
    if not isinstance(error, sa.exc.DBAPIError) or error.statement is not None:
        return kind_of(error)
    if getattr(error.orig, "sqlstate", None) is not None:  # such as of a commit
        return kind_of(error)
    return " ".join(shown_cause(error, url).split())


def embedded_file(address: str) -> Path | None:
    """Return the file of an embedded database; None for a server, and for a database in memory."""
    url = sa.make_url(address)
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return None
    return Path(url.database)


def engine_of(address: str, connections: int | None) -> sa.Engine:
    """Return the engine of a database, with the largest number of ``connections`` to a server.

    Raises sqlalchemy.exc.ArgumentError, ImportError or ValueError if the address is not that of a database
    whose driver is installed, and DatabaseUnusable if the folder of its file cannot be made.
    """
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
    size, overflow = (POOL_SIZE, POOL_OVERFLOW) if connections is None else (connections, 0)
    engine = sa.create_engine(url, connect_args=given, pool_size=size, max_overflow=overflow)
    _ping_idle_connections(engine)
    # Which needs the server's driver.
    from app.store.sql.connection.server_connection import use_server_connections

    use_server_connections(engine)
    return engine


def _ping_idle_connections(engine: sa.Engine) -> None:
    """Test each connection that was not used for a second before it is used; replace all if it is broken.

    A connection that was used just now is not tested, which saves a message to the server and its response.
    If the server has ended since, the transaction fails, as if the server ended a moment later.
    """

    def note(driver: Any, record: Any, *_: Any) -> None:
        record.info[_USED_AT] = time.monotonic()

    def test(driver: Any, record: Any, _: Any) -> None:
        if time.monotonic() - record.info[_USED_AT] < IDLE_SECONDS:
            return
        try:
            engine.dialect.do_ping(driver)
        except errors_of(engine.dialect) as error:
            raise sa.exc.InvalidatePoolError from error

    event.listen(engine, "connect", note)
    event.listen(engine, "checkin", note)
    event.listen(engine, "checkout", test)


def _json(value: Any) -> str:
    """Return a value of a column as JSON; one may be an integer beyond 64 bits, or half a surrogate pair."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value)


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
    connection.execute(f"PRAGMA busy_timeout={LOCK_SECONDS * 1000}")
    _write_ahead(connection)
    for pragma in (
        "synchronous=FULL",
        "foreign_keys=ON",
        "secure_delete=ON",
        f"wal_autocheckpoint={_LOG_PAGES}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Let the database write ahead; wait while another process changes a new one in the same way.

    SQLite fails at once in that case, whatever its `busy_timeout`, because both could wait for each other.
    """
    latest = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            is_locked = error.sqlite_errorcode & _PRIMARY == sqlite3.SQLITE_BUSY
            if not is_locked or time.monotonic() >= latest:
                raise
        else:
            return
        time.sleep(_LOCKED_SECONDS)


def _begin_sqlite(connection: sa.Connection) -> None:
    if not (begin := connection.get_execution_options().get(BEGIN, "BEGIN")):
        return
    raw = connection.connection.driver_connection  # SQLAlchemy's way takes longer than the statement
    assert isinstance(raw, sqlite3.Connection)
    try:
        raw.execute(begin)
    except sqlite3.Error as error:
        raise sa.exc.OperationalError(begin, None, error) from error
