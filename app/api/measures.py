"""``POST /v1/measures``: any two tables judged, one as the release of the other."""

from fastapi import APIRouter, Response
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from app.api.context import Jobs, ServiceSettings
from app.api.job_documents import answer_validated, answered_before, submitted
from app.api.prefer import PreferHeaders, preference_of
from app.api.requests import JsonRoute
from app.api.responses import accepted, problems
from app.api.schemas import Job, SeedValue, Source
from app.api.sources import RequestTables, SourceTable
from app.api.terms import CallTerms, JobTerms
from app.errors import InvalidRequest
from app.jobs.kinds import MEASURES
from app.jobs.parameters import MeasureParameters
from app.jobs.service import NewJob
from providers.measures.assessment import MeasureOptions, check_options

router = APIRouter(prefix="/v1/measures", tags=["measures"], route_class=JsonRoute)


class MeasureRequest(JobTerms):
    """Two tables, and what is to be measured of them."""

    source: Source
    """The table as it was."""
    destination: Source
    """The table that is to be released, however it was made. Measured are the fields that both have, of
    types that compare; `left_out` of the report says what else there is."""
    measures: MeasureOptions = MeasureOptions()
    """What is measured, and how."""
    aligned: bool | SkipJsonSchema[None] = None
    """Whether row i of the destination was row i of the source. false: what compares row with row is left
    out. Default: true where both have as many rows."""
    seed: SeedValue | SkipJsonSchema[None] = Field(default=None, examples=["8f1c7a0b52e94d63"])
    """What samples of rows are drawn from. Default: 128 bits from the operating system."""
    validate_only: bool = False
    """true: check everything; measure nothing, store nothing."""
    retain_source: bool = False
    """true: keep both tables, sealed, as long as the job, so that a rerun needs none."""


@router.post(
    "",
    operation_id="measure",
    summary="Judge a table beside its source",
    response_model=Job,
    response_description="The job has ended; its report is in it.",
    responses=accepted() | problems(400, 409, 413, 415, 422, 429, 503),
)
async def measure(
    body: MeasureRequest,
    jobs: Jobs,
    settings: ServiceSettings,
    tables: RequestTables,
    asking: CallTerms,
    prefer: PreferHeaders = None,
) -> Response:
    """Every measure of risk and utility that applies to two tables, whatever tool made the second.

    A job like any other; its report is in the answer when the call has waited to its end, and at
    `/v1/jobs/{id}/report`. It gives no rows.
    """
    preference = preference_of(prefer, settings)
    terms = await asking.terms(body)
    if not body.validate_only and (before := await answered_before(jobs, terms, preference, asking)):
        return before
    source = await tables.read(body.source)
    destination = await tables.read(body.destination, "/destination")
    aligned = aligned_tables(body.aligned, source, destination)
    check_common_fields(source, destination)
    check_options(body.measures, source.schema, destination.schema)
    new = NewJob(
        service=MEASURES,
        parameters=MeasureParameters(aligned=aligned),
        options={"measures": body.measures.model_dump(mode="json", exclude_unset=True)},
        seed=body.seed.secret if body.seed else None,
        seed_bits=body.seed.bits if body.seed else None,
        source=source.table,
        destination=destination.table,
        report="full",
        retain_source=body.retain_source,
        terms=terms,
    )
    if body.validate_only:
        return answer_validated(new, source)
    return await submitted(jobs, new, preference, asking)


def aligned_tables(wanted: bool | None, source: SourceTable, destination: SourceTable) -> bool:
    """Whether row i of the one was row i of the other. Raises InvalidRequest: it cannot be."""
    same = source.rows == destination.rows
    if wanted and not same:
        raise InvalidRequest(
            f"the source has {source.rows} rows and the destination {destination.rows}: row i cannot have "
            "become row i; leave 'aligned' out, or make it false",
            "/aligned",
        )
    return same if wanted is None else wanted


def check_common_fields(source: SourceTable, destination: SourceTable) -> None:
    """Raise InvalidRequest where there is nothing to compare."""
    if not set(source.schema.names) & set(destination.schema.names):
        raise InvalidRequest("the destination has no field of a name that the source has", "/destination")
