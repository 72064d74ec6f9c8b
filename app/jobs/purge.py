"""What goes at the end of its time, and the audit line that says so. Blocking: it runs in a thread."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from app.jobs.stores import Stores, now
from app.settings import Settings
from app.store import buffers, callers, deliveries, idempotency, jobs
from app.store.db import Session
from app.telemetry.metrics import Metrics


class Purge:
    """Removes buffers, results, jobs, idempotency keys and messages whose time is over."""

    def __init__(self, settings: Settings, stores: Stores, metrics: Metrics) -> None:
        self._settings = settings
        self._stores = stores
        self._metrics = metrics

    def run(self) -> None:
        """Do it once. Several replicas may do it at a time: what one takes, the other does not find."""
        moment = now()
        settings = self._settings
        with self._stores.database.write() as session:
            expired, unnamed = buffers.delete_expired(session, moment)
            idempotency.forget(session, expired)
            released, no_more = jobs.release_old(session, _before(moment, settings.result_retention))
            unnamed += no_more
            deleted, no_more = jobs.delete_old(session, _before(moment, settings.job_retention))
            unnamed += no_more
            idempotency.forget(session, deleted)
            keys = idempotency.delete_expired(session, moment)
            told = deliveries.delete_old(session, _before(moment, settings.webhook_retention))
            callers.forget_unseen(session, _before(moment, settings.job_retention))
            _audit(session, "buffer.purge", expired, moment)
            _audit(session, "result.purge", released, moment)
            _audit(session, "job.purge", deleted, moment)
        self._stores.delete_blobs(unnamed)
        if deleted:
            self._stores.database.forget()
        counts = {
            "buffer": len(expired),
            "result": len(released),
            "job": len(deleted),
            "idempotency_key": keys,
            "webhook": told,
        }
        for what, count in counts.items():
            self._metrics.purged.labels(what).inc(count)


def _before(moment: datetime, seconds: float) -> datetime:
    return moment - timedelta(seconds=seconds)


def _audit(session: Session, action: str, subjects: Sequence[str], moment: datetime) -> None:
    for subject in subjects:
        jobs.audit(session, action, subject, moment)
