"""Gauges read from the database, the store and the engine at each scrape. Blocking: it runs in a thread."""

import contextlib
import logging
import os

from app.engine.engine import Engine
from app.engine.kernel_compilation import KernelCompilation
from app.jobs.maintenance.certificates import CertificateExpiry
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.sql import buffers, jobs, webhook_outbox
from app.store.sql.replicas import moment
from app.telemetry.metrics import Metrics

_log = logging.getLogger("rowveil.metrics")


class MetricsSnapshot:
    """Reads the gauges of the database, the store and the workers."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        engine: Engine,
        metrics: Metrics,
        kernels: KernelCompilation | None,
    ) -> None:
        self._kernels = kernels
        self._settings = settings
        self._stores = stores
        self._engine = engine
        self._metrics = metrics
        self._certificates = CertificateExpiry(settings)
        metrics.workers.set(settings.workers)
        metrics.follow(metrics.free, engine.capacity)
        metrics.follow(metrics.ready, engine.ready)
        metrics.follow(metrics.kernels_missing, self._missing_kernels)
        metrics.follow(metrics.connections, lambda: stores.database.connections()[0])
        metrics.follow(metrics.connections_limit, lambda: stores.database.connections()[1])

    def text(self) -> bytes:
        """Return all metrics as text.

        If the database is away, its gauges keep their values and `rowveil_database_up` is 0.
        """
        metrics = self._metrics
        self._read_disks()
        for certificate, expiry in (self._certificates.read() | self._engine.certificates()).items():
            metrics.certificate_expiry.labels(certificate).set(expiry)
        try:
            self._read_database()
            metrics.database_up.set(1)
        except Exception as error:
            _log.error("the database is not available: %s", type(error).__qualname__)
            metrics.database_up.set(0)
        try:
            self._measure_storage()
        except OSError as error:  # the gauges keep their values
            _log.error("the storage cannot be measured: %s", error.strerror)
        metrics.sweep_held.set(self._stores.sweeper.held)
        return metrics.text()

    def _missing_kernels(self) -> int:
        progress = None if self._kernels is None else self._kernels.progress
        return 0 if progress is None else progress.kernels - progress.compiled

    def _measure_storage(self) -> None:
        metrics = self._metrics
        blobs, size = self._stores.blobs.measure()
        metrics.blobs.set(blobs)
        metrics.blob_bytes.set(size)
        trashed, size = self._stores.blobs.measure_trash()
        metrics.trash.set(trashed)
        metrics.trash_bytes.set(size)

    def _read_disks(self) -> None:
        """Read the room on the file systems of home and shared folder; one that is away keeps its values."""
        folders = {"home": self._settings.home, "shared": self._settings.shared_folder}
        for name, folder in folders.items():
            with contextlib.suppress(OSError):
                status = os.statvfs(folder)
                self._metrics.disk_free.labels(name).set(status.f_bavail * status.f_frsize)
                self._metrics.disk_size.labels(name).set(status.f_blocks * status.f_frsize)

    def _read_database(self) -> None:
        with self._stores.database.read() as session:
            now = moment(session)
            active, oldest = jobs.count_active(session)
            stored, size = buffers.count(session, now)
            pending = webhook_outbox.count_pending(session)
        metrics = self._metrics
        for state, count in active.items():
            metrics.jobs.labels(state).set(count)
        metrics.oldest.set(0.0 if oldest is None else max(0.0, (now - oldest).total_seconds()))
        metrics.buffers.set(stored)
        metrics.buffer_bytes.set(size)
        metrics.pending.set(pending)
