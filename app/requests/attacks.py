"""Request to attack a release, and its validation."""

from typing import Any, Self

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from app.errors import Conflict, InvalidRequest
from app.job_kinds import AttackParameters, MethodOfRelease, revision_of
from app.jobs.requests import TableOf
from app.jobs.tables.job_tables import check_has_release
from app.requests.run_attacks import check_fields_are_named
from app.requests.seed import SeedValue
from app.requests.source import Source, SourceTable, schema_of_fields
from app.requests.submission import SubmissionBody
from app.store.sql.models import Job
from providers.attacks.options import AttackOptions, check_attack_options, check_known_rows
from providers.attacks.thresholds import Thresholds


class AttackRequest(SubmissionBody, AttackOptions):
    """A release, its source, the fields that an intruder knows, and the fields to protect."""

    source: Source | SkipJsonSchema[None] = None
    """Original table. With `job` it must be that job's source, and may be left out while the job or a buffer
    still has it."""
    job: str | SkipJsonSchema[None] = None
    """Id of a run of a service whose release is attacked. Without `control`, the suite attacks a sister
    release: it runs the service with the same parameters on the source without a tenth of the rows, which
    are the control."""
    destination: Source | SkipJsonSchema[None] = None
    """Release to attack, made by any tool; in place of `job`."""
    control: Source | SkipJsonSchema[None] = None
    """Rows of the same population that were not in the source. Attacks on them succeed only by facts that
    hold for everybody. Without control rows and without `job`, risks are relative to guessing."""
    aligned: bool | SkipJsonSchema[None] = None
    """Whether row i of the release was row i of the source. Default: true if both have the same number of
    rows, unless the job has put them into a random order."""
    advice: bool = False
    """true: try other values of the service's parameters on a sample of the source, and report which of them
    lower the risk. Only with `job`."""
    seed: SeedValue | SkipJsonSchema[None] = Field(default=None, examples=["8f1c7a0b52e94d63"])
    """Seed from which the attacks are drawn. Default: 128 bits from the operating system."""
    validate_only: bool = False
    """true: check everything; attack nothing, store nothing."""
    retain_source: bool = False
    """true: keep all given tables, sealed, as long as the job, so that a rerun needs none of them."""

    @model_validator(mode="after")
    def _release_is_given_once(self) -> Self:
        if (self.job is None) == (self.destination is None):
            raise PydanticCustomError("release", "give the release as exactly one of 'job' and 'destination'")
        if self.job is None and self.source is None:
            raise PydanticCustomError("release", "'destination' needs 'source', the table it was made from")
        if self.advice and self.job is None:
            raise PydanticCustomError(
                "advice", "'advice' tries parameters of the service that made the release; it needs 'job'"
            )
        return self


def tables_of_job(job: Job) -> dict[str, SourceTable]:
    """Return source and destination of a job whose release is attacked. Raises InvalidRequest."""
    check_has_release(job)
    assert job.destination_digest is not None  # it has succeeded
    assert job.destination_fields is not None
    assert job.destination_rows is not None
    return {
        "source": SourceTable(
            TableOf(job.id, "source"), schema_of_fields(job.source_fields), job.row_count, job.source_digest
        ),
        "destination": SourceTable(
            TableOf(job.id, "destination"),
            schema_of_fields(job.destination_fields),
            job.destination_rows,
            job.destination_digest,
        ),
    }


def checked_attack(
    request: AttackRequest,
    source: SourceTable,
    destination: SourceTable,
    control: SourceTable | None,
    thresholds: Thresholds,
    job: Job | None = None,
) -> tuple[AttackParameters, dict[str, Any]]:
    """Return the parameters and options of the job, checked against all tables.

    Raises
    ------
    Conflict
        The source is not the source of the job.
    InvalidRequest
        The tables cannot be aligned as requested.
    ParameterError
        An option does not fit the tables.
    """
    if job is not None and source.digest != job.source_digest:
        raise Conflict(
            f"the source is not the job's own: its digest is {source.digest}, expected {job.source_digest}",
            "/source",
        )
    same_length = source.rows == destination.rows
    if request.aligned and not same_length:
        raise InvalidRequest(
            f"the source has {source.rows} rows and the release {destination.rows}: row i cannot have become "
            "row i; leave 'aligned' out, or make it false",
            "/aligned",
        )
    given = AttackOptions(**{name: getattr(request, name) for name in AttackOptions.model_fields})
    check_attack_options(
        given, source.schema, destination.schema, None if control is None else control.schema
    )
    check_known_rows(given, source.rows)
    check_fields_are_named(given)
    aligned = same_length if request.aligned is None else request.aligned
    if job is not None and request.aligned is None:
        aligned = aligned and not job.parameters.get("shuffle", False)  # of PABIDOT
    options: dict[str, Any] = {"thresholds": thresholds.model_dump(mode="json")}
    if request.advice:
        options["advice"] = True
    parameters = AttackParameters(
        **given.model_dump(exclude_unset=True), aligned=aligned, job=request.job, method=_method_of(job)
    )
    return parameters, options


def _method_of(job: Job | None) -> MethodOfRelease | None:
    """Return the method of the job; None if this version of the service has another revision of it."""
    if job is None or revision_of(job.service) != job.revision:
        return None
    return MethodOfRelease(service=job.service, parameters=job.parameters)
