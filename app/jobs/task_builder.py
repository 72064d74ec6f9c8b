"""Build a worker's task from the row of a job; start a new job before its acceptance is committed.

Blocking: it runs in a thread, or by `Database.in_loop`.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from app.engine.engine import Outcome
from app.engine.progress_file import make_progress_file
from app.engine.worker_process import failure_of
from app.job_kinds import Kind, kind_of
from app.jobs.releases.earlier import EarlierReleases
from app.jobs.releases.recording import question_of
from app.jobs.series import task_of
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.crypto.sealing import SealBroken
from app.store.sql.bindings import seed_binding
from app.store.sql.models import Job
from app.worker.tasks import (
    AttackTask,
    FrontierTask,
    JobTask,
    MeasureTask,
    ReleaseQuestion,
    SeriesTask,
    SwapTask,
)
from providers.tables.digest import form_of

_log = logging.getLogger("rowveil.jobs")

_FIRST_ATTEMPT = 1


class SeedBroken(SealBroken):
    """A job's seed does not open: the row was changed, such as its terms, or a master key is missing."""


class TaskBuilder:
    """Opens a job's seed and tables for the one worker that will run it."""

    def __init__(self, stores: Stores, settings: Settings, threads: Executor) -> None:
        self._stores = stores
        self._threads = threads
        self._settings = settings
        self._memory_bytes = settings.worker_memory_bytes
        self._units = settings.units_per_job
        self._small_bytes = settings.small_table_bytes
        self._releases = EarlierReleases()

    def _release(self, job: Job) -> ReleaseQuestion | None:
        return question_of(
            self._stores.database, self._settings, self._stores.ledger_key, self._releases, job
        )

    def _series(self, job: Job) -> SeriesTask | None:
        if job.series_id is None:
            return None
        return self._stores.database.aside(self._threads, self._series_of, job)

    def _series_of(self, job: Job) -> SeriesTask | None:
        with self._stores.database.read() as session:
            return task_of(session, self._stores.sealer, job)

    def build(self, job: Job, progress_path: Path) -> JobTask:
        """Return the job's task, which reports to a progress file. Raises BlobMissing, SealBroken."""
        stores = self._stores
        try:
            seed = stores.sealer.open(job.sealed_seed, seed_binding(job))
        except SealBroken as error:
            raise SeedBroken(str(error)) from error
        source = stores.table(job, "source")
        options = job.options or {}
        match kind_of(job.service):
            case Kind.MEASURES:
                return MeasureTask(
                    job_id=job.id,
                    seed=seed,
                    source=source,
                    destination=stores.table(job, "destination"),  # the table that it measures
                    parameters=job.parameters,
                    options=options,
                    progress_path=str(progress_path),
                    trace_parent=job.trace_parent,
                )
            case Kind.ATTACKS:
                return AttackTask(
                    job_id=job.id,
                    seed=seed,
                    source=source,
                    destination=stores.table(job, "destination"),  # the release that it attacks
                    control=None if job.control_digest is None else stores.table(job, "control"),
                    parameters=job.parameters,
                    options=options,
                    progress_path=str(progress_path),
                    trace_parent=job.trace_parent,
                )
            case Kind.FRONTIER:
                return FrontierTask(
                    job_id=job.id,
                    seed=seed,
                    seed_bits=job.seed_bits,
                    source=source,
                    parameters=job.parameters,
                    options=options,
                    progress_path=str(progress_path),
                    trace_parent=job.trace_parent,
                )
        return SwapTask(
            job_id=job.id,
            service=job.service,
            revision=job.revision,
            parameters=job.parameters,
            seed=seed,
            seed_bits=job.seed_bits,
            source=source,
            destination=stores.new_blob(),
            rows=job.row_count,
            report=job.report_level,
            options=options,
            progress_path=str(progress_path),
            memory_bytes=self._memory_bytes,
            scratch_folder=str(stores.scratch_folder),
            trace_parent=job.trace_parent,
            units=self._units,
            small_bytes=self._small_bytes if job.destination_reference is None else 0,
            release=self._release(job),
            digest_form=form_of(job.source_digest),
            series=self._series(job),
            inline=job.inline,
        )


class KeptWorker:
    """A free worker that is kept for a new job, which may begin before its acceptance is committed.

    Nobody learns of the worker's result before the commit. If the commit fails, the dispatcher stops the job.

    Only jobs whose tables are in their rows begin early. They have no scratch files, which a sweep by another
    replica would delete, because it does not see the row yet.
    """

    def __init__(
        self, stores: Stores, tasks: TaskBuilder, run: Callable[[JobTask, str], asyncio.Task[Outcome]]
    ) -> None:
        """Keep the arguments.

        Parameters
        ----------
        stores
        tasks
            Builds the task.
        run
            Starts a task of an owner in the worker. Called in the event loop.
        """
        self._stores = stores
        self._tasks = tasks
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._prepared: JobTask | None = None
        self.task: JobTask | None = None
        """Task of the job; None: it has not started."""
        self.running: asyncio.Task[Outcome] | None = None
        """The started job; set in the event loop."""

    def prepare(self, job: Job) -> None:
        """Build the task of a new job, whose tables came with its request. Blocking.

        Before the transaction of the acceptance, which must not wait for a folder that does not respond. If
        the task cannot be built now, the job starts after the commit.
        """
        if job.parameters.get("series") is not None:  # whose pairs the acceptance finds
            return
        progress_path = self._stores.progress_path_of(job.id, _FIRST_ATTEMPT)
        try:
            make_progress_file(progress_path)
            self._prepared = self._tasks.build(job, progress_path)
        except Exception as error:
            _log.warning("job %s starts when it is committed: %s", job.id, failure_of(error).trace)

    def start(self, job: Job) -> None:
        """Start a job that its acceptance has claimed, while its row is being inserted and committed."""
        self.task, self._prepared = self._prepared, None
        if self.task is None:
            return
        if self._stores.database.runs_in_loop:
            self._start(self.task, job.owner)
        else:  # the event loop receives the result of this thread later, in the same way
            self._loop.call_soon_threadsafe(self._start, self.task, job.owner)

    def leave_to_queue(self) -> None:
        """Forget the task of a job that is queued. The replica that claims it takes its progress file."""
        self._forget()

    def discard(self) -> None:
        """Delete what was prepared for a job that is not accepted. Blocking."""
        task = self._forget()
        if task is not None:
            self._stores.delete_progress(Path(task.progress_path))

    def _forget(self) -> JobTask | None:
        task, self._prepared = self._prepared, None
        if isinstance(task, SwapTask):
            self._stores.mark_unused([task.destination.id])
        return task

    def _start(self, task: JobTask, owner: str) -> None:
        self.running = self._run(task, owner)
