"""Group commit of an embedded database: short transactions in the event loop, committed together by a thread.

SQLite runs one write transaction at a time and flushes its log at each commit. Where each transaction has a
thread, the threads of simultaneous calls wait for the interpreter's lock at every statement, because the
driver releases it, and for the database's lock meanwhile. Here a function with short transactions runs in a
greenlet of the event loop. Its statements need no other thread, and only its commit is waited for. Functions
that arrive during a commit share the next one.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.loop_threads import LoopThreads
from app.store.sql.connection.fibers import Fiber, Fibers
from app.store.sql.connection.quick_statements import give_driver
from app.store.sql.connection.write_lock import WriteLock

T = TypeVar("T")

_PART = "part_of_group"
"""Savepoint of one function's changes."""


class _Batch:
    """An open transaction with the changes of several functions."""

    def __init__(self, connection: sa.Connection) -> None:
        """Begin the transaction, with SQLite's write lock. Raises sqlalchemy.exc.OperationalError."""
        self.connection = connection
        self.transaction = connection.begin()
        self.raw = _driver_of(connection)
        self.committed: asyncio.Future[None] | None = None
        """Future of the commit, set by the event loop."""
        self.turn: asyncio.Handle | None = None
        """Turn of the commit in the event loop."""
        self.parts = 0


class GroupCommit(Fibers):
    """Write transactions of one event loop on one connection."""

    def __init__(
        self,
        connect: Callable[[], sa.Connection],
        connect_to_read: Callable[[], sa.Connection],
        lock: WriteLock,
        patience: int,
    ) -> None:
        """Open no connection yet.

        Parameters
        ----------
        connect
            Opens a connection whose transactions take SQLite's write lock when they begin.
        connect_to_read
            Opens one whose transactions only read.
        lock
            Lock that the service's write transactions hold.
        patience
            Milliseconds for which a transaction waits for the write lock of another process.
        """
        super().__init__()
        self._connect = connect
        self._connect_to_read = connect_to_read
        self._reader: sa.Connection | None = None
        """Connection of `snapshot`, while nobody uses it."""
        self._lock = lock
        self._patience = patience
        self._threads = LoopThreads(1, "commit")
        """Commits, and waits for the locks: one call at a time."""
        self._connection: sa.Connection | None = None
        self._batch: _Batch | None = None
        self._changing: asyncio.Future[None] | None = None
        """Done when the locks have been taken, or the last batch has been committed."""
        self._in_part = False

    def aside(self, threads: Executor, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in a thread if the caller is in the event loop, and return its result."""
        fiber = self.running
        if fiber is None:
            return function(*arguments)
        return fiber.wait(self._loop.run_in_executor(threads, function, *arguments))

    def check_may_block(self) -> None:
        """Raise RuntimeError if waiting for the lock would block the event loop that has to release it."""
        if get_ident() == self._thread and (self._batch is not None or self._changing is not None):
            raise RuntimeError("a write transaction in the event loop needs `Database.in_loop`, or a thread")

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Run a transaction of the function; it has been committed when the block has ended.

        It sees the changes of functions before it that are committed together with its own. If the block
        raises an error, only its own changes are undone. If the disk is full, the database undoes all of
        them, and every function fails. The block itself must not wait.
        """
        fiber = self.running
        assert fiber is not None
        if self._in_part:
            raise RuntimeError("a transaction within a transaction")
        batch = self._batch or self._opened(fiber)
        assert batch.committed is not None
        batch.parts += 1
        self._in_part = True
        try:
            with _part_of(batch) as session:
                yield session
        except BaseException as error:
            self._in_part = False
            if batch.parts == 1:
                self._give_up(batch)
            elif not batch.raw.in_transaction:
                self._give_up(batch, error)
            else:  # the error may follow from changes that are not committed yet
                fiber.wait(batch.committed)
            raise
        self._in_part = False
        fiber.wait(batch.committed)

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """Run a read-only transaction of the function, on a connection that stays open."""
        connection, self._reader = self._reader or self._connect_to_read(), None
        try:
            with Session(connection, expire_on_commit=False) as session:
                session.connection()  # begins
                give_driver(session, connection)
                yield session
        except BaseException:
            connection.close()
            raise
        if self._reader is None:
            self._reader = connection
        else:  # the block of another function was within this one
            connection.close()

    def _opened(self, fiber: Fiber) -> _Batch:
        """Return the open batch; open one if there is none."""
        while self._batch is None:
            if self._changing is not None:
                fiber.wait(self._changing)
            elif not self._begun():
                self._changing = self._loop.create_future()
                try:
                    self._start(fiber.wait(self._loop.run_in_executor(self._threads, self._begin)))
                finally:
                    self._end_change()
        return self._batch

    def _begun(self) -> bool:
        """Begin a batch, unless another thread or process has the lock."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._start(_Batch(self._connected()))
        except sa.exc.OperationalError as error:
            self._discard_connection()
            self._lock.release()
            if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                return False
            raise
        except BaseException:
            self._discard_connection()
            self._lock.release()
            raise
        return True

    def _begin(self) -> _Batch:
        """Begin a batch when the locks are free. Blocking: called in a thread."""
        self._lock.acquire()
        try:
            connection = self._connected()
            raw = _driver_of(connection)
            raw.execute(f"PRAGMA busy_timeout={self._patience}")
            batch = _Batch(connection)
            raw.execute("PRAGMA busy_timeout=0")
            return batch
        except BaseException:
            self._discard_connection()
            self._lock.release()
            raise

    def _connected(self) -> sa.Connection:
        if self._connection is None:
            self._connection = self._connect()
            for pragma in ("busy_timeout=0", "temp_store=MEMORY"):  # of savepoints
                _driver_of(self._connection).execute(f"PRAGMA {pragma}")
        return self._connection

    def _start(self, batch: _Batch) -> None:
        batch.committed = self._loop.create_future()
        self._batch = batch
        batch.turn = self._loop.call_soon(self._commit)  # after the functions whose turn is now

    def _give_up(self, batch: _Batch, error: BaseException | None = None) -> None:
        """Undo a batch whose only function has failed, or which the database has undone by an ``error``."""
        assert batch.turn is not None
        batch.turn.cancel()
        self._batch = None
        try:
            if batch.transaction.is_active:
                batch.transaction.rollback()
        except sa.exc.SQLAlchemyError:
            self._discard_connection()
        self._lock.release()
        if error is not None:
            assert batch.committed is not None
            batch.committed.set_exception(error if isinstance(error, sa.exc.OperationalError) else _undone())
            batch.committed.exception()  # nobody waits if every function has failed by itself

    def _commit(self) -> None:
        batch = self._batch
        assert batch is not None
        if not batch.raw.in_transaction:  # which the driver would not notice
            self._give_up(batch, _undone())
            return
        self._batch = None
        self._changing = self._loop.create_future()
        done = self._loop.run_in_executor(self._threads, batch.transaction.commit)
        done.add_done_callback(lambda _: self._settle(batch, done.exception()))

    def _settle(self, batch: _Batch, error: BaseException | None) -> None:
        """Notify all functions of the batch how its commit has ended."""
        assert batch.committed is not None
        if error is not None:
            self._discard_connection()
        self._lock.release()
        self._end_change()
        if error is None:
            batch.committed.set_result(None)
        else:
            batch.committed.set_exception(error)
            batch.committed.exception()  # nobody waits if every function has failed by itself

    def _end_change(self) -> None:
        changing, self._changing = self._changing, None
        if changing is not None:
            changing.set_result(None)

    def _discard_connection(self) -> None:
        """Close the connection, which undoes its transaction; the next batch opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def close(self) -> None:
        """Close the connection; no function runs any more. Blocking."""
        self._threads.shutdown()
        for connection in (self._connection, self._reader):
            if connection is not None:
                connection.close()
        self._connection = self._reader = None


@contextmanager
def _part_of(batch: _Batch) -> Iterator[Session]:
    """Run the block of one function. If it raises an error, undo its changes, unless it is the first.

    With the first one the whole batch is given up. It needs no savepoint, for which SQLite would copy each
    page before it is changed.
    """
    first = batch.parts == 1
    if not first:
        batch.raw.execute(f"SAVEPOINT {_PART}")
    try:
        with Session(
            batch.connection, expire_on_commit=False, join_transaction_mode="rollback_only"
        ) as session:
            give_driver(session, batch.connection)
            yield session
            session.flush()
        if not batch.raw.in_transaction:  # the function has handled an error that undid everything
            raise _undone()
    except BaseException:
        if not first and batch.raw.in_transaction:
            batch.raw.execute(f"ROLLBACK TO {_PART}")
            batch.raw.execute(f"RELEASE {_PART}")
        raise
    if not first:
        batch.raw.execute(f"RELEASE {_PART}")


def _undone() -> sa.exc.OperationalError:
    """Return the error of a transaction that the database has undone."""
    cause = sqlite3.OperationalError("the transaction was undone by an error of one of its statements")
    return sa.exc.OperationalError("COMMIT", None, cause)


def _driver_of(connection: sa.Connection) -> sqlite3.Connection:
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw
