"""Single queries on a database server in the event loop, on connections that wait without a thread."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa

from app.loop_threads import LoopThreads
from app.store.sql.connection.fibers import Fiber, Fibers

_MOST = 4
"""Number of connections that stay open, out of all connections that the engine may have."""


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
        """Let the function that has waited longest continue."""
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
