"""Audit lines of accesses that change nothing else, appended together.

A read of rows is recorded before its first row is sent, in a transaction that has nothing else. While one
thread commits such a transaction, the lines of other threads wait; the next of these threads commits all of
them in one transaction.
"""

import threading
from dataclasses import dataclass

from app.errors import InvalidRequest
from app.store.sql.audit.trail import AuditTrail, Entry
from app.store.sql.db import Database
from app.store.sql.replicas import moment


@dataclass(slots=True, eq=False)
class _Waiting:
    entry: Entry
    done: bool = False
    error: Exception | None = None


class AuditQueue:
    """Appends lines of several threads in one transaction."""

    def __init__(self, database: Database, trail: AuditTrail) -> None:
        self._database = database
        self._trail = trail
        self._waiting: list[_Waiting] = []
        self._adding = threading.Lock()
        self._committing = threading.Lock()

    def append(self, entry: Entry) -> None:
        """Append a line; return when it is committed. Raises Unavailable, InvalidRequest."""
        mine = _Waiting(entry)
        with self._adding:
            self._waiting.append(mine)
        with self._committing:
            if not mine.done:  # no other thread has taken it with its own
                with self._adding:
                    batch, self._waiting = self._waiting, []
                self._commit(batch)
        if mine.error is not None:
            raise mine.error

    def _commit(self, batch: list[_Waiting]) -> None:
        try:
            with self._database.write() as session:
                self._trail.append_all(session, [each.entry for each in batch], moment(session))
        except Exception as error:
            if len(batch) > 1 and isinstance(error, InvalidRequest):  # which does not fail the others
                for each in batch:
                    self._commit([each])
                return
            for each in batch:
                each.error = error
        for each in batch:
            each.done = True
