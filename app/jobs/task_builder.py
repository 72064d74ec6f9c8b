"""Build a worker's task from the row of a claimed job. Blocking: it runs in a thread."""

from app.engine.progress_file import make_progress_file
from app.job_kinds import Kind, kind_of
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.blobs.sealed_files import BlobAccess
from app.store.sql.bindings import Role, blob_of_job, seed_binding
from app.store.sql.models import Job
from app.worker.tasks import FrontierTask, JobTask, MeasureTask, SwapTask


class TaskBuilder:
    """Opens a job's seed and tables for the one worker that will run it."""

    def __init__(self, stores: Stores, settings: Settings) -> None:
        self._stores = stores
        self._memory_bytes = settings.worker_memory_bytes
        self._units = settings.units_per_job

    def build(self, job: Job) -> JobTask:
        """Create the job's progress file and return its task. Raises BlobMissing, SealBroken."""
        stores = self._stores
        progress_path = stores.progress_path(job)
        make_progress_file(progress_path)
        seed = stores.sealer.open(job.sealed_seed, seed_binding(job))
        source = self._table(job, "source")
        options = job.options or {}
        match kind_of(job.service):
            case Kind.MEASURES:
                return MeasureTask(
                    job_id=job.id,
                    seed=seed,
                    source=source,
                    destination=self._table(job, "destination"),  # the table that it measures
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
        )

    def _table(self, job: Job, role: Role) -> BlobAccess:
        """Return access to a table that the job was given. Raises BlobMissing, SealBroken."""
        named = blob_of_job(job, role)
        assert named is not None  # a job that has not ended has the tables it was given
        return self._stores.blobs.access(named.blob, named.sealed_key, named.binding)
