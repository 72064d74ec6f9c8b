"""Delete what has expired, with an audit line for each deletion. Blocking: it runs in a thread."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from app.callers import THE_SERVICE
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.sql import buffers, idempotency, jobs, usage, webhook_outbox
from app.store.sql.db import Transaction
from app.store.sql.replicas import moment
from app.telemetry.metrics import Metrics


class Retention:
    """Deletes expired buffers, results, jobs, idempotency keys and webhook messages."""

    def __init__(self, settings: Settings, stores: Stores, metrics: Metrics) -> None:
        self._settings = settings
        self._stores = stores
        self._metrics = metrics

    def run(self) -> None:
        """Purge once. Several replicas may purge at the same time: each row is deleted by one of them."""
        counts = {
            "buffer": self._once(self._buffers),
            "result": self._once(self._results),
            "job": self._once(self._jobs),
            "idempotency_key": self._once(self._keys),
            "webhook": self._once(self._messages),
        }
        if counts["job"]:
            self._stores.database.truncate_log()
        for kind, count in counts.items():
            self._metrics.purged.labels(kind).inc(count)

    def _once(self, step: Callable[[Transaction, datetime], tuple[int, list[str]]]) -> int:
        """Run a step in its own transaction, by the database's clock: a local clock may jump."""
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
        usage.forget_unseen(session, _before(now, self._settings.job_retention))
        self._audit(session, "job.purge", deleted, now)
        return len(deleted), unnamed

    def _keys(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        return idempotency.delete_expired(session, now), []

    def _messages(self, session: Transaction, now: datetime) -> tuple[int, list[str]]:
        return webhook_outbox.delete_old(session, _before(now, self._settings.webhook_retention)), []

    def _audit(self, session: Transaction, action: str, subjects: Sequence[str], now: datetime) -> None:
        for subject in subjects:
            self._stores.audit.append(session, THE_SERVICE, action, subject, now)


def _before(moment: datetime, seconds: float) -> datetime:
    return moment - timedelta(seconds=seconds)
