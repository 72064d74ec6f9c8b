"""Connections to PostgreSQL that run the statements of every call through libpq.

psycopg opens and closes them, converts values and makes the errors. A statement of its cursors releases the
interpreter's lock three times, and waits each time until another thread leaves it. Here it is released once,
and a statement takes a third of the processor time.

psycopg runs its protocol as a generator, which yields when it has to wait for the server. In a fiber the wait
leaves the event loop to others; in a thread it blocks, as usual.
"""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar
from weakref import WeakSet

import psycopg
import sqlalchemy as sa
from psycopg import IsolationLevel
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import DiagnosticField, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait
from sqlalchemy import event

from app.store.sql.connection.fibers import Fiber, current_fiber

T = TypeVar("T")

_MOST_PREPARED = 300
"""Prepared statements of a connection, after which all are prepared again. One that serves calls has some 20;
a statement has one for each combination of the sizes of its integers."""


class ServerConnection(psycopg.Connection[Any]):
    """Connection whose waits leave the event loop to others if they are in a fiber."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.statements = Statements(self)
        self.waits_since: float | None = None
        """Time at which the message was sent that the server has not answered; None if there is none."""
        self._named: dict[str, Any] = {}

    @classmethod
    def connect(cls, *given: Any, **named: Any) -> Self:
        """Connect as psycopg does. It prepares no statements itself: it deallocates all after a rollback."""
        made = super().connect(*given, **named)
        made.prepare_threshold = None
        made._named = named
        with _opening:
            _opened.add(made)
        return made

    def connect_again(self, seconds: int) -> psycopg.Connection[Any]:
        """Open another connection to the same one of the servers of the address, within ``seconds``."""
        info = self.info
        server = {"host": info.host, "hostaddr": info.hostaddr, "port": info.port}
        limits = {"target_session_attrs": "any", "connect_timeout": seconds}
        return psycopg.connect(**self._named | server | limits)

    def has_waited(self, seconds: float) -> bool:
        """Whether the server has not answered a message for so long."""
        since = self.waits_since
        return since is not None and time.monotonic() - since > seconds

    def break_off(self, seconds: float) -> bool:
        """End the wait for an answer with an error, in whatever thread, if it has lasted so long."""
        # The number of a copy stays that of the same connection, whatever another thread closes.
        with (
            suppress(OSError, psycopg.Error),  # it was closed just now
            socket.socket(fileno=os.dup(self.pgconn.socket)) as copy,
        ):
            if self.has_waited(seconds):
                copy.shutdown(socket.SHUT_RDWR)
                return True
        return False

    def wait(self, gen: Generator[Any, Any, T], *limits: Any, **named_limits: Any) -> T:
        """Run a part of psycopg's protocol to its end; limits of its time have no effect in a fiber."""
        fiber = current_fiber()
        self.waits_since = time.monotonic()
        try:
            if fiber is None:
                return super().wait(gen, *limits, **named_limits)
            wanted = next(gen)
            while True:
                wanted = gen.send(_ready(fiber, self.pgconn.socket, wanted))
        except StopIteration as ended:
            found: T = ended.value
            return found
        finally:
            self.waits_since = None

    def commit(self) -> None:
        """Commit the transaction if one is open."""
        if not self.statements.idle:
            self.statements.send(b"COMMIT")

    def rollback(self) -> None:
        """Undo the transaction if one is open."""
        if not self.statements.idle:
            self.statements.send(b"ROLLBACK")


_opened: WeakSet[ServerConnection] = WeakSet()
_opening = threading.Lock()


def open_connections() -> list[ServerConnection]:
    """Return the connections of this process to database servers, also some that were closed."""
    with _opening:
        return list(_opened)


class Statements:
    """Statements of a connection, which prepares each. All methods raise psycopg.Error."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._libpq = connection.pgconn
        self._names: dict[tuple[bytes, Sequence[int]], bytes] = {}
        """Name of each prepared statement, by its text and the types of its parameters."""
        self._stale = False
        """Whether the prepared statements may be of no use, because a statement has failed."""

    @property
    def idle(self) -> bool:
        """Whether no transaction is open."""
        return self._libpq.transaction_status == TransactionStatus.IDLE

    def run(self, text: bytes, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        """Execute a statement; return its rows, and the number of rows that it has returned or changed.

        It begins a transaction if none is open, unless the connection commits each statement.

        Parameters
        ----------
        text : bytes
            Statement with the parameters ``$1``, ``$2`` and so on.
        values : sequence
            Their values, which psycopg's adapters of the connection convert.
        """
        transformer = Transformer(self._connection)
        given = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
        begins = not self._connection.autocommit and self.idle
        if begins and not values:  # one message for both
            result = self.send(self._begin() + b"; " + text)
        else:
            if begins:
                self.send(self._begin())
            name = self._prepared(text, transformer.types or ())
            arguments: Any = name, given, transformer.formats, Format.BINARY
            result = self._result(self._libpq.exec_prepared, self._libpq.send_query_prepared, *arguments)
        if result.status != ExecStatus.TUPLES_OK:
            return [], result.command_tuples or 0
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple), result.ntuples

    def send(self, text: bytes) -> PGresult:
        """Execute one or more statements without parameters; return the result of the last one."""
        return self._result(self._libpq.exec_, self._libpq.send_query, text)

    def _begin(self) -> bytes:
        """Build the statement that begins a transaction, as SQLAlchemy has set the connection."""
        begin, level = "BEGIN", self._connection.isolation_level
        if level is not None:
            begin += f" ISOLATION LEVEL {IsolationLevel(level).name.replace('_', ' ')}"
        if self._connection.read_only is not None:
            begin += " READ ONLY" if self._connection.read_only else " READ WRITE"
        return begin.encode()

    def _prepared(self, text: bytes, types: Sequence[int]) -> bytes:
        """Return the name of a prepared statement; prepare it if it is new.

        After an error all are prepared again: a migration may have changed the type of a column.
        """
        key = text, types
        if self._stale or (len(self._names) >= _MOST_PREPARED and key not in self._names):
            self.send(b"DEALLOCATE ALL")
            self._names.clear()
            self._stale = False
        if key not in self._names:
            name = f"rowveil_{len(self._names)}".encode()
            self._result(self._libpq.prepare, self._libpq.send_prepare, name, text, types)
            self._names[key] = name
        return self._names[key]

    def _result(
        self, execute: Callable[..., PGresult], send: Callable[..., None], *arguments: Any
    ) -> PGresult:
        """Wait for the result of a message, in a thread by ``execute``, in a fiber without the event loop."""
        fiber = current_fiber()
        self._connection.waits_since = time.monotonic()
        try:
            if fiber is None:
                result = execute(*arguments)
            else:
                send(*arguments)
                result = self._received(fiber)
        finally:
            self._connection.waits_since = None
        if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            return result
        self._stale = True
        if result.error_field(DiagnosticField.SQLSTATE) is None:  # the connection is broken
            raise psycopg.OperationalError(result.get_error_message(), info=result)
        raise error_from_result(result)

    def _received(self, fiber: Fiber) -> PGresult:
        """Wait for the results of a message; return the last one, which is the error if one has failed."""
        while self._libpq.flush():
            if _ready(fiber, self._libpq.socket, Wait.RW) & Ready.R:
                self._libpq.consume_input()
        last: PGresult | None = None
        while True:
            while self._libpq.is_busy():
                _ready(fiber, self._libpq.socket, Wait.R)
                self._libpq.consume_input()
            result = self._libpq.get_result()
            if result is None:
                assert last is not None
                return last
            last = result


def _ready(fiber: Fiber, socket: int, wanted: Any) -> Any:
    """Wait until a socket can be read or written, as wanted; return which of the two."""
    loop = asyncio.get_running_loop()
    if wanted & Wait.R:
        loop.add_reader(socket, fiber.switch, Ready.R)
    if wanted & Wait.W:
        loop.add_writer(socket, fiber.switch, Ready.W)
    try:
        return fiber.leave()
    finally:
        if wanted & Wait.R:
            loop.remove_reader(socket)
        if wanted & Wait.W:
            loop.remove_writer(socket)


def use_server_connections(engine: sa.Engine) -> None:
    """Let the engine open connections of this class."""

    def connect(_dialect: Any, _record: Any, given: Any, named: Any) -> ServerConnection:
        return ServerConnection.connect(*given, **named)

    event.listen(engine, "do_connect", connect)
