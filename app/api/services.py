"""``/v1/services``: what there is, and one typed operation to run each."""

from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
from anyio import to_thread
from fastapi import APIRouter, Response

from app.api.context import Jobs, ServiceSettings
from app.api.job_documents import answer_with_plan, answered_before, submitted
from app.api.prefer import PreferHeaders, preference_of
from app.api.requests import JsonRoute
from app.api.responses import accepted, problems
from app.api.schemas import Job, RunRequest, Service, ServiceList, run_request_model
from app.api.sources import RequestTables, check_carried, checked_destination
from app.api.terms import CallTerms
from app.errors import NotFound
from app.jobs.service import NewJob
from providers import PROVIDERS
from providers.choosing.candidates import ranking_figures
from providers.choosing.figures import refuse_unused
from providers.errors import did_you_mean
from providers.measures.assessment import check_options
from providers.provider import Provider

router = APIRouter(prefix="/v1/services", tags=["services"], route_class=JsonRoute)


def _describe(provider: Provider[Any]) -> Service:
    return Service(
        identifier=provider.identifier,
        title=provider.title,
        summary=provider.summary,
        revision=provider.revision,
        guarantees=list(provider.guarantees),
        changes=list(provider.changes),
        limits=list(provider.limits),
        cost=provider.cost,
        instead=list(provider.instead),
        errata=list(provider.errata),
        parameters_schema=provider.params.model_json_schema(),
        references=list(provider.references),
    )


@router.get("", operation_id="listServices", summary="List the services", responses=problems())
async def list_services() -> ServiceList:
    """Every service: what it does, takes and promises."""
    return ServiceList(services=[_describe(provider) for provider in PROVIDERS.values()])


@router.get("/{identifier}", operation_id="getService", summary="Get one service", responses=problems(404))
async def get_service(identifier: str) -> Service:
    """One service: what it does, takes and promises."""
    if identifier not in PROVIDERS:
        raise NotFound(f"there is no service '{identifier}'{did_you_mean(identifier, PROVIDERS)}")
    return _describe(PROVIDERS[identifier])


def _run_operation(provider: Provider[Any]) -> Callable[..., Awaitable[Response]]:
    """The handler of one service, typed with that service's own request model."""
    request_model = run_request_model(provider)

    async def run_service(
        body: request_model,  # type: ignore[valid-type]
        jobs: Jobs,
        settings: ServiceSettings,
        tables: RequestTables,
        asking: CallTerms,
        prefer: PreferHeaders = None,
    ) -> Response:
        call: RunRequest = body
        preference = preference_of(prefer, settings)
        terms = await asking.terms(call)
        if not call.validate_only and (before := await answered_before(jobs, terms, preference, asking)):
            return before
        send_to = await checked_destination(call.destination, jobs)  # before anything large is read
        source = await tables.read(call.source)
        check_carried(send_to, source.schema)
        parameters = await to_thread.run_sync(provider.check, call.parameters, source.schema)
        options = options_of_run(call, source.schema)
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
            terms=terms,
        )
        if call.validate_only:
            return await answer_with_plan(jobs, new, source)
        return await submitted(jobs, new, preference, asking)

    return run_service


def options_of_run(call: RunRequest, schema: pa.Schema) -> dict[str, Any]:
    """What is asked for besides the parameters, checked, as the job keeps it. Raises ParameterError."""
    check_options(call.measures, schema, schema)
    options: dict[str, Any] = {}
    if call.candidates.count > 1:
        figures = ranking_figures(call.candidates, call.measures)
        if call.report != "full":
            refuse_unused(call.measures, figures)
        options["candidates"] = call.candidates.model_dump(mode="json")
    if call.report == "full" or call.candidates.count > 1:
        options["measures"] = call.measures.model_dump(mode="json", exclude_unset=True)
    return options


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
        responses=accepted() | problems(400, 409, 413, 415, 422, 429, 503),
    )
