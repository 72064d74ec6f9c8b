"""The engine of a simulated replica: workers that take a while, die, and may outlive their service."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from app.engine.engine import CANCELLED, WORKER_DIED, Failure, Outcome, TaskFunction
from app.worker.tasks import SwapTask
from tests.simulation.scheduler import Loop, Process
from tests.simulation.storage import Folder, write

_DIGEST = "sha256:0"


class SimulatedEngine:
    """`app.engine.engine.Engine` with workers whose runs the schedule draws."""

    def __init__(self, loop: Loop, folder: Folder, workers: int, deaths: float, seconds: float) -> None:
        """``deaths`` is the probability that a run kills its worker, ``seconds`` the mean time of a run."""
        self.on_capacity: Callable[[], None] = lambda: None
        self._loop = loop
        self._folder = folder
        self._free = workers
        self._deaths = deaths
        self._seconds = seconds
        self._running: dict[str, tuple[asyncio.Future[Outcome], Process]] = {}

    async def start(self) -> None:
        """Do nothing: the workers are up."""

    def capacity(self, apart_from: str | None = None) -> int:
        """Return the number of free workers."""
        return self._free

    def run(
        self,
        task_id: str,
        function: TaskFunction,
        task: Any,
        apart_from: str | None = None,
        *,
        owner: str = "",
    ) -> asyncio.Task[Outcome]:
        """Take a free worker, and return its outcome when the run has ended."""
        assert self._free > 0, "a task was started without a free worker"
        self._free -= 1
        ended: asyncio.Future[Outcome] = self._loop.create_future()
        # A worker is a process of its own: it may go on for a while after its service was killed.
        worker = Process(f"worker of {self._loop.process.name}")
        scheduler = self._loop.scheduler
        outlives = scheduler.random.random() < 0.3
        self._loop.process.on_kill.append(
            partial(scheduler.later, 5.0 * scheduler.random.random() if outlives else 0.0, worker.kill)
        )
        if scheduler.random.random() < 0.5:
            self._loop.process.on_kill.append(partial(self._note, task_id, task.progress_path))
        self._running[task_id] = (ended, worker)
        dies = scheduler.random.random() < self._deaths
        seconds = scheduler.random.expovariate(1 / self._seconds)
        scheduler.start_thread(worker, partial(self._work, task_id, task, seconds, dies))
        return self._loop.create_task(self._outcome(task_id, ended))

    async def cancel(self, task_id: str) -> None:
        """Kill the task's worker; its outcome is a Failure."""
        if task_id in self._running:
            ended, worker = self._running[task_id]
            worker.kill()
            if not ended.done():
                ended.set_result(Failure(CANCELLED, "the task was cancelled"))
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        """Stop all workers."""
        for task_id in list(self._running):
            await self.cancel(task_id)

    async def _outcome(self, task_id: str, ended: asyncio.Future[Outcome]) -> Outcome:
        outcome = await ended
        del self._running[task_id]
        self._free += 1
        self._loop.call_soon(self.on_capacity)
        return outcome

    def _note(self, task_id: str, progress_path: str) -> None:
        """Note that the worker outlives the service, if it still runs the task."""
        ended, worker = self._running.get(task_id, (None, None))
        if ended is not None and not ended.done() and worker is not None and worker.alive:
            self._folder.notes.add(progress_path)

    def _work(self, task_id: str, task: SwapTask, seconds: float, dies: bool) -> None:
        scheduler = self._loop.scheduler
        scheduler.pause(seconds * (0.5 if dies else 1.0))
        outcome: Outcome
        if dies:
            outcome = Failure(WORKER_DIED, "the worker died")
        else:
            destination = {"digest": _DIGEST, "fields": [], "rows": task.rows}
            outcome = {"events": [], "event_counts": {}, "report": None, "destination": destination}
            if task.small_bytes > 0 and scheduler.random.random() < 0.5:
                outcome["table"] = b"rows"
            else:
                write(task.destination, self._folder)
        if task_id in self._running:
            self._loop.call_soon(_end, self._running[task_id][0], outcome)


def _end(ended: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not ended.done():
        ended.set_result(outcome)
