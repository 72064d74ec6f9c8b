"""``/v1/series``: series of tables in which a unit keeps its partner."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from app.api.dependencies import Jobs, PageSize, PageToken
from app.api.job_response import page_response
from app.api.json_request import JsonRoute
from app.api.openapi_responses import listed, problems
from app.api.schemas import Series, SeriesPage
from app.store.sql.series import SeriesFigures

router = APIRouter(prefix="/v1/series", tags=["series"], route_class=JsonRoute)

Name = Annotated[str, Path(description="Name of the series, as in the parameter `series`.")]

Owner = Annotated[
    Annotated[str, Field(max_length=300)] | SkipJsonSchema[None],
    Query(
        description="Owner of the series, as a page of series states it. Default: yourself.",
    ),
]


def _document(found: SeriesFigures) -> Series:
    return Series(
        name=found.series.name,
        owner=found.series.owner,
        project=found.series.project,
        waves=found.waves,
        units=found.units,
        created_at=found.series.created_at,
        last_used_at=found.series.last_used_at,
    )


@router.get(
    "",
    operation_id="listSeries",
    summary="List series, oldest first",
    response_model=SeriesPage,
    responses=listed() | problems(422),
)
async def list_series(
    jobs: Jobs,
    request: Request,
    page_size: PageSize = 20,
    page_token: PageToken = None,
) -> Response:
    """Get one page of your own series and the series of your project, without their pairs.

    A series begins with the first job that names it in the parameter `series`. The `Link` header points to
    the next page (RFC 8288).
    """
    found, next_token = await jobs.list_series(page_size, page_token)
    return page_response(request, "series", [_document(each).document() for each in found], next_token)


@router.get("/{name}", operation_id="getSeries", summary="Get one series", responses=problems(404, 422))
async def get_series(name: Name, jobs: Jobs, owner: Owner = None) -> Series:
    """Get the number of waves and units of a series. Its pairs are a secret that no call returns."""
    return _document(await jobs.get_series(name, owner))


@router.delete(
    "/{name}",
    operation_id="deleteSeries",
    summary="Delete a series",
    status_code=204,
    responses=problems(403, 404, 409, 422, 507),
)
async def delete_series(name: Name, jobs: Jobs, owner: Owner = None) -> None:
    """Delete the series with its key and its pairs, which cannot be undone.

    Jobs of the series stay, and cannot be rerun. A later job with the same name begins another series, in
    which units get other partners. A series with a queued or running job is not deleted.
    """
    await jobs.delete_series(name, owner)
