"""The metrics that are looked up when they are asked for. Blocking: it runs in a thread."""

import logging

from app.engine.engine import Engine
from app.jobs.stores import Stores
from app.settings import Settings
from app.store import buffers, deliveries, jobs
from app.store.replicas import moment
from app.telemetry.metrics import Metrics

_log = logging.getLogger("rowveil.metrics")


class Sample:
    """One look at the database, the store and the workers."""

    def __init__(self, settings: Settings, stores: Stores, engine: Engine, metrics: Metrics) -> None:
        self._settings = settings
        self._stores = stores
        self._engine = engine
        self._metrics = metrics

    def text(self) -> bytes:
        """All metrics. What cannot be looked up now stays as it was, and `rowveil_database_up` says so."""
        metrics = self._metrics
        metrics.workers.set(self._settings.workers)
        metrics.free.set(self._engine.capacity())
        metrics.ready.set(self._engine.ready())
        try:
            self._look_into_the_database()
            metrics.database_up.set(1)
        except Exception as error:
            _log.error("the database is not available: %s", type(error).__qualname__)
            metrics.database_up.set(0)
        blobs, size = self._stores.blobs.measure()
        metrics.blobs.set(blobs)
        metrics.blob_bytes.set(size)
        return metrics.text()

    def _look_into_the_database(self) -> None:
        with self._stores.database.read() as session:
            now = moment(session)
            going, oldest = jobs.count_going(session)
            kept, size = buffers.count(session, now)
            pending = deliveries.count_pending(session)
        metrics = self._metrics
        for state, count in going.items():
            metrics.jobs.labels(state).set(count)
        metrics.oldest.set(0.0 if oldest is None else max(0.0, (now - oldest).total_seconds()))
        metrics.buffers.set(kept)
        metrics.buffer_bytes.set(size)
        metrics.pending.set(pending)
