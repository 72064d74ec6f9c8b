"""Run the tasks of one step of a divided job in parallel, and start some of them again.

A task whose worker was lost is started again, a limited number of times. A task that takes much longer than
those that have ended is started a second time, if a worker is free. Of two runs of a task the first result
counts, and the other run is cancelled, so that nothing is counted twice.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from app.engine.engine import Engine, Failure, Outcome, TaskFunction
from app.worker.run_units import SECONDS

_log = logging.getLogger("rowveil.jobs")

_LOOK_SECONDS = 0.5
"""Interval at which running tasks are compared with finished tasks."""

LOST, SLOW = REASONS = "lost", "slow"
"""Reasons for which a task is started again: its worker was lost, or it is much slower than the others."""


@dataclass(frozen=True, slots=True)
class RepeatPolicy:
    """Limits for starting tasks of divided jobs again."""

    repeats: int = 3
    """Times that a task is started again because its worker was lost."""
    slow_factor: float = 3.0
    """Multiple of the median duration of the tasks that have ended, after which a task is slow; 0: never."""
    slow_seconds: float = 2.0
    """Least duration of a slow task: a second run of a short one would end no earlier."""


class Stop:
    """Reason for which a job must stop, once there is one."""

    def __init__(self) -> None:
        self.reason: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()

    def set(self, reason: Failure) -> None:
        """Start no further task and stop the running ones. The first reason counts."""
        if not self.reason.done():
            self.reason.set_result(reason)

    @property
    def failure(self) -> Failure | None:
        """The reason; None if the job may go on."""
        return self.reason.result() if self.reason.done() else None


@dataclass(frozen=True, slots=True)
class Step:
    """Tasks that run in parallel."""

    name: str
    """Name of the tasks for the log, and within their ids."""
    function: TaskFunction
    tasks: Sequence[Callable[[int], Any]]
    """Makes the record of each task from the number of its run."""
    whole: int = 0
    """Number of the first tasks that read all rows, while each of the others reads a range. They are slow
    compared with all others together."""


@dataclass(slots=True)
class _Task:
    """A task and its runs."""

    number: int
    runs: int = 0
    """Number of runs that were started."""
    losses: int = 0
    """Number of runs whose worker was lost."""
    doubled: bool = False
    """Whether it was started a second time because it was slow."""
    running: dict[str, asyncio.Task[Outcome]] = field(default_factory=dict)
    """Runs by their ids in the engine."""
    result: dict[str, Any] | None = None


class RepeatedTasks:
    """Runs of the tasks of one step."""

    def __init__(
        self,
        engine: Engine,
        job_id: str,
        owner: str,
        step: Step,
        stop: Stop,
        policy: RepeatPolicy,
        on_repeat: Callable[[str], None],
    ) -> None:
        """Prepare the tasks; `run` starts them.

        Parameters
        ----------
        engine
            Runs the tasks.
        job_id
            Id of the job, for ids and the log.
        owner
            Owner of the job.
        step
            Tasks to run.
        stop
            Stops all tasks once it has a reason, such as the first failure.
        policy
            Limits for repeats.
        on_repeat
            Called with one of `REASONS` whenever a task is started again.
        """
        self._engine = engine
        self._job_id = job_id
        self._owner = owner
        self._step = step
        self._stop = stop
        self._policy = policy
        self._on_repeat = on_repeat
        self._tasks = [_Task(number) for number in range(len(step.tasks))]
        self._losers: set[asyncio.Task[None]] = set()
        self.on_result: Callable[[int, dict[str, Any]], None] = lambda number, result: None
        """Called with the number of a task and its result, once for each task."""
        self.on_loser: Callable[[int, dict[str, Any]], None] = lambda number, result: None
        """Called with the number of a task and its result when a run that did not count has been stopped."""

    def ids(self) -> list[str]:
        """Return the ids of all runs that have not ended, in the engine."""
        return [run for task in self._tasks for run in task.running]

    async def run(self) -> list[dict[str, Any]] | Failure:
        """Run all tasks. Return their results in order, or stop them at the first failure."""
        if self._stop.failure is not None:
            return self._stop.failure
        for task in self._tasks:
            self._start(task)
        while (unfinished := self._unfinished()) and self._stop.failure is None:
            waiting: set[asyncio.Future[Any]] = {self._stop.reason}
            waiting.update(run for task in unfinished for run in task.running.values())
            await asyncio.wait(waiting, timeout=self._patience(), return_when=asyncio.FIRST_COMPLETED)
            for task in unfinished:  # if several failed at once, the first in order counts
                self._settle(task)
            self._start_slow_ones_again()
        if self._stop.failure is not None:
            await asyncio.gather(*(self._engine.cancel(run) for run in self.ids()))
            return self._stop.failure
        return [task.result for task in self._tasks if task.result is not None]

    def _unfinished(self) -> list[_Task]:
        return [task for task in self._tasks if task.result is None]

    def _patience(self) -> float | None:
        """Return the time until the next comparison of durations; None if there is nothing to compare."""
        comparable = self._policy.slow_factor > 0 and len(self._unfinished()) < len(self._tasks)
        return _LOOK_SECONDS if comparable else None

    def _start(self, task: _Task, apart_from: str | None = None) -> None:
        run = f"{self._job_id}/{self._step.name}/{task.number}/{task.runs}"
        record = self._step.tasks[task.number](task.runs)
        task.runs += 1
        task.running[run] = self._engine.run(run, self._step.function, record, apart_from, owner=self._owner)

    def _settle(self, task: _Task) -> None:
        """Take the result of the first run that has ended, or start a lost one again."""
        for run in [run for run, ended in task.running.items() if ended.done()]:
            outcome = task.running.pop(run).result()
            if task.result is not None:
                continue  # both runs have ended at once, and the other one counts
            if not isinstance(outcome, Failure):
                task.result = outcome
                self.on_result(task.number, outcome)
            elif not outcome.lost:
                self._stop.set(outcome)
            else:
                task.losses += 1
                self._replace(task, outcome)
        if task.result is not None:
            for run in task.running:
                self._cancel(task, run)

    def _replace(self, task: _Task, failure: Failure) -> None:
        """Start a task again after its worker was lost, unless another run goes on or repeats are used up."""
        if task.running:
            return
        if task.losses > self._policy.repeats:
            self._stop.set(failure)
        elif self._stop.failure is None:
            self._log_repeat(task, LOST, failure.message)
            self._start(task)

    def _start_slow_ones_again(self) -> None:
        """Start tasks a second time that take long, each once and as long as workers are free."""
        equal = self._tasks[self._step.whole :]
        durations = [_seconds_of(task.result) for task in equal if task.result is not None]
        known = [seconds for seconds in durations if seconds is not None]
        if not known or self._policy.slow_factor == 0 or self._stop.failure is not None:
            return
        middle = median(known)
        for task in self._unfinished():
            if task.number >= self._step.whole:
                self._start_if_slow(task, middle, f"others took {middle:.1f} s")
            elif len(known) == len(equal):
                self._start_if_slow(task, sum(known), f"others took {sum(known):.1f} s together")

    def _start_if_slow(self, task: _Task, usual: float, others: str) -> None:
        """Start a task a second time if it takes a multiple of the usual seconds; ``others``: for the log."""
        limit = max(self._policy.slow_seconds, self._policy.slow_factor * usual)
        for run in [] if task.doubled else list(task.running):
            since = self._engine.running_since(run)
            elapsed = 0.0 if since is None else time.monotonic() - since
            if elapsed > limit and self._engine.capacity(run) > 0:
                task.doubled = True
                self._log_repeat(task, SLOW, f"it runs for {elapsed:.1f} s, {others}")
                self._start(task, apart_from=run)

    def _cancel(self, task: _Task, run: str) -> None:
        """Cancel a run that does not count, without waiting for it."""
        cancelling = asyncio.ensure_future(self._engine.cancel(run))
        self._losers.add(cancelling)

        def ended(_: "asyncio.Task[None]") -> None:
            self._losers.discard(cancelling)
            task.running.pop(run, None)
            assert task.result is not None
            self.on_loser(task.number, task.result)

        cancelling.add_done_callback(ended)

    def _log_repeat(self, task: _Task, reason: str, cause: str) -> None:
        _log.warning("job %s: %s %d is started again: %s", self._job_id, self._step.name, task.number, cause)
        self._on_repeat(reason)


def _seconds_of(result: dict[str, Any]) -> float | None:
    """Return the duration that a task has reported; None if it has not, or reported none that can be."""
    seconds = result.get(SECONDS)
    valid = isinstance(seconds, float) and math.isfinite(seconds) and seconds >= 0
    return seconds if valid else None
