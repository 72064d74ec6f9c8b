"""Requests for jobs: the given tables, the submission options, and the validated job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, Union, get_args

import pyarrow as pa
from pydantic import ValidationError

from app.errors import StateConflict
from app.formats.csv_output import PLAIN, CsvStyle
from app.job_kinds import Kind, kind_of, revision_of
from app.store.blobs.sealed_files import BlobAccess
from app.store.sql.models import Buffer, Job
from app.webhooks.messages import Webhook
from app.worker.tasks import FIRST_RELEASE
from providers import PROVIDERS
from providers.params import StrictModel
from providers.selection.candidates import CHOICE_REVISION

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


@dataclass(frozen=True, slots=True)
class TableOf:
    """Source or destination of a swap that succeeded."""

    job: str
    """Id of the swap."""
    role: Literal["source", "destination"]


GivenTable: TypeAlias = Union["pa.Table", str, StoredTable, TableOf]
"""A table in memory, the id of a buffer, a table in the store, or a table of another job."""


@dataclass(frozen=True, slots=True)
class SendTo:
    """Reference that a destination is written to, and how."""

    reference: str
    media_type: str
    """Media type of the file."""
    overwrite: bool = False
    """Whether a file that is there already may be replaced."""
    csv: CsvStyle = PLAIN
    """Style of a CSV."""

    def options(self) -> dict[str, Any] | None:
        """Return the options as plain JSON; None: the defaults."""
        options: dict[str, Any] = {}
        if self.overwrite:
            options["overwrite"] = True
        options |= {f"csv_{name}": getattr(self.csv, name) for name in self.csv.stated}
        return options or None


def csv_style_of(options: dict[str, Any] | None) -> CsvStyle:
    """Return the style of a CSV destination, from the options that `SendTo.options` returned."""
    prefix = "csv_"
    stated = {name: value for name, value in (options or {}).items() if name.startswith(prefix)}
    return CsvStyle(**{name.removeprefix(prefix): value for name, value in stated.items()})


def tables_given(job: Job) -> dict[str, str | None]:
    """Map the role of each table that was given to the job, such as ``source``, to its blob."""
    given = {"source": job.source_blob}
    kind = kind_of(job.service)
    if kind.reads_destination:
        given["destination"] = job.destination_blob
    if kind is Kind.ATTACKS:
        given["control"] = job.control_blob
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
class Annotations:
    """Name, label and notes of a job or a buffer. They may be personal: no log, metric or event has them.

    None: not given; an empty text: none.
    """

    name: str | None = field(default=None, repr=False)
    label: str | None = field(default=None, repr=False)
    notes: str | None = field(default=None, repr=False)

    def columns(self, first: Job | Buffer | None = None) -> dict[str, str | None]:
        """Return the columns of a new row. Name and label that were not given are those of ``first``.

        Notes are not taken over: they describe one job or one table.
        """
        name, label = self.name, self.label
        if first is not None:
            name = first.name if name is None else name
            label = first.label if label is None else label
        return {"name": name or None, "label": label or None, "notes": self.notes or None}


UNANNOTATED = Annotations()
"""No name, no label, no notes."""


@dataclass(frozen=True, slots=True)
class SubmissionOptions:
    """Idempotency key, annotations, priority, deadline and webhook of a request."""

    idempotency_key: str | None = None
    request_fingerprint: str | None = None
    """Text that is equal for equal requests. It is stored as a keyed hash, since it holds a seed and rows."""
    priority: Priority = "normal"
    deadline_seconds: float | None = None
    """Time from the acceptance to the deadline, in seconds."""
    webhook: Webhook | None = None
    annotations: Annotations = UNANNOTATED
    trace_parent: str | None = None
    """Span of the request (W3C Trace Context), if traces are recorded."""


DEFAULT_OPTIONS = SubmissionOptions()
"""No idempotency key, normal priority, no deadline, no webhook."""


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
    """Table to measure or attack; None for a job that makes its own destination."""
    control: GivenTable | None = field(default=None, repr=False)
    """Rows that were not in the source, for an attack."""
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


def options_of_rerun(first: Job) -> dict[str, Any] | None:
    """Return the options of a rerun of this job, by the revision that this version of Rowveil has.

    If that is another one, they name the digest of the first job's destination: the rerun fails unless it
    gives the same rows. See decision 94.

    Raises
    ------
    StateConflict
        Every output differs between the two revisions, this one does not accept the parameters, or there is
        no destination to compare with.
    """
    revision, choice = revision_of(first.service), choice_revision_of(first)
    if revision == first.revision and choice in (None, CHOICE_REVISION):
        return first.options
    ran = f"the job ran revision {first.revision} of {first.service}"
    provider = PROVIDERS.get(first.service)
    if provider is None or first.revision < provider.draws_revision:
        raise StateConflict(
            f"{ran}, which this version of the service no longer has (it has {revision}): the same bytes "
            "cannot be promised"
        )
    if first.destination_digest is None:
        raise StateConflict(
            f"{ran}, and this version of Rowveil has {revision}: a rerun would be compared with the job's "
            "destination, but it has none; submit it again"
        )
    released = {"revision": first.revision, "destination_digest": first.destination_digest}
    return (options_of_own_revision(first) or {}) | {FIRST_RELEASE: released}


def options_of_own_revision(job: Job) -> dict[str, Any] | None:
    """Return the options of a job of another revision, for a run by this version of Rowveil.

    Raises
    ------
    StateConflict
        This version does not have the service, or does not accept the parameters.
    """
    revision = revision_of(job.service)
    if revision is None:
        raise StateConflict(f"this version of Rowveil has no service '{job.service}'")
    try:
        if job.service in PROVIDERS:
            PROVIDERS[job.service].params.model_validate(job.parameters)
    except ValidationError as error:
        raise StateConflict(
            f"revision {revision} of {job.service} does not accept the job's parameters, which are those of "
            f"revision {job.revision}"
        ) from error
    if choice_revision_of(job) is None:
        return job.options
    return {**(job.options or {}), "choice_revision": CHOICE_REVISION}
