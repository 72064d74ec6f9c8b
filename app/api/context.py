"""What a request handler gets from the running service.

Whoever a handler depends on is a coroutine function: FastAPI calls any other in a thread, and at each call
of a hundred the thread takes longer than what it does.
"""

from typing import Annotated

from fastapi import Depends, Request

from app.callers import Caller
from app.jobs.service import JobService
from app.settings import Settings


async def _jobs(request: Request) -> JobService:
    """The service on behalf of the caller: `app.api.requests` has found out who that is."""
    jobs: JobService = request.app.state.jobs
    caller: Caller = request.state.caller
    return jobs.on_behalf_of(caller)


async def _service(request: Request) -> JobService:
    service: JobService = request.app.state.jobs
    return service


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


Jobs = Annotated[JobService, Depends(_jobs)]
"""Jobs and buffers as the caller may see them."""
Service = Annotated[JobService, Depends(_service)]
"""The service itself, for operations that nobody has to be known for."""
ServiceSettings = Annotated[Settings, Depends(_settings)]
