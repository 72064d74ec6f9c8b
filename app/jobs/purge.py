"""What goes at the end of its time, and the audit line that says so. Blocking: it runs in a thread."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from app.callers import THE_SERVICE
from app.jobs.stores import Stores
from app.settings import Settings
from app.store import buffers, callers, deliveries, idempotency, jobs
from app.store.db import Transaction
from app.store.replicas import moment
from app.telemetry.metrics import Metrics


class Purge:
    """Removes buffers, results, jobs, idempotency keys and messages whose time is over."""

    def __init__(self, settings: Settings, stores: Stores, metrics: Metrics) -> None:
        self._settings = settings
        self._stores = stores
        self._metrics = metrics

    def run(self) -> None:
        """Do it once. Several replicas may do it at a time: what one takes, the other does not find."""
        counts = {
            "buffer": self._once(self._buffers),
            "result": self._once(self._results),
            "job": self._once(self._jobs),
            "idempotency_key": self._once(self._keys),
            "webhook": self._once(self._told),
        }
        if counts["job"]:
            self._stores.database.forget()
        for what, count in counts.items():
            self._metrics.purged.labels(what).inc(count)

    def _once(self, step: Callable[[Transaction, datetime], tuple[int, list[str]]]) -> int:
        """In a transaction of its own, by the database's clock: one that jumps here deletes nothing."""
        with self._stores.database.write() as session:
            count, unnamed = step(session, moment(session))
        self._stores.delete_blobs(unnamed)
        return count

    def _buffers(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        expired, unnamed = buffers.delete_expired(session, now)
        idempotency.forget(session, expired)
        self._audit(session, "buffer.purge", expired, now)
        return len(expired), unnamed

    def _results(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        released, unnamed = jobs.release_old(session, _before(now, self._settings.result_retention))
        self._audit(session, "result.purge", released, now)
        return len(released), unnamed

    def _jobs(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        deleted, unnamed = jobs.delete_old(session, _before(now, self._settings.job_retention))
        idempotency.forget(session, deleted)
        callers.forget_unseen(session, _before(now, self._settings.job_retention))
        self._audit(session, "job.purge", deleted, now)
        return len(deleted), unnamed

    def _keys(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        return idempotency.delete_expired(session, now), []

    def _told(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        return deliveries.delete_old(session, _before(now, self._settings.webhook_retention)), []

    def _audit(self, session: Transaction, action: str, subjects: Sequence[str], now: datetime) -> None:
        for subject in subjects:
            self._stores.audit.append(session, THE_SERVICE, action, subject, now)


def _before(moment: datetime, seconds: float) -> datetime:
    return moment - timedelta(seconds=seconds)
