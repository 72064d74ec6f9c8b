"""Dependencies of the request handlers, and query parameters that several of them share.

Dependencies are coroutine functions, because FastAPI runs plain functions in a thread pool, which
costs more than they do.
"""

from typing import Annotated

from fastapi import Depends, Query, Request
from pydantic import AfterValidator
from pydantic.json_schema import SkipJsonSchema

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

_USUAL_PAGE, _LARGEST_PAGE = 20, 200
"""Entries on a page without `page_size`, and the most."""


def _page_size(given: int) -> int:
    """Return the number of entries on a page: 0 means the default, a larger one the maximum (AIP-158)."""
    return min(given or _USUAL_PAGE, _LARGEST_PAGE)


PageSize = Annotated[
    int,
    Query(
        ge=0,
        description=f"Entries on a page; 0: {_USUAL_PAGE}. Over {_LARGEST_PAGE} are taken for "
        f"{_LARGEST_PAGE}. [0 or more]",
    ),
    AfterValidator(_page_size),
]
"""Entries on a page, 1 to `_LARGEST_PAGE`."""

PageToken = Annotated[
    str | SkipJsonSchema[None],
    Query(description="`next_page_token` of the previous page; empty: the first page."),
    AfterValidator(lambda token: token or None),
]
"""Place at which a page begins; None: the first page."""
