"""How a job is accepted, for the first time or again. Blocking: it runs in a thread.

A job is accepted when its row is committed. Its source blob is in the store by then, so that
nothing but the row is needed to run it, whatever becomes of the service.
"""

import secrets
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from app.errors import Conflict, IdempotencyKeyReused, InvalidRequest, NotFound, StateConflict
from app.jobs.run import described
from app.jobs.stores import Stores, now, seed_context
from app.store import buffers, jobs
from app.store.models import Job
from app.store.tables import write_table
from providers import PROVIDERS
from providers.digest import table_digest
from providers.params import Params

_DRAWN_BITS = 128


@dataclass(frozen=True, slots=True)
class NewJob:
    """What is asked for."""

    service: str
    parameters: Params
    """Checked against the source's schema."""
    source: pa.Table | str = field(repr=False)
    """The table, or the id of a buffer."""
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

    def accept(self, job_id: str, new: NewJob) -> Job:
        """The job, queued under this id; the one accepted before where the idempotency key says so.

        Raises IdempotencyKeyReused, InvalidRequest (no such buffer).
        """
        fingerprint = self._request_fingerprint(new)
        known = self._accepted_before(new.idempotency_key, fingerprint)
        if known is not None:
            return known
        seed, bits = new.seed, new.seed_bits or 256
        if seed is None:
            seed, bits = secrets.randbits(_DRAWN_BITS).to_bytes(32, "big"), _DRAWN_BITS
        job = Job(
            id=job_id,
            service=new.service,
            revision=PROVIDERS[new.service].revision,
            parameters=new.parameters.model_dump(mode="json", by_alias=True),
            options=new.options or None,
            report_level=new.report,
            retain_source=new.retain_source,
            inline=new.inline,
            idempotency_key=new.idempotency_key,
            request_fingerprint=fingerprint,
        )
        self._set_seed(job, seed, bits)
        try:
            return self._insert(job, new.source, "job.submit")
        except jobs.IdempotencyKeyTaken:  # by a call at the same moment
            known = self._accepted_before(new.idempotency_key, fingerprint)
            assert known is not None  # unless it was purged within the moment
            return known

    def accept_again(self, job_id: str, first_id: str, source: pa.Table | str | None) -> Job:
        """A new job, queued under this id, with the parameters and the seed of one that has ended.

        Raises NotFound, StateConflict (it has not ended, or its revision is gone), Conflict (the
        source is another, or is needed).
        """
        with self._stores.database.read() as session:
            first = jobs.find(session, first_id, "sealed_seed")
        if first is None:
            raise NotFound(f"there is no job '{first_id}'")
        if not first.ended:
            raise StateConflict(f"the job is {first.state}; it can be rerun when it has ended")
        revision = PROVIDERS[first.service].revision if first.service in PROVIDERS else None
        if revision != first.revision:
            raise StateConflict(
                f"the job ran revision {first.revision} of {first.service}, which this version of the "
                f"service no longer has (it has {revision}): the same bytes cannot be promised"
            )
        job = Job(
            id=job_id,
            service=first.service,
            revision=first.revision,
            parameters=first.parameters,
            options=first.options,
            report_level=first.report_level,
            retain_source=first.retain_source,
            inline=first.inline if source is None else not isinstance(source, str),
            rerun_of=first.id,
        )
        seed = self._stores.sealer.open(first.sealed_seed, seed_context(first.id))
        self._set_seed(job, seed, first.seed_bits)
        return self._insert(job, source, "job.rerun", first)

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

    def _insert(self, job: Job, source: pa.Table | str | None, action: str, first: Job | None = None) -> Job:
        written = None
        if isinstance(source, pa.Table):
            job.source_digest = table_digest(source)
            _must_be_the_same_rows(job, first)
            description = described(source)
            job.source_fields, job.row_count = description["fields"], description["rows"]
            access = self._stores.blobs.allocate()
            write_table(access, source, batch_rows=None)
            written = job.source_blob = access.id
        job.state, job.created_at = "queued", now()
        try:
            with self._stores.database.write() as session:
                if isinstance(source, str):
                    buffer = buffers.find(session, source, job.created_at)
                    if buffer is None:
                        raise InvalidRequest(f"there is no buffer '{source}'", "/source/buffer")
                    job.source_digest, job.source_fields = buffer.digest, buffer.fields
                    job.row_count, job.source_blob = buffer.row_count, buffer.blob
                    job.source_buffer = buffer.id
                    _must_be_the_same_rows(job, first)
                elif source is None:
                    assert first is not None
                    job.source_digest, job.source_fields = first.source_digest, first.source_fields
                    job.row_count, job.source_buffer = first.row_count, first.source_buffer
                    job.source_blob = jobs.retained_source(session, first.id, job.created_at)
                    if job.source_blob is None:
                        raise Conflict(
                            "the job's source was not retained; give it again: its digest must be "
                            f"{first.source_digest}"
                        )
                jobs.insert(session, job)
                jobs.audit(session, action, job.id, job.created_at)
        except BaseException:
            if written is not None:
                self._stores.delete_blobs([written])
            raise
        return job


def _must_be_the_same_rows(job: Job, first: Job | None) -> None:
    if first is not None and job.source_digest != first.source_digest:
        raise Conflict(
            f"the source is not the job's own: its digest is {job.source_digest}, expected "
            f"{first.source_digest}",
            "/source",
        )
