"""Engine on other machines, through Dask distributed; each job still runs in its own child process.

The service is a client of a Dask scheduler. On every Dask worker a plugin keeps an `EmbeddedEngine` with one
child process for each of the worker's threads. A Dask task only passes the job to that engine and waits. So
the guarantees of one machine hold here too: memory and time of a job are limited, a cancelled job is killed,
and a job that dies affects no other job.

A task is pickled and contains the keys of its blobs and its seed; its outcome is data. Dask's own messages
may contain pickles in both directions. The cluster must therefore belong to the service, and connections must
use TLS with certificates on both sides, whose roles are checked (`app.engine.certificate_roles`).

A service that dies cannot take its plugin away, and the scheduler would give it to every new worker.
Therefore a plugin that has not heard from its service for some time stops its child processes, and the other
services remove it from the scheduler. A service that was only paused gets its child processes back.

If a Dask worker is lost, its jobs are lost too. Dask restarts them on other workers up to
``distributed.scheduler.allowed-failures`` times; then they fail like the jobs of a dead worker.

If the scheduler is lost, all tasks are: their outcome is a Failure with code `CLUSTER_LOST`. The service and
the workers connect again as soon as there is a scheduler at the same address. A worker that does not answer
has no slots until it does; it holds up no other one.
"""

import asyncio
import contextlib
import logging
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from distributed import Client, Security, Worker
from distributed.client import ClosedClientError, FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from app.engine.certificate_roles import SERVICE, WORKER, CheckedSecurity
from app.engine.dask_address import Cluster
from app.engine.dask_children import (
    Children,
    Job,
    WorkerState,
    run_in_child,
    silent_plugins,
    state_of_worker,
    stop_child,
)
from app.engine.dask_logs import keep_no_messages
from app.engine.engine import (
    CANCELLED,
    CLUSTER_LOST,
    WORKER_DIED,
    Failure,
    Outcome,
    Running,
    TaskFilesSetup,
    TaskFunction,
)
from app.engine.kernel_compilation import KernelCompilation
from app.engine.outcome_message import decode_outcome
from app.engine.progress_file import write_progress
from app.engine.worker_process import WorkerSetup
from providers import KERNEL_CPU

keep_no_messages()

_log = logging.getLogger("rowveil.engine")

_LOOK_SECONDS = 1.0

_CALL_SECONDS = 15.0

_ANSWER_SECONDS = 2.0
"""Time in which a worker answers a look; a slower one counts when its answer arrives."""

_RETRY_SECONDS = 2.0

_PATIENCE_SECONDS = 60.0

_LOOKS_LACKING = 3
"""Number of consecutive checks without the plugin on any worker after which it is registered again."""

_CLOSED_ON_PURPOSE = ("scheduler-close", "scheduler-close-worker")
"""Reasons for which a scheduler that ends in order, or retires a worker, closes it."""

_LOST = Failure(CLUSTER_LOST, "the cluster lost its scheduler, or the service lost the cluster", lost=True)

_NOT_RUN = Failure(WORKER_DIED, "the cluster could not run the job; the service's log has the cause")

_KILLED = Failure(WORKER_DIED, "the cluster's workers that ran the job died, one after the other")

_CANCELLED = Failure(CANCELLED, "the job was cancelled")


def security_of(cluster: Cluster, role: str) -> Security:
    """Configure TLS with certificates of one authority and checked roles; without files, no security."""
    if cluster.ca_file is None:
        return Security(require_encryption=False)
    ca, cert, key = (str(path) for path in (cluster.ca_file, cluster.cert_file, cluster.key_file))
    sides = {f"tls_{side}_{what}": value
             for side in ("client", "worker", "scheduler")
             for what, value in (("cert", cert), ("key", key))}  # fmt: skip
    return CheckedSecurity(role, tls_ca_file=ca, **sides)


class DaskEngine:
    """An `Engine` on a Dask cluster."""

    def __init__(
        self,
        cluster: Cluster,
        setup: WorkerSetup,
        time_limit: float,
        patience: float = _PATIENCE_SECONDS,
        files: TaskFilesSetup | None = None,
    ) -> None:
        """Keep the arguments; `start` connects.

        Parameters
        ----------
        cluster
            Address of the scheduler and certificates.
        setup
            Limits of each child process.
        time_limit
            Seconds that a task may take.
        patience
            Seconds after which a silent service counts as dead, and its child processes stop.
        files
            How the files of tasks come to the machines of the workers; None: from the shared folder.
        """
        self._files = files
        self._progress_paths: dict[str, str] = {}
        """Progress files of running tasks, by their keys, if workers cannot write to this machine's."""
        self._patience = patience
        self._lacking = 0
        self._looked_at = 0.0
        self.on_capacity: Callable[[], None] = lambda: None
        self._cluster = cluster
        self._plugin = f"rowveil-{uuid.uuid4()}"
        self._setup = setup
        self._time_limit = time_limit
        self._client: Client | None = None
        self._usable = asyncio.Event()
        """Set while a worker of the connected cluster has the plugin; tasks wait for it."""
        self._slots = 0
        self._running: dict[str, Running] = {}
        self._keys: dict[str, str] = {}
        """Dask key of each running task."""
        self._workers: dict[str, WorkerState] = {}
        """Last known state of each worker, by its address."""
        self._places: dict[str, tuple[str, float]] = {}
        """Address at which each key runs, and since when that is known."""
        self._looks: dict[str, asyncio.Future[dict[str, WorkerState]]] = {}
        """Looks at workers that have not answered yet, by their address."""
        self._silent: set[str] = set()
        """Addresses of workers that have not answered in time."""
        self._background: set[asyncio.Future[Any]] = set()
        self._monitoring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to connect to the scheduler, without waiting for it."""
        self._monitoring = asyncio.create_task(self._monitor_cluster())

    def capacity(self, apart_from: str | None = None) -> int:
        """Return the number of tasks that could start now; with ``apart_from``, on other workers."""
        if apart_from is None:
            stuck = sum(address in self._silent for address, _ in self._places.values())
            return max(0, self._slots + stuck - len(self._running))
        others = [self._workers[address] for address in self._others(apart_from)]
        unplaced = len(self._running) - len(self._places)  # they will take a slot, perhaps there
        return max(0, sum(max(0, worker.slots - worker.executing) for worker in others) - unplaced)

    def running_since(self, task_id: str) -> float | None:
        """Return since when a worker is known to run the task, at most `_LOOK_SECONDS` late."""
        place = self._places.get(self._keys.get(task_id, ""))
        return None if place is None else place[1]

    def _others(self, task_id: str) -> list[str]:
        """Return the addresses of the workers that do not run the task."""
        address, _ = self._places.get(self._keys.get(task_id, ""), ("", 0.0))
        return [each for each in self._workers if each != address]

    def ready(self) -> bool:
        """Whether at least one worker is up."""
        return self._slots > 0

    def certificates(self) -> dict[str, float]:
        """Return the expiry of the certificate of the scheduler that is connected over TLS."""
        stream = getattr(self._client, "scheduler_comm", None)
        extra = getattr(getattr(stream, "comm", None), "extra_info", {})
        presented = extra.get("peercert")
        return {"dask_scheduler": ssl.cert_time_to_seconds(presented["notAfter"])} if presented else {}

    def run(
        self,
        task_id: str,
        function: TaskFunction,
        task: Any,
        apart_from: str | None = None,
        *,
        owner: str = "",
    ) -> asyncio.Task[Outcome]:
        """Run ``function(task)`` in a child process of a Dask worker; the task returns its outcome."""
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        preferred = self._preferred(apart_from)
        # One prefix for all keys: the scheduler keeps statistics of each prefix for ever.
        self._keys[task_id] = key = f"rowveil-{uuid.uuid4().hex}"
        if self._files is not None and (path := getattr(task, "progress_path", "")):
            self._progress_paths[key] = path
        running = asyncio.ensure_future(self._run(key, Job(function, task, owner), stop, preferred))
        self._running[task_id] = Running(running, stop)
        running.add_done_callback(lambda _: self._ended(task_id))
        return running

    async def cancel(self, task_id: str) -> None:
        """Stop the task and its child process; its outcome is a Failure with code `CANCELLED`."""
        running = self._running.get(task_id)
        if running is not None:
            running.request_stop()
            await asyncio.wait([running.task])

    async def close(self) -> None:
        """Stop all tasks and child processes, and remove the plugin from the cluster."""
        left = list(self._running.values())
        for running in left:
            running.request_stop()
        await asyncio.gather(*(running.task for running in left))
        if self._monitoring is not None:
            self._monitoring.cancel()
            await asyncio.wait([self._monitoring])
        for waiting in self._background:
            waiting.cancel()
        await self._disconnect()

    def _preferred(self, apart_from: str | None) -> list[str]:
        """Return the addresses of the workers that should run a new task; empty: any.

        A silent worker without a task is idle for the scheduler, which would give it one that nobody runs.
        """
        if apart_from is None and not self._silent:
            return []
        others = list(self._workers) if apart_from is None else self._others(apart_from)
        return [address for address in others if address not in self._silent] or others

    async def _run(
        self, key: str, job: Job, stop: asyncio.Future[None], preferred: Collection[str]
    ) -> Outcome:
        usable = asyncio.ensure_future(self._usable.wait())
        await _first_of(usable, stop)
        usable.cancel()
        client = self._client
        if stop.done() or client is None:
            return _CANCELLED if stop.done() else _LOST
        # Loose restrictions: if none of these workers is left, the task runs on any.
        restricted = {"workers": list(preferred), "allow_other_workers": True} if preferred else {}
        try:
            future = client.submit(
                run_in_child, self._plugin, key, job, key=key, pure=False, retries=0, **restricted
            )
        except ClosedClientError:  # it has given the scheduler up since the last look
            self._lose()
            return _LOST
        result = asyncio.ensure_future(_outcome_of(future))
        await _first_of(result, stop)
        if not result.done():
            await self._stop(client, future, key)
            result.cancel()
            await asyncio.wait([result])
            return _CANCELLED
        future.release()
        outcome = result.result()
        if isinstance(outcome, Failure) and outcome.code == CLUSTER_LOST:
            self._lose()
        return outcome

    def _lose(self) -> None:
        """Start no further task before the next look has found workers."""
        self._slots = 0
        self._usable.clear()

    async def _stop(self, client: Client, future: Any, key: str) -> None:
        """Stop the task wherever it runs. A worker that is silent stops it when it goes on."""
        for address in self._silent:
            asked = asyncio.ensure_future(self._stop_at(client, key, [address]))
            self._background.add(asked)
            asked.add_done_callback(self._background.discard)
        answering = [address for address in self._workers if address not in self._silent]
        if answering or not self._silent:
            await _answered(self._stop_at(client, key, answering or None))
        await _answered(future.cancel())

    async def _stop_at(self, client: Client, key: str, addresses: list[str] | None) -> None:
        """Stop the task at some workers, or at all of them."""
        with contextlib.suppress(OSError, CommClosedError):
            await client.run(stop_child, self._plugin, key, workers=addresses, on_error="ignore")

    def _ended(self, task_id: str) -> None:
        self._running.pop(task_id)
        key = self._keys.pop(task_id)
        self._places.pop(key, None)
        self._progress_paths.pop(key, None)
        if self.capacity():
            self.on_capacity()

    async def _monitor_cluster(self) -> None:
        """Keep the connection, and count the tasks that the workers can run."""
        while True:
            try:
                if self._client is None:
                    await self._connect()
                await self._count_slots()
                await asyncio.sleep(_LOOK_SECONDS)
            except Exception as error:
                _log.warning("the cluster is not reachable (%s); trying again", type(error).__qualname__)
                await self._disconnect()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _connect(self) -> None:
        client = await Client(
            self._cluster.address, security=security_of(self._cluster, SERVICE), asynchronous=True,
            timeout=_CALL_SECONDS, name="rowveil", set_as_default=False,
        )  # fmt: skip
        self._client = client
        await self._register(client)

    async def _register(self, client: Client) -> None:
        await client.register_plugin(
            Children(self._plugin, self._setup, self._time_limit, self._patience, self._files)
        )

    async def _disconnect(self) -> None:
        self._lose()
        for look in self._looks.values():
            look.cancel()
        for known in (self._looks, self._silent, self._workers, self._places):
            known.clear()
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                if client.status != "running":  # nobody to take the plugin from
                    raise CommClosedError("the scheduler is gone")
                async with asyncio.timeout(_CALL_SECONDS):
                    await client.unregister_worker_plugin(self._plugin)
            with contextlib.suppress(Exception):
                await client.close(timeout=_CALL_SECONDS)

    async def _count_slots(self) -> None:
        client = self._client
        assert client is not None
        if client.status != "running":
            raise CommClosedError("the scheduler is gone")
        answered = await self._look(client)
        await self._restore_plugin(client, list(answered.values()))
        await self._remove_silent(client, answered)
        before = self.capacity()
        self._slots = sum(state.slots for state in answered.values())
        if self._slots:
            self._usable.set()
        await asyncio.to_thread(self._write_progress, list(answered.values()))
        running = {address: state.running for address, state in answered.items()}
        self._note_places(running | await self._assigned(client))
        if self.capacity() > before:
            self.on_capacity()

    def _write_progress(self, states: list[WorkerState]) -> None:
        """Write the progress of this service's tasks where it would be in a shared folder. Blocking."""
        for key, progress in (found for state in states for found in state.progress):
            if (path := self._progress_paths.get(key)) is not None:
                write_progress(Path(path), progress)

    async def _look(self, client: Client) -> dict[str, WorkerState]:
        """Return the states of the workers that answer in time, by address.

        Each worker is asked by a call of its own, and not asked again before it has answered.
        """
        async with asyncio.timeout(_CALL_SECONDS):
            addresses = set(await client.nthreads())
        for address in self._looks.keys() - addresses:
            self._looks.pop(address).cancel()
        asked = addresses - self._looks.keys()
        for address in asked:
            look = client.run(state_of_worker, self._plugin, workers=[address], on_error="ignore")
            self._looks[address] = asyncio.ensure_future(look)
        if asked:
            await asyncio.wait([self._looks[address] for address in asked], timeout=_ANSWER_SECONDS)
        answered: dict[str, WorkerState] = {}
        for address in [address for address, look in self._looks.items() if look.done()]:
            answered |= self._looks.pop(address).result()
        for address in self._looks.keys() - self._silent:
            _log.warning("the worker at %s does not answer", address)
        self._silent = set(self._looks)
        self._workers = {address: answered.get(address, WorkerState(0)) for address in addresses}
        return answered

    async def _assigned(self, client: Client) -> dict[str, Collection[str]]:
        """Return the keys that the scheduler has given to each silent worker.

        A worker can become silent before it has answered a query about its task. The query to the scheduler
        names no worker, because the scheduler breaks the connection if a named worker has been removed
        meanwhile.
        """
        if not self._silent:
            return {}
        async with asyncio.timeout(_CALL_SECONDS):
            assigned: dict[str, Collection[str]] = await client.processing()
        return {address: assigned[address] for address in self._silent & assigned.keys()}

    def _note_places(self, running: Mapping[str, Collection[str]]) -> None:
        """Note where the tasks of this service run, from the keys at each address."""
        own = set(self._keys.values())
        now = time.monotonic()
        for address, keys in running.items():
            for key in own.intersection(keys):
                if self._places.get(key, ("", 0.0))[0] != address:
                    self._places[key] = address, now

    async def _restore_plugin(self, client: Client, states: list[WorkerState]) -> None:
        """Register the plugin again if another service has removed it while this one was paused.

        One worker may lack it for a moment, when it has just joined; registering would then stop the others.
        """
        lacking = states and not any(state.has_plugin for state in states)
        self._lacking = self._lacking + 1 if lacking else 0
        if self._lacking >= _LOOKS_LACKING:
            _log.warning("the cluster has lost %s; it is registered again", self._plugin)
            self._lacking = 0
            async with asyncio.timeout(_CALL_SECONDS):
                await self._register(client)

    async def _remove_silent(self, client: Client, workers: Collection[str]) -> None:
        """Remove the plugins of dead services from the scheduler."""
        if time.monotonic() - self._looked_at < self._patience / 4:
            return
        self._looked_at = time.monotonic()
        async with asyncio.timeout(_CALL_SECONDS):
            found = await client.run(silent_plugins, workers=list(workers), on_error="ignore")
            for name in {name for names in found.values() for name in names} - {self._plugin}:
                _log.warning("the service of %s is dead: its plugin is removed from the cluster", name)
                with contextlib.suppress(ValueError):  # another service was faster
                    await client.unregister_worker_plugin(name)


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def _answered(call: Awaitable[Any]) -> None:
    try:
        async with asyncio.timeout(_CALL_SECONDS):
            await call
    except (OSError, TimeoutError, CommClosedError):
        _log.warning("the cluster does not answer; a cancelled task may go on there")


async def _outcome_of(future: Any) -> Outcome:
    try:
        message = await future.result()
    except KilledWorker:
        return _KILLED
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _LOST
    except FutureCancelledError:  # by the client, which has lost its scheduler
        return _LOST
    except Exception as error:
        _log.error("a task of the cluster failed: %s", type(error).__qualname__)
        return _NOT_RUN
    return decode_outcome(message)


class _ClusterWorker(Worker):
    """Dask worker that says why it was closed."""

    close_reason = ""

    async def close(  # type: ignore[override]
        self,
        timeout: float = 30,
        executor_wait: bool = True,
        nanny: bool = True,
        reason: str = "worker-close",
    ) -> str | None:
        """Close the worker and note the first reason."""
        self.close_reason = self.close_reason or reason
        return await super().close(timeout, executor_wait, nanny, reason)


async def serve_cluster(cluster: Cluster, threads: int, kernels: KernelCompilation | None = None) -> None:
    """Serve as a Dask worker for ``threads`` jobs at once, until cancelled or closed by the scheduler.

    If the scheduler is lost, the worker stops its child processes and waits for the next scheduler at the
    same address. Meanwhile ``kernels`` compiles the kernels that this machine lacks.

    It runs without Dask's nanny, whose workers may not have child processes, and without the dashboard.
    """
    if KERNEL_CPU.warning:
        _log.warning("%s", KERNEL_CPU.warning)
    if kernels is not None:
        kernels.start()
    try:
        while True:
            async with _ClusterWorker(
                cluster.address, nthreads=threads, security=security_of(cluster, WORKER), memory_limit=0,
                dashboard=False, resources=None,
            ) as worker:  # fmt: skip
                await worker.finished()
            if worker.close_reason in _CLOSED_ON_PURPOSE:
                return
            _log.warning(
                "the worker has lost the scheduler (%s); it waits for the next one", worker.close_reason
            )
    finally:
        if kernels is not None:
            await kernels.stop()
