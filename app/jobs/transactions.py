"""Database transactions behind `JobService`: one transaction a method. Blocking: they run in threads."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from app.callers import Caller
from app.errors import job_not_found
from app.jobs.failure_errors import rows_gone
from app.jobs.job_metrics import JobMetrics
from app.jobs.reference_writer import warn_of_earlier_writes
from app.jobs.requests import released_columns, tables_given
from app.jobs.states import State, Step, after, outcome_of
from app.jobs.stores import Stores
from app.store.blobs.arrow_stream import TableReader
from app.store.blobs.disk_space import LEAST_SPARE_BYTES
from app.store.blobs.sealed_files import BlobAccess, BlobMissing
from app.store.sql import buffers, idempotency, jobs, ledger, webhook_outbox
from app.store.sql.audit.queue import AuditQueue
from app.store.sql.audit.trail import Entry
from app.store.sql.bindings import blob_of_buffer, report_binding, seed_binding
from app.store.sql.models import Buffer, Job, Release
from app.store.sql.replicas import moment
from app.webhooks.messages import queue_message


class JobTransactions:
    """Read and change job rows on behalf of a caller; every access to sealed content is audited."""

    def __init__(self, stores: Stores, job_metrics: JobMetrics) -> None:
        self._stores = stores
        self._job_metrics = job_metrics
        self._audit_queue = AuditQueue(stores.database, stores.audit)

    def audit(self, caller: Caller, action: str, subject: str, reason: str | None = None) -> None:
        """Append a line to the audit log, in a transaction that takes the lines of other threads along.

        Raises StorageFull: the space that is left is for deletions.
        """
        self._stores.database.check_space(LEAST_SPARE_BYTES)
        self._audit_queue.append(Entry(caller, action, subject, reason))

    def find(self, caller: Caller, job_id: str, *deferred: str) -> Job:
        """Return the job with the named deferred columns. Raises NotFound."""
        with self._stores.database.read() as session:
            job = jobs.find(session, job_id, *deferred, caller=caller)
        if job is None:
            raise job_not_found(job_id)
        return job

    def look(self, caller: Caller, job_id: str) -> jobs.JobRow:
        """Return the columns of the job that are not deferred. Raises NotFound."""
        job = jobs.look(self._stores.database, job_id, caller)
        if job is None:
            raise job_not_found(job_id)
        return job

    def has_ended(self, caller: Caller, job_id: str) -> bool:
        """Whether the job has ended. Raises NotFound."""
        job = jobs.look_at_end(self._stores.database, job_id, caller)
        if job is None:
            raise job_not_found(job_id)
        return job.finished_at is not None

    def deliveries(self, job_ids: Collection[str]) -> Sequence[webhook_outbox.DeliveryRow]:
        """Return the state of the messages about these jobs, which the caller may see."""
        with self._stores.database.read() as session:
            return webhook_outbox.of_jobs(session, job_ids)

    def newest(
        self,
        caller: Caller,
        state: str | None,
        service: str | None,
        limit: int,
        before: str | None,
        name: str | None,
        label: str | None,
    ) -> tuple[Sequence[Job], str | None]:
        """Return visible jobs older than the job ``before``: see `jobs.page`."""
        with self._stores.database.read() as session:
            return jobs.page(session, state, service, limit, before, caller, name, label)

    def newest_buffers(
        self, caller: Caller, limit: int, before: str | None, name: str | None, label: str | None
    ) -> tuple[Sequence[Buffer], str | None]:
        """Return visible buffers older than the buffer ``before``: see `buffers.page`."""
        with self._stores.database.read() as session:
            return buffers.page(session, moment(session), limit, before, caller, name, label)

    def annotate(self, caller: Caller, job_id: str, changes: Mapping[str, str | None]) -> None:
        """Set the name, the label or the notes of a job. Raises NotFound (it was deleted just now).

        The line in the audit log has none of the texts.
        """
        self._stores.database.check_space()
        with self._stores.database.write() as session:
            if not jobs.annotate(session, Job, job_id, changes):
                raise job_not_found(job_id)
            self._stores.audit.append(session, caller, "job.annotate", job_id, moment(session))
        self._stores.database.truncate_log()  # it has the texts that were replaced

    def releases(
        self, caller: Caller, source: str | None, limit: int, after: str | None
    ) -> tuple[Sequence[Release], str | None]:
        """Return visible entries of the ledger after the entry ``after``: see `ledger.page`."""
        with self._stores.database.read() as session:
            return ledger.page(session, caller, source, limit, after)

    def cancel_queued(self, job: Job) -> bool:
        """Cancel a job that is still queued, release its tables and queue its webhook.

        Returns False if the job is no longer queued: a running job has a worker that must be stopped first.
        """
        ended = after(State.QUEUED, Step.CANCEL)
        given = tables_given(job)
        with self._stores.database.write() as session:
            values = {"finished_at": moment(session), "outcome": outcome_of(ended, {})}
            queued = [State.QUEUED]
            moved = jobs.move(session, job.id, queued, ended, job.attempt, **values, **released_columns(job))
            if moved:
                queue_message(session, self._stores.sealer, job, ended, values)
            unnamed = jobs.unnamed(session, given.values()) if moved else []
        if moved:
            self._job_metrics.count_end(job, ended, values)
            warn_of_earlier_writes(job, job.attempt)
        self._stores.delete_blobs(unnamed)
        return moved

    def request_cancel(self, job_id: str) -> None:
        """Ask the replica that runs the job to stop it."""
        with self._stores.database.write() as session:
            jobs.request_cancel(session, job_id)

    def delete_ended(self, caller: Caller, job: Job) -> bool:
        """Delete a job that has ended, its tables and its idempotency key; False if there is none."""
        with self._stores.database.write() as session:
            deleted = jobs.delete_ended(session, job.id)
            blobs = [job.source_blob, job.destination_blob, job.control_blob]
            unnamed = jobs.unnamed(session, blobs) if deleted else []
            if deleted:
                idempotency.forget(session, [job.id])
                self._stores.audit.append(session, caller, "job.delete", job.id, moment(session))
        self._stores.delete_blobs(unnamed)
        self._stores.database.truncate_log()
        return deleted

    def open_buffer(self, caller: Caller, buffer: Buffer) -> TableReader:
        """Audit the access and open a buffer's table. Raises NotFound (it is gone just now)."""
        self.audit(caller, "buffer.read", buffer.id)
        return _opened(lambda: self._stores.open_blob(blob_of_buffer(buffer)))

    def open_destination(self, caller: Caller, job: Job) -> TableReader:
        """Audit the access and open a job's destination. Raises NotFound (it was deleted just now)."""
        self.audit(caller, "rows.read", job.id)
        return _opened(lambda: self._stores.open_table(job, "destination"))

    def open_report(self, caller: Caller, job: Job) -> dict[str, Any]:
        """Open a job's sealed report and audit the access."""
        assert job.sealed_report is not None  # looked at before
        report: dict[str, Any] = json.loads(self._stores.open_value(job.sealed_report, report_binding(job)))
        self.audit(caller, "report.read", job.id)
        return report

    def open_seed(self, caller: Caller, job_id: str, reason: str) -> tuple[Job, str]:
        """Return the job and its seed in hexadecimal; audit the access with its reason. Raises NotFound."""
        job = self.find(caller, job_id, "sealed_seed")
        seed = self._stores.open_value(job.sealed_seed, seed_binding(job))
        self.audit(caller, "seed.read", job.id, reason)
        return job, f"{int.from_bytes(seed, 'big'):0{-(-job.seed_bits // 4)}x}"


def _opened(access: Callable[[], BlobAccess]) -> TableReader:
    try:
        return TableReader(access())
    except BlobMissing:
        raise rows_gone() from None
