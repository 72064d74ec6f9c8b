"""``POST /v1/frontier``: which service, with which parameters."""

from anyio import to_thread
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
from app.jobs.kinds import FRONTIER
from app.jobs.service import NewJob
from providers.choosing.combinations import combinations_of
from providers.choosing.frontier import FrontierOptions, frontier_figures
from providers.errors import ParameterError
from providers.measures.assessment import MeasureOptions, check_options

router = APIRouter(prefix="/v1/frontier", tags=["measures"], route_class=JsonRoute)

_KEY_FIELDS = "/measures/key_fields"


class FrontierRequest(JobTerms, FrontierOptions):
    """A table, the combinations of services and parameters to try on it, and the two figures."""

    source: Source
    """The table to protect."""
    key_fields: tuple[str, ...] = Field(default=(), examples=[["age", "sex", "city"]])
    """What an intruder may know of a person; short for `measures.key_fields`."""
    measures: MeasureOptions = MeasureOptions()
    """How the two figures are taken."""
    seed: SeedValue | SkipJsonSchema[None] = Field(default=None, examples=["8f1c7a0b52e94d63"])
    """What the seeds of all runs are derived from. Default: 128 bits from the operating system."""
    validate_only: bool = False
    """true: check every combination; run nothing, store nothing."""
    retain_source: bool = False
    """true: keep the source, sealed, as long as the job, so that a rerun needs no source."""


@router.post(
    "",
    operation_id="compareServices",
    summary="Compare services and parameters by risk and utility",
    response_model=Job,
    response_description="The job has ended; its report is in it.",
    responses=accepted() | problems(400, 409, 413, 415, 422, 429, 503),
)
async def compare(
    body: FrontierRequest,
    jobs: Jobs,
    settings: ServiceSettings,
    tables: RequestTables,
    asking: CallTerms,
    prefer: PreferHeaders = None,
) -> Response:
    """Run every combination of services and parameters, and mark those that no other one beats.

    A job like any other; its report is in the answer when the call has waited to its end, and at
    `/v1/jobs/{id}/report`. It gives no rows: run the service that you choose.
    """
    preference = preference_of(prefer, settings)
    terms = await asking.terms(body)
    if not body.validate_only and (before := await answered_before(jobs, terms, preference, asking)):
        return before
    source = await tables.read(body.source)
    measures = await to_thread.run_sync(checked_measures, body, source)
    options = FrontierOptions(**{name: getattr(body, name) for name in FrontierOptions.model_fields})
    new = NewJob(
        service=FRONTIER,
        parameters=options,
        options={"measures": measures.model_dump(mode="json", exclude_unset=True)},
        seed=body.seed.secret if body.seed else None,
        seed_bits=body.seed.bits if body.seed else None,
        source=source.table,
        report="full",
        retain_source=body.retain_source,
        terms=terms,
    )
    if body.validate_only:
        return answer_validated(new, source)
    return await submitted(jobs, new, preference, asking)


def checked_measures(body: FrontierRequest, source: SourceTable) -> MeasureOptions:
    """How the figures are taken, when every combination and option has been checked."""
    measures = body.measures
    if body.key_fields:
        if measures.key_fields:
            raise InvalidRequest("'key_fields' is short for 'measures.key_fields': give one", "/key_fields")
        measures = MeasureOptions(**measures.model_dump(exclude_unset=True) | {"key_fields": body.key_fields})
    try:
        check_options(measures, source.schema, source.schema)
        frontier_figures(body, measures)
    except ParameterError as error:
        if body.key_fields and error.pointer.startswith(_KEY_FIELDS):
            pointer = error.pointer.removeprefix("/measures")
            raise ParameterError(error.message, pointer) from None
        raise
    combinations_of(body.services, source.schema)
    return measures
