"""``POST /v1/attacks``: attack a release as an intruder would, and judge the risk."""

from dataclasses import replace

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
from app.errors import InvalidRequest, NotFound
from app.job_kinds import ATTACKS
from app.jobs.service import NewJob
from app.requests.attacks import AttackRequest, checked_attack, tables_of_job

router = APIRouter(prefix="/v1/attacks", tags=["measures"], route_class=JsonRoute)


@router.post(
    "",
    operation_id="attack",
    summary="Attack a release",
    response_model=Job,
    response_description="The job has ended and includes its report.",
    responses=accepted() | problems(400, 409, 413, 415, 422, 429, 507),
)
async def attack(
    body: AttackRequest,
    jobs: Jobs,
    settings: ServiceSettings,
    tables: RequestTables,
    submission: RequestSubmission,
    prefer: PreferHeaders = None,
) -> Response:
    """Attack a release in every way that applies, and judge the risk.

    The attacks are singling out, linking, inference, membership, and those that use the rule of the
    release's method. Each one is also made by guessing, and on control rows that were not in the source. The
    report has the success counts with their intervals, the risk beyond the control, and a verdict against
    the thresholds of the caller's project.

    This creates a job. Its report is in the response if the request waited for the end, and at
    `/v1/jobs/{id}/report`. Without the scope `read` it is in the response only if the request gives all
    tables: inline, by reference, or as buffers of your own. The job has no rows.
    """
    preference = preference_of(prefer, settings)
    terms = await submission.job_options(body)
    with_results = await may_have_results(jobs, body.source, body.destination, body.control, job_id=body.job)
    if not body.validate_only and (
        before := await previous_response(jobs, terms, preference, submission, with_results)
    ):
        return before
    attacked, held = None, {}
    if body.job is not None:
        try:
            attacked = await jobs.get(body.job)
        except NotFound as error:
            raise InvalidRequest(error.message, "/job") from None
        held = tables_of_job(attacked)
    source = held["source"] if body.source is None else await tables.read(body.source)
    if attacked is not None and body.source is not None:  # so that the two can be compared
        digest = await to_thread.run_sync(lambda: source.digest)
        compared = await jobs.digest_as(source.table, digest, attacked.source_digest)
        source = replace(source, known_digest=compared)
    destination = (
        held["destination"]
        if body.destination is None
        else await tables.read(body.destination, "/destination")
    )
    control = None if body.control is None else await tables.read(body.control, "/control")
    parameters, options = await to_thread.run_sync(
        checked_attack, body, source, destination, control, jobs.attack_thresholds, attacked
    )
    new = NewJob(
        service=ATTACKS,
        parameters=parameters,
        options=options,
        seed=body.seed.secret if body.seed else None,
        seed_bits=body.seed.bits if body.seed else None,
        source=source.table,
        destination=destination.table,
        control=None if control is None else control.table,
        report="full",
        retain_source=body.retain_source,
        submission=terms,
    )
    if body.validate_only:
        return validated_response(new, source)
    return await submit_job(jobs, new, preference, submission, with_results)
