"""What an engine is: it runs one function a job somewhere else, and says how that ended."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

CANCELLED = "cancelled"
WORKER_DIED = "worker_died"
TIME_LIMIT = "time_limit"
MEMORY_LIMIT = "memory_limit"
TOO_LARGE = "content_too_large"
STORAGE_FULL = "storage_full"
INTERNAL_ERROR = "internal_error"
NOT_SENT = "destination_not_sent"
ATTEMPTS_EXHAUSTED = "attempts_exhausted"
DEADLINE_EXCEEDED = "deadline_exceeded"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task gave nothing, as plain data."""

    code: str
    message: str
    pointer: str = ""
    trace: tuple[str, ...] = ()
    """Where it arose, for the log alone: places in the code, never a message or a value."""


Outcome = dict[str, Any] | Failure
"""What the task's function returned, or why it did not."""

TaskFunction = Callable[[Any], Outcome]
"""A function of a module, so that a worker can look it up; it returns plain data."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a task is."""

    fraction: float = 0.0
    stage: str = ""
    pid: int = field(default=0, compare=False)
    """The worker process; 0 while there is none, or where it is on another machine."""


@dataclass(frozen=True, slots=True)
class Running:
    """A task that was handed over and has not ended."""

    task: asyncio.Task[Outcome]
    stop: asyncio.Future[None]

    def tell_to_stop(self) -> None:
        """Once or more."""
        if not self.stop.done():
            self.stop.set_result(None)


class Engine(Protocol):
    """Runs tasks. All calls come from one event loop."""

    on_capacity: Callable[[], None]
    """Called whenever a worker has become free."""

    async def start(self) -> None:
        """Bring up the workers, without waiting for them."""

    def capacity(self) -> int:
        """How many tasks could start at once now."""

    def run(self, task_id: str, function: TaskFunction, task: Any) -> asyncio.Task[Outcome]:
        """Run ``function(task)`` in a worker, the next one free, and say how it ended.

        A worker that is free is taken at once, before this returns. Whatever happens to the task,
        being cancelled included, is a Failure and no exception.
        """

    async def cancel(self, task_id: str) -> None:
        """Stop the task; it then ends with a Failure of code `CANCELLED`, its worker gone."""

    def ready(self) -> bool:
        """Whether at least one worker is up."""

    async def close(self) -> None:
        """Stop all workers, whatever they do."""
