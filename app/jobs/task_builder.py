"""Build a worker's task from the row of a claimed job.

Blocking: it runs in a thread, or by `Database.in_loop`.
"""

from concurrent.futures import Executor

from app.engine.progress_file import make_progress_file
from app.job_kinds import Kind, kind_of
from app.jobs.releases.earlier import EarlierReleases
from app.jobs.releases.recording import question_of
from app.jobs.series import task_of
from app.jobs.stores import Stores
from app.settings import Settings
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
        with self._stores.database.read() as session:
            return question_of(session, self._settings, self._stores.ledger_key, self._releases, job)

    def _series(self, job: Job) -> SeriesTask | None:
        if job.series_id is None:
            return None
        return self._stores.database.aside(self._threads, self._series_of, job)

    def _series_of(self, job: Job) -> SeriesTask | None:
        with self._stores.database.read() as session:
            return task_of(session, self._stores.sealer, job)

    def build(self, job: Job) -> JobTask:
        """Create the job's progress file and return its task. Raises BlobMissing, SealBroken."""
        stores = self._stores
        progress_path = stores.progress_path(job)
        make_progress_file(progress_path)
        seed = stores.sealer.open(job.sealed_seed, seed_binding(job))
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
