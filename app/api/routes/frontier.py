"""``POST /v1/frontier``: compare services and parameters by risk and utility."""

from anyio import to_thread
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
from app.job_kinds import FRONTIER
from app.jobs.service import NewJob
from app.requests.frontier import FrontierRequest, checked_frontier

router = APIRouter(prefix="/v1/frontier", tags=["measures"], route_class=JsonRoute)


@router.post(
    "",
    operation_id="compareServices",
    summary="Compare services and parameters by risk and utility",
    response_model=Job,
    response_description="The job has ended and includes its report.",
    responses=accepted() | problems(400, 409, 413, 415, 422, 429, 507),
)
async def compare(
    body: FrontierRequest,
    jobs: Jobs,
    settings: ServiceSettings,
    tables: RequestTables,
    submission: RequestSubmission,
    prefer: PreferHeaders = None,
) -> Response:
    """Run every combination of services and parameters, and mark those on the frontier of risk and utility.

    This creates a job. Its report is in the response if the request waited for the end, and at
    `/v1/jobs/{id}/report`. Without the scope `read` it is in the response only if the request gives all
    tables: inline, by reference, or as buffers of your own. The job has no rows: run the chosen service to
    get them.
    """
    preference = preference_of(prefer, settings)
    terms = await submission.job_options(body)
    with_results = await may_have_results(jobs, body.source)
    if not body.validate_only and (
        before := await previous_response(jobs, terms, preference, submission, with_results)
    ):
        return before
    source = await tables.read(body.source)
    parameters, options = await to_thread.run_sync(checked_frontier, body, source, jobs.attack_thresholds)
    new = NewJob(
        service=FRONTIER,
        parameters=parameters,
        options=options,
        seed=body.seed.secret if body.seed else None,
        seed_bits=body.seed.bits if body.seed else None,
        source=source.table,
        report="full",
        retain_source=body.retain_source,
        submission=terms,
    )
    if body.validate_only:
        return validated_response(new, source)
    return await submit_job(jobs, new, preference, submission, with_results)
