"""Run a job as one task, or as parallel units if the first task divided it.

No worker waits for another one: the division, the units and the gathering are separate tasks, so that a
cluster with a single worker can run them one after the other. Units exchange rows through spools in a folder
of the job, which exists as long as the units run.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from app.engine.engine import CANCELLED, TIME_LIMIT, Engine, Failure, Outcome, TaskFunction
from app.engine.progress_file import ProgressFile
from app.worker.run_units import DIVIDED, DIVISION, GATHERED, UNIT, UNITS, run_gather, run_unit
from app.worker.tasks import GatherTask, JobTask, SwapTask, UnitTask

_CANCELLED = Failure(CANCELLED, "the job was cancelled")


class _Run:
    """State of a running job."""

    def __init__(self) -> None:
        self.stopped: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        """Set to the reason when the job must stop."""
        self.tasks: dict[str, asyncio.Task[Outcome]] = {}
        """Units, or the gathering, by their task ids in the engine."""

    def stop(self, reason: Failure) -> None:
        """Start no further task and stop the running ones."""
        if not self.stopped.done():
            self.stopped.set_result(reason)


class JobRuns:
    """Runs jobs in an engine, divided or not."""

    def __init__(self, engine: Engine, work: TaskFunction, time_limit: float) -> None:
        """Run ``work`` for each job; the units of one job may take ``time_limit`` seconds together."""
        self._engine = engine
        self._work = work
        self._time_limit = time_limit
        self._jobs: dict[str, _Run] = {}
        # A separate thread: a shared folder that does not respond must not block the event loop.
        self._thread = ThreadPoolExecutor(1, "rowveil-units")

    def run(self, job_id: str, task: JobTask) -> asyncio.Task[Outcome]:
        """Start the job; the task returns its outcome. A free worker is taken before this method returns."""
        run = self._jobs[job_id] = _Run()
        first = self._engine.run(job_id, self._work, task)
        return asyncio.ensure_future(self._follow(job_id, task, run, first))

    async def cancel(self, job_id: str) -> None:
        """Stop the job and its processes; its outcome is a Failure with code `CANCELLED`."""
        run = self._jobs.get(job_id)
        if run is not None:
            run.stop(_CANCELLED)
            await asyncio.gather(*(self._engine.cancel(name) for name in (job_id, *run.tasks)))

    def close(self) -> None:
        """Release the thread without waiting for it."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _follow(self, job_id: str, task: JobTask, run: _Run, first: asyncio.Task[Outcome]) -> Outcome:
        try:
            outcome = await first
            if isinstance(outcome, Failure) or DIVISION not in outcome:
                return outcome
            assert isinstance(task, SwapTask)
            return await self._run_divided(task, outcome[DIVISION], outcome[UNITS], run)
        finally:
            del self._jobs[job_id]

    async def _run_divided(self, job: SwapTask, division: bytes, number: int, run: _Run) -> Outcome:
        too_long = Failure(
            TIME_LIMIT,
            f"the job's units ran longer than the {self._time_limit:g} seconds allowed "
            "(ROWVEIL_JOB_TIME_LIMIT) and were stopped",
        )
        timer = asyncio.get_running_loop().call_later(self._time_limit, run.stop, too_long)
        await asyncio.to_thread(job.spool_folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        try:
            units = [(run_unit, UnitTask(job, division, each)) for each in range(number)]
            done = await self._all(job, units, run)
            if isinstance(done, Failure):
                return done
            unit_results = tuple(unit[UNIT] for unit in done)
            gathered = await self._all(job, [(run_gather, GatherTask(job, division, unit_results))], run)
            return gathered if isinstance(gathered, Failure) else gathered[0]
        finally:
            timer.cancel()
            await asyncio.to_thread(shutil.rmtree, job.spool_folder, ignore_errors=True)

    async def _all(
        self, job: SwapTask, tasks: Sequence[tuple[TaskFunction, Any]], run: _Run
    ) -> list[dict[str, Any]] | Failure:
        """Run all tasks in parallel. Return their results in order, or stop them at the first failure."""
        if run.stopped.done():
            return run.stopped.result()
        name = type(tasks[0][1]).__name__
        task_ids = [f"{job.job_id}/{name}/{index}" for index in range(len(tasks))]
        run.tasks = {
            task_id: self._engine.run(task_id, function, task)
            for task_id, (function, task) in zip(task_ids, tasks, strict=True)
        }
        running: set[asyncio.Future[Any]] = set(run.tasks.values())
        while running and not run.stopped.done():
            if len(tasks) > 1:
                share = 1 - len(running) / len(tasks)
                self._thread.submit(_report, job.progress_path, DIVIDED + (GATHERED - DIVIDED) * share)
            ended, _ = await asyncio.wait({*running, run.stopped}, return_when=asyncio.FIRST_COMPLETED)
            running -= ended
            for task in run.tasks.values():  # if several failed at once, the first in order counts
                outcome = task.result() if task.done() else None
                if isinstance(outcome, Failure):
                    run.stop(outcome)
        await asyncio.gather(*(self._engine.cancel(name) for name in run.tasks))
        if run.stopped.done():
            return run.stopped.result()
        outcomes = [task.result() for task in run.tasks.values()]
        return [outcome for outcome in outcomes if not isinstance(outcome, Failure)]


def _report(progress_path: str, fraction: float) -> None:
    """Write the share of the units that are done. Blocking."""
    with contextlib.suppress(OSError), ProgressFile(progress_path) as progress:  # the job may have ended
        progress(fraction, "working on its units")
