"""``POST /v1/measures``: measure risk and utility of any two tables, one as the release of the other."""

from fastapi import APIRouter, Response

from app.api.dependencies import Jobs, ServiceSettings
from app.api.job_options import RequestSubmission
from app.api.job_response import previous_response, submit_job, validated_response
from app.api.json_request import JsonRoute
from app.api.openapi_responses import accepted, problems
from app.api.request_headers import PreferHeaders, preference_of
from app.api.request_tables import RequestTables
from app.api.result_access import may_have_results
from app.api.schemas import Job
from app.job_kinds import MEASURES
from app.jobs.service import NewJob
from app.requests.measures import MeasureRequest, checked_measures

router = APIRouter(prefix="/v1/measures", tags=["measures"], route_class=JsonRoute)


@router.post(
    "",
    operation_id="measure",
    summary="Measure a table against its source",
    response_model=Job,
    response_description="The job has ended and includes its report.",
    responses=accepted() | problems(400, 409, 413, 415, 422, 429, 507),
)
async def measure(
    body: MeasureRequest,
    jobs: Jobs,
    settings: ServiceSettings,
    tables: RequestTables,
    submission: RequestSubmission,
    prefer: PreferHeaders = None,
) -> Response:
    """Compute every applicable measure of risk and utility of a source and its release.

    Any tool may have made the release. This creates a job. Its report is in the response if the request
    waited for the end, and at `/v1/jobs/{id}/report`. Without the scope `read` it is in the response only if
    the request gives all tables: inline, by reference, or as buffers of your own. The job has no rows.
    """
    preference = preference_of(prefer, settings)
    terms = await submission.job_options(body)
    with_results = await may_have_results(jobs, body.source, body.destination)
    if not body.validate_only and (
        before := await previous_response(jobs, terms, preference, submission, with_results)
    ):
        return before
    source = await tables.read(body.source)
    destination = await tables.read(body.destination, "/destination")
    parameters, options = checked_measures(body, source, destination, jobs.attack_thresholds)
    new = NewJob(
        service=MEASURES,
        parameters=parameters,
        options=options,
        seed=body.seed.secret if body.seed else None,
        seed_bits=body.seed.bits if body.seed else None,
        source=source.table,
        destination=destination.table,
        report="full",
        retain_source=body.retain_source,
        submission=terms,
    )
    if body.validate_only:
        return validated_response(new, source)
    return await submit_job(jobs, new, preference, submission, with_results)
