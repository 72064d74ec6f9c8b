"""Dependencies of the request handlers.

Dependencies are coroutine functions, because FastAPI runs plain functions in a thread pool, which
costs more than they do.
"""

from typing import Annotated

from fastapi import Depends, Request

from app.callers import Caller
from app.jobs.service import JobService
from app.settings import Settings


def jobs_of(request: Request) -> JobService:
    """Return the service on behalf of the caller, which `app.api.json_request` has authenticated."""
    jobs: JobService = request.app.state.jobs
    caller: Caller = request.state.caller
    return jobs.on_behalf_of(caller)


async def _jobs(request: Request) -> JobService:
    return jobs_of(request)


async def _service(request: Request) -> JobService:
    service: JobService = request.app.state.jobs
    return service


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


Jobs = Annotated[JobService, Depends(_jobs)]
"""Jobs and buffers that are visible to the caller."""

Service = Annotated[JobService, Depends(_service)]
"""Service itself, for operations without a caller."""

ServiceSettings = Annotated[Settings, Depends(_settings)]
