"""Dask plugin that keeps the child processes of one service on a Dask worker, and the calls to it.

These functions run in the process of a Dask worker, in its event loop.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker

from app.engine.engine import CANCELLED, CLUSTER_LOST, Failure, Progress, TaskFilesSetup, TaskFunction
from app.engine.local_engine import EmbeddedEngine
from app.engine.outcome_message import encode_outcome
from app.engine.worker_process import WorkerSetup

_log = logging.getLogger("rowveil.engine")

_MOST_STOPPED = 256
"""Number of stopped tasks that a worker remembers; they matter only until the scheduler drops them."""

_REMOVED = Failure(CLUSTER_LOST, "the cluster has removed the service's plugin", lost=True)

_CANCELLED = Failure(CANCELLED, "the job was cancelled")


@dataclass(frozen=True, slots=True)
class Job:
    """Function and task to run. Its `repr`, which Dask may display, shows neither."""

    function: TaskFunction = field(repr=False)
    task: Any = field(repr=False)
    owner: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class WorkerState:
    """State of a Dask worker, as one service sees it."""

    slots: int
    """Number of tasks that it can run at once; 0 until a child process is up."""
    has_plugin: bool = True
    executing: int = 0
    """Number of tasks that it runs, of all services."""
    running: tuple[str, ...] = ()
    """Keys of the service's tasks that a child process runs."""
    progress: tuple[tuple[str, Progress], ...] = ()
    """Progress of these tasks, by their keys, if the service cannot read their progress files."""


class Children(WorkerPlugin):
    """Dask plugin that keeps the child processes of one Dask worker."""

    def __init__(
        self,
        name: str,
        setup: WorkerSetup,
        time_limit: float,
        patience: float,
        files: TaskFilesSetup | None = None,
    ) -> None:
        """``patience``: seconds without a word from the service after which the child processes stop.

        ``files``: how the files of tasks come to the worker's machine; None: from the shared folder.
        """
        self._files = files
        self.name = name
        self._setup = setup
        self._time_limit = time_limit
        self._patience = patience
        self.orphaned = False
        """Whether the child processes were stopped because the service is silent."""
        self._heard_at = 0.0
        self._watching: asyncio.Task[None] | None = None
        self.stopped: dict[str, None] = {}
        """Ids of the last tasks that must not be started any more, in the order of their stops."""

    async def setup(self, worker: Worker) -> None:
        """Start one child process for each thread of the worker."""
        self.hear()
        self.orphaned = False
        self._watching = asyncio.create_task(self._stop_when_silent())
        setup, files = self._setup, self._files
        if files is not None:
            files = files.on_this_machine()
            if setup.confinement is not None:
                setup = replace(setup, confinement=replace(setup.confinement, writable=files.writable))
        self.engine = EmbeddedEngine(worker.state.nthreads, setup, self._time_limit, files)
        await self.engine.start()

    async def teardown(self, worker: Worker) -> None:
        """Stop the child processes at once."""
        assert self._watching is not None
        if self.orphaned:  # the watch is stopping them, or has done so
            await asyncio.wait([self._watching])
        else:
            self._watching.cancel()
            await self.engine.close()

    def hear(self) -> None:
        """Note that the service is alive."""
        self._heard_at = time.monotonic()

    def stop(self, task_id: str) -> None:
        """Prevent a later start of the task."""
        self.stopped[task_id] = None
        if len(self.stopped) > _MOST_STOPPED:
            del self.stopped[next(iter(self.stopped))]

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


async def run_in_child(name: str, key: str, job: Job) -> bytes:
    """Run the job in a child process; this is the function of a Dask task.

    The outcome is returned as bytes without code. The child's message has been decoded here, in the process
    of the Dask worker, so that nothing that a child sends is unpickled anywhere.
    """
    children = get_worker().plugins.get(name)
    if not isinstance(children, Children):
        return encode_outcome(_REMOVED)
    if key in children.stopped:
        return encode_outcome(_CANCELLED)
    running = children.engine.run(key, job.function, job.task, owner=job.owner)
    try:
        return encode_outcome(await asyncio.shield(running))
    except asyncio.CancelledError:  # by a Dask worker that closes
        # The engine's own task must not be cancelled: it would leave its socket in the event loop, and the
        # next connection with the same file descriptor would receive nothing.
        await children.engine.cancel(key)
        raise


async def stop_child(name: str, key: str, dask_worker: Worker) -> None:
    """Stop the task if it runs here, and prevent a later start."""
    children = dask_worker.plugins.get(name)
    if isinstance(children, Children):
        children.stop(key)
        await children.engine.cancel(key)


async def state_of_worker(name: str, dask_worker: Worker) -> WorkerState:
    """Return the state of the worker, which hears by this that the service is alive."""
    children = dask_worker.plugins.get(name)
    executing = int(dask_worker.state.executing_count)
    if not isinstance(children, Children):
        return WorkerState(0, has_plugin=False, executing=executing)
    children.hear()
    if children.orphaned:
        await children.setup(dask_worker)
    slots = int(dask_worker.state.nthreads) if children.engine.ready() else 0
    return WorkerState(
        slots, executing=executing, running=children.engine.running(), progress=children.engine.progress()
    )


async def silent_plugins(dask_worker: Worker) -> list[str]:
    """Return the names of the plugins whose service is silent."""
    plugins = dask_worker.plugins.values()
    return [plugin.name for plugin in plugins if isinstance(plugin, Children) and plugin.silent]
