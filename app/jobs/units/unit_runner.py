"""Run a job as one task, or as parallel units if the first task divided it.

No worker waits for another one: the division, the preparation that some services have, the pieces that
complete it, the units, the sections of the destination and the end are separate tasks, so that a cluster with
a single worker can run them one after the other. They exchange rows through spools in a folder of the job,
which exists until the last of them ends.

A job that may be divided loses only the tasks of a lost worker: they are started again
(`app.jobs.units.repeated_tasks`). Any other job ends with its worker.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from app.engine.engine import (
    CANCELLED,
    CLUSTER_LOST,
    TIME_LIMIT,
    Engine,
    Failure,
    Outcome,
    Progress,
    TaskFunction,
)
from app.engine.progress_file import write_progress
from app.engine.worker_process import failure_of
from app.jobs.units.repeated_tasks import LOST, RepeatedTasks, RepeatPolicy, Step, Stop
from app.jobs.units.spools import FolderSpools, Spools
from app.worker.run_units import (
    BEGUN,
    DIVIDED,
    DIVISION,
    DROPPED,
    FILES,
    GATHERED,
    PART,
    PIECE_FILES,
    PIECES,
    PREPARED,
    PREPARES,
    SECTION,
    SECTIONS,
    SPOOL,
    UNIT,
    UNITS,
    WHOLE_PIECES,
    done_units,
    file_key,
    run_align,
    run_finish,
    run_gather,
    run_piece,
    run_prepare,
    run_section,
    run_unit,
)
from app.worker.tasks import (
    PIECE_SPOOL,
    PREPARED_SPOOL,
    AlignTask,
    FinishTask,
    GatherTask,
    JobTask,
    PieceTask,
    PrepareTask,
    SectionTask,
    SwapTask,
    UnitTask,
)

_log = logging.getLogger("rowveil.jobs")

_CANCELLED = Failure(CANCELLED, "the job was cancelled")

_DEFAULT_POLICY = RepeatPolicy()


class _Run:
    """State of a running job."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.stop = Stop()
        self.step: RepeatedTasks | None = None
        """The step that runs, after the first task."""
        self.parts: Collection[str] | None = None
        """Tokens of the parts of the destination's blob that count; None: the sections have not ended."""
        self.reported: asyncio.Future[None] | None = None
        """Write of the latest progress of a step; None: no step has reported any."""


@dataclass(frozen=True, slots=True)
class _Preparation:
    """Results of a preparation and of the pieces; nothing if a job has neither."""

    data: bytes | None = field(default=None, repr=False)
    """Pickle for workers."""
    spools: tuple[str, ...] = ()
    """Names of the files of its spools."""
    pieces: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    """Results of the pieces, in order."""
    files: int = 1
    """Number of files of a piece: one for each unit, or one that all units read."""

    def unit(self, job: SwapTask, division: bytes, number: int) -> Callable[[int], UnitTask]:
        """Return a function that makes the task of a unit from the number of its run."""
        file = number if self.files > 1 else 0
        spools = tuple(f"{piece[SPOOL]}.{file}" for piece in self.pieces) or self.spools
        pieces = tuple(piece[file_key(file)] for piece in self.pieces)
        return partial(UnitTask, job, division, self.data, number, spools=spools, pieces=pieces)


@dataclass(frozen=True, slots=True)
class _Assembly:
    """Makes the tasks that assemble the destination of a divided job from the results of its units."""

    job: SwapTask
    divided: dict[str, Any]
    """Result of the first task."""
    prepared: _Preparation
    units: list[dict[str, Any]]
    """Results of all units, in order."""

    @property
    def sections(self) -> int:
        """Number of sections."""
        return len(self.divided[SECTIONS])

    def whole(self, run: int) -> GatherTask:
        """Return the task that assembles all rows."""
        done, spools = done_units(self.units, None), self._spool_files(None)
        return GatherTask(self.job, self.divided[DIVISION], self.prepared.data, done, spools)

    def alignment(self, run: int) -> AlignTask:
        """Return the task that cuts the destination into sections when the dropped rows are known."""
        files = [self.divided[DROPPED]]
        done, spools = done_units(self.units, files), self._spool_files(files)
        return AlignTask(self.job, self.divided[DIVISION], done, spools)

    def aligned(self, sections: dict[str, Any]) -> "_Assembly":
        """Return the same with the sections that `alignment` has found."""
        return replace(self, divided={**self.divided, **sections})

    def section(self, number: int, run: int) -> SectionTask:
        """Return the task that assembles a section."""
        files = self.divided[SECTIONS][number]
        done, spools = done_units(self.units, files), self._spool_files(files)
        return SectionTask(self.job, self.divided[DIVISION], done, number, run, spools)

    def end(self, stored: Sequence[dict[str, Any]], run: int) -> FinishTask:
        """Return the task that joins the sections."""
        return FinishTask(
            self.job,
            self.divided[DIVISION],
            self.prepared.data,
            tuple(unit[UNIT] for unit in self.units),
            tuple(section[SECTION] for section in stored),
        )

    def _spool_files(self, files: Collection[int] | None) -> tuple[str, ...]:
        """Return the names of some files of all units' spools; None: of all files."""
        return tuple(
            f"{unit[SPOOL]}.{number}"
            for unit in self.units
            for number in (range(unit[FILES]) if files is None else files)
        )


class JobRuns:
    """Runs jobs in an engine, divided or not."""

    def __init__(
        self,
        engine: Engine,
        work: TaskFunction,
        time_limit: float,
        policy: RepeatPolicy = _DEFAULT_POLICY,
        on_repeat: Callable[[str], None] = lambda reason: None,
        spools: Spools | None = None,
        delete_other_parts: Callable[[str, Collection[str]], None] = lambda blob, kept: None,
    ) -> None:
        """Keep the arguments.

        Parameters
        ----------
        engine
            Runs the tasks.
        work
            Function of a job's first task.
        time_limit
            Seconds that the units of one job may take together.
        policy
            Limits for starting tasks again.
        on_repeat
            Called in the event loop with one of `app.jobs.units.repeated_tasks.REASONS` whenever a task is
            started again.
        spools
            Spools of the units. Default: files of the shared folder.
        delete_other_parts
            Deletes the parts of a blob apart from those of some tokens: see `BlobStore.delete_parts`.
        """
        self._delete_other_parts = delete_other_parts
        self._spools = spools or FolderSpools()
        self._engine = engine
        self._work = work
        self._time_limit = time_limit
        self._policy = policy
        self._on_repeat = on_repeat
        self._jobs: dict[str, _Run] = {}
        # Separate threads: a shared folder that does not respond must not block the event loop, and no report
        # waits for deletions. One thread for all reports keeps them in order.
        self._thread = ThreadPoolExecutor(1, "rowveil-units")
        self._reports = ThreadPoolExecutor(1, "rowveil-progress")
        self._deleting: set[asyncio.Task[None]] = set()

    def run(self, job_id: str, task: JobTask, owner: str) -> asyncio.Task[Outcome]:
        """Start the job; the task returns its outcome. A free worker is taken before this method returns."""
        run = self._jobs[job_id] = _Run(owner)
        first = self._engine.run(job_id, self._work, task, owner=owner)
        return asyncio.ensure_future(self._follow(job_id, task, run, first))

    async def cancel(self, job_id: str) -> None:
        """Stop the job and its processes; its outcome is a Failure with code `CANCELLED`."""
        run = self._jobs.get(job_id)
        if run is not None:
            run.stop.set(_CANCELLED)
            ids = run.step.ids() if run.step is not None else []
            await asyncio.gather(*(self._engine.cancel(name) for name in (job_id, *ids)))

    def close(self) -> None:
        """Release the threads without waiting for them."""
        for threads in (self._thread, self._reports):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _follow(self, job_id: str, task: JobTask, run: _Run, first: asyncio.Task[Outcome]) -> Outcome:
        try:
            outcome = await first
            if isinstance(task, SwapTask) and task.units > 1:
                outcome = await self._repeat_first(task, run, outcome)
            if isinstance(outcome, Failure) or DIVISION not in outcome:
                return outcome
            assert isinstance(task, SwapTask)
            return await self._run_divided(task, outcome, run)
        except Exception as error:
            return failure_of(error)
        finally:
            del self._jobs[job_id]

    async def _repeat_first(self, task: SwapTask, run: _Run, outcome: Outcome) -> Outcome:
        """Return the outcome of the first task, started again as often as its worker was lost.

        If the whole cluster was lost, the job returns to the queue instead.
        """
        if not isinstance(outcome, Failure) or not outcome.lost or outcome.code == CLUSTER_LOST:
            return outcome
        if self._policy.repeats == 0 or run.stop.failure is not None:
            return run.stop.failure or outcome
        _log.warning("job %s is started again: %s", task.job_id, outcome.message)
        self._on_repeat(LOST)
        again = Step("first task", self._work, [lambda number: task])
        policy = RepeatPolicy(self._policy.repeats - 1, 0)
        done = await self._run_step(task, again, run, policy)
        return done if isinstance(done, Failure) else done[0]

    async def _run_divided(self, job: SwapTask, divided: dict[str, Any], run: _Run) -> Outcome:
        too_long = Failure(
            TIME_LIMIT,
            f"the job's units ran longer than the {self._time_limit:g} seconds allowed "
            "(ROWVEIL_JOB_TIME_LIMIT) and were stopped",
        )
        timer = asyncio.get_running_loop().call_later(self._time_limit, run.stop.set, too_long)
        try:
            await asyncio.to_thread(self._spools.open, job)
            prepared = await self._prepare(job, divided, run)
            if isinstance(prepared, Failure):
                return prepared
            numbers = range(divided[UNITS])
            units = [prepared.unit(job, divided[DIVISION], number) for number in numbers]
            done = await self._run_step(job, Step("unit", run_unit, units), run, self._policy)
            if isinstance(done, Failure):
                return done
            return await self._assemble(_Assembly(job, divided, prepared, done), run)
        finally:
            timer.cancel()
            await asyncio.to_thread(self._spools.close, job)

    async def _assemble(self, work: _Assembly, run: _Run) -> Outcome:
        """Assemble the destination, in sections if there are several; delete the parts that do not count."""
        if work.divided[DROPPED] is not None:
            found = await self._run_one(work.job, Step("alignment", run_align, [work.alignment]), run)
            if isinstance(found, Failure):
                return found
            work = work.aligned(found)
        if work.sections == 1:
            return await self._run_one(work.job, Step("assembly", run_gather, [work.whole]), run)
        joined: Outcome | None = None
        try:
            sections = [partial(work.section, number) for number in range(work.sections)]
            stored = await self._run_step(work.job, Step("section", run_section, sections), run, self._policy)
            if isinstance(stored, Failure):
                return stored
            run.parts = {str(section[PART]) for section in stored}
            end = Step("assembly", run_finish, [partial(work.end, stored)])
            joined = await self._run_one(work.job, end, run)
            return joined
        finally:
            if joined is None or isinstance(joined, Failure):
                run.parts = set()
            await self._delete_parts(work.job, run)

    async def _run_one(self, job: SwapTask, step: Step, run: _Run) -> Outcome:
        """Run a step of one task, and return its outcome."""
        done = await self._run_step(job, step, run, self._policy)
        return done if isinstance(done, Failure) else done[0]

    async def _delete_parts(self, job: SwapTask, run: _Run) -> None:
        """Delete the parts of the destination's blob that do not count."""
        try:
            await asyncio.to_thread(self._delete_other_parts, job.destination.id, run.parts or ())
        except OSError as error:
            _log.warning("parts of table %s cannot be deleted: %s", job.destination.id, error.strerror)

    async def _prepare(self, job: SwapTask, divided: dict[str, Any], run: _Run) -> _Preparation | Failure:
        """Run the preparation and the pieces, if the job has some."""
        prepared, number = _Preparation(), divided[PIECES]
        if divided[PREPARES]:
            task = partial(PrepareTask, job, divided[DIVISION])
            made = await self._run_one(job, Step("preparation", run_prepare, [task]), run)
            if isinstance(made, Failure):
                return made
            prepared, number = _Preparation(made[PREPARED], (f"{made[SPOOL]}.0",)), made[PIECES]
        if not number:
            return prepared
        pieces = [
            partial(PieceTask, job, divided[DIVISION], prepared.data, each, spools=prepared.spools)
            for each in range(number)
        ]
        step = Step("piece", run_piece, pieces, divided[WHOLE_PIECES])
        completed = await self._run_step(job, step, run, self._policy)
        if isinstance(completed, Failure):
            return completed
        if prepared.spools:  # units read those of the pieces
            self._in_background(self._delete_spools(job, PREPARED_SPOOL, ""))
        return replace(prepared, pieces=tuple(completed), files=divided[PIECE_FILES])

    async def _run_step(
        self, job: SwapTask, step: Step, run: _Run, policy: RepeatPolicy
    ) -> list[dict[str, Any]] | Failure:
        """Run the tasks of a step in parallel. Return their results in order, or the first failure.

        The progress of the step is written before the next step starts: its worker writes the same file, and
        a late report would take its progress back.
        """
        run.step = tasks = RepeatedTasks(
            self._engine, job.job_id, run.owner, step, run.stop, policy, self._on_repeat
        )
        if step.function is run_prepare:
            tasks.on_result = partial(self._keep_one_spool, job, lambda number: PREPARED_SPOOL)
        if step.function is run_piece:
            tasks.on_result = partial(self._keep_one_spool, job, _piece_spool)
            tasks.on_loser = tasks.on_result
        if step.function is run_unit:
            first = step.tasks[0](0)
            begun = BEGUN if first.prepared is not None or first.pieces else DIVIDED
            self._report(job, run, begun)
            tasks.on_result = partial(self._unit_ended, job, run, begun, count(1), len(step.tasks))
            tasks.on_loser = partial(self._keep_one_spool, job, str)
        if step.function is run_section:
            tasks.on_result = partial(self._section_ended, job, run, count(1), len(step.tasks))
            tasks.on_loser = partial(self._loser_ended, job, run)
        done = await tasks.run()
        if run.reported is not None:
            await asyncio.wait([run.reported])  # raises nothing if the service stops and cancels it
        return done

    def _report(self, job: SwapTask, run: _Run, fraction: float, stage: str = "working on its units") -> None:
        """Write the share of the job that is done, without waiting for that."""
        loop = asyncio.get_running_loop()
        run.reported = loop.run_in_executor(
            self._reports, _write_progress, job.progress_path, fraction, stage
        )

    def _unit_ended(
        self,
        job: SwapTask,
        run: _Run,
        begun: float,
        ended: "count[int]",
        units: int,
        number: int,
        result: dict[str, Any],
    ) -> None:
        """Report that one more of the units has ended, and delete the files of its other runs."""
        share = next(ended) / units
        self._report(job, run, begun + (GATHERED - begun) * share)
        self._keep_one_spool(job, str, number, result)

    def _section_ended(
        self,
        job: SwapTask,
        run: _Run,
        ended: "count[int]",
        sections: int,
        number: int,
        result: dict[str, Any],
    ) -> None:
        """Report that one more of the sections has ended."""
        share = next(ended) / (sections + 1)
        self._report(job, run, GATHERED + (1 - GATHERED) * share, "writing")

    def _loser_ended(self, job: SwapTask, run: _Run, number: int, result: dict[str, Any]) -> None:
        """Delete the part of a run that did not count, if it ended after all sections."""
        if run.parts is not None:
            self._in_background(self._delete_parts(job, run))

    def _keep_one_spool(
        self, job: SwapTask, spool_of: Callable[[int], str], number: int, result: dict[str, Any]
    ) -> None:
        """Delete the spools of a task's other runs, without waiting for that.

        ``spool_of``: callback that returns the beginning of the names of a task's spools.
        """
        kept = result.get(SPOOL)
        if isinstance(kept, str):  # else the worker's result is malformed
            self._in_background(self._delete_spools(job, spool_of(number), kept))

    def _in_background(self, deletion: Coroutine[Any, Any, None]) -> None:
        deleting = asyncio.ensure_future(deletion)
        self._deleting.add(deleting)
        deleting.add_done_callback(self._deleting.discard)

    async def _delete_spools(self, job: SwapTask, task: str, kept: str) -> None:
        """Delete the task's spools except one, and count the runs that the cluster has started again."""
        loop = asyncio.get_running_loop()
        again = await loop.run_in_executor(self._thread, self._spools.delete_others, job, task, kept)
        for _ in range(again):
            _log.warning("job %s: unit %s was started again by the cluster", job.job_id, task)
            self._on_repeat(LOST)


def _piece_spool(number: int) -> str:
    """Return the beginning of the names of a piece's spools."""
    return f"{PIECE_SPOOL}{number}"


def _write_progress(progress_path: str, fraction: float, stage: str) -> None:
    """Write the share of the job that is done; nothing happens if the job has ended. Blocking."""
    write_progress(Path(progress_path), Progress(fraction, stage, os.getpid()))
