"""A database server in memory, with PostgreSQL's rules for READ COMMITTED transactions.

Each statement sees what was committed when it began, and what its own transaction has written. Rows are
locked in PostgreSQL's four modes. A statement that waited for a lock looks at the newest version of the row
again (PostgreSQL 17 documentation, 13.2.1 Read Committed Isolation Level, 13.3.2 Row-Level Locks).
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

from app.errors import Unavailable
from tests.simulation.scheduler import Killed, Process, Scheduler

BEGIN = datetime(2026, 11, 23, tzinfo=UTC)
"""Database's time at the virtual time 0."""

LOCK_SECONDS = 10.0
"""Time after which a statement gives up waiting for a lock (`lock_timeout`)."""

MOST_LOCKS = 60
"""Blob locks that the server has room for. A real one has room for 6,400 locks by default."""

TABLES = ("jobs", "buffers", "replicas", "callers", "keys", "deliveries", "queue", "blob locks")

Row = dict[str, Any]
Key = tuple[str, Any]


class Mode(IntEnum):
    """Modes of row locks, from the weakest."""

    KEY_SHARE = 0
    SHARE = 1
    NO_KEY_UPDATE = 2
    UPDATE = 3


_CONFLICTS = {
    Mode.KEY_SHARE: {Mode.UPDATE},
    Mode.SHARE: {Mode.NO_KEY_UPDATE, Mode.UPDATE},
    Mode.NO_KEY_UPDATE: {Mode.SHARE, Mode.NO_KEY_UPDATE, Mode.UPDATE},
    Mode.UPDATE: set(Mode),
}


class Server:
    """Committed rows, locks, and the faults of the database."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.tables: dict[str, dict[Any, Row]] = {name: {} for name in TABLES}
        self.tables["queue"][1] = {"turn": BEGIN}
        self.away_until = 0.0
        self.cut_off: dict[str, float] = {}
        """Processes that the network does not connect to the server, and until when."""
        self.lost_responses = 0.0
        """Probability that the response to a commit is lost."""
        self.on_commit: list[Callable[[dict[Key, Row | None]], None]] = []
        self._locks: dict[Key, list[tuple[Session, Mode]]] = {}
        self._waiting: dict[Key, list[Callable[[], None]]] = {}
        self.waits_for: dict[Session, Key] = {}
        self.blob_locks = 0

    def blockers(self, key: Key, session: "Session", mode: Mode) -> list["Session"]:
        """Return the transactions whose locks conflict with this one."""
        if key not in self._locks:
            return []
        conflicts = _CONFLICTS[mode]
        return [held for held, kind in self._locks[key] if held is not session and kind in conflicts]

    def take(self, key: Key, session: "Session", mode: Mode) -> None:
        """Give the lock to the transaction."""
        self._locks.setdefault(key, []).append((session, mode))
        session.locked.append(key)
        if key[0] == "blob locks":
            self.blob_locks += 1

    def wait_for(self, key: Key, wake: Callable[[], None]) -> None:
        """Call ``wake`` when a lock of the row is released."""
        self._waiting.setdefault(key, []).append(wake)

    def release(self, session: "Session") -> None:
        """Release all locks of a transaction that has ended."""
        for key in session.locked:
            entries = self._locks.get(key, [])
            held = [entry for entry in entries if entry[0] is not session]
            if key[0] == "blob locks":
                self.blob_locks -= len(entries) - len(held)
            if held:
                self._locks[key] = held
            else:
                self._locks.pop(key, None)
            if key in self._waiting:
                for wake in self._waiting.pop(key):
                    wake()
        session.locked.clear()

    def commit(self, session: "Session") -> None:
        """Make the writes of a transaction visible, and release its locks."""
        if session.written:
            for (table, key), row in session.written.items():
                if row is None:
                    self.tables[table].pop(key, None)
                else:
                    self.tables[table][key] = row
            for callback in self.on_commit:
                callback(session.written)
        self.release(session)


class Session:
    """One transaction of a process; a ``with`` block commits it at its end, or rolls it back."""

    __slots__ = ("locked", "open", "process", "scheduler", "server", "written")

    def __init__(self, server: Server, process: Process) -> None:
        self.server = server
        self.scheduler = server.scheduler
        self.process = process
        self.written: dict[Key, Row | None] = {}
        self.locked: list[Key] = []
        self.open = True

    def __enter__(self) -> "Session":
        self.scheduler.check_alive()
        self.process.on_kill.append(self.roll_back)  # the server notices the closed connection
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        """Commit, or roll back. Raises Unavailable."""
        try:
            if kind is None:
                self._end()
            elif not issubclass(kind, Killed):
                self.roll_back()
        finally:
            self.process.on_kill.remove(self.roll_back)

    def _end(self) -> None:
        try:
            if self.written:
                self.step()
            self._commit()
        except Killed:
            raise
        except BaseException:
            self.roll_back()
            raise

    def _commit(self) -> None:
        server = self.server
        # A response is lost with the connection: before the server has committed, or afterwards.
        lost = bool(self.written) and server.scheduler.random.random() < server.lost_responses
        if lost and server.scheduler.random.random() < 0.5:
            raise Unavailable("the connection was lost before the commit")
        self.open = False
        server.commit(self)
        if lost:
            server.scheduler.pause(1.0)
            raise Unavailable("the response to the commit was lost")

    def step(self) -> None:
        """Begin a statement. Raises Unavailable if it does not reach the server."""
        server, scheduler = self.server, self.scheduler
        scheduler.pause()
        now = scheduler.now
        if now < server.away_until or now < server.cut_off.get(self.process.name, 0.0):
            scheduler.pause(1.0)  # the driver notices the loss
            raise Unavailable("the database is temporarily not available; try again")
        if not self.open:  # the server has ended the transaction of a process that was silent for long
            raise Unavailable("the transaction has been ended")

    def rows(self, table: str) -> list[tuple[Any, Row]]:
        """Return the rows that a statement sees."""
        committed, written = self.server.tables[table], self.written
        if not written:
            return list(committed.items())
        seen = []
        for key, row in committed.items():
            own = written.get((table, key), row)
            if own is not None:
                seen.append((key, own))
        for (of, key), own in written.items():
            if of == table and own is not None and key not in committed:
                seen.append((key, own))
        return seen

    def row(self, table: str, key: Any) -> Row | None:
        """Return the row that a statement sees; None if there is none."""
        if (table, key) in self.written:
            return self.written[table, key]
        return self.server.tables[table].get(key)

    def lock(self, table: str, key: Any, mode: Mode, skip: bool = False) -> bool:
        """Lock a row; with ``skip``, return False instead of waiting. Raises Unavailable."""
        server, place = self.server, (table, key)
        deadline = self.scheduler.now + LOCK_SECONDS
        while blockers := server.blockers(place, self, mode):
            if skip:
                return False
            if server.scheduler.now >= deadline or self._closes_a_circle(blockers):
                raise Unavailable("the transaction is a deadlock's victim, or has waited for too long")
            server.waits_for[self] = place

            def resume(wake: Callable[[], None], place: Key = place) -> None:
                server.wait_for(place, wake)
                server.scheduler.at(deadline, wake)

            try:
                server.scheduler.wait(resume)
            finally:
                server.waits_for.pop(self, None)
            if not self.open:
                raise Unavailable("the transaction has been ended")
        server.take(place, self, mode)
        return True

    def matching(
        self,
        table: str,
        condition: Callable[[Row], bool],
        mode: Mode | None = None,
        skip: bool = False,
        order: Callable[[Row], Any] | None = None,
        most: int | None = None,
    ) -> list[tuple[Any, Row]]:
        """Return rows that satisfy the condition, locked if a mode is given, up to ``most`` of them."""
        found = [(key, row) for key, row in self.rows(table) if condition(row)]
        if order is not None:
            found.sort(key=lambda item: order(item[1]))
        if mode is None:
            return found if most is None else found[:most]
        locked: list[tuple[Any, Row]] = []
        for key, _ in found:
            if most is not None and len(locked) == most:
                break
            if not self.lock(table, key, mode, skip):
                continue
            newest = self.row(table, key)
            if newest is not None and condition(newest):
                locked.append((key, newest))
        return locked

    def update(self, table: str, condition: Callable[[Row], bool], keys: Iterable[Any], **values: Any) -> int:
        """Change the rows of these keys that satisfy the condition; return their number."""
        changed = 0
        for key in keys:
            row = self.row(table, key)
            if row is None or not condition(row):
                continue
            self.lock(table, key, Mode.NO_KEY_UPDATE)
            newest = self.row(table, key)
            if newest is not None and condition(newest):
                self.written[table, key] = newest | values
                changed += 1
        return changed

    def insert(self, table: str, key: Any, row: Row) -> None:
        """Add a row. The key must be new."""
        self.lock(table, key, Mode.UPDATE)
        assert self.row(table, key) is None, f"{table} has {key} already"
        self.written[table, key] = row

    def delete(
        self, table: str, keys: Iterable[Any], condition: Callable[[Row], bool] = lambda row: True
    ) -> list[Row]:
        """Delete the rows of these keys that satisfy the condition; return them."""
        gone = []
        for key in keys:
            row = self.row(table, key)
            if row is None or not condition(row):
                continue
            self.lock(table, key, Mode.UPDATE)
            newest = self.row(table, key)
            if newest is not None and condition(newest):
                gone.append(newest)
                self.written[table, key] = None
        return gone

    def roll_back(self) -> None:
        """End the transaction without its writes."""
        if self.open:
            self.open = False
            self.written.clear()
            self.server.release(self)

    def _closes_a_circle(self, blockers: list["Session"]) -> bool:
        seen: set[Session] = set()
        waiting = list(blockers)
        while waiting:
            session = waiting.pop()
            if session is self:
                return True
            if session in seen or (key := self.server.waits_for.get(session)) is None:
                continue
            seen.add(session)
            waiting += self.server.blockers(key, session, Mode.UPDATE)
        return False


class SimulatedDatabase:
    """`app.store.sql.db.Database` of one process, on the server in memory."""

    shared = True
    runs_in_loop = False

    def __init__(self, server: Server, process: Process) -> None:
        self._server = server
        self._process = process

    def write(self) -> Session:
        """Return a transaction, which is committed at the end of the block. Raises Unavailable."""
        return Session(self._server, self._process)

    read = write
    """A read transaction has the same rules; it just writes nothing."""

    def in_loop(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Start nothing: a server's transactions need threads."""

    def aside(self, threads: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function: the caller is in a thread."""
        return function(*arguments)

    log_is_due = False

    def check_space(self, spare: int = 0) -> None:
        """Do nothing: the disk is that of a server."""

    def truncate_log(self) -> None:
        """Do nothing: PostgreSQL needs none."""

    def close(self) -> None:
        """Do nothing."""
