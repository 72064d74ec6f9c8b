"""Gauges read from the database, the store and the engine at each scrape."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor

from app.engine.engine import Engine
from app.engine.kernel_compilation import KernelCompilation
from app.file_threads import ServiceThreads
from app.jobs.maintenance.certificates import CertificateExpiry
from app.jobs.stores import Stores
from app.loop_threads import LoopThreads
from app.settings import Settings
from app.store.sql import buffers, jobs, webhook_outbox
from app.store.sql.replicas import moment
from app.telemetry.metrics import Metrics

_log = logging.getLogger("rowveil.metrics")

_MEASURING_SECONDS = 5.0
_DATABASE_SECONDS = 5.0
"""Times for which a scrape waits for the storage to be measured and for the database, both at once.

A scraper waits for ten seconds by default."""

_PAUSE_FACTOR = 100.0
_MOST_PAUSE_SECONDS = 300.0
"""Pause between two measurements of the storage, as a multiple of the last one's time, and its maximum.

A listing of 100,000 sealed files takes half a second, of a slow shared folder much longer."""


class MetricsSnapshot:
    """Reads the gauges of the database, the store and the workers."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        engine: Engine,
        metrics: Metrics,
        kernels: KernelCompilation | None,
        threads: ServiceThreads,
    ) -> None:
        self._threads = threads
        self._own: dict[str, LoopThreads] = {}
        self._running: dict[str, asyncio.Future[None]] = {}
        self._kernels = kernels
        self._settings = settings
        self._stores = stores
        self._engine = engine
        self._metrics = metrics
        self._certificates = CertificateExpiry(settings)
        self._measure_at = 0.0
        """Time of the next measurement of the storage, by `time.monotonic`."""
        metrics.workers.set(settings.workers)
        metrics.follow(metrics.free, engine.capacity)
        metrics.follow(metrics.ready, engine.ready)
        metrics.follow(metrics.kernels_missing, self._missing_kernels)
        metrics.follow(metrics.connections, lambda: stores.database.connections()[0])
        metrics.follow(metrics.connections_limit, lambda: stores.database.connections()[1])

    async def text(self) -> bytes:
        """Return all metrics as text.

        If the database is away or does not respond, its gauges keep their values and `rowveil_database_up` is
        0. Those of a storage that does not respond keep theirs.
        """
        files = self._started("files", self._threads.background, self._measure_files)
        # In a thread that nothing else uses: a database that does not respond holds it, and all other ones.
        database = self._started("database", self._own_threads("database"), self._try_database)
        await asyncio.gather(
            asyncio.wait([files], timeout=_MEASURING_SECONDS),
            asyncio.wait([database], timeout=_DATABASE_SECONDS),
        )
        if not database.done():
            _log.error("the database is not available: it does not respond")
            self._metrics.database_up.set(0)
        return await asyncio.get_running_loop().run_in_executor(self._own_threads("text"), self._text)

    def _own_threads(self, name: str) -> LoopThreads:
        if name not in self._own:
            self._own[name] = LoopThreads(1, f"metrics-{name}")
        return self._own[name]

    def _started(self, name: str, threads: Executor, read: Callable[[], None]) -> asyncio.Future[None]:
        """Start to read in a thread, unless the last scrape's reading has not ended; return its future."""
        running = self._running.get(name)
        if running is None or running.done():
            running = asyncio.get_running_loop().run_in_executor(threads, read)
            self._running[name] = running
        return running

    def _text(self) -> bytes:
        metrics = self._metrics
        for certificate, expiry in (self._certificates.read() | self._engine.certificates()).items():
            metrics.certificate_expiry.labels(certificate).set(expiry)
        metrics.sweep_held.set(self._stores.sweeper.held)
        return metrics.text()

    def _try_database(self) -> None:
        try:
            self._read_database()
            self._metrics.database_up.set(1)
        except Exception as error:
            _log.error("the database is not available: %s", type(error).__qualname__)
            self._metrics.database_up.set(0)

    def _measure_files(self) -> None:
        self._read_disks()
        try:
            self._measure_storage()
        except OSError as error:  # the gauges keep their values
            _log.error("the storage cannot be measured: %s", error.strerror)

    def _missing_kernels(self) -> int:
        progress = None if self._kernels is None else self._kernels.progress
        return 0 if progress is None else progress.kernels - progress.compiled

    def _measure_storage(self) -> None:
        began = time.monotonic()
        if began < self._measure_at:
            return
        metrics = self._metrics
        blobs, size = self._stores.blobs.measure()
        metrics.blobs.set(blobs)
        metrics.blob_bytes.set(size)
        trashed, size = self._stores.blobs.measure_trash()
        metrics.trash.set(trashed)
        metrics.trash_bytes.set(size)
        ended = time.monotonic()
        self._measure_at = ended + min(_PAUSE_FACTOR * (ended - began), _MOST_PAUSE_SECONDS)

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
