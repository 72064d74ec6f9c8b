"""A job's way through the engine: one task, or where the first has divided it, units side by side.

Nobody waits for a unit while holding a worker: dividing, units and putting together are tasks one
after the other, so that a cluster of a single worker gets through as well. What units put
aside for each other lies in a folder of the job's, which is there as long as they run.
"""

import asyncio
import shutil
from collections.abc import Sequence
from typing import Any

from app.engine.engine import CANCELLED, TIME_LIMIT, Engine, Failure, Outcome, TaskFunction
from app.engine.progress import ProgressFile
from app.jobs.tasks import GatherTask, JobTask, SwapTask, UnitTask
from app.jobs.units import DIVIDED, DIVISION, GATHERED, run_gather, run_unit
from providers.provider import Division

_CANCELLED = Failure(CANCELLED, "the job was cancelled")


class _Shared:
    """A job that has been divided, while it runs."""

    def __init__(self) -> None:
        self.stopped: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        """Why it is not to go on."""
        self.tasks: dict[str, asyncio.Task[Outcome]] = {}
        """Those in the engine, by their names there."""

    def stop(self, why: Failure) -> None:
        """Start nothing more, and end what runs."""
        if not self.stopped.done():
            self.stopped.set_result(why)


class JobRuns:
    """Runs jobs in an engine, whether they turn out to be divided or not."""

    def __init__(self, engine: Engine, work: TaskFunction, time_limit: float) -> None:
        """``work``: what a worker does with a job; ``time_limit``: seconds that the units may take in all."""
        self._engine = engine
        self._work = work
        self._time_limit = time_limit
        self._jobs: dict[str, _Shared] = {}

    def run(self, job_id: str, task: JobTask) -> asyncio.Task[Outcome]:
        """Run the job, and say how it ended; a worker that is free is taken before this returns."""
        shared = self._jobs[job_id] = _Shared()
        first = self._engine.run(job_id, self._work, task)
        return asyncio.ensure_future(self._follow(job_id, task, shared, first))

    async def cancel(self, job_id: str) -> None:
        """Stop the job; it then ends with a Failure of code `CANCELLED`, its processes gone."""
        shared = self._jobs.get(job_id)
        if shared is not None:
            shared.stop(_CANCELLED)
            await asyncio.gather(*(self._engine.cancel(name) for name in (job_id, *shared.tasks)))

    async def _follow(
        self, job_id: str, task: JobTask, shared: _Shared, first: asyncio.Task[Outcome]
    ) -> Outcome:
        try:
            outcome = await first
            if isinstance(outcome, Failure) or DIVISION not in outcome:
                return outcome
            assert isinstance(task, SwapTask)
            return await self._run_divided(task, outcome[DIVISION], shared)
        finally:
            del self._jobs[job_id]

    async def _run_divided(self, job: SwapTask, division: Division, shared: _Shared) -> Outcome:
        too_long = Failure(
            TIME_LIMIT,
            f"the job's units ran longer than the {self._time_limit:g} seconds allowed "
            "(ROWVEIL_JOB_TIME_LIMIT) and were stopped",
        )
        timer = asyncio.get_running_loop().call_later(self._time_limit, shared.stop, too_long)
        await asyncio.to_thread(job.shelves.mkdir, mode=0o700, parents=True, exist_ok=True)
        try:
            units = range(len(division.units))
            done = await self._all(job, [(run_unit, UnitTask(job, division, nth)) for nth in units], shared)
            if isinstance(done, Failure):
                return done
            made = tuple((unit["shelf"], unit["figures"]) for unit in done)
            ended = await self._all(job, [(run_gather, GatherTask(job, division, made))], shared)
            return ended if isinstance(ended, Failure) else ended[0]
        finally:
            timer.cancel()
            await asyncio.to_thread(shutil.rmtree, job.shelves, ignore_errors=True)

    async def _all(
        self, job: SwapTask, tasks: Sequence[tuple[TaskFunction, Any]], shared: _Shared
    ) -> list[dict[str, Any]] | Failure:
        """What the tasks answer, in their order; as soon as one fails, why, and none of them goes on."""
        if shared.stopped.done():
            return shared.stopped.result()
        name = type(tasks[0][1]).__name__
        shared.tasks = {
            f"{job.job_id}/{name}/{nth}": self._engine.run(f"{job.job_id}/{name}/{nth}", function, task)
            for nth, (function, task) in enumerate(tasks)
        }
        running: set[asyncio.Future[Any]] = set(shared.tasks.values())
        with ProgressFile(job.progress_path) as progress:
            while running and not shared.stopped.done():
                if len(tasks) > 1:
                    share = 1 - len(running) / len(tasks)
                    progress(DIVIDED + (GATHERED - DIVIDED) * share, "working on its units")
                ended, _ = await asyncio.wait({*running, shared.stopped}, return_when=asyncio.FIRST_COMPLETED)
                running -= ended
                for task in shared.tasks.values():  # of several that failed at once, the first in order
                    outcome = task.result() if task.done() else None
                    if isinstance(outcome, Failure):
                        shared.stop(outcome)
        await asyncio.gather(*(self._engine.cancel(name) for name in shared.tasks))
        if shared.stopped.done():
            return shared.stopped.result()
        outcomes = [task.result() for task in shared.tasks.values()]
        return [outcome for outcome in outcomes if not isinstance(outcome, Failure)]
