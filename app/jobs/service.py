"""Jobs and buffers as the HTTP routes and the command line use them. Start reading here."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar

import pyarrow as pa

from app.callers import READ, THE_SERVICE, Caller
from app.engine.engine import Progress, TaskFunction
from app.errors import Forbidden, Gone, NotFound, ScopeMissing, StateConflict, Unavailable, job_not_found
from app.formats.json_output import SMALL_BYTES, encoded_size
from app.ids import job_of_token, new_id, token_of_job
from app.job_kinds import kind_of
from app.jobs.buffers import BufferService
from app.jobs.lifecycle import Lifecycle
from app.jobs.maintenance.retention import lifetimes_of
from app.jobs.requests import DEFAULT_OPTIONS, GivenTable, NewJob, SendTo, SubmissionOptions
from app.jobs.states import State
from app.jobs.tables.digests import digest_of_given
from app.jobs.tables.views import ComparisonOptions
from app.jobs.task_builder import KeptWorker
from app.jobs.watchers import LOOK_SECONDS
from app.processes.api_process import ApiProcess
from app.settings import Settings, thresholds_of
from app.store.blobs.arrow_stream import TableReader, read_table
from app.store.sql.jobs import JobRow
from app.store.sql.models import Buffer, Job, Release
from app.store.sql.series import SeriesFigures
from app.store.sql.webhook_outbox import DeliveryRow
from app.telemetry import tracing
from app.telemetry.metrics import Metrics
from app.worker.run_job import run_job
from providers.attacks.thresholds import Thresholds
from providers.kernel_display import CompilationProgress
from providers.params import StrictModel
from providers.tables.digest import form_of

__all__ = ["JobService", "NewJob"]

P = ParamSpec("P")
T = TypeVar("T")


class JobService:
    """The operations on jobs, buffers and references. Created anywhere; used within one event loop.

    An operation acts for the service itself, or for the caller that `on_behalf_of` names.
    """

    def __init__(
        self,
        settings: Settings,
        work: TaskFunction = run_job,
        metrics: Metrics | None = None,
        process: ApiProcess | None = None,
    ) -> None:
        """Keep the settings; `start` opens the stores.

        Parameters
        ----------
        settings
            Settings of this process.
        work
            Function that a worker runs for a job; tests replace it to hold a job up.
        metrics
            Metrics of the service; None: new ones.
        process
            This process among the API processes; None: there is no other.
        """
        self._settings = settings
        self.lifetimes = lifetimes_of(settings)
        self.metrics = metrics if metrics is not None else Metrics()
        self._work = work
        self._process = process or ApiProcess()
        self._caller = THE_SERVICE

    def on_behalf_of(self, caller: Caller) -> Self:
        """Return the same service for one caller, to whom only visible jobs and buffers exist."""
        service = copy.copy(self)
        service._caller = caller
        return service

    @property
    def attack_thresholds(self) -> Thresholds:
        """Thresholds by which attacks are judged in the caller's project."""
        return thresholds_of(self._settings, self._caller.project)

    @property
    def may_read(self) -> bool:
        """Whether the caller may read rows and reports."""
        return READ in self._caller.scopes

    async def owns_buffer(self, buffer_id: str) -> bool:
        """Return whether the caller has uploaded the buffer; False also if it is gone."""
        try:
            return (await self.buffers.get(buffer_id)).owner == self._caller.owner
        except NotFound:
            return False

    async def gave_tables_of(self, job_id: str) -> bool:
        """Return whether the caller gave all tables of a job; False also if that is not known any more.

        A rerun may have a table that another job retained, and a buffer may have been another caller's.
        """
        try:
            job = await self.get(job_id)
        except NotFound:
            return False
        if job.owner != self._caller.owner or job.rerun_of is not None:
            return False
        return job.source_buffer is None or await self.owns_buffer(job.source_buffer)

    @property
    def buffers(self) -> BufferService:
        """Buffers and tables by reference, for the same caller."""
        return BufferService(
            self._buffers,
            self._lifecycle.table_writes,
            self._reference_reader,
            self._transactions,
            self._lifecycle.threads,
            self._caller,
        )

    # ----------------------------------------------------------------------------------------- life cycle

    async def start(self) -> None:
        """Start all components: see `Lifecycle.start`, also for what it raises."""
        self._lifecycle = started = await Lifecycle.start(
            self._settings, self._work, self.metrics, self._process
        )
        self.api_keys = started.api_keys
        self.rates = started.rates
        self._stores = started.stores
        self._threads = started.threads.database
        self._file_threads = started.threads.files
        self._watchers = started.watchers
        self._progress_reader = started.progress_reader
        self._acceptance = started.acceptance
        self._buffers = started.buffers
        self._plans = started.plans
        self._table_views = started.table_views
        self._reference_reader = started.reference_reader
        self._reference_writer = started.reference_writer
        self._dispatcher = started.dispatcher
        self._transactions = started.transactions
        self._series = started.series

    def begin_closing(self) -> None:
        """Stop claiming jobs and wake all waiting requests, which answer with the jobs' current state."""
        self._lifecycle.begin_closing()

    async def close(self) -> None:
        """Stop all components: see `Lifecycle.close`."""
        await self._lifecycle.close()

    async def health(self) -> dict[str, str]:
        """Map each dependency to ``ok``, or to the problem that it has."""
        return await self._lifecycle.health.run()

    def kernel_progress(self) -> CompilationProgress | None:
        """Return the progress of compiling kernels; None if none is being compiled."""
        kernels = self._lifecycle.kernels
        return None if kernels is None else kernels.progress

    async def purge(self) -> None:
        """Delete everything that has expired."""
        await self._lifecycle.maintenance.purge()

    async def metrics_text(self) -> bytes:
        """Return all metrics in the Prometheus text format, with gauges read from the database now."""
        return await self._lifecycle.metrics_snapshot.text()

    # ----------------------------------------------------------------------- submit, follow, cancel, delete

    async def submit(self, new: NewJob) -> Job:
        """Accept the job. It is stored: it will run even if this process ends now.

        Raises IdempotencyKeyReused, InvalidRequest (no such buffer), LimitReached, TooLarge.
        """
        accept, caller = self._acceptance.accept, self._caller
        short = all(self._is_small(table) for table in (new.source, new.destination, new.control))
        return await self._accepted(lambda job_id, worker: accept(job_id, new, caller, worker), short)

    async def accepted_before(self, submission: SubmissionOptions) -> Job | None:
        """Return the job that an equal earlier request has made. Raises IdempotencyKeyReused."""
        if submission.idempotency_key is None:
            return None
        return await self._in_thread(self._acceptance.accepted_before, submission, self._caller)

    async def rerun(
        self,
        job_id: str,
        source: GivenTable | None = None,
        destination: GivenTable | None = None,
        control: GivenTable | None = None,
        send_to: SendTo | None = None,
        submission: SubmissionOptions = DEFAULT_OPTIONS,
    ) -> Job:
        """Accept a new job with the same parameters and the same seed, on the same rows.

        Parameters
        ----------
        job_id
            Job to repeat; it must have ended.
        source, destination, control
            Its tables, needed unless they were retained. Their digests must be those of the first job.
        send_to
            Reference to write the destination to.
        submission
            Idempotency key, priority, deadline and webhook of the new job.

        Raises
        ------
        NotFound
        StateConflict
            The job has not ended, or this version of Rowveil cannot give its rows.
        Conflict
            A table differs from the first job's, or is missing.
        InvalidRequest
            A destination was given for a job that makes its own; and as `submit`.
        """
        accept_rerun, caller = self._acceptance.accept_rerun, self._caller
        return await self._accepted(
            lambda new, worker: accept_rerun(
                new, job_id, source, destination, control, send_to, submission, caller, worker
            )
        )

    async def wait(self, job_id: str, seconds: float) -> Job:
        """Return the job when it has ended, or in its state after ``seconds``. Raises NotFound.

        The row holds its destination, if that is small.
        """
        return await self._watchers.wait_for_end(job_id, seconds, self._has_ended, self._get_with_table)

    def updates(self, job_id: str) -> AsyncIterator[tuple[Job, Progress]]:
        """Yield the job and its progress now and at every change, until it has ended. Raises NotFound."""
        return self._watchers.updates(job_id, self.get, self._progress)

    async def cancel(self, job_id: str) -> Job:
        """Cancel the job, stop its worker if it has one, and return the job.

        Raises NotFound, Forbidden, StateConflict (it has succeeded or failed), Unavailable (the replica
        that runs it does not respond; the job is stopped as soon as that replica does).
        """
        loop = asyncio.get_running_loop()
        # Two leases: by then another replica has taken over the job of a dead one.
        deadline = loop.time() + 2 * self._settings.lease_seconds
        audited = False
        while True:
            job = await self._job_to_change(job_id)
            if job.state == State.CANCELLED:
                return job
            if job.ended:
                raise StateConflict(f"the job has {job.state} already; there is nothing to cancel")
            if loop.time() > deadline:
                raise Unavailable(
                    "cancellation was requested but the job has not stopped yet; retry in a few seconds"
                )
            if not audited:
                await self._in_thread(self._transactions.audit, self._caller, "job.cancel", job_id)
                audited = True
            if job.state == State.RUNNING:
                await self._stop(job, deadline - loop.time())
            elif await self._in_thread(self._transactions.cancel_queued, job):
                self._watchers.notify(job_id, ended=True)

    async def annotate(self, job_id: str, changes: Mapping[str, str | None]) -> Job:
        """Set the name, the label or the notes of a job, and return it. Raises NotFound, Forbidden."""
        job = await self._job_to_change(job_id)
        await self._in_thread(self._transactions.annotate, self._caller, job.id, changes)
        return await self.get(job_id)

    async def delete(self, job_id: str) -> None:
        """Delete the job and its tables; its audit lines stay. Raises NotFound, Forbidden, StateConflict."""
        job = await self._job_to_change(job_id)
        if not job.ended:
            raise StateConflict(f"the job is {job.state}: cancel it before you delete it")
        if not await self._in_thread(self._transactions.delete_ended, self._caller, job):
            raise job_not_found(job_id)  # a concurrent request has deleted it

    # -------------------------------------------------------------------------------------- read jobs

    async def get(self, job_id: str) -> Job:
        """Return the job. Raises NotFound."""
        return await self._in_thread(self._transactions.find, self._caller, job_id)

    async def list(
        self,
        state: str | None,
        service: str | None,
        page_size: int,
        page_token: str | None = None,
        name: str | None = None,
        label: str | None = None,
    ) -> tuple[Sequence[Job], str | None]:
        """Return a page of jobs, newest first, and the next page's token. Raises InvalidParameter.

        ``name``: part of the jobs' names. ``label``: their label. A page of large jobs has fewer than
        ``page_size``.
        """
        before = job_of_token(page_token) if page_token is not None else None
        newest = self._transactions.newest
        found, last = await self._in_thread(
            newest, self._caller, state, service, page_size, before, name, label
        )
        return found, _token_after(last)

    async def list_buffers(
        self, page_size: int, page_token: str | None = None, name: str | None = None, label: str | None = None
    ) -> tuple[Sequence[Buffer], str | None]:
        """Return a page of buffers, newest first, and the next page's token. Raises InvalidParameter.

        ``name``: part of the buffers' names. ``label``: their label. A page of buffers with many fields has
        fewer than ``page_size``.
        """
        before = job_of_token(page_token) if page_token is not None else None
        newest = self._transactions.newest_buffers
        found, last = await self._in_thread(newest, self._caller, page_size, before, name, label)
        return found, _token_after(last)

    async def digest_as(self, table: GivenTable, digest: str, known: str) -> str:
        """Return the digest of a table of a request in the form of another digest, ``known``.

        ``digest`` is its own. A buffer that is gone, or a table of a job, keeps its own.
        """
        form = form_of(known)
        if form_of(digest) is form:
            return digest
        loop, given = asyncio.get_running_loop(), (self._stores, table, form, self._caller)
        return await loop.run_in_executor(self._file_threads, digest_of_given, *given) or digest

    async def releases(
        self, source: str | None, page_size: int, page_token: str | None = None
    ) -> tuple[Sequence[Release], str | None]:
        """Return a page of the ledger, oldest first, and the next page's token. Raises InvalidParameter."""
        after = job_of_token(page_token) if page_token is not None else None
        found, last = await self._in_thread(
            self._transactions.releases, self._caller, source, page_size, after
        )
        return found, _token_after(last)

    async def list_series(
        self, page_size: int, page_token: str | None = None
    ) -> tuple[Sequence[SeriesFigures], str | None]:
        """Return a page of series, oldest first, and the next page's token. Raises InvalidParameter."""
        after = job_of_token(page_token) if page_token is not None else None
        found = await self._in_thread(self._series.page, self._caller, page_size + 1, after)
        more = len(found) > page_size
        return found[:page_size], _token_after(found[page_size - 1].series.id if more else None)

    async def get_series(self, name: str, owner: str | None = None) -> SeriesFigures:
        """Return the series of an owner, by default the caller's own. Raises NotFound."""
        return await self._in_thread(self._series.find, self._caller, owner or self._caller.owner, name)

    async def delete_series(self, name: str, owner: str | None = None) -> None:
        """Delete the series with its pairs. Raises NotFound, Forbidden, StateConflict."""
        await self._in_thread(self._series.delete, self._caller, owner or self._caller.owner, name)

    async def look(self, job_id: str) -> tuple[JobRow, Progress]:
        """Return the job's columns and its progress. Raises NotFound."""
        job = await self._look(job_id)
        progress = await self._progress(job)
        if progress is None:  # not started yet, or ended since its row was read
            job = await self._look(job_id)
            progress = await self._progress(job)
        return job, progress or Progress()

    async def _look(self, job_id: str) -> JobRow:
        return await self._stores.database.looking(self._transactions.look, self._caller, job_id)

    async def _has_ended(self, job_id: str) -> bool:
        return await self._stores.database.looking(self._transactions.has_ended, self._caller, job_id)

    async def progress(self, job: Job) -> Progress:
        """Return the job's progress; a fraction of 0 without a stage if it is unknown."""
        return await self._progress(job) or Progress()

    async def deliveries(self, found: Sequence[Job | JobRow]) -> Mapping[str, DeliveryRow]:
        """Return the state of the message about each job that has ended and has a webhook, by the job's id.

        A message that was delivered or given up long ago has been deleted, and is left out.
        """
        ids = [job.id for job in found if job.sealed_webhook is not None and job.finished_at is not None]
        if not ids:
            return {}
        return {row.job_id: row for row in await self._in_thread(self._transactions.deliveries, ids)}

    async def report(self, job_id: str) -> dict[str, Any]:
        """Return the report. Raises NotFound (the job was run without one), StateConflict."""
        job = await self._succeeded(job_id, "sealed_report")
        if job.sealed_report is None:
            raise NotFound("the job was run with report 'none'; run it with 'summary' or 'full' to have one")
        return await self._in_thread(self._transactions.open_report, self._caller, job)

    async def manifest(self, job_id: str) -> dict[str, Any]:
        """Return ``{"manifest": ..., "signature": ...}``. Raises NotFound, StateConflict."""
        job = await self._succeeded(job_id, "manifest")
        assert job.manifest is not None  # written with the success
        await self._in_thread(self._transactions.audit, self._caller, "manifest.read", job_id)
        return job.manifest

    async def with_destination(self, job_id: str) -> Job:
        """Return a job that still has its destination buffer. Raises NotFound, StateConflict, Gone."""
        job = await self._get_with_table(job_id)
        if not kind_of(job.service).has_rows:
            raise NotFound(
                f"a job of {job.service} has no rows: its result is its report, which GET "
                f"/v1/jobs/{job_id}/report returns"
            )
        _check_succeeded(job)
        _check_destination(job)
        return job

    async def destination(self, job_id: str) -> pa.Table:
        """Return the whole destination buffer. Raises NotFound, StateConflict, Gone (it has expired)."""
        return await self.destination_of(await self.with_destination(job_id))

    async def destination_of(self, job: Job) -> pa.Table:
        """Return the whole destination buffer of a job that has succeeded. Raises Gone (it has expired).

        ``job`` was read with its destination, by `with_destination` or `wait`.
        """
        _check_destination(job)
        if job.sealed_destination is not None:  # small: a thread would cost more
            return read_table(self._stores.open_table(job, "destination"))
        loop, stores = asyncio.get_running_loop(), self._stores
        return await loop.run_in_executor(
            self._file_threads, lambda: read_table(stores.open_table(job, "destination"))
        )

    async def open_destination(self, job: Job) -> TableReader:
        """Open the job's destination buffer, to be read in bounded memory; the caller closes it.

        ``job`` was read by `with_destination`.
        """
        loop, opened = asyncio.get_running_loop(), self._transactions.open_destination
        return await loop.run_in_executor(self._file_threads, opened, self._caller, job)

    async def seed(self, job_id: str, reason: str) -> tuple[Job, str]:
        """Return the job and its secret seed in hexadecimal; audited with the reason. Raises NotFound."""
        return await self._in_thread(self._transactions.open_seed, self._caller, job_id, reason)

    async def plan(self, service: str, params: StrictModel, source: GivenTable) -> dict[str, Any]:
        """Return the plan of a run (`providers.results.Plan`) as plain values; stores nothing.

        The read of another caller's buffer is audited.
        Raises ProviderError, InvalidRequest (no such buffer), Unavailable (no worker is free).
        """
        return await self._plans.plan(service, params, source, self._caller)

    async def trial(self, service: str, params: StrictModel, source: GivenTable, rows: int) -> dict[str, Any]:
        """Return before and after of the first rows of a trial run; audited as a read of a buffer.

        Raises ScopeMissing (the caller may not read rows), and as `plan`.
        """
        if not self.may_read:
            raise ScopeMissing(READ)
        if isinstance(source, str):
            await self._in_thread(self._transactions.audit, self._caller, "buffer.read", source)
        return await self._plans.trial(service, params, source, rows, self._caller)

    async def profile(self, buffer_id: str, rows: int) -> dict[str, Any]:
        """Return the profile of a buffer: see `TableViews.profile`. Raises NotFound."""
        buffer = await self.buffers.get(buffer_id)
        return await self._table_views.profile(buffer, rows, self._caller)

    async def compare_rows(self, job_id: str, buffer_id: str, options: ComparisonOptions) -> dict[str, Any]:
        """Compare a job's destination with its source: see `TableViews.compare`.

        Raises NotFound, StateConflict, Gone.
        """
        job = await self.with_destination(job_id)
        source = await self.buffers.get(buffer_id)
        return await self._table_views.compare(job, source, options, self._caller)

    # --------------------------------------------------------------------------------------------- helpers

    async def _progress(self, job: Job | JobRow) -> Progress | None:
        if job.state == State.RUNNING:
            return await self._progress_reader.read(self._stores.progress_path(job))
        return Progress(1.0 if job.state == State.SUCCEEDED else 0.0, job.state)

    async def _stop(self, job: Job, seconds: float) -> None:
        """Stop the job here, or request its replica to stop it.

        Return when its state may have changed, and after ``seconds``.
        """
        if not await self._dispatcher.cancel(job.id, seconds):
            with self._watchers.watch(job.id) as changed:
                await self._in_thread(self._transactions.request_cancel, job.id)
                self._process.notify_cancel_requested()
                await changed.within(LOOK_SECONDS)

    async def _get_with_table(self, job_id: str) -> Job:
        return await self._in_thread(self._transactions.find, self._caller, job_id, "sealed_destination")

    def _is_small(self, table: GivenTable | None) -> bool:
        if table is None:
            return True
        if not isinstance(table, pa.Table) or table.nbytes > self._settings.small_table_bytes:
            return False
        return encoded_size(table) <= SMALL_BYTES

    async def _accepted(self, accept: Callable[[str, KeptWorker | None], Job], short: bool = False) -> Job:
        job_id = new_id()
        if not self._stores.database.shared and self._process.alone:
            self._watchers.expect(job_id)  # before the job can end; no other process may run it
        accepted = ""
        try:
            with tracing.span("job.accept") as span:
                job = await self._dispatcher.accept(job_id, partial(accept, job_id), short)
                span.set({"rowveil.service": job.service, "rowveil.rows": job.row_count})
            accepted = job.id
        finally:
            if accepted != job_id:
                self._watchers.notify(job_id, ended=True)
        if accepted == job_id:
            self.metrics.accepted.labels(job.service, job.priority).inc()
        return job

    async def _job_to_change(self, job_id: str) -> Job:
        job = await self.get(job_id)
        if not self._caller.may_change(job.owner):
            raise Forbidden(
                "the job belongs to another member of your project; only its submitter may change, cancel or "
                "delete it"
            )
        return job

    async def _succeeded(self, job_id: str, *deferred: str) -> Job:
        job = await self._in_thread(self._transactions.find, self._caller, job_id, *deferred)
        _check_succeeded(job)
        return job

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))


def _token_after(row_id: str | None) -> str | None:
    """Return the token of the page that follows a row; None: this is the last page."""
    return None if row_id is None else token_of_job(row_id)


def _check_succeeded(job: Job) -> None:
    """Raise StateConflict if the job has no result."""
    if job.state != State.SUCCEEDED:
        raise StateConflict(f"the job is {job.state}; only a job that succeeded has a result")


def _check_destination(job: Job) -> None:
    """Raise Gone if the job's row names no destination and holds none."""
    if job.destination_blob is None and job.sealed_destination is None:
        raise Gone("the destination buffer has expired; rerun the job")
