"""Interface of an engine, which runs task functions in worker processes and returns their outcomes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

CANCELLED = "cancelled"
WORKER_DIED = "worker_died"
WORKER_LOST = "worker_lost"
CLUSTER_LOST = "cluster_lost"
TIME_LIMIT = "time_limit"
MEMORY_LIMIT = "memory_limit"
TOO_LARGE = "content_too_large"
STORAGE_FULL = "storage_full"
STORAGE_AWAY = "storage_unavailable"
INTERNAL_ERROR = "internal_error"
NOT_SENT = "destination_not_sent"
ATTEMPTS_EXHAUSTED = "attempts_exhausted"
RELEASED_BEFORE = "released_before"
REVISION_GONE = "revision_gone"
JOB_ALTERED = "job_altered"
DEADLINE_EXCEEDED = "deadline_exceeded"
BLOB_MISSING = "blob_missing"


NOT_ITS_FAULT = frozenset({WORKER_LOST, CLUSTER_LOST})
"""Codes of failures to which no task can contribute: all workers end with their fork server, and with the
scheduler of their cluster."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason that a task has no result, as plain data."""

    code: str
    message: str
    pointer: str = ""
    trace: tuple[str, ...] = ()
    """Stack frames for the log: positions in the code, never a message or a value."""
    lost: bool = False
    """Whether the task's worker was taken away from outside, so that another worker can run the task."""


Outcome = dict[str, Any] | Failure
"""Result of the task's function, or the failure."""

TaskFunction = Callable[[Any], Outcome]
"""Top-level function of a module, which a worker can import by name; returns plain data."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a task: fraction done, 0 to 1, and the current stage."""

    fraction: float = 0.0
    stage: str = ""
    pid: int = field(default=0, compare=False)
    """Process id of the worker; 0 if there is none, or if it is on another machine."""


@dataclass(frozen=True, slots=True)
class Running:
    """A task that was started and has not ended."""

    task: asyncio.Task[Outcome]
    stop: asyncio.Future[None]

    def request_stop(self) -> None:
        """Request the stop. Idempotent."""
        if not self.stop.done():
            self.stop.set_result(None)


class TaskFiles(Protocol):
    """Moves the files of tasks between a storage and the machine of their workers. All methods block."""

    def fetch(self, task: Any, stopped: Callable[[], bool]) -> Any:
        """Return the task with its files on this machine, or the Failure that prevents it."""

    def send(self, task: Any, outcome: Outcome, stopped: Callable[[], bool]) -> Outcome:
        """Send the files of a fetched task; return its outcome, or the Failure that prevents it."""

    def release(self, task: Any) -> None:
        """Give back the files of a fetched task."""

    def close(self) -> None:
        """Delete all files."""


class TaskFilesSetup(Protocol):
    """Description of `TaskFiles`, which can be sent to another machine."""

    @property
    def writable(self) -> tuple[str, ...]:
        """Folders that the files of tasks are in."""

    def on_this_machine(self) -> Self:
        """Return the description with the folders of this machine, which is not the service's."""

    def open(self) -> TaskFiles:
        """Begin to move files. Blocking."""


class Engine(Protocol):
    """Runs tasks. All calls come from one event loop."""

    on_capacity: Callable[[], None]
    """Callback for a worker that has become free."""

    async def start(self) -> None:
        """Start the workers, without waiting for them."""

    def capacity(self, apart_from: str | None = None) -> int:
        """Return the number of tasks that could start now; with ``apart_from``, not next to that task."""

    def run(
        self,
        task_id: str,
        function: TaskFunction,
        task: Any,
        apart_from: str | None = None,
        *,
        owner: str = "",
    ) -> asyncio.Task[Outcome]:
        """Run ``function(task)`` in the next free worker; the asyncio task returns its outcome.

        A free worker is taken before this method returns. Every error of the task, cancellation included,
        is returned as a Failure and never raised. On a cluster, the machine of the task ``apart_from`` is
        avoided. If the engine separates owners, the worker's process has run no task of another ``owner``.
        """

    def running_since(self, task_id: str) -> float | None:
        """Return when the task started, by `time.monotonic`; None: it waits, or it is unknown yet."""

    async def cancel(self, task_id: str) -> None:
        """Stop the task, if necessary with its worker; its outcome is a Failure with code `CANCELLED`."""

    def ready(self) -> bool:
        """Whether at least one worker is up."""

    def certificates(self) -> dict[str, float]:
        """Map the certificates that others present to this engine to their expiry in Unix seconds."""

    async def close(self) -> None:
        """Stop all workers at once."""
