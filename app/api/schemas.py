"""What goes over the wire: request and response models, apart from one another.

A field that may be absent is left out rather than sent as null, and its schema says so: a type
with ``null`` in it spoils the code of several client generators.
"""

import re
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SkipValidation,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from app.api.report_schemas import Report, ResponseModel
from app.api.terms import JobTerms
from app.api.uploads import CsvWriting, UploadedType
from app.jobs.terms import Priority
from providers.choosing.candidates import MOST_CANDIDATES, CandidateOptions
from providers.measures.assessment import MeasureOptions
from providers.params import Params, StrictModel
from providers.provider import Provider

_HEX_SEED = re.compile(r"[0-9a-fA-F]{1,64}")
SEED_INTEGER_BOUND = 2**53  # above it, JSON numbers lose digits in many readers


class Seed(BaseModel):
    """A run's secret as 32 bytes, and the bits that the caller gave it."""

    model_config = ConfigDict(frozen=True)

    secret: bytes = Field(repr=False)
    bits: int


def _parse_seed(value: Any) -> Any:
    if isinstance(value, str) and _HEX_SEED.fullmatch(value):
        return Seed(secret=int(value, 16).to_bytes(32, "big"), bits=4 * len(value))
    if type(value) is int and 0 <= value < SEED_INTEGER_BOUND:
        return Seed(secret=value.to_bytes(32, "big"), bits=max(1, value.bit_length()))
    raise PydanticCustomError(
        "seed", "a seed is a string of 1 to 64 hex digits, or an integer from 0 to 2**53 - 1"
    )


SeedValue = Annotated[
    Seed,
    BeforeValidator(_parse_seed),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": "^[0-9a-fA-F]{1,64}$"},
                {"type": "integer", "minimum": 0, "exclusiveMaximum": SEED_INTEGER_BOUND},
            ],
            "writeOnly": True,
        }
    ),
]


def _named_types(fields: Any) -> Any:
    """Field -> type; also of the list of names and types that every answer with rows has."""
    if isinstance(fields, list) and all(
        isinstance(field, dict) and field.keys() == {"name", "type"} for field in fields
    ):
        return {field["name"]: field["type"] for field in fields}
    return fields


_REFERENCE_EXAMPLES = ["s3://bucket/people.parquet", "file:///data/people.csv.gz"]


class Source(CsvWriting):
    """The table to protect: exactly one of `rows`, `columns`, `buffer` and `reference`."""

    rows: Annotated[list[dict[str, JsonValue]], SkipValidation] | SkipJsonSchema[None] = None
    """The table as records. A key that a record lacks is a null."""
    columns: Annotated[dict[str, list[JsonValue]], SkipValidation] | SkipJsonSchema[None] = None
    """The table as field -> values, all of one length."""
    buffer: str | SkipJsonSchema[None] = None
    """The id of an uploaded buffer."""
    reference: str | SkipJsonSchema[None] = Field(default=None, examples=_REFERENCE_EXAMPLES)
    """An object of a bucket, or a file that the service can reach, below one of the prefixes that it allows.
    It is read, and checked, before the call is answered."""
    media_type: str | SkipJsonSchema[None] = Field(default=None, examples=["text/csv; charset=utf-8"])
    """What the reference names: an Arrow stream, Parquet or CSV. Default: by the suffix of its name, before
    a `.gz` that says it is compressed."""
    fields: Annotated[dict[str, str], BeforeValidator(_named_types)] | SkipJsonSchema[None] = Field(
        default=None, examples=[{"age": "int64", "income": "decimal(12,2)"}]
    )
    """Field -> type, for fields whose type is not to be inferred: `int64`, `float64`,
    `decimal(p,s)`, `string`, `bool`, `date`, `timestamp`, ... Of a reference, where it is CSV."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [
            name for name in ("rows", "columns", "buffer", "reference") if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise PydanticCustomError(
                "source",
                "give exactly one of 'rows', 'columns', 'buffer' and 'reference'; given: {given}",
                {"given": ", ".join(given) or "none"},
            )
        if self.reference is None:
            own = {"media_type"} if self.media_type is not None else set()
            for name in sorted(self.said_of_csv() | own):
                raise PydanticCustomError("source", "'{name}' goes with 'reference'", {"name": name})
        if self.buffer is not None and self.fields is not None:
            raise PydanticCustomError(
                "source", "'fields' goes with 'rows' or 'columns'; a buffer has its types already"
            )
        return self


class SentTo(StrictModel):
    """Where the destination buffer is written before the job has succeeded."""

    reference: str = Field(examples=["s3://bucket/released.parquet"])
    """An object of a bucket, or a file in a folder that the service can reach, below one of the prefixes that
    it allows. What is there is replaced, when all of the new has been written."""
    media_type: UploadedType | SkipJsonSchema[None] = None
    """As what it is written. Default: by the suffix of the reference."""


ReportLevel = Literal["none", "summary", "full"]


def _counted(value: Any) -> Any:
    return {"count": value} if type(value) is int else value


Candidates = Annotated[
    CandidateOptions,
    BeforeValidator(_counted),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MOST_CANDIDATES},
                {"$ref": "#/components/schemas/CandidateOptions"},
            ],
            "default": 1,
            "examples": [5],
        }
    ),
]


class RunRequest(JobTerms):
    """What every service takes; each service's own request adds its parameters."""

    source: Source
    """The source buffer."""
    parameters: Params
    """The service's own parameters. Optim's operand names are accepted as aliases."""
    seed: SeedValue | SkipJsonSchema[None] = Field(default=None, examples=["8f1c7a0b52e94d63"])
    """The run's secret: whoever has it can undo the swap. 1 to 64 hex digits, or an integer
    below 2**53. Default: 128 bits from the operating system."""
    validate_only: bool = False
    """true: check everything and say what the run would do; run nothing, store nothing."""
    report: ReportLevel = "summary"
    """How much the report measures: `summary` the cheap figures of the run itself; `full` every measure
    of risk and utility that applies, and the data of the pictures."""
    measures: MeasureOptions = MeasureOptions()
    """What the report `full` measures, and how; also how the figures are taken that rank candidates."""
    candidates: Candidates = CandidateOptions()
    """How many runs the best one is chosen from, as a number, or with what ranks them. The first has the
    job's own seed, so that one candidate is the plain run; the others' are derived from it."""
    retain_source: bool = False
    """true: keep the source, sealed, as long as the job, so that a rerun needs no source."""
    destination: SentTo | SkipJsonSchema[None] = None
    """Where the destination buffer is written, besides being kept for `GET /v1/jobs/{id}/rows`."""

    @model_validator(mode="after")
    def _measures_are_used(self) -> Self:
        if "measures" in self.model_fields_set and self.report != "full" and self.candidates.count == 1:
            raise PydanticCustomError(
                "measures_unused",
                "'measures' says what the report 'full' holds, and how candidates are ranked; add "
                '"report": "full" or "candidates": 5, or leave it out',
            )
        if self.candidates.rank_by and self.candidates.count == 1:
            raise PydanticCustomError(
                "rank_by_unused", "'rank_by' ranks candidates, and there is one; give a 'count' of 2 to 100"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _take_optim_seed(cls, data: Any) -> Any:
        """Optim has SWAP_SEED among the operands; here a seed is no parameter."""
        if isinstance(data, dict) and isinstance(data.get("parameters"), dict):
            parameters = data["parameters"]
            if "SWAP_SEED" in parameters:
                if "seed" in data:
                    raise PydanticCustomError(
                        "given_twice", "'SWAP_SEED' is Optim's name for 'seed': give one of the two"
                    )
                rest = {name: value for name, value in parameters.items() if name != "SWAP_SEED"}
                return data | {"parameters": rest, "seed": parameters["SWAP_SEED"]}
        return data


def run_request_model(provider: Provider[Any]) -> type[RunRequest]:
    """The request model of one service, so that a generated client has real parameter types."""
    return create_model(
        f"{provider.identifier.title()}Request",
        __base__=RunRequest,
        __doc__=f"A call of {provider.identifier}: {provider.summary}",
        parameters=(provider.params, ...),
    )


class RerunRequest(JobTerms):
    """A rerun needs the source again unless the job retained it."""

    source: Source | SkipJsonSchema[None] = None
    """The same rows as in the job's own source."""
    destination: Source | SkipJsonSchema[None] = None
    """Of a job of `POST /v1/measures`: the same rows as in the table that it judged. Of a run of a service: a
    `reference` that the destination buffer is written to, and its `media_type`."""


# ------------------------------------------------------------------------------------- responses


class ErrorItem(ResponseModel):
    """One thing that is wrong in a request."""

    message: str
    """What is wrong, and what would be right."""
    pointer: str | SkipJsonSchema[None] = None
    """JSON pointer to the place in the request body."""
    parameter: str | SkipJsonSchema[None] = None
    """The path, query or header parameter, where it is not in the body."""


class Problem(ResponseModel):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | SkipJsonSchema[None] = None
    code: str
    errors: list[ErrorItem] | SkipJsonSchema[None] = None
    request_id: str | SkipJsonSchema[None] = None
    """As in `X-Request-ID`, and in the service's log; absent from the error that a job keeps."""


class FieldDescription(ResponseModel):
    """One field of a table."""

    name: str
    type: str


class TableDescription(ResponseModel):
    """What identifies a table without showing a row of it."""

    digest: str
    """SHA-256 over the table's canonical form, the same whatever media type carried it."""
    fields: list[FieldDescription]
    reference: str | SkipJsonSchema[None] = None
    """Where it was read, or written, if that was by reference."""


class DestinationDescription(TableDescription):
    """The destination buffer."""

    rows: list[dict[str, JsonValue]] | SkipJsonSchema[None] = None
    """The rows, in the answer to a call whose source was inline."""


class ProgressDescription(ResponseModel):
    """How far a job is."""

    fraction: float = Field(ge=0, le=1)
    stage: str


class EventDescription(ResponseModel):
    """What happened to a row, a field or the whole table."""

    code: str
    message: str
    row: int | SkipJsonSchema[None] = None
    """0-based row of the source."""
    field: str | SkipJsonSchema[None] = None


class GroupSizeDescription(ResponseModel):
    """Rows in the smallest, the median and the largest group."""

    smallest: int
    median: float
    largest: int


class PlanDescription(ResponseModel):
    """What a run would do."""

    rows: int
    groups: int
    group_size: GroupSizeDescription
    unswappable_rows: int
    unswappable_groups: int
    estimated_memory_bytes: int


class Job(ResponseModel):
    """One run of one service, and all that is known of it but its rows and its seed."""

    id: str
    kind: Literal["swap", "measures", "frontier"]
    """What it gives: a destination buffer and a report (`swap`), or a report alone."""
    service: str
    """The service's identifier; `measures` or `frontier` where no single service was run."""
    revision: int
    """Of the algorithm: the same revision gives the same bytes."""
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    outcome: Literal["SUCCESS", "SUCCESS_WITH_INFO", "FAILURE"] | SkipJsonSchema[None] = None
    """Of a job that ended. SUCCESS_WITH_INFO: something was suppressed, kept or left unswapped,
    and `events` says what."""
    parameters: dict[str, JsonValue]
    options: dict[str, JsonValue] | SkipJsonSchema[None] = None
    """What was asked for besides: `measures`, `candidates`."""
    seed_fingerprint: str | SkipJsonSchema[None] = None
    """Tells two seeds apart without telling either."""
    row_count: int
    priority: Priority
    deadline: datetime | SkipJsonSchema[None] = None
    """If it has not ended by then, it fails."""
    created_at: datetime
    started_at: datetime | SkipJsonSchema[None] = None
    finished_at: datetime | SkipJsonSchema[None] = None
    progress: ProgressDescription
    source: TableDescription
    destination: DestinationDescription | SkipJsonSchema[None] = None
    """What came out; of kind `measures`, the table that is judged."""
    report: Report | SkipJsonSchema[None] = None
    """The report, in the answer to a call of kind `measures` or `frontier` that waited to the end."""
    events: list[EventDescription] = Field(default=[])
    """The first of them; `event_counts` counts all."""
    event_counts: dict[str, int] = Field(default={})
    rerun_of: str | SkipJsonSchema[None] = None
    reproduced: bool | SkipJsonSchema[None] = None
    """Of a rerun that ended: whether its destination's digest is the first run's; where there is no
    destination that came out, whether its report is."""
    error: Problem | SkipJsonSchema[None] = None
    """Of a job that failed."""
    plan: PlanDescription | SkipJsonSchema[None] = None
    """In the answer to `validate_only`: such a job is not stored, and its id names nothing."""


class RevealedSeed(ResponseModel):
    """A job's seed: a secret."""

    seed: str
    """In hex digits, as a call takes it."""
    bits: int
    """Bits that a search for it must cover."""
    seed_fingerprint: str


class JobPage(ResponseModel):
    """One page of a listing, newest first."""

    jobs: list[Job]
    next_page_token: str | SkipJsonSchema[None] = None
    """Absent on the last page."""


class ProgressUpdate(ResponseModel):
    """The data of a server-sent event."""

    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    progress: ProgressDescription


class Service(ResponseModel):
    """What a service does, takes and promises."""

    identifier: str
    title: str
    summary: str
    revision: int
    guarantees: list[str]
    changes: list[str]
    """What does not stay as it is."""
    limits: list[str]
    """What it does not protect against."""
    cost: str
    instead: list[str]
    """When to choose which other service."""
    errata: list[str]
    """Errors of its source, and what is done in their place."""
    parameters_schema: dict[str, JsonValue]
    """JSON schema of its parameters."""
    references: list[str]


class ServiceList(ResponseModel):
    """All services."""

    services: list[Service]


class Buffer(ResponseModel):
    """An uploaded table."""

    id: str
    digest: str
    fields: list[FieldDescription]
    row_count: int
    created_at: datetime
    expires_at: datetime


class Rows(ResponseModel):
    """A table as JSON; it can be posted back as a `source` (its `fields` as field -> type)."""

    fields: list[FieldDescription]
    rows: list[dict[str, JsonValue]]


class Signature(ResponseModel):
    """Ed25519 over the manifest in canonical JSON (RFC 8785)."""

    algorithm: str
    key_id: str
    public_key: str
    value: str


class SignedManifest(ResponseModel):
    """All that a rerun needs but the seed, signed by the service."""

    manifest: dict[str, JsonValue]
    signature: Signature


class Health(ResponseModel):
    """Whether the service works."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, str] = Field(default={})
    """Dependency -> `ok`, or what is wrong with it."""
