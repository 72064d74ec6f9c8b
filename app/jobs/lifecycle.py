"""Start and stop of the job service: opens the stores, wires the components and runs them in order."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from app.engine.dask_address import cluster_of
from app.engine.engine import Engine, TaskFunction
from app.engine.fork_server import worker_modules
from app.engine.kernel_compilation import KernelCompilation
from app.engine.local_engine import EmbeddedEngine
from app.engine.progress_reader import ProgressReader
from app.engine.sandbox import Confinement, offered
from app.engine.worker_process import WorkerSetup
from app.errors import Unavailable
from app.file_threads import FileThreads, ServiceThreads
from app.jobs.acceptance import Acceptance
from app.jobs.api_keys import ApiKeys
from app.jobs.buffers import Buffers
from app.jobs.dispatcher import Dispatcher
from app.jobs.fairness.limits import Limits
from app.jobs.fairness.rates import Rates
from app.jobs.fairness.turns import Turns
from app.jobs.idempotency import Idempotency
from app.jobs.job_metrics import JobMetrics
from app.jobs.maintenance.health import HealthCheck
from app.jobs.maintenance.heartbeat import Heartbeat
from app.jobs.maintenance.load_sampler import LoadSampler
from app.jobs.maintenance.loop import MaintenanceLoop
from app.jobs.maintenance.metrics_snapshot import MetricsSnapshot
from app.jobs.maintenance.retention import Retention
from app.jobs.maintenance.takeover import Takeover
from app.jobs.plans import Plans
from app.jobs.progress import ProgressSender, shared_progress
from app.jobs.recorder import Recorder
from app.jobs.reference_reader import ReferenceReader
from app.jobs.reference_writer import ReferenceWriter
from app.jobs.series import SeriesTransactions
from app.jobs.stores import Stores
from app.jobs.tables.buffer_rows import BufferRows
from app.jobs.tables.table_writes import TableWrites
from app.jobs.tables.views import TableViews
from app.jobs.task_builder import TaskBuilder
from app.jobs.transactions import JobTransactions
from app.jobs.units.repeated_tasks import RepeatPolicy
from app.jobs.units.spools import BucketSpools
from app.jobs.units.unit_runner import JobRuns
from app.jobs.watchers import Watchers
from app.loop_threads import LoopThreads
from app.processes.api_process import ApiProcess
from app.settings import Settings
from app.store.blobs.bucket import Bucket
from app.store.blobs.bucket_blobs import BucketBlobs
from app.store.blobs.places import place_of
from app.store.sql.connection.errors import DatabaseAway
from app.store.sql.deployment import StorageAway
from app.telemetry import tracing
from app.telemetry.metrics import Metrics
from app.webhooks.delivery import Deliverer
from app.worker.staging import StagingSetup
from providers import KERNEL_CPU

T = TypeVar("T")

_log = logging.getLogger("rowveil.jobs")

_THREADS = 8
_FILE_THREADS = 16
"""Threads for the files of requests, which a storage that does not respond holds."""
_LOOPS = 6
"""Loops of the service that open files: claims, takeovers, purges, measurements, and sweeps by two loops."""
_AWAY_SECONDS = 30.0
"""Time that a start waits for a database server or a bucket that does not respond yet."""
_RETRY_SECONDS = 0.5
_LAST_ANCHOR_SECONDS = 5.0
"""Time in which a stop publishes the last checkpoint of the audit; the next start publishes it otherwise."""
_LEASES_OF_PATIENCE = 3


class StartStopped(Exception):
    """The process was requested to end while its start waited for the database or the bucket."""


class Lifecycle:
    """Components of one running service, as attributes; made by `start` and ended by `close`."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        work: TaskFunction,
        metrics: Metrics,
        process: ApiProcess,
    ) -> None:
        """Wire the components; nothing runs yet. ``work`` is what a worker does with a job."""
        self._settings = settings
        self._closing_since: float | None = None
        self.stores = stores
        place = place_of(settings)
        self._database_threads = LoopThreads(_THREADS, "rowveil")
        self._file_threads = FileThreads(_FILE_THREADS, "rowveil-files")
        self._background_threads = FileThreads(_LOOPS, "rowveil-background")
        self.threads = ServiceThreads(self._database_threads, self._file_threads, self._background_threads)
        threads, file_threads = self._database_threads, self._file_threads
        stores.deletions.start()
        stores.database.use_loop(place if isinstance(place, Path) else None)
        self.watchers = watchers = Watchers()
        self.progress_reader = ProgressReader(read=shared_progress(stores.blobs))
        self.engine = engine = _engine_of(settings)
        self.kernels: KernelCompilation | None = None
        if settings.compile_kernels and settings.engine == "local":  # else the cluster's workers compile
            self.kernels = KernelCompilation()

        # Requests: what callers ask of jobs, buffers and references.
        limits = Limits(settings, metrics)
        self.rates = Rates(settings, metrics)
        turns = Turns(engine, stores.database, limits, threads, settings.priority_weight)
        idempotency = Idempotency(stores.sealer, settings.idempotency_ttl)
        self.api_keys = ApiKeys(stores.database, stores.audit)
        self.acceptance = Acceptance(settings, stores, limits, idempotency)
        self.table_writes = TableWrites(settings, stores, turns, self.threads)
        buffer_rows = BufferRows(stores, limits, idempotency, settings.buffer_ttl)
        self.buffers = Buffers(self.table_writes, buffer_rows, self.threads, metrics)
        self.plans = Plans(settings, stores, turns, file_threads)
        self.reference_reader = ReferenceReader(settings)
        self.reference_writer = ReferenceWriter(settings, self.reference_reader)

        # The way of a job from the queue to its recorded end.
        self.deliverer = Deliverer(settings, stores.database, stores.sealer, threads, metrics)
        job_metrics = JobMetrics(metrics, self.deliverer.wake)
        self.transactions = JobTransactions(stores, job_metrics)
        self.series = SeriesTransactions(stores)
        self.table_views = TableViews(settings, stores, turns, self.transactions, file_threads)
        recorder = Recorder(stores, job_metrics)
        policy = RepeatPolicy(settings.unit_repeats, settings.slow_unit_factor)
        spools = BucketSpools(place) if isinstance(place, Bucket) and settings.engine == "dask" else None
        self._runs = JobRuns(
            engine,
            work,
            settings.job_time_limit,
            policy,
            job_metrics.count_repeat,
            spools,
            stores.blobs.delete_parts,
        )
        self.dispatcher = Dispatcher(
            stores=stores,
            engine=engine,
            turns=turns,
            runs=self._runs,
            tasks=TaskBuilder(stores, settings, threads),
            recorder=recorder,
            takeover=Takeover(stores, recorder, job_metrics),
            reference_writer=self.reference_writer,
            watchers=watchers,
            threads=self.threads,
            job_metrics=job_metrics,
            process=process,
        )
        process.on_job_queued = self.dispatcher.wake
        process.on_job_ended = partial(watchers.notify, ended=True)

        # Maintenance.
        self.heartbeat = Heartbeat(settings, stores, watchers, self.dispatcher, metrics, process)
        process.on_cancel_requested = self.heartbeat.poll_now
        retention = Retention(settings, stores, metrics)
        self.maintenance = MaintenanceLoop(settings, stores, retention, self.threads, metrics)
        self.load_sampler = LoadSampler(stores.database, engine, metrics, process.count)
        self._progress_sender: ProgressSender | None = None
        if isinstance(stores.blobs, BucketBlobs) and stores.database.shared:  # otherwise nobody else reads it
            self._progress_sender = ProgressSender(stores.blobs.bucket, stores.progress_folder)
        self.health = HealthCheck(stores, engine)
        self.metrics_snapshot = MetricsSnapshot(settings, stores, engine, metrics, self.kernels, self.threads)

    @classmethod
    async def start(
        cls, settings: Settings, work: TaskFunction, metrics: Metrics, process: ApiProcess
    ) -> Self:
        """Open the stores, take over jobs of dead replicas, and start the workers and background tasks.

        A database server or a bucket that does not respond is tried again for some time.

        Raises HomeInUse, HomeUnusable, KeyUnreadable, DatabaseUnusable, ReplicasDiffer, StorageInUse,
        StorageMismatch, StorageUnusable, Unavailable, StartStopped.
        """
        if KERNEL_CPU.warning:
            _log.warning("%s", KERNEL_CPU.warning)
        stores = await _retried(lambda: asyncio.to_thread(Stores.open, settings, process), process)
        lifecycle = cls(settings, stores, work, metrics, process)
        await _retried(lifecycle.heartbeat.start, process)
        await lifecycle.dispatcher.start()
        await lifecycle.engine.start()
        if lifecycle.kernels is not None:
            lifecycle.kernels.start()
        lifecycle.deliverer.start()
        lifecycle.maintenance.start()
        lifecycle.load_sampler.start()
        if lifecycle._progress_sender is not None:
            lifecycle._progress_sender.start()
        return lifecycle

    def begin_closing(self) -> None:
        """Stop claiming jobs and wake all waiting requests, which answer with the jobs' current state."""
        if self._closing_since is None:
            self._closing_since = time.monotonic()
        self.dispatcher.stop_claiming()
        self.watchers.close()

    async def close(self) -> None:
        """Stop claiming, let running jobs end within the grace period, requeue the rest and stop."""
        self.begin_closing()
        assert self._closing_since is not None
        self.load_sampler.stop()
        if self._progress_sender is not None:
            await self._progress_sender.stop()
        await self.maintenance.stop()
        elapsed = time.monotonic() - self._closing_since  # spent on answering waiting requests
        await self.dispatcher.stop(max(0.0, self._settings.shutdown_grace - elapsed))
        await self.engine.close()
        if self.kernels is not None:
            await self.kernels.stop()
        self.progress_reader.close()
        self._runs.close()
        self.reference_writer.close()
        self.reference_reader.close()
        await self.deliverer.stop()
        await self.maintenance.anchor_audit(within=_LAST_ANCHOR_SECONDS)
        # The lease ends after everything that writes under it has stopped.
        await self.heartbeat.stop()
        for threads in (self._database_threads, self._file_threads, self._background_threads):
            await asyncio.to_thread(threads.shutdown)
        await asyncio.to_thread(self.stores.close)


def _confinement(settings: Settings) -> Confinement | None:
    """Return the rights of workers; None if the settings do not confine them."""
    if not settings.confine_workers:
        _log.warning("workers are not confined (ROWVEIL_CONFINE_WORKERS)")
        return None
    _log.info("workers are confined by: %s", ", ".join(offered()) or "nothing that this system offers")
    if not settings.compile_kernels:
        _log.info("workers may write kernels that other processes run (ROWVEIL_COMPILE_KERNELS=false)")
    folder = settings.shared_folder.resolve()
    writable = tuple(str(folder / name) for name in ("blobs", "scratch", "progress"))
    return Confinement(writable, compiles=not settings.compile_kernels, network=tracing.wanted())


def _warm_up(settings: Settings) -> str:
    """Return the function by which a worker becomes warm; empty if the settings do not request it."""
    if not settings.warm_workers:
        return ""
    return "providers.warm:load" if settings.compile_kernels else "providers.warm:warm"


def _engine_of(settings: Settings) -> Engine:
    setup = WorkerSetup(
        settings.worker_threads,
        settings.worker_memory_bytes,
        preload=worker_modules(),
        warm=_warm_up(settings),
        confinement=_confinement(settings),
        one_owner=settings.separate_owners,
    )
    place = place_of(settings)
    files: StagingSetup | None = None
    if isinstance(place, Bucket):
        folder = str(settings.shared_folder.resolve())
        files = StagingSetup(place, folder, remote=settings.engine == "dask")
    if settings.engine == "local":
        return EmbeddedEngine(settings.workers, setup, settings.job_time_limit, files)
    from app.engine.dask_engine import DaskEngine  # imported late: Dask takes long to import

    # A service that has been silent for so long has lost its lease for certain.
    patience = _LEASES_OF_PATIENCE * settings.lease_seconds
    return DaskEngine(cluster_of(settings), setup, settings.job_time_limit, patience, files)


async def _retried(attempt: Callable[[], Awaitable[T]], process: ApiProcess) -> T:
    """Return the attempt's result; repeat it for a limited time while the database or the bucket is away.

    Raises StartStopped: it is away, and the process has been requested to end.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _AWAY_SECONDS
    while True:
        try:
            return await attempt()
        except (DatabaseAway, StorageAway, Unavailable) as error:
            if process.stopping:
                raise StartStopped("the service was stopped before it had started") from None
            if loop.time() > deadline:
                raise
            _log.warning("%s; it is tried again", error)
        await asyncio.sleep(_RETRY_SECONDS)
