"""One simulated replica: the service's own components, put together as `app.jobs.lifecycle` does."""

import asyncio
from types import SimpleNamespace
from typing import Any

from app.callers import Caller
from app.file_threads import ServiceThreads
from app.jobs.acceptance import Acceptance
from app.jobs.dispatcher import Dispatcher
from app.jobs.fairness.limits import Limits
from app.jobs.fairness.turns import Turns
from app.jobs.idempotency import Idempotency
from app.jobs.maintenance.clock_watch import ClockWatch
from app.jobs.maintenance.heartbeat import Heartbeat
from app.jobs.maintenance.lease import Lease, renewed
from app.jobs.maintenance.loop import MaintenanceLoop
from app.jobs.maintenance.retention import Retention
from app.jobs.maintenance.sweep import Sweeper
from app.jobs.maintenance.takeover import Takeover
from app.jobs.recorder import Recorder
from app.jobs.stores import Stores
from app.jobs.task_builder import TaskBuilder
from app.jobs.transactions import JobTransactions
from app.jobs.units.unit_runner import JobRuns
from app.jobs.watchers import Watchers
from app.processes.api_process import ApiProcess
from app.worker.run_job import run_job
from tests.simulation.database import Server, SimulatedDatabase
from tests.simulation.engine import SimulatedEngine
from tests.simulation.modules import Nothing
from tests.simulation.scheduler import Executor, Loop, Process, Scheduler
from tests.simulation.storage import Folder, SimulatedBlobs, SimulatedPath, SimulatedSealer

LEASE_SECONDS = 8.0

CALLER = Caller("anna", scopes=frozenset({"run", "read"}))


class Audit:
    """The audit log, as a count of lines: its chain is not part of the simulation."""

    def append(self, session: Any, *line: Any) -> None:
        session.step()

    append_all = append


class Webhooks:
    """Reference writer of a replica without references."""

    def cancel(self, job_id: str, hurry: bool = False) -> None:
        """Do nothing: no job has a destination by reference."""


class Replica:
    """A process of the service, from its start to its end."""

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        server: Server,
        folder: Folder,
        workers: int = 1,
        deaths: float = 0.0,
        seconds: float = 2.0,
        trash_days: int = 0,
    ) -> None:
        self.name = name
        self.process = Process(name)
        self.loop = Loop(scheduler, self.process)
        self.excused_until = 0.0
        """Time until which it may lose its lease: it was paused, or could not reach the database."""
        self.ready = False
        self.stopping = False
        self._scheduler = scheduler
        self._server = server
        self._folder = folder
        self._workers = workers
        self._deaths = deaths
        self._seconds = seconds
        self._trash_days = trash_days
        self.leases: set[str] = set()

    def start(self) -> None:
        """Start the process."""
        self.loop.run(self._start())

    async def _start(self) -> None:
        settings = self.settings = SimpleNamespace(
            server=self._server,
            lease_seconds=LEASE_SECONDS,
            caller_rows=10**9,
            caller_bytes=10**12,
            caller_jobs=10**6,
            priority_weight=4.0,
            small_table_bytes=10_000,
            worker_memory_bytes=10**9,
            units_per_job=1,
            job_time_limit=600.0,
            purge_interval=15.0,
            result_retention=86_400.0,
            job_retention=864_000.0,
            webhook_retention=86_400.0,
            idempotency_ttl=86_400.0,
            home="home",
        )
        database: Any = SimulatedDatabase(self._server, self.process)
        sealer: Any = SimulatedSealer()
        blobs: Any = SimulatedBlobs(self._folder)
        root: Any = SimulatedPath(self._folder, "shared")
        audit: Any = Audit()
        nothing: Any = Nothing()
        alone = ApiProcess()
        signer: Any = SimpleNamespace(key_id="signer")
        lease = Lease(database, sealer, signer, "folder", LEASE_SECONDS, alone)
        await self._repeat(lambda: asyncio.to_thread(lease.acquire))
        unnamed: set[str] = set()
        days, clock = self._trash_days, ClockWatch()
        sweeper = Sweeper(database, blobs, root, "deployment", lease, audit, unnamed, days, clock)
        self.stores = stores = Stores(
            database=database,
            blobs=blobs,
            sealer=sealer,
            signer=signer,
            audit=audit,
            lease=lease,
            ledger_key=b"",
            progress_folder=root / "progress",
            scratch_folder=root / "scratch",
            sweeper=sweeper,
            local_workers=True,
            _lock=None,
            _unnamed=unnamed,
            clock=clock,
        )
        await self._repeat(lambda: asyncio.to_thread(self._first_sweep))
        threads: Any = Executor(self.loop, 8)
        all_threads = ServiceThreads(threads, threads, threads)
        engine: Any = SimulatedEngine(self.loop, self._folder, self._workers, self._deaths, self._seconds)
        self.engine = engine
        self.watchers = Watchers()
        recorder = Recorder(stores, nothing)
        writer: Any = Webhooks()
        some: Any = settings
        limits = Limits(some, nothing)
        turns = Turns(engine, database, limits, threads, settings.priority_weight)
        self.acceptance = Acceptance(some, stores, limits, Idempotency(sealer, 86_400))
        self.transactions = JobTransactions(stores, nothing)
        self.dispatcher = Dispatcher(
            stores=stores,
            engine=engine,
            turns=turns,
            runs=JobRuns(engine, run_job, 600.0),
            tasks=TaskBuilder(stores, some, threads),
            recorder=recorder,
            takeover=Takeover(stores, recorder, nothing),
            reference_writer=writer,
            watchers=self.watchers,
            threads=all_threads,
            job_metrics=nothing,
            process=alone,
        )
        self.heartbeat = Heartbeat(some, stores, self.watchers, self.dispatcher, nothing, alone)
        retention = Retention(some, stores, nothing)
        self.maintenance = MaintenanceLoop(some, stores, retention, all_threads, nothing)
        await self._repeat(self.heartbeat.start)
        await self.dispatcher.start()
        self.maintenance.start()
        self.ready = True

    async def stop(self) -> None:
        """Stop as on SIGTERM, with a short grace period."""
        self.stopping, self.ready = True, False
        self.dispatcher.stop_claiming()
        self.watchers.close()
        await self.maintenance.stop()
        await self.dispatcher.stop(1.0)
        await self.engine.close()
        await self.heartbeat.stop()
        self.process.kill()

    def _first_sweep(self) -> None:
        some: Any = self.settings
        with renewed(self.stores.lease, some, self.stores.database):
            self.stores.sweep()

    async def _repeat(self, attempt: Any) -> None:
        while True:
            try:
                await attempt()
                return
            except Exception:  # the database is away
                await asyncio.sleep(0.5)
