"""``/v1/ledger``: earlier releases of a source."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from app.api.dependencies import Jobs, PageSize, PageToken
from app.api.job_response import page_response, utc_time
from app.api.json_request import JsonRoute
from app.api.openapi_responses import listed, problems
from app.api.schemas import LedgerPage
from app.jobs.releases.stated_epsilon import stated_epsilon
from app.requests.validation_errors import DIGEST
from app.store.sql.models import Release

router = APIRouter(prefix="/v1/ledger", tags=["jobs"], route_class=JsonRoute)


@router.get(
    "",
    operation_id="listReleases",
    summary="List the releases of a source, oldest first",
    response_model=LedgerPage,
    responses=listed() | problems(422),
)
async def list_releases(
    jobs: Jobs,
    request: Request,
    source: Annotated[
        Annotated[str, Field(max_length=80, pattern=DIGEST)] | SkipJsonSchema[None],
        Query(
            description="Only releases of the source with this digest, and of tables recognised as the same.",
        ),
    ] = None,
    page_size: PageSize = 20,
    page_token: PageToken = None,
) -> Response:
    """Get one page of the disclosure ledger: your own releases and the releases of your project."""
    found, next_token = await jobs.releases(source, page_size, page_token)
    return page_response(request, "releases", [entry_document(entry) for entry in found], next_token)


def entry_document(entry: Release) -> dict[str, Any]:
    """Return an entry of the ledger as plain JSON, without its sketch."""
    document = {
        "job": entry.job_id,
        "released_at": utc_time(entry.released_at),
        "owner": entry.owner,
        "project": entry.project,
        "service": entry.service,
        "revision": entry.revision,
        "source_digest": entry.source_digest,
        "destination_digest": entry.destination_digest,
        "row_count": entry.row_count,
        "match": entry.match,
        "risk": entry.risk,
        "reason": entry.reason,
        "epsilon": stated_epsilon(entry.epsilon),
    }
    return {name: value for name, value in document.items() if value is not None}
