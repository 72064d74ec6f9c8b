"""Acceptance of jobs, new ones and reruns. Blocking: it runs in a thread.

A job is accepted when its row is committed. Its tables are in the store by then, so that any replica can
run the job from its row alone, even if this process ends.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow as pa

from app.callers import Caller
from app.errors import InvalidRequest, StateConflict, Unavailable, job_not_found, storage_error
from app.job_kinds import kind_of, revision_of
from app.jobs.fairness.limits import Limits
from app.jobs.fairness.turns import turn_after
from app.jobs.idempotency import Idempotency
from app.jobs.releases.other_digests import other_source_digest
from app.jobs.releases.recording import check_released
from app.jobs.requests import (
    GivenTable,
    NewJob,
    SendTo,
    StoredTable,
    SubmissionOptions,
    options_of_rerun,
)
from app.jobs.series import join_again, join_series
from app.jobs.states import State, Step, after
from app.jobs.stores import Stores
from app.jobs.tables.digests import in_forms
from app.jobs.tables.job_tables import JobTables, TableColumns, check_same_rows, table_columns
from app.jobs.task_builder import KeptWorker
from app.settings import Settings
from app.store.blobs.arrow_stream import table_bytes, write_table
from app.store.blobs.background_digest import digested
from app.store.blobs.field_digests import FieldDigests
from app.store.blobs.sealed_files import BlobAccess
from app.store.sql import jobs, replicas, usage
from app.store.sql.audit.trail import Entry
from app.store.sql.bindings import (
    Role,
    seed_binding,
)
from app.store.sql.db import Transaction
from app.store.sql.models import Job
from app.store.sql.replicas import LeaseLost, moment
from app.webhooks.messages import seal_webhook
from app.worker.run_swap import described
from providers.tables.digest import form_of

_DRAWN_BITS = 128


class Acceptance:
    """Turns requests into job rows."""

    def __init__(self, settings: Settings, stores: Stores, limits: Limits, idempotency: Idempotency) -> None:
        self._settings = settings
        self._stores = stores
        self._tables = JobTables(stores)
        self._limits = limits
        self._idempotency = idempotency

    def accept(self, job_id: str, new: NewJob, caller: Caller, worker: KeptWorker | None) -> Job:
        """Store a job under this id; return the earlier job if its idempotency key has been used before.

        With a ``worker``, if no other job is queued, this replica claims the new one in the same transaction,
        and the worker may start it before the row is inserted. Otherwise the job is queued.

        Raises IdempotencyKeyReused, InvalidRequest (no such buffer), LimitReached, StorageFull, TooLarge.
        """
        known = self.accepted_before(new.submission, caller)
        if known is not None:
            return known
        self._stores.database.check_space()
        seed, bits = new.seed, new.seed_bits or 256
        if seed is None:
            seed, bits = secrets.randbits(_DRAWN_BITS).to_bytes(32, "big"), _DRAWN_BITS
        job = Job(
            id=job_id,
            owner=caller.owner,
            project=caller.project,
            service=new.service,
            revision=revision_of(new.service),
            parameters=new.parameters.model_dump(mode="json", by_alias=True),
            options=new.options or None,
            report_level=new.report,
            retain_source=new.retain_source,
            inline=new.inline,
        )
        _set_send_to(job, new.send_to)
        job.seed_fingerprint, job.seed_bits = self._stores.sealer.fingerprint(seed), bits
        tables: dict[Role, GivenTable | None] = {"source": new.source}
        if new.destination is not None:
            tables["destination"] = new.destination
        if new.control is not None:
            tables["control"] = new.control
        other = other_source_digest(self._stores, self._settings, job, new.source, caller)
        return self._insert(
            job, seed, tables, new.submission, caller, worker, "job.submit", other_digest=other
        )

    def accept_rerun(
        self,
        job_id: str,
        first_id: str,
        source: GivenTable | None,
        destination: GivenTable | None,
        control: GivenTable | None,
        send_to: SendTo | None,
        submission: SubmissionOptions,
        caller: Caller,
        worker: KeptWorker | None,
    ) -> Job:
        """Store a job under this id with the parameters and the seed of a job that has ended; see `accept`.

        Returns the earlier rerun if its idempotency key has been used before.

        Raises
        ------
        NotFound
        StateConflict
            The first job has not ended, or this version of Rowveil cannot give its rows.
        Conflict
            A table differs from the first job's, or is missing.
        InvalidRequest
            A destination was given for a job that makes its own, or a control for a job that has none.
        IdempotencyKeyReused
        LimitReached
        StorageFull
        TooLarge
        """
        known = self.accepted_before(submission, caller)
        if known is not None:
            return known
        self._stores.database.check_space()
        with self._stores.database.read() as session:
            first = jobs.find(session, first_id, "sealed_seed", caller=caller)
        if first is None:
            raise job_not_found(first_id)
        if not first.ended:
            raise StateConflict(f"the job is {first.state}; it can be rerun when it has ended")
        options = options_of_rerun(first)
        kind = kind_of(first.service)
        if destination is not None and not kind.reads_destination:
            raise InvalidRequest("the job made its own destination: give its source", "/destination")
        if control is not None and first.control_digest is None:
            raise InvalidRequest("the job was given no control rows", "/control")
        job = Job(
            id=job_id,
            owner=caller.owner,
            project=caller.project,
            service=first.service,
            revision=revision_of(first.service),
            parameters=first.parameters,
            options=options,
            report_level=first.report_level,
            retain_source=first.retain_source,
            inline=kind.has_rows and (first.inline if source is None else isinstance(source, pa.Table)),
            rerun_of=first.id,
            series_id=first.series_id,
            control_digest=first.control_digest,
        )
        _set_send_to(job, send_to)
        seed = self._stores.open_value(first.sealed_seed, seed_binding(first))
        job.seed_fingerprint, job.seed_bits = self._stores.sealer.fingerprint(seed), first.seed_bits
        tables: dict[Role, GivenTable | None] = {"source": source}
        if kind.reads_destination:
            tables["destination"] = destination
        if first.control_digest is not None:
            tables["control"] = control
        expected: dict[Role, str] = {role: table_columns(first, role).digest for role in tables}
        tables, of_buffers = in_forms(self._stores, tables, expected, caller)
        return self._insert(job, seed, tables, submission, caller, worker, "job.rerun", first, of_buffers)

    def accepted_before(self, submission: SubmissionOptions, caller: Caller) -> Job | None:
        """Return the job that an equal earlier request has made. Raises IdempotencyKeyReused."""
        if submission.idempotency_key is None:
            return None
        with self._stores.database.write() as session:
            return self._made_under_key(session, submission, caller, moment(session))

    def _made_under_key(
        self, session: Transaction, submission: SubmissionOptions, caller: Caller, now: datetime
    ) -> Job | None:
        job_id = self._idempotency.resource(session, caller.owner, submission, now)
        # Visible to the caller only: a changed row of the key could name another's job.
        job = jobs.find(session, job_id, caller=caller) if job_id is not None else None
        if job is not None:  # audited, because the response may contain its rows
            self._stores.audit.append(session, caller, "job.submit.again", job.id, now)
        return job

    def _seal_seed(self, job: Job, seed: bytes) -> None:
        """Seal the seed to the columns that are its terms, which must all be set."""
        job.sealed_seed = self._stores.sealer.seal(seed, seed_binding(job))

    def _set_submission(
        self, job: Job, submission: SubmissionOptions, now: datetime, first: Job | None
    ) -> None:
        for name, text in submission.annotations.columns(first).items():
            setattr(job, name, text)
        job.priority = submission.priority
        job.state, job.created_at = "queued", now
        if submission.deadline_seconds is not None:
            job.deadline = now + timedelta(seconds=submission.deadline_seconds)
        if submission.webhook is not None:
            job.sealed_webhook = seal_webhook(self._stores.sealer, submission.webhook, job.id)

    def _insert(
        self,
        job: Job,
        seed: bytes,
        tables: Mapping[Role, GivenTable | None],
        submission: SubmissionOptions,
        caller: Caller,
        worker: KeptWorker | None,
        action: str,
        first: Job | None = None,
        of_buffers: Mapping[Role, str] | None = None,
        other_digest: str | None = None,
    ) -> Job:
        """Seal the tables that came with the request, and insert the row in one transaction.

        ``first`` is the job that is rerun, ``of_buffers`` has the digests of buffers in the forms of its own;
        ``other_digest`` is the source's digest in the form in which it may have been released.

        Small tables are sealed into the row, others are written to files. Both happen before the transaction,
        which holds the owner's lock and must be short. Buffers and retained tables are looked up within it,
        so that they cannot expire meanwhile. The seed is sealed before it, and again if it adds a series or
        control.
        """
        written: list[str] = []
        try:
            job.byte_size, job.trace_parent = 0, submission.trace_parent
            for role, table in tables.items():
                if isinstance(table, pa.Table):
                    self._set_inline(job, role, table, first, written)
                elif isinstance(table, StoredTable):
                    given = TableColumns(
                        table.digest,
                        table.fields,
                        table.rows,
                        table.byte_size,
                        table.access,
                        None,
                        table.reference,
                    )
                    check_same_rows(given, role, first)
                    self._tables.set(job, role, given)
            self._seal_seed(job, seed)
            known_terms = job.series_id, job.control_digest
            if worker is not None and all(getattr(job, f"sealed_{role}") is not None for role in tables):
                worker.prepare(job)
            with self._stores.database.write() as session:
                self._set_submission(job, submission, moment(session), first)
                usage.lock(session, job.owner, job.created_at)
                known = self._made_under_key(session, submission, caller, job.created_at)
                if known is None:
                    read = [table.blob for table in tables.values() if isinstance(table, StoredTable)]
                    self._stores.claim_blobs(session, [*written, *read])
                    reads = self._tables.look_up(session, job, tables, caller, first, of_buffers or {})
                    self._join(session, job, first, other_digest)
                    if (job.series_id, job.control_digest) != known_terms:
                        self._seal_seed(job, seed)
                    self._queue(session, job, submission, worker)
                    self._idempotency.keep(session, job.owner, submission, job.id, job.created_at)
                    reason = first.id if first is not None else None
                    lines = [*reads, Entry(caller, action, job.id, reason)]
                    self._stores.audit.append_all(session, lines, job.created_at)
        except BaseException as error:
            self._stores.drop(written)
            if isinstance(error, LeaseLost):
                raise Unavailable(str(error)) from None
            raise
        if known is not None:  # a concurrent request made it
            self._stores.drop(written)
            return known
        self._stores.mark_named(written)
        return job

    def _set_inline(
        self, job: Job, role: Role, table: pa.Table, first: Job | None, written: list[str]
    ) -> None:
        """Set the columns of a table that is part of the request: sealed into the row, or written to a file.

        ``written`` receives the id of the file before it is written.
        """
        description = described(table)
        form = self._stores.lease.digest_form
        if first is not None:
            form = form_of(table_columns(first, role).digest)
        digest, field_digests = digested(table, form)
        given = TableColumns(digest, description["fields"], description["rows"], table.nbytes)
        check_same_rows(given, role, first)
        if (content := self._small(table)) is not None:
            self._tables.set(job, role, replace(given, blob=content))
            return
        access = self._stores.new_blob()
        written.append(access.id)
        _write(access, table, field_digests)
        self._tables.set(job, role, replace(given, blob=access))

    def _join(self, session: Transaction, job: Job, first: Job | None, other_digest: str | None) -> None:
        """Check the earlier releases of the source, and add the job to its series."""
        if first is None:
            check_released(session, self._settings, job, other_digest)
            join_series(session, self._stores.sealer, job)
        elif first.series_id is not None:
            join_again(session, self._stores.sealer, job, first)

    def _queue(
        self, session: Transaction, job: Job, submission: SubmissionOptions, worker: KeptWorker | None
    ) -> None:
        """Insert the job's row at its turn, or as claimed by this replica if no other job waits.

        Nothing rejects the request any more: a claimed job may start before its row is inserted.
        """
        active = self._limits.admit_job(session, job.owner, submission.priority, job.row_count, job.byte_size)
        job.ranked_at = turn_after(
            submission.priority,
            self._settings.priority_weight,
            active.clock or job.created_at,
            [active.own_turn],
        )
        if worker is not None and not jobs.any_queued(session):
            replica = self._stores.lease.replica
            replicas.hold(session, [replica])
            job.state, job.attempt = after(State.QUEUED, Step.CLAIM), 1
            job.started_at, job.claimed_by = job.created_at, replica
            worker.start(job)
        elif worker is not None:
            worker.leave_to_queue()
        jobs.insert(session, job)

    def _small(self, table: pa.Table) -> bytes | None:
        """Return the stream of a table that goes into the row; None: it goes into a file."""
        most = self._settings.small_table_bytes
        if table.nbytes > most:
            return None
        content = table_bytes(table.schema, table.to_batches())
        return content if len(content) <= most else None


def _write(access: BlobAccess, table: pa.Table, field_digests: FieldDigests | None) -> None:
    try:
        write_table(access, table, field_digests=field_digests)
    except OSError as error:
        raise storage_error(error) from error


def _set_send_to(job: Job, send_to: SendTo | None) -> None:
    if send_to is not None:
        job.destination_reference, job.destination_media_type = send_to.reference, send_to.media_type
        job.destination_options = send_to.options()
