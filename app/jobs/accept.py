"""How a job is accepted, for the first time or again. Blocking: it runs in a thread.

A job is accepted when its row is committed. Its source blob is in the store by then, so that
nothing but the row is needed to run it, whatever becomes of the service.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from app.callers import Caller
from app.errors import Conflict, IdempotencyKeyReused, InvalidRequest, NotFound, StateConflict
from app.jobs.kinds import Kind, kind_of, revision_of
from app.jobs.run import described
from app.jobs.stores import Stores, now
from app.store import buffers, jobs
from app.store.jobs import Role
from app.store.models import Job
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
    source: pa.Table | str = field(repr=False)
    """The table, or the id of a buffer."""
    destination: pa.Table | str | None = field(default=None, repr=False)
    """The table that is to be judged, or the id of a buffer; None of a job that makes its own."""
    seed: bytes | None = field(default=None, repr=False)
    """32 bytes; drawn from the operating system where there is none."""
    seed_bits: int | None = None
    """The bits that the caller gave the seed; 256 where there is no saying."""
    report: Literal["none", "summary", "full"] = "summary"
    options: dict[str, Any] = field(default_factory=dict)
    """What is asked for besides, such as ``{"measures": {...}}``, as plain JSON."""
    retain_source: bool = False
    inline: bool = False
    idempotency_key: str | None = None
    request_fingerprint: str | None = None
    """Equal for equal requests. Kept as a keyed hash: the request holds a seed and rows."""


class Acceptance:
    """Makes job rows out of requests."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def accept(self, job_id: str, new: NewJob, caller: Caller) -> Job:
        """The job, queued under this id; the one accepted before where the idempotency key says so.

        Raises IdempotencyKeyReused, InvalidRequest (no such buffer).
        """
        fingerprint = self._request_fingerprint(new)
        idempotency_key = _of_owner(new.idempotency_key, caller)
        known = self._accepted_before(idempotency_key, fingerprint)
        if known is not None:
            with self._stores.database.write() as session:  # its rows may be read by this
                self._stores.audit.append(session, caller, "job.submit.again", known.id, now())
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
            idempotency_key=idempotency_key,
            request_fingerprint=fingerprint,
        )
        self._set_seed(job, seed, bits)
        try:
            return self._insert(job, _tables(job, new.source, new.destination), caller, "job.submit")
        except jobs.IdempotencyKeyTaken:  # by a call at the same moment
            known = self._accepted_before(idempotency_key, fingerprint)
            assert known is not None  # unless it was purged within the moment
            return known

    def accept_again(
        self,
        job_id: str,
        first_id: str,
        source: pa.Table | str | None,
        destination: pa.Table | str | None,
        caller: Caller,
    ) -> Job:
        """A new job, queued under this id, with the parameters and the seed of one that has ended.

        Raises NotFound, StateConflict (it has not ended, or its revision is gone), Conflict (a table is
        another, or is needed), InvalidRequest (a destination for a job that makes its own).
        """
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
            and (first.inline if source is None else not isinstance(source, str)),
            rerun_of=first.id,
        )
        seed = self._stores.sealer.open(first.sealed_seed, seed_context(first.id))
        self._set_seed(job, seed, first.seed_bits)
        return self._insert(job, _tables(job, source, destination), caller, "job.rerun", first)

    def _accepted_before(self, key: str | None, fingerprint: str | None) -> Job | None:
        if key is None:
            return None
        with self._stores.database.read() as session:
            known = jobs.find_by_idempotency_key(session, key)
        if known is not None and known.request_fingerprint != fingerprint:
            raise IdempotencyKeyReused(
                "this Idempotency-Key came with another request before; a new request needs a new key"
            )
        return known

    def _request_fingerprint(self, new: NewJob) -> str | None:
        if new.request_fingerprint is None:
            return None
        return self._stores.sealer.request_fingerprint(new.request_fingerprint.encode())

    def _set_seed(self, job: Job, seed: bytes, bits: int) -> None:
        sealer = self._stores.sealer
        job.sealed_seed = sealer.seal(seed, seed_context(job.id))
        job.seed_fingerprint = sealer.fingerprint(seed)
        job.seed_bits = bits

    def _insert(
        self,
        job: Job,
        tables: Mapping[Role, pa.Table | str | None],
        caller: Caller,
        action: str,
        first: Job | None = None,
    ) -> Job:
        written: list[str] = []
        try:
            for role, table in tables.items():
                if isinstance(table, pa.Table):
                    description = described(table)
                    given = _Given(table_digest(table), description["fields"], description["rows"])
                    _must_be_the_same_rows(given, role, first)
                    access = self._stores.blobs.allocate()
                    write_table(access, table)
                    written.append(access.id)
                    _set(job, role, replace(given, blob=access.id))
            job.state, job.created_at = "queued", now()
            with self._stores.database.write() as session:
                for role, table in tables.items():
                    if isinstance(table, str):
                        buffer = buffers.find(session, table, job.created_at, caller)
                        if buffer is None:
                            raise InvalidRequest(f"there is no buffer '{table}'", f"/{role}/buffer")
                        given = _Given(buffer.digest, buffer.fields, buffer.row_count, buffer.blob, buffer.id)
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
                jobs.insert(session, job)
                of = first.id if first is not None else None
                self._stores.audit.append(session, caller, action, job.id, job.created_at, of)
        except BaseException:
            self._stores.delete_blobs(written)
            raise
        return job


def _of_owner(key: str | None, caller: Caller) -> str | None:
    """Two callers that think of the same key mean two jobs."""
    return None if key is None else hashlib.sha256(f"{caller.owner}\0{key}".encode()).hexdigest()


def _tables(
    job: Job, source: pa.Table | str | None, destination: pa.Table | str | None
) -> dict[Role, pa.Table | str | None]:
    if kind_of(job.service) is Kind.MEASURES:
        return {"source": source, "destination": destination}
    return {"source": source}


@dataclass(frozen=True, slots=True)
class _Given:
    """What identifies a table that came with a job, and where it is kept."""

    digest: str
    fields: list[dict[str, Any]]
    rows: int
    blob: str | None = None
    buffer: str | None = None


def _set(job: Job, role: Role, given: _Given) -> None:
    if role == "source":
        job.source_digest, job.source_fields, job.row_count = given.digest, given.fields, given.rows
        job.source_blob, job.source_buffer = given.blob, given.buffer
    else:
        job.destination_digest, job.destination_fields = given.digest, given.fields
        job.destination_rows, job.destination_blob = given.rows, given.blob
        job.destination_buffer = given.buffer


def _given(job: Job, role: Role) -> _Given:
    if role == "source":
        return _Given(job.source_digest, job.source_fields, job.row_count, job.source_blob, job.source_buffer)
    assert job.destination_digest is not None  # of a job that judges a table, from its acceptance on
    assert job.destination_fields is not None
    assert job.destination_rows is not None
    return _Given(
        job.destination_digest,
        job.destination_fields,
        job.destination_rows,
        job.destination_blob,
        job.destination_buffer,
    )


def _must_be_the_same_rows(given: _Given, role: Role, first: Job | None) -> None:
    expected = _given(first, role).digest if first is not None else given.digest
    if given.digest != expected:
        raise Conflict(
            f"the {role} is not the job's own: its digest is {given.digest}, expected {expected}", f"/{role}"
        )
