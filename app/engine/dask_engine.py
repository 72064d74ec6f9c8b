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
"""

import asyncio
import contextlib
import logging
import ssl
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Security, Worker, WorkerPlugin, get_worker
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from app.engine.certificate_roles import SERVICE, WORKER, CheckedSecurity
from app.engine.dask_address import Cluster
from app.engine.engine import CANCELLED, WORKER_DIED, Failure, Outcome, Running, TaskFunction
from app.engine.kernel_compilation import KernelCompilation
from app.engine.local_engine import EmbeddedEngine
from app.engine.outcome_message import decode_outcome, encode_outcome
from app.engine.worker_process import WorkerSetup
from providers import KERNEL_CPU

_log = logging.getLogger("rowveil.engine")

_LOOK_SECONDS = 1.0

_CALL_SECONDS = 15.0

_RETRY_SECONDS = 2.0

_PATIENCE_SECONDS = 60.0

_NO_PLUGIN = -1

_LOOKS_LACKING = 3
"""Consecutive looks at which no worker has the plugin, after which it is registered again."""

_LOST = Failure(WORKER_DIED, "the cluster lost the worker that ran the job, or its scheduler")

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


@dataclass(frozen=True, slots=True)
class _Job:
    """Function and task to run. Its `repr`, which Dask may display, shows neither."""

    function: TaskFunction = field(repr=False)
    task: Any = field(repr=False)


class _Children(WorkerPlugin):
    """Dask plugin that keeps the child processes of one Dask worker."""

    def __init__(self, name: str, setup: WorkerSetup, time_limit: float, patience: float) -> None:
        """``patience``: seconds without a word from the service after which the child processes stop."""
        self.name = name
        self._setup = setup
        self._time_limit = time_limit
        self._patience = patience
        self.orphaned = False
        """Whether the child processes were stopped because the service is silent."""
        self._heard_at = 0.0
        self._watching: asyncio.Task[None] | None = None
        self.stopped: set[str] = set()
        """Ids of tasks that must not be started any more."""

    async def setup(self, worker: Worker) -> None:
        """Start one child process for each thread of the worker."""
        self.hear()
        self.orphaned = False
        self._watching = asyncio.create_task(self._stop_when_silent())
        self.engine = EmbeddedEngine(worker.state.nthreads, self._setup, self._time_limit)
        await self.engine.start()

    async def teardown(self, worker: Worker) -> None:
        """Stop the child processes at once."""
        if self._watching is not None:
            self._watching.cancel()
        if not self.orphaned:
            await self.engine.close()

    def hear(self) -> None:
        """Note that the service is alive."""
        self._heard_at = time.monotonic()

    @property
    def silent(self) -> bool:
        """Whether the service has not been heard of for too long."""
        return time.monotonic() - self._heard_at > self._patience

    async def _stop_when_silent(self) -> None:
        while not self.silent:
            await asyncio.sleep(self._patience / 4)
        _log.warning("the service of %s is silent: its worker processes stop", self.name)
        self.orphaned = True
        await self.engine.close()


def _children(name: str) -> _Children:
    plugin = get_worker().plugins[name]
    assert isinstance(plugin, _Children)
    return plugin


async def _run_in_child(name: str, task_id: str, job: _Job) -> bytes:
    """Run the job in a child process; this is the function of a Dask task.

    The outcome is returned as bytes without code. The child's message has been decoded here, in the process
    of the Dask worker, so that nothing that a child sends is unpickled anywhere.
    """
    children = _children(name)
    if task_id in children.stopped:
        return encode_outcome(_CANCELLED)
    return encode_outcome(await children.engine.run(task_id, job.function, job.task))


async def _stop_child(name: str, task_id: str, dask_worker: Worker) -> None:
    """Stop the task if it runs here, and prevent a later start."""
    children = dask_worker.plugins.get(name)
    if isinstance(children, _Children):
        children.stopped.add(task_id)
        await children.engine.cancel(task_id)


async def _is_up(name: str, dask_worker: Worker) -> int:
    """Return the number of tasks that the worker can run at once; 0 until a child process is up.

    Return `_NO_PLUGIN` if the worker does not have the plugin.
    """
    children = dask_worker.plugins.get(name)
    if not isinstance(children, _Children):
        return _NO_PLUGIN
    children.hear()
    if children.orphaned:
        await children.setup(dask_worker)
    return int(dask_worker.state.nthreads) if children.engine.ready() else 0


async def _silent_plugins(dask_worker: Worker) -> list[str]:
    """Return the names of the plugins whose service is silent."""
    plugins = dask_worker.plugins.values()
    return [plugin.name for plugin in plugins if isinstance(plugin, _Children) and plugin.silent]


class DaskEngine:
    """An `Engine` on a Dask cluster."""

    def __init__(
        self, cluster: Cluster, setup: WorkerSetup, time_limit: float, patience: float = _PATIENCE_SECONDS
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
        """
        self._patience = patience
        self._lacking = 0
        self._looked_at = 0.0
        self.on_capacity: Callable[[], None] = lambda: None
        self._cluster = cluster
        self._plugin = f"rowveil-{uuid.uuid4()}"
        self._setup = setup
        self._time_limit = time_limit
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._slots = 0
        self._running: dict[str, Running] = {}
        self._monitoring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to connect to the scheduler, without waiting for it."""
        self._monitoring = asyncio.create_task(self._monitor_cluster())

    def capacity(self) -> int:
        """Return the number of tasks that could start now."""
        return max(0, self._slots - len(self._running))

    def ready(self) -> bool:
        """Whether at least one worker is up."""
        return self._slots > 0

    def certificates(self) -> dict[str, float]:
        """Return the expiry of the certificate of the scheduler that is connected over TLS."""
        stream = getattr(self._client, "scheduler_comm", None)
        extra = getattr(getattr(stream, "comm", None), "extra_info", {})
        presented = extra.get("peercert")
        return {"dask_scheduler": ssl.cert_time_to_seconds(presented["notAfter"])} if presented else {}

    def run(self, task_id: str, function: TaskFunction, task: Any) -> asyncio.Task[Outcome]:
        """Run ``function(task)`` in a child process of a Dask worker; the task returns its outcome."""
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        running = asyncio.ensure_future(self._run(task_id, _Job(function, task), stop))
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
        await self._disconnect()

    async def _run(self, task_id: str, job: _Job, stop: asyncio.Future[None]) -> Outcome:
        connected = asyncio.ensure_future(self._connected.wait())
        await _first_of(connected, stop)
        connected.cancel()
        client = self._client
        if stop.done() or client is None:
            return _CANCELLED if stop.done() else _LOST
        key = f"{task_id}-{uuid.uuid4()}"
        future = client.submit(_run_in_child, self._plugin, key, job, key=key, pure=False, retries=0)
        result = asyncio.ensure_future(_outcome_of(future))
        await _first_of(result, stop)
        if not result.done():
            await self._stop(client, future, key)
            result.cancel()
            await asyncio.wait([result])
            return _CANCELLED
        future.release()
        return result.result()

    async def _stop(self, client: Client, future: Any, key: str) -> None:
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await client.run(_stop_child, self._plugin, key, on_error="ignore")
                await future.cancel()
        except (OSError, TimeoutError, CommClosedError):
            _log.warning("the cluster does not answer; a cancelled task may go on there")

    def _ended(self, task_id: str) -> None:
        self._running.pop(task_id)
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
        self._connected.set()

    async def _register(self, client: Client) -> None:
        await client.register_plugin(_Children(self._plugin, self._setup, self._time_limit, self._patience))

    async def _disconnect(self) -> None:
        self._slots = 0
        self._connected.clear()
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CALL_SECONDS):
                    await client.unregister_worker_plugin(self._plugin)
            with contextlib.suppress(Exception):
                await client.close(timeout=_CALL_SECONDS)

    async def _count_slots(self) -> None:
        client = self._client
        assert client is not None
        if client.status != "running":
            raise CommClosedError("the scheduler is gone")
        async with asyncio.timeout(_CALL_SECONDS):
            slots = await client.run(_is_up, self._plugin, on_error="ignore")
        await self._restore_plugin(client, list(slots.values()))
        await self._remove_silent(client)
        before = self.capacity()
        self._slots = sum(max(0, number) for number in slots.values())
        if self.capacity() > before:
            self.on_capacity()

    async def _restore_plugin(self, client: Client, slots: list[int]) -> None:
        """Register the plugin again if another service has removed it while this one was paused.

        One worker may lack it for a moment, when it has just joined; registering would then stop the others.
        """
        self._lacking = self._lacking + 1 if slots and set(slots) == {_NO_PLUGIN} else 0
        if self._lacking >= _LOOKS_LACKING:
            _log.warning("the cluster has lost %s; it is registered again", self._plugin)
            self._lacking = 0
            async with asyncio.timeout(_CALL_SECONDS):
                await self._register(client)

    async def _remove_silent(self, client: Client) -> None:
        """Remove the plugins of dead services from the scheduler."""
        if time.monotonic() - self._looked_at < self._patience / 4:
            return
        self._looked_at = time.monotonic()
        async with asyncio.timeout(_CALL_SECONDS):
            found = await client.run(_silent_plugins, on_error="ignore")
            for name in {name for names in found.values() for name in names} - {self._plugin}:
                _log.warning("the service of %s is dead: its plugin is removed from the cluster", name)
                with contextlib.suppress(ValueError):  # another service was faster
                    await client.unregister_worker_plugin(name)


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


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
    except Exception as error:
        _log.error("a task of the cluster failed: %s", type(error).__qualname__)
        return _LOST
    return decode_outcome(message)


async def serve_cluster(cluster: Cluster, threads: int, kernels: KernelCompilation | None = None) -> None:
    """Serve as a Dask worker for ``threads`` jobs at once, until cancelled or closed by the scheduler.

    Meanwhile ``kernels`` compiles what this machine lacks.

    It runs without Dask's nanny, whose workers may not have child processes, and without the dashboard.
    """
    if KERNEL_CPU.warning:
        _log.warning("%s", KERNEL_CPU.warning)
    async with Worker(
        cluster.address, nthreads=threads, security=security_of(cluster, WORKER), memory_limit=0,
        dashboard=False, resources=None,
    ) as worker:  # fmt: skip
        if kernels is not None:
            kernels.start()
        try:
            await worker.finished()
        finally:
            if kernels is not None:
                await kernels.stop()
