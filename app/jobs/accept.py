"""How a job is accepted, for the first time or again. Blocking: it runs in a thread.

A job is accepted when its row is committed. Its source blob is in the store by then, so that
nothing but the row is needed to run it, whatever becomes of the service.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

import pyarrow as pa

from app.callers import Caller
from app.errors import Conflict, InvalidRequest, NotFound, StateConflict, Unavailable, storage_error
from app.jobs.idempotency import Idempotency, MadeBefore
from app.jobs.kinds import Kind, kind_of, revision_of
from app.jobs.limits import Limits
from app.jobs.run import described
from app.jobs.stores import Stores
from app.jobs.tables import GivenTable, SendTo, StoredTable
from app.jobs.terms import PLAIN, Terms, head_start
from app.jobs.webhooks import sealed_webhook
from app.settings import Settings
from app.store import buffers, callers, jobs
from app.store.blobs import BlobAccess
from app.store.jobs import Role
from app.store.models import Job
from app.store.replicas import LeaseLost, moment
from app.store.seal import seed_context
from app.store.tables import write_table
from providers.digest import table_digest
from providers.params import StrictModel

_DRAWN_BITS = 128


@dataclass(frozen=True, slots=True)
class NewJob:
    """What is asked for."""

    service: str
    """A provider's identifier, or one of those in `app.jobs.kinds`."""
    parameters: StrictModel
    """Checked against the source's schema."""
    source: GivenTable = field(repr=False)
    destination: GivenTable | None = field(default=None, repr=False)
    """The table that is to be judged; None of a job that makes its own."""
    send_to: SendTo | None = None
    """Where the destination that comes out is to be written."""
    seed: bytes | None = field(default=None, repr=False)
    """32 bytes; drawn from the operating system where there is none."""
    seed_bits: int | None = None
    """The bits that the caller gave the seed; 256 where there is no saying."""
    report: Literal["none", "summary", "full"] = "summary"
    options: dict[str, Any] = field(default_factory=dict)
    """What is asked for besides, such as ``{"measures": {...}}``, as plain JSON."""
    retain_source: bool = False
    inline: bool = False
    terms: Terms = PLAIN


class Acceptance:
    """Makes job rows out of requests."""

    def __init__(self, settings: Settings, stores: Stores, limits: Limits, idempotency: Idempotency) -> None:
        self._settings = settings
        self._stores = stores
        self._limits = limits
        self._idempotency = idempotency

    def accept(self, job_id: str, new: NewJob, caller: Caller) -> Job:
        """The job, queued under this id; the one accepted before where the idempotency key says so.

        Raises IdempotencyKeyReused, InvalidRequest (no such buffer), LimitReached, TooLarge.
        """
        known = self.accepted_before(new.terms, caller)
        if known is not None:
            return known
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
        self._set_seed(job, seed, bits)
        return self._insert(job, _tables(job, new.source, new.destination), new.terms, caller, "job.submit")

    def accept_again(
        self,
        job_id: str,
        first_id: str,
        source: GivenTable | None,
        destination: GivenTable | None,
        send_to: SendTo | None,
        terms: Terms,
        caller: Caller,
    ) -> Job:
        """A new job, queued under this id, with the parameters and the seed of one that has ended.

        The one accepted before where the idempotency key says so.

        Raises NotFound, StateConflict (it has not ended, or its revision is gone), Conflict (a table is
        another, or is needed), InvalidRequest (a destination for a job that makes its own),
        IdempotencyKeyReused, LimitReached, TooLarge.
        """
        known = self.accepted_before(terms, caller)
        if known is not None:
            return known
        with self._stores.database.read() as session:
            first = jobs.find(session, first_id, "sealed_seed", caller=caller)
        if first is None:
            raise NotFound(f"there is no job '{first_id}'")
        if not first.ended:
            raise StateConflict(f"the job is {first.state}; it can be rerun when it has ended")
        revision = revision_of(first.service)
        if revision != first.revision:
            raise StateConflict(
                f"the job ran revision {first.revision} of {first.service}, which this version of the "
                f"service no longer has (it has {revision}): the same bytes cannot be promised"
            )
        if destination is not None and kind_of(first.service) is not Kind.MEASURES:
            raise InvalidRequest("the job made its destination itself: give its source", "/destination")
        job = Job(
            id=job_id,
            owner=caller.owner,
            project=caller.project,
            service=first.service,
            revision=first.revision,
            parameters=first.parameters,
            options=first.options,
            report_level=first.report_level,
            retain_source=first.retain_source,
            inline=kind_of(first.service).has_rows
            and (first.inline if source is None else isinstance(source, pa.Table)),
            rerun_of=first.id,
        )
        _set_send_to(job, send_to)
        seed = self._stores.sealer.open(first.sealed_seed, seed_context(first.id))
        self._set_seed(job, seed, first.seed_bits)
        return self._insert(job, _tables(job, source, destination), terms, caller, "job.rerun", first)

    def accepted_before(self, terms: Terms, caller: Caller) -> Job | None:
        """The job that this very request made before. Raises IdempotencyKeyReused."""
        if terms.idempotency_key is None:
            return None
        with self._stores.database.write() as session:
            now = moment(session)
            job_id = self._idempotency.resource(session, caller.owner, terms, now)
            job = jobs.find(session, job_id) if job_id is not None else None
            if job is not None:  # its rows may be read by this
                self._stores.audit.append(session, caller, "job.submit.again", job.id, now)
            return job

    def _set_seed(self, job: Job, seed: bytes, bits: int) -> None:
        sealer = self._stores.sealer
        job.sealed_seed = sealer.seal(seed, seed_context(job.id))
        job.seed_fingerprint = sealer.fingerprint(seed)
        job.seed_bits = bits

    def _set_terms(self, job: Job, terms: Terms, now: datetime) -> None:
        job.priority = terms.priority
        job.state, job.created_at = "queued", now
        job.ranked_at = now - head_start(terms.priority, self._settings.priority_seconds)
        if terms.deadline_seconds is not None:
            job.deadline = now + timedelta(seconds=terms.deadline_seconds)
        if terms.webhook is not None:
            job.sealed_webhook = sealed_webhook(self._stores.sealer, terms.webhook, job.id)
        job.trace_parent = terms.trace_parent

    def _insert(
        self,
        job: Job,
        tables: Mapping[Role, GivenTable | None],
        terms: Terms,
        caller: Caller,
        action: str,
        first: Job | None = None,
    ) -> Job:
        written: list[str] = []
        try:
            job.byte_size = 0
            for role, table in tables.items():
                if isinstance(table, pa.Table):
                    description = described(table)
                    given = _Given(
                        table_digest(table), description["fields"], description["rows"], table.nbytes
                    )
                    _must_be_the_same_rows(given, role, first)
                    access = self._stores.new_blob()
                    written.append(access.id)
                    _write(access, table)
                    _set(job, role, replace(given, blob=access.id))
                elif isinstance(table, StoredTable):
                    given = _Given(
                        table.digest,
                        table.fields,
                        table.rows,
                        table.byte_size,
                        table.blob,
                        None,
                        table.reference,
                    )
                    _must_be_the_same_rows(given, role, first)
                    _set(job, role, given)
            with self._stores.database.write() as session:
                self._set_terms(job, terms, moment(session))
                callers.lock(session, job.owner, job.created_at)
                if self._idempotency.is_known(session, job.owner, terms, job.created_at):
                    raise MadeBefore
                read = [table.blob for table in tables.values() if isinstance(table, StoredTable)]
                self._stores.begin_to_name(session, [*written, *read])
                for role, table in tables.items():
                    if isinstance(table, str):
                        buffer = buffers.lend(session, table, job.created_at, caller)
                        if buffer is None:
                            raise InvalidRequest(f"there is no buffer '{table}'", f"/{role}/buffer")
                        given = _Given(
                            buffer.digest,
                            buffer.fields,
                            buffer.row_count,
                            buffer.byte_size,
                            buffer.blob,
                            buffer.id,
                        )
                        _must_be_the_same_rows(given, role, first)
                        _set(job, role, given)
                    elif table is None:
                        assert first is not None
                        given = _given(first, role)
                        given = replace(given, blob=jobs.retained(session, role, first.id, job.created_at))
                        if given.blob is None:
                            raise Conflict(
                                f"the job's {role} was not retained; give it again: its digest must be "
                                f"{given.digest}"
                            )
                        _set(job, role, given)
                self._limits.admit_job(session, job.owner, job.row_count, job.byte_size)
                jobs.insert(session, job)
                self._idempotency.keep(session, job.owner, terms, job.id, job.created_at)
                of = first.id if first is not None else None
                self._stores.audit.append(session, caller, action, job.id, job.created_at, of)
        except MadeBefore:  # by a call at the same moment
            self._stores.drop(written)
            known = self.accepted_before(terms, caller)
            assert known is not None  # unless it was deleted within the moment
            return known
        except BaseException as error:
            self._stores.drop(written)
            if isinstance(error, LeaseLost):
                raise Unavailable(str(error)) from None
            raise
        self._stores.named(written)
        return job


def _write(access: BlobAccess, table: pa.Table) -> None:
    try:
        write_table(access, table)
    except OSError as error:
        raise storage_error(error) from error


def _tables(
    job: Job, source: GivenTable | None, destination: GivenTable | None
) -> dict[Role, GivenTable | None]:
    if kind_of(job.service) is Kind.MEASURES:
        return {"source": source, "destination": destination}
    return {"source": source}


@dataclass(frozen=True, slots=True)
class _Given:
    """What identifies a table that came with a job, and where it is kept."""

    digest: str
    fields: list[dict[str, Any]]
    rows: int
    bytes: int = 0
    blob: str | None = None
    buffer: str | None = None
    reference: str | None = None


def _set_send_to(job: Job, send_to: SendTo | None) -> None:
    if send_to is not None:
        job.destination_reference, job.destination_media_type = send_to.reference, send_to.media_type


def _set(job: Job, role: Role, given: _Given) -> None:
    job.byte_size += given.bytes
    if role == "source":
        job.source_digest, job.source_fields, job.row_count = given.digest, given.fields, given.rows
        job.source_blob, job.source_buffer = given.blob, given.buffer
        job.source_reference = given.reference
    else:
        job.destination_digest, job.destination_fields = given.digest, given.fields
        job.destination_rows, job.destination_blob = given.rows, given.blob
        job.destination_buffer, job.destination_reference = given.buffer, given.reference


def _given(job: Job, role: Role) -> _Given:
    if role == "source":
        # What its tables took is known of both together, and counted with the source.
        return _Given(
            job.source_digest,
            job.source_fields,
            job.row_count,
            job.byte_size,
            job.source_blob,
            job.source_buffer,
            job.source_reference,
        )
    assert job.destination_digest is not None  # of a job that judges a table, from its acceptance on
    assert job.destination_fields is not None
    assert job.destination_rows is not None
    return _Given(
        job.destination_digest,
        job.destination_fields,
        job.destination_rows,
        0,
        job.destination_blob,
        job.destination_buffer,
        job.destination_reference,
    )


def _must_be_the_same_rows(given: _Given, role: Role, first: Job | None) -> None:
    expected = _given(first, role).digest if first is not None else given.digest
    if given.digest != expected:
        raise Conflict(
            f"the {role} is not the job's own: its digest is {given.digest}, expected {expected}", f"/{role}"
        )
