"""Order of the queue: round robin by caller within a priority, for jobs, plans and uploads.

The rule is self-clocked fair queueing (S. J. Golestani, "A self-clocked fair queueing scheme for broadband
applications", INFOCOM 1994, section III). The jobs of one caller and priority are a flow, and one job is the
unit of work. Each accepted job gets a turn in virtual time; the claim takes the smallest one, and moves the
virtual time to it. The turns of a flow are a step apart, which is short for a high priority. A new flow
begins half a step after the virtual time, and so before the second job of every flow, however many wait. The
virtual time only moves forward. Therefore no job waits forever.

The turn is stored as `Job.ranked_at`, the virtual time in the table of `Queue`.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from app.callers import Caller
from app.engine.engine import CANCELLED, Engine, Failure, Outcome, TaskFunction
from app.errors import AppError, TimeLimit, Unavailable
from app.ids import new_id
from app.jobs.failure_errors import request_error
from app.jobs.fairness.limits import Limits
from app.jobs.requests import PRIORITIES, Priority
from app.store.sql.db import Database
from app.store.sql.replicas import moment

_STEP = timedelta(seconds=1)
"""Virtual time between two jobs of priority `normal` of one caller."""

_CANCELLED = Failure(CANCELLED, "the task was cancelled before it began")


def turn_after(
    priority: Priority, weight: float, clock: datetime, own_turns: Iterable[datetime | None]
) -> datetime:
    """Return the turn of a new job.

    Parameters
    ----------
    priority
        Priority of the new job.
    weight
        Turns of one priority for each turn of the priority below it.
    clock
        Virtual time of the queue.
    own_turns
        Turns of the caller's jobs of that priority that wait or run; None is ignored.
    """
    step = _STEP * weight ** (PRIORITIES.index("normal") - PRIORITIES.index(priority))
    return max([clock + step / 2, *(turn + step for turn in own_turns if turn is not None)])


@dataclass(slots=True, eq=False)
class Task:
    """A plan or an upload that waits for its turn, or runs."""

    owner: str
    start: Callable[[], asyncio.Task[Outcome]]
    started: asyncio.Future[asyncio.Task[Outcome] | None]
    """Set when the task has been given a worker; None: it was cancelled before."""
    turn: datetime | None = field(default=None)
    """None: not known yet."""


class Turns:
    """Plans and uploads of this replica, which wait for their turn among the queued jobs.

    The dispatcher starts them: it compares the first one with the first queued job.
    """

    def __init__(
        self, engine: Engine, database: Database, limits: Limits, threads: Executor, weight: float
    ) -> None:
        self._engine = engine
        self._database = database
        self._limits = limits
        self._threads = threads
        self._weight = weight
        self._tasks: dict[str, Task] = {}
        self._released = False
        self.on_wait: Callable[[], None] = lambda: None
        """Callback for a task that has begun to wait."""

    def run(self, task_id: str, function: TaskFunction, task: Any, caller: Caller) -> asyncio.Task[Outcome]:
        """Run ``function(task)`` in a worker at the caller's turn; the asyncio task returns the outcome.

        Errors of the task are returned as a Failure. Before it waits, the asyncio task raises LimitReached
        (of jobs, plans and uploads together), Unavailable.
        """
        started: asyncio.Future[asyncio.Task[Outcome] | None] = asyncio.get_running_loop().create_future()
        start = partial(self._engine.run, task_id, function, task, owner=caller.owner)
        entry = Task(caller.owner, start, started)
        self._tasks[task_id] = entry
        running = asyncio.ensure_future(self._run(entry))
        running.add_done_callback(lambda _: self._tasks.pop(task_id))
        running.add_done_callback(_retrieve)  # nobody waits for a task that was cancelled
        return running

    async def result(
        self,
        function: TaskFunction,
        task: Any,
        caller: Caller,
        seconds: float,
        missing: AppError | None = None,
    ) -> dict[str, Any]:
        """Return the result of ``function(task)`` for a request that waits for it.

        Parameters
        ----------
        function, task, caller
            As in `run`.
        seconds
            Longest time for which the request waits; the task is stopped then.
        missing
            Error to raise if a table was deleted before the task had read it.

        Raises
        ------
        AppError
        ProviderError
            The task failed.
        LimitReached
        Unavailable
            No worker became free.
        TimeLimit
            A worker began, but did not end.
        """
        task_id = new_id()
        running = self.run(task_id, function, task, caller)
        try:
            done, _ = await asyncio.wait([running], timeout=seconds)
            if not done:
                if not self._tasks[task_id].started.done():
                    raise Unavailable("no worker became free in time; try again")
                raise TimeLimit(
                    f"the work was stopped after {seconds:g} seconds, the longest time that a request waits "
                    "(ROWVEIL_MAX_WAIT_SECONDS); a job may take longer"
                )
        finally:
            if not running.done():
                await self.cancel(task_id)
        outcome = running.result()
        if isinstance(outcome, Failure):
            raise request_error(outcome, missing)
        return outcome

    async def cancel(self, task_id: str) -> None:
        """Stop the task; its outcome is a Failure with code `CANCELLED`."""
        entry = self._tasks.get(task_id)
        if entry is None:
            return
        if entry.started.done():
            await self._engine.cancel(task_id)
        else:
            entry.started.set_result(None)

    def waiting(self) -> list[Task]:
        """Return the tasks that wait, in the order of their turns."""
        waiting = [task for task in self._tasks.values() if task.turn is not None and not task.started.done()]
        return sorted(waiting, key=lambda task: task.turn)  # type: ignore[arg-type,return-value]

    def start(self, task: Task) -> None:
        """Start the task in a free worker, which is taken before this method returns."""
        if not task.started.done():
            task.started.set_result(task.start())

    def release(self) -> None:
        """Start all tasks, now and from now on, without regard to turns: nothing is claimed any more."""
        self._released = True
        for task in list(self._tasks.values()):
            if task.turn is not None:
                self.start(task)

    async def _run(self, entry: Task) -> Outcome:
        loop = asyncio.get_running_loop()
        with self._limits.task_of(entry.owner):
            own_turn, clock = await loop.run_in_executor(self._threads, self._admitted, entry.owner)
            own = [task.turn for task in self._tasks.values() if task.owner == entry.owner]
            entry.turn = turn_after("normal", self._weight, clock, [own_turn, *own])
            if self._released:
                self.start(entry)
            else:
                self.on_wait()
            running = await entry.started
            return _CANCELLED if running is None else await running

    def _admitted(self, owner: str) -> tuple[datetime | None, datetime]:
        """Return the last turn of the owner's jobs, and the virtual time. Raises LimitReached."""
        with self._database.read() as session:
            active = self._limits.admit_task(session, owner)
            return active.own_turn, active.clock or moment(session)


def _retrieve(running: asyncio.Task[Outcome]) -> None:
    if not running.cancelled():
        running.exception()
