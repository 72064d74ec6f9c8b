"""``/v1/services``: list the services, and one typed operation to run each."""

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from fastapi import APIRouter, Response

from app.api.dependencies import Jobs, ServiceSettings, jobs_of
from app.api.job_options import RequestSubmission, Submission
from app.api.job_response import plan_response, previous_response, submit_job
from app.api.json_request import JsonRequest, JsonRoute, answer_usual, usual_body
from app.api.openapi_responses import accepted, problems
from app.api.request_headers import Preference, PreferHeaders, are_usual_keys, preference_of
from app.api.request_tables import RequestTables, Tables, check_carried, checked_destination
from app.api.result_access import check_may_write, may_have_results
from app.api.schemas import Job, Service, ServiceList
from app.errors import NotFound
from app.jobs.service import JobService, NewJob
from app.requests.run import RunRequest, checked_run, run_request_model
from providers import PROVIDERS
from providers.errors import did_you_mean
from providers.provider import Provider

router = APIRouter(prefix="/v1/services", tags=["services"], route_class=JsonRoute)


@cache
def _describe(identifier: str) -> Service:
    """Return the Service resource, which is made once: the schema of its parameters takes milliseconds."""
    provider = PROVIDERS[identifier]
    return Service(
        identifier=provider.identifier,
        title=provider.title,
        summary=provider.summary,
        revision=provider.revision,
        guarantees=list(provider.guarantees),
        changes=list(provider.changes),
        limits=list(provider.limits),
        repeated_releases=list(provider.repeated_releases),
        cost=provider.cost,
        instead=list(provider.instead),
        errata=list(provider.errata),
        parameters_schema=provider.params.model_json_schema(),
        references=list(provider.references),
    )


@router.get("", operation_id="listServices", summary="List the services", responses=problems())
async def list_services() -> ServiceList:
    """List every service with its method, parameters, guarantees and limits."""
    return ServiceList(services=[_describe(identifier) for identifier in PROVIDERS])


@router.get("/{identifier}", operation_id="getService", summary="Get one service", responses=problems(404))
async def get_service(identifier: str) -> Service:
    """Get one service with its method, parameters, guarantees and limits."""
    if identifier not in PROVIDERS:
        raise NotFound(f"there is no service '{identifier}'{did_you_mean(identifier, PROVIDERS)}")
    return _describe(identifier)


def _run_operation(provider: Provider[Any]) -> Callable[..., Awaitable[Response]]:
    """Create the handler of one service, typed with that service's own request model."""
    request_model = run_request_model(provider)

    async def run_service(
        body: request_model,  # type: ignore[valid-type]
        jobs: Jobs,
        settings: ServiceSettings,
        tables: RequestTables,
        submission: RequestSubmission,
        prefer: PreferHeaders = None,
    ) -> Response:
        return await _run(provider, body, jobs, tables, submission, preference_of(prefer, settings))

    async def run_usual(request: JsonRequest) -> Response | None:
        keys = request.headers.getlist("idempotency-key")
        if not are_usual_keys(keys) or (body := await usual_body(request, request_model)) is None:
            return None
        submission = Submission(request, request.app.state.settings, keys[0] if keys else None)
        jobs = jobs_of(request)
        tables = Tables(request, jobs)
        preference = preference_of(request.headers.getlist("prefer"), submission.settings)
        try:
            return await _run(provider, body, jobs, tables, submission, preference)
        finally:
            await tables.release_unused()

    answer_usual(run_service, run_usual)
    return run_service


async def _run(
    provider: Provider[Any],
    call: RunRequest,
    jobs: JobService,
    tables: Tables,
    submission: Submission,
    preference: Preference,
) -> Response:
    """Run a service as requested, or preview the run; return the response."""
    terms = await submission.job_options(call)
    with_results = await may_have_results(jobs, call.source)
    if not call.validate_only and (
        before := await previous_response(jobs, terms, preference, submission, with_results)
    ):
        return before
    if call.destination is not None:
        check_may_write(with_results)
    send_to = await checked_destination(call.destination, jobs)  # before anything large is read
    source = await tables.read(call.source)
    check_carried(send_to, source.schema)
    parameters, options = await tables.in_thread_unless_small(
        len(source.schema), checked_run, provider, call, source.schema, source.rows, jobs.attack_thresholds
    )
    new = NewJob(
        service=provider.identifier,
        parameters=parameters,
        seed=call.seed.secret if call.seed else None,
        seed_bits=call.seed.bits if call.seed else None,
        source=source.table,
        send_to=send_to,
        report=call.report,
        options=options,
        retain_source=call.retain_source,
        inline=source.inline,
        submission=terms,
    )
    if call.validate_only:
        return await plan_response(jobs, new, source, call.preview_rows, with_results)
    return await submit_job(jobs, new, preference, submission, with_results)


for _provider in PROVIDERS.values():
    router.add_api_route(
        f"/{_provider.identifier}",
        _run_operation(_provider),
        methods=["POST"],
        operation_id=f"run{_provider.identifier.title()}",
        summary=_provider.title,
        description=_provider.summary,
        response_model=Job,
        response_description="The job has ended.",
        responses=accepted() | problems(400, 409, 413, 415, 422, 429, 507),
    )
