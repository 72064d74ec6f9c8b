"""Delete expired rows and tables, with an audit line for each deletion. Blocking: it runs in a thread.

Everything is deleted in batches, each in a transaction of its own: a service that was down for days finds
tens of thousands of due rows, and one transaction over all of them needs more locks than the database has.
A step that fails does not keep the others from running. Nothing is deleted by a clock that has jumped ahead.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from app.callers import THE_SERVICE
from app.errors import StorageFull, Unavailable
from app.jobs.maintenance.clock_watch import uptime
from app.jobs.maintenance.sweep import MOST_FILES
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.sql import buffers, idempotency, jobs, usage, webhook_outbox
from app.store.sql.audit.trail import Entry
from app.store.sql.db import Transaction
from app.store.sql.replicas import moment
from app.telemetry.metrics import Metrics
from app.webhooks.delivery import LONGEST_PAUSE

_log = logging.getLogger("rowveil.jobs")

BATCH_ROWS = 200
"""Largest number of rows that one transaction deletes."""

BLOB_ROWS = MOST_FILES // 4
"""Largest number of rows that one transaction deletes if they may name blobs, of which a job has up to two.

A service that is killed after the commit leaves the blobs in the folder. They are then at most half of what a
sweep takes without the suspicion that the database was restored to an older state.
"""

_WITH_SECRETS = ("buffer", "result", "job", "webhook")
"""Kinds whose rows have texts of callers or sealed values, which must not stay in the log of the database."""

_Step = Callable[[Transaction, datetime], tuple[int, list[str]]]


class Lifetimes(NamedTuple):
    """Times after its end for which the service stores a job."""

    job: timedelta
    """Time until the job is deleted, with its report, manifest and seed."""
    tables: timedelta
    """Time until its destination and its retained source are deleted."""


def lifetimes_of(settings: Settings) -> Lifetimes:
    """Return the times that the settings state."""
    return Lifetimes(timedelta(seconds=settings.job_retention), timedelta(seconds=settings.result_retention))


class Retention:
    """Deletes expired buffers, results, jobs, idempotency keys, webhook messages and unseen callers."""

    def __init__(self, settings: Settings, stores: Stores, metrics: Metrics) -> None:
        self._settings = settings
        self._lifetimes = lifetimes_of(settings)
        self._stores = stores
        self._metrics = metrics
        self._stopping = threading.Event()
        self._released = jobs.LONG_AGO
        """Time at which the last job ended whose results the current run has released."""
        self._steps: dict[str, _Step] = {
            "buffer": self._buffers,
            "result": self._results,
            "job": self._jobs,
            "idempotency_key": self._keys,
            "webhook": self._messages,
            "caller": self._callers,
        }
        self._done_at = dict.fromkeys(self._steps, time.monotonic())
        """Moment of the monotonic clock up to which all due rows have been deleted, by kind."""
        for kind in self._steps:
            metrics.purged.labels(kind)  # both counters are shown from 0
            metrics.purge_failures.labels(kind)
            metrics.follow(metrics.purge_lag.labels(kind), partial(self._lag, kind))

    def run(self) -> None:
        """Purge once. Several replicas may purge at the same time: each row is deleted by one of them."""
        self._released = jobs.LONG_AGO
        self._make_room()
        for kind, step in self._steps.items():
            try:
                deleted = self._in_batches(kind, step)
                due = kind == "job" and self._stores.database.log_is_due
                if due or (deleted and kind in _WITH_SECRETS):
                    self._stores.database.truncate_log()
            except Exception as error:
                self._metrics.purge_failures.labels(kind).inc()
                _log.error("purging (%s) failed: %s", kind, type(error).__qualname__)

    def _make_room(self) -> None:
        """Shorten the log of an embedded database whose disk is nearly full; a deletion needs room, too."""
        try:
            self._stores.database.check_space()
        except StorageFull:
            self._stores.database.truncate_log()
        except Unavailable:  # then so are the purges, which are counted
            pass

    def stop(self) -> None:
        """Let a run that is going on end after its current batch."""
        self._stopping.set()

    def _lag(self, kind: str) -> float:
        return time.monotonic() - self._done_at[kind]

    def _in_batches(self, kind: str, step: _Step) -> int:
        """Repeat a step until nothing is left; return the number of rows that it took."""
        started, total = time.monotonic(), 0
        while not self._stopping.is_set():
            with self._stores.database.write() as session:
                # By the database's clock: a local clock may jump.
                now = moment(session)
                if not self._stores.clock.trusts(now, uptime()):
                    break
                count, unnamed = step(session, now)
            self._stores.delete_blobs_patiently(unnamed)
            self._metrics.purged.labels(kind).inc(count)
            total += count
            if count == 0:
                self._done_at[kind] = started
                break
        return total

    def _buffers(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        expired, unnamed = buffers.delete_expired(session, now, BLOB_ROWS)
        idempotency.forget(session, expired)
        self._audit(session, "buffer.purge", expired, now)
        return len(expired), unnamed

    def _results(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        before = now - self._lifetimes.tables
        released, unnamed, self._released = jobs.release_old(session, before, BLOB_ROWS, self._released)
        self._audit(session, "result.purge", released, now)
        return len(released), unnamed

    def _jobs(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        before = now - self._lifetimes.job
        deleted, unnamed = jobs.delete_old(session, before, BLOB_ROWS)
        idempotency.forget(session, deleted)
        self._audit(session, "job.purge", deleted, now)
        return len(deleted), unnamed

    def _audit(self, session: Transaction, action: str, subjects: Iterable[str], now: datetime) -> None:
        entries = [Entry(THE_SERVICE, action, subject) for subject in subjects]
        self._stores.audit.append_all(session, entries, now)

    def _keys(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        return idempotency.delete_expired(session, now, BATCH_ROWS), []

    def _messages(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        webhook_outbox.make_due(session, now, LONGEST_PAUSE)
        before = now - timedelta(seconds=self._settings.webhook_retention)
        return webhook_outbox.delete_old(session, before, BATCH_ROWS), []

    def _callers(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        before = now - self._lifetimes.job
        return usage.forget_unseen(session, before, BATCH_ROWS), []
