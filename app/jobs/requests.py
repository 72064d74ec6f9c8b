"""Requests for jobs: the given tables, the submission options, and the validated job."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa

from app.job_kinds import Kind, kind_of
from app.store.blobs.sealed_files import BlobAccess
from app.store.sql.models import Job
from app.webhooks.messages import Webhook
from providers.params import StrictModel

# ---------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A checked table in the store that no row names yet; the row of a job will."""

    access: BlobAccess
    digest: str
    fields: list[dict[str, Any]] = field(repr=False)
    rows: int
    byte_size: int
    """Plain bytes of the blob."""
    reference: str | None = None
    """Reference that it was read from."""

    @property
    def blob(self) -> str:
        """Id of the blob."""
        return self.access.id


GivenTable: TypeAlias = pa.Table | str | StoredTable
"""A table in memory, the id of a buffer, or a table in the store."""


@dataclass(frozen=True, slots=True)
class SendTo:
    """Reference that a destination is written to, and the media type of the file."""

    reference: str
    media_type: str


def tables_given(job: Job) -> dict[str, str | None]:
    """Map ``source``, and ``destination`` of a measures job, to the blob of the table that was given."""
    given = {"source": job.source_blob}
    if kind_of(job.service) is Kind.MEASURES:
        given["destination"] = job.destination_blob
    return given


def released_columns(job: Job) -> dict[str, None]:
    """Return the columns that an ended job gives up, so that it no longer has the tables it was given."""
    columns = ("{role}_blob", "sealed_{role}_key", "sealed_{role}")
    roles = () if job.retain_source else tables_given(job)
    return {column.format(role=role): None for role in roles for column in columns}


# ---------------------------------------------------------------------------------- submission options

Priority = Literal["low", "normal", "high"]

PRIORITIES: tuple[Priority, ...] = get_args(Priority)
"""All priorities, in ascending order."""


@dataclass(frozen=True, slots=True)
class SubmissionOptions:
    """Idempotency key, priority, deadline and webhook of a request."""

    idempotency_key: str | None = None
    request_fingerprint: str | None = None
    """Text that is equal for equal requests. It is stored as a keyed hash, since it holds a seed and rows."""
    priority: Priority = "normal"
    deadline_seconds: float | None = None
    """Time from the acceptance to the deadline, in seconds."""
    webhook: Webhook | None = None
    trace_parent: str | None = None
    """Span of the request (W3C Trace Context), if traces are recorded."""


DEFAULT_OPTIONS = SubmissionOptions()
"""No idempotency key, normal priority, no deadline, no webhook."""


def head_start(priority: Priority, seconds: float) -> timedelta:
    """Return the time by which the priority moves a job ahead in the queue; negative for ``low``.

    One step of priority is worth ``seconds`` of waiting. So no job starves: a job that comes later than that
    ranks behind.
    """
    return timedelta(seconds=seconds) * (PRIORITIES.index(priority) - PRIORITIES.index("normal"))


# ------------------------------------------------------------------------------------------------ jobs


@dataclass(frozen=True, slots=True)
class NewJob:
    """A validated request for a job."""

    service: str
    """Identifier of a provider, or a service of `app.job_kinds`."""
    parameters: StrictModel
    """Parameters, checked against the source's schema."""
    source: GivenTable = field(repr=False)
    destination: GivenTable | None = field(default=None, repr=False)
    """Table to measure; None for a job that makes its own destination."""
    send_to: SendTo | None = None
    """Reference to write the job's own destination to."""
    seed: bytes | None = field(default=None, repr=False)
    """32 bytes; None: drawn from the operating system."""
    seed_bits: int | None = None
    """Bits of the caller's seed; None: 256."""
    report: Literal["none", "summary", "full"] = "summary"
    options: dict[str, Any] = field(default_factory=dict)
    """Options besides the parameters, such as ``{"measures": {...}}``, as plain JSON."""
    retain_source: bool = False
    inline: bool = False
    """Whether the source came in the request, so that the response returns the rows."""
    submission: SubmissionOptions = DEFAULT_OPTIONS


def choice_revision_of(job: Job) -> str | None:
    """Return the revision of the choice among candidates; None for a job without candidates."""
    options = job.options or {}
    return str(options.get("choice_revision", "1")) if "candidates" in options else None
