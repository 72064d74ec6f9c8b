"""Response models: the JSON that the HTTP API returns.

A field that may be absent is left out rather than sent as null, and its schema says so: a type with
``null`` in it spoils the code of several client generators.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from app.api.report_schemas import GuaranteeDescription, Report, ResponseModel
from app.api.table_schemas import RowComparison
from app.errors import problem_codes, problem_type
from app.jobs.requests import Priority


def _open_enumeration(values: Iterable[str]) -> dict[str, Any]:
    """Return the schema of a text with known values, to which later versions may add.

    Clients generated from it accept unknown values too, so that a new kind of error does not break them.
    """
    return {"anyOf": [{"type": "string", "enum": list(values)}, {"type": "string"}]}


class ErrorItem(ResponseModel):
    """One error in a request."""

    message: str
    """Description of the error, and of a valid value."""
    pointer: str | SkipJsonSchema[None] = None
    """JSON pointer to the location in the request body."""
    parameter: str | SkipJsonSchema[None] = None
    """Name of the path, query or header parameter, or of the form's field, if the error is not in JSON."""


class Problem(ResponseModel):
    """RFC 9457 problem details."""

    type: Annotated[str, WithJsonSchema(_open_enumeration(map(problem_type, problem_codes())))]
    """Type of the problem: `urn:rowveil:problem:` and the `code`. Later versions may have further types."""
    title: str
    status: int
    detail: str
    instance: str | SkipJsonSchema[None] = None
    code: Annotated[str, WithJsonSchema(_open_enumeration(problem_codes()))]
    """Code of the problem, for programs. Later versions may have further codes."""
    errors: list[ErrorItem] | SkipJsonSchema[None] = None
    request_id: str | SkipJsonSchema[None] = None
    """Request id, the same as in `X-Request-ID` and in the service's log. Absent from the error stored
    with a job."""


class FieldDescription(ResponseModel):
    """One field of a table."""

    name: str
    type: str


class TableDescription(ResponseModel):
    """Digest and fields of a table, without its rows."""

    digest: str
    """SHA-256 over the table's canonical form; independent of the media type of the upload."""
    fields: list[FieldDescription]
    reference: str | SkipJsonSchema[None] = None
    """Reference that the table was read from or written to, if any."""


class DestinationDescription(TableDescription):
    """The destination buffer."""

    rows: list[dict[str, JsonValue]] | SkipJsonSchema[None] = None
    """Rows, in the response to a request with an inline source."""


class ProgressDescription(ResponseModel):
    """Progress of a job."""

    fraction: float = Field(ge=0, le=1)
    stage: str


class EventDescription(ResponseModel):
    """Event of a row, a field or the whole table."""

    code: str
    message: str
    row: int | SkipJsonSchema[None] = None
    """0-based row of the source."""
    field: str | SkipJsonSchema[None] = None


class GroupSizeDescription(ResponseModel):
    """Number of rows in the smallest, the median and the largest group.

    With `household` or `unit_id` of a swap the number of households or units.
    """

    smallest: int
    median: float
    largest: int


class PlanDescription(ResponseModel):
    """Plan of a run, computed without running it."""

    rows: int
    groups: int
    group_size: GroupSizeDescription
    unswappable_rows: int
    unswappable_groups: int
    estimated_memory_bytes: int
    reversible_rows: int = 0
    """Rows in groups of two or three. Anyone who knows the groups can undo their exchange."""
    trial: RowComparison | SkipJsonSchema[None] = None
    """`preview_rows` rows before and after a trial run on the first 1,000 rows with a seed that is thrown
    away. The run itself uses all rows and another seed."""
    guarantee: GuaranteeDescription | SkipJsonSchema[None] = None
    """Epsilon, with `mechanism` set to `permutation`; absent with random pairs."""
    group_size_is_exact: bool = True
    """Whether the run has exactly these group sizes. If not, they are lower bounds: RWN searches for the
    neighbourhoods of a preview only in tables of at most 10,000 rows, with all rows as candidates."""
    expected_part_by_field: dict[str, float] = Field(default={})
    """Field -> expected number of rows that take part. The run draws the number, except where all rows take
    part. Empty for LOCALITY, RSWAP and a selection by risk, whose rows only the run counts."""

    @property
    def notable_rows(self) -> int:
        """Number of rows for which the run would report an event."""
        return self.unswappable_rows + self.reversible_rows


class WebhookDelivery(ResponseModel):
    """Delivery of the message that notifies the webhook of the job's end."""

    state: Literal["pending", "delivered", "given_up"]
    """`pending`: the job has not ended, or the message is still to be delivered; `given_up`: no further
    attempt follows."""
    attempts: int
    """Number of attempts, including a current one."""
    problem: str | SkipJsonSchema[None] = None
    """Cause of failure of the last attempt that ended."""
    next_attempt_at: datetime | SkipJsonSchema[None] = None
    """Time of the next attempt, unless the current attempt succeeds."""
    ended_at: datetime | SkipJsonSchema[None] = None
    """Time at which the message was delivered or given up."""


class Job(ResponseModel):
    """One job of one service: everything except its rows and its seed."""

    id: str
    kind: Literal["swap", "measures", "frontier", "attacks"]
    """Kind of job. `swap` produces a destination buffer and a report; the others produce only a
    report."""
    service: str
    """Identifier of the service; `measures`, `frontier` or `attacks` for a job that runs no single
    service."""
    revision: int
    """Revision of the algorithm. The same revision, seed and source give the same bytes. A queued job
    of a revision that no running version has is run by another one."""
    name: str | SkipJsonSchema[None] = None
    """Name for people, if it has one."""
    label: str | SkipJsonSchema[None] = None
    """Label that jobs and buffers which belong together share, if it has one."""
    notes: str | SkipJsonSchema[None] = None
    """Notes for people, if there are any."""
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    outcome: Literal["SUCCESS", "SUCCESS_WITH_INFO", "FAILURE"] | SkipJsonSchema[None] = None
    """Outcome of a job that ended. SUCCESS_WITH_INFO: something was suppressed, kept or left unswapped,
    and `events` describes it."""
    parameters: dict[str, JsonValue]
    options: dict[str, JsonValue] | SkipJsonSchema[None] = None
    """Options of the request: `measures`, `candidates`, `attacks`, `thresholds`, `advice`. With candidates
    also `choice_revision`, the revision of the selection rule and of its measures. A rerun by another
    revision than the first job's has `first_release`: the revision of the first job, and the digest that the
    rows of the rerun must have."""
    seed_fingerprint: str | SkipJsonSchema[None] = None
    """Fingerprint of the seed: distinguishes two seeds without revealing either."""
    row_count: int
    priority: Priority
    deadline: datetime | SkipJsonSchema[None] = None
    """Time limit: a job that has not ended by then fails."""
    created_at: datetime
    started_at: datetime | SkipJsonSchema[None] = None
    finished_at: datetime | SkipJsonSchema[None] = None
    expires_at: datetime | SkipJsonSchema[None] = None
    """Time at which the service deletes a job that ended, with its report, manifest and seed."""
    rows_expire_at: datetime | SkipJsonSchema[None] = None
    """Time at which the service deletes the rows of the destination buffer; absent if it does not store them,
    as with a destination by reference."""
    progress: ProgressDescription
    source: TableDescription
    destination: DestinationDescription | SkipJsonSchema[None] = None
    """Destination buffer; for the kinds `measures` and `attacks`, the table that was given."""
    control: TableDescription | SkipJsonSchema[None] = None
    """Control rows of an attack, if they were given."""
    report: Report | SkipJsonSchema[None] = None
    """Report, in the response to a request of another kind than `swap` that waited for the end."""
    events: list[EventDescription] = Field(default=[])
    """First events of the job; `event_counts` counts all of them."""
    event_counts: dict[str, int] = Field(default={})
    rerun_of: str | SkipJsonSchema[None] = None
    reproduced: bool | SkipJsonSchema[None] = None
    """For a rerun that ended: whether its destination has the same digest as the first run's; for a job
    without a destination, whether the report is the same."""
    error: Problem | SkipJsonSchema[None] = None
    """Error of a failed job."""
    webhook: WebhookDelivery | SkipJsonSchema[None] = None
    """Delivery of the message about the job's end, if the request named a webhook. It is absent once the
    service has deleted the message, `ROWVEIL_WEBHOOK_RETENTION` seconds after its last attempt."""
    plan: PlanDescription | SkipJsonSchema[None] = None
    """Plan, in the response to `validate_only`. Such a job is not stored, so its id cannot be used."""


class RevealedSeed(ResponseModel):
    """Seed of a job, a secret."""

    seed: str
    """Seed in hex digits, in the form that requests accept."""
    bits: int
    """Number of bits that a brute-force search must cover."""
    seed_fingerprint: str


class JobPage(ResponseModel):
    """One page of a listing, newest first."""

    jobs: list[Job]
    next_page_token: str | SkipJsonSchema[None] = None
    """Token of the next page; absent on the last page."""


class CumulativeRisk(ResponseModel):
    """Risk of all releases of a source together, measured on hypothetical releases of its first rows."""

    field: str | SkipJsonSchema[None] = None
    """Field that the releases reveal most."""
    by: str | SkipJsonSchema[None] = None
    """Attack that reveals the value, as in `composition` of an attacks report."""
    one_release: float | SkipJsonSchema[None] = None
    """Share of the rows, or units, in which one release reveals the value."""
    all_releases: float | SkipJsonSchema[None] = None
    """Share of the rows, or units, in which all releases together reveal the value."""
    releases: int | SkipJsonSchema[None] = None
    """Number of releases that were made and attacked, 20 at most."""
    rows: int | SkipJsonSchema[None] = None
    """Number of rows that were released. All of them are attacked, or one row of each unit."""
    unit: str | SkipJsonSchema[None] = None
    """Field of the units, such as persons, if the run names one: the shares then count units, not rows."""
    not_measured: str | SkipJsonSchema[None] = None
    """Reason for which the risk was not measured."""


class OrderEpsilon(ResponseModel):
    """Epsilon of one random order of a release."""

    fields: list[str]
    """Fields that the order moves: one swap field, or all locked ones."""
    epsilon: float
    """For two people of one group who exchange their values of all these fields at once."""


class ComposedEpsilon(ResponseModel):
    """Epsilon of a release, and the sum of the epsilons of all releases of its source until then.

    The sum holds for an exchange of fields that all of these releases swap. The same run again adds nothing.
    Another run adds its epsilon, even if it gives the same rows. If another run has the seed of an earlier
    run, there is no sum.
    """

    epsilon: float | SkipJsonSchema[None] = None
    """Epsilon of this release; absent if there is no finite one."""
    all_releases: float | SkipJsonSchema[None] = None
    """Sum of the epsilons of all random orders within `fields`, over all releases; absent if there is no sum,
    for the reason in `limits`."""
    fields: list[str] | SkipJsonSchema[None] = None
    """Fields for which `all_releases` holds: two people of one group exchange their values of all these
    fields at once. Absent without a sum."""
    limits: str | SkipJsonSchema[None] = None
    """Reason why there is no sum, or no sum for other fields; absent if the sum holds for all swap fields."""
    orders: list[OrderEpsilon] | SkipJsonSchema[None] = None
    """Random orders of this release, whose epsilons add up to `epsilon`. Absent without a finite epsilon, and
    from entries of older versions."""
    unit: str | SkipJsonSchema[None] = None
    """Field that identifies a household or unit, whose rows move as one; absent: each row moves by itself."""
    member_order: str | SkipJsonSchema[None] = None
    """Order in which the rows of two households or units are exchanged; absent where there is none."""
    releases: int
    """Number of these releases, this one included."""
    without: int
    """Number of these releases that have no finite epsilon."""


class LedgerEntry(ResponseModel):
    """One release of a source. The entry stays when its job is deleted, and holds no value of a row."""

    job: str
    """Id of the job that made the release."""
    released_at: datetime
    owner: str
    """Caller who released the source."""
    project: str | SkipJsonSchema[None] = None
    service: str
    revision: int
    source_digest: str
    destination_digest: str
    row_count: int
    match: Literal["digest", "fields"] | SkipJsonSchema[None] = None
    """Way in which the source was recognised as released before: by its digest, or by most of its rows or
    fields. Absent from its first release."""
    risk: CumulativeRisk | SkipJsonSchema[None] = None
    reason: str | SkipJsonSchema[None] = None
    """Reason that was given for releasing the source again."""
    epsilon: ComposedEpsilon | SkipJsonSchema[None] = None
    """Epsilon of a release by the permutation mechanism, and of all releases together; absent if the release
    states no epsilon."""


class LedgerPage(ResponseModel):
    """One page of the disclosure ledger, oldest first."""

    releases: list[LedgerEntry]
    next_page_token: str | SkipJsonSchema[None] = None
    """Token of the next page; absent on the last page."""


class ProgressUpdate(ResponseModel):
    """Data of a server-sent event."""

    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    progress: ProgressDescription


class Service(ResponseModel):
    """Description of a service: method, parameters, guarantees and limits."""

    identifier: str
    title: str
    summary: str
    revision: int
    guarantees: list[str]
    changes: list[str]
    """Properties of the table that the service changes."""
    limits: list[str]
    """Threats that the service does not protect against."""
    repeated_releases: list[str]
    """Attacks on several releases of one source with different seeds, and the share that they recover."""
    cost: str
    instead: list[str]
    """Situations in which another service is the better choice."""
    errata: list[str]
    """Errors in the method's paper, and the corrections applied here."""
    parameters_schema: dict[str, JsonValue]
    """JSON schema of the parameters."""
    references: list[str]


class ServiceList(ResponseModel):
    """All services."""

    services: list[Service]


class Buffer(ResponseModel):
    """An uploaded table."""

    id: str
    name: str | SkipJsonSchema[None] = None
    """Name for people, if it has one."""
    label: str | SkipJsonSchema[None] = None
    """Label that jobs and buffers which belong together share, if it has one."""
    notes: str | SkipJsonSchema[None] = None
    """Notes for people, if there are any."""
    digest: str
    fields: list[FieldDescription]
    row_count: int
    created_at: datetime
    expires_at: datetime


class BufferPage(ResponseModel):
    """One page of a listing, newest first."""

    buffers: list[Buffer]
    next_page_token: str | SkipJsonSchema[None] = None
    """Token of the next page; absent on the last page."""


class Series(ResponseModel):
    """A series of tables in which a unit keeps its partner."""

    name: str
    owner: str
    project: str | SkipJsonSchema[None] = None
    waves: int
    """Number of jobs that have paired new units."""
    units: int
    """Units that have a partner."""
    created_at: datetime
    last_used_at: datetime
    """Time at which the last job of the series was accepted."""


class SeriesPage(ResponseModel):
    """One page of series, oldest first."""

    series: list[Series]
    next_page_token: str | SkipJsonSchema[None] = None
    """Token of the next page; absent on the last page."""


class Rows(ResponseModel):
    """Table as JSON. It can be posted back as a `source`; `fields` is accepted in this form."""

    fields: list[FieldDescription]
    rows: list[dict[str, JsonValue]]


class Signature(ResponseModel):
    """Ed25519 signature of the manifest in canonical JSON (RFC 8785)."""

    algorithm: str
    key_id: str
    public_key: str
    value: str


class SignedManifest(ResponseModel):
    """Manifest signed by the service: everything that a rerun needs except the seed."""

    manifest: dict[str, JsonValue]
    signature: Signature


class CompiledKernels(ResponseModel):
    """Progress of compiling kernels in the background. A job waits for the kernels of its own service."""

    compiled: int
    """Number of compiled kernels."""
    kernels: int
    """Number of all kernels; 0 while they are counted."""
    running: list[str]
    """Kernels that are being compiled."""


class Health(ResponseModel):
    """Health of the service."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, str] = Field(default={})
    """Dependency -> `ok`, or a description of its failure."""
    kernels: CompiledKernels | SkipJsonSchema[None] = None
    """Kernels that are being compiled; absent if no kernel is. The service accepts and runs jobs
    meanwhile."""
