"""Single queries on a database server in the event loop, on connections that wait without a thread.

psycopg runs its protocol as a generator, which yields when it has to wait for the server. In a fiber the wait
leaves the event loop to others; in a thread it blocks, as usual.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.waiting import Ready, Wait
from sqlalchemy import event

from app.loop_threads import LoopThreads
from app.store.sql.connection.fibers import Fiber, Fibers, current_fiber

T = TypeVar("T")

_MOST = 4
"""Connections that stay open, of those that the engine may have."""


class FiberConnection(psycopg.Connection[Any]):
    """Connection whose waits leave the event loop to others if they are in a fiber."""

    def wait(self, gen: Generator[Any, Any, T], *limits: Any, **named_limits: Any) -> T:
        """Run a part of the protocol to its end; limits of its time have no effect in a fiber."""
        fiber = current_fiber()
        if fiber is None:
            return super().wait(gen, *limits, **named_limits)
        try:
            wanted = next(gen)
            while True:
                wanted = gen.send(_ready(fiber, self.pgconn.socket, wanted))
        except StopIteration as ended:
            found: T = ended.value
            return found


def _ready(fiber: Fiber, socket: int, wanted: Any) -> Any:
    """Wait until a socket can be read or written, as wanted; return which of the two."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[Any] = loop.create_future()

    def settle(state: Any) -> None:
        if not ready.done():
            ready.set_result(state)

    if wanted & Wait.R:
        loop.add_reader(socket, settle, Ready.R)
    if wanted & Wait.W:
        loop.add_writer(socket, settle, Ready.W)
    try:
        return fiber.wait(ready)
    finally:
        if wanted & Wait.R:
            loop.remove_reader(socket)
        if wanted & Wait.W:
            loop.remove_writer(socket)


def use_fiber_connections(engine: sa.Engine) -> None:
    """Let the engine open connections that can wait in a fiber."""

    def connect(_dialect: Any, _record: Any, given: Any, named: Any) -> FiberConnection:
        return FiberConnection.connect(*given, **named)

    event.listen(engine, "do_connect", connect)


class ServerLooks(Fibers):
    """Queries of the functions in one event loop, each on one of a few connections of an engine."""

    def __init__(self, connect: Callable[[], sa.Connection], idle_seconds: float) -> None:
        """Open no connection yet.

        Parameters
        ----------
        connect
            Opens a connection without transactions, or takes one of the engine's pool. Blocking.
        idle_seconds
            Time after which a free connection is tested before its next use.
        """
        super().__init__()
        self._connect = connect
        self._idle_seconds = idle_seconds
        self._idle: list[tuple[float, sa.Connection]] = []
        """Time of the last use of each free connection, and the connection; those used last are last."""
        self._open = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._threads = LoopThreads(_MOST, "looks")

    @property
    def idle(self) -> int:
        """Number of connections that are open and that no query uses."""
        return len(self._idle)

    @contextmanager
    def connection(self) -> Iterator[sa.Connection]:
        """Take a connection for one query of a fiber. If it breaks, all free ones are closed, too.

        Raises the errors of ``connect``.
        """
        fiber = self.running
        assert fiber is not None
        connection = self._taken(fiber)
        try:
            yield connection
        except Exception:
            driver: Any = connection.connection.driver_connection
            if driver.closed:
                self._close_with_all_free(connection)
            else:
                self._keep(connection)
            raise
        self._keep(connection)

    def _keep(self, connection: sa.Connection) -> None:
        self._idle.append((time.monotonic(), connection))
        self._wake()

    def _taken(self, fiber: Fiber) -> sa.Connection:
        while not self._idle and self._open >= _MOST:
            free: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(free)
            fiber.wait(free)
        if self._idle:
            used_at, connection = self._idle.pop()
            if time.monotonic() - used_at < self._idle_seconds or _responds(connection):
                return connection
            self._close_with_all_free(connection)
        self._open += 1
        try:
            return fiber.wait(self._loop.run_in_executor(self._threads, self._connect))
        except BaseException:
            self._open -= 1
            self._wake()
            raise

    def _close_with_all_free(self, connection: sa.Connection) -> None:
        """Close a broken connection, and the free ones, which are probably broken, too."""
        broken = [connection, *(each for _, each in self._idle)]
        self._idle.clear()
        self._open -= len(broken)
        self._loop.run_in_executor(self._threads, _close, broken)
        for _ in broken:
            self._wake()

    def _wake(self) -> None:
        """Let the function that has waited longest go on."""
        if self._waiting:
            self._waiting.popleft().set_result(None)

    def close(self) -> None:
        """Close the connections; no function runs any more. Blocking."""
        self._threads.shutdown()
        _close([connection for _, connection in self._idle])
        self._idle.clear()


def _responds(connection: sa.Connection) -> bool:
    """Whether the server responds on a connection."""
    try:
        return connection.dialect.do_ping(connection.connection.dbapi_connection)  # type: ignore[arg-type]
    except psycopg.Error:
        return False


def _close(connections: list[sa.Connection]) -> None:
    for connection in connections:
        connection.invalidate()
        connection.close()
