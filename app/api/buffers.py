"""``/v1/buffers``: tables too large for JSON, uploaded once and named in a ``source``."""

from email.message import Message
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from pydantic.json_schema import SkipJsonSchema

from app.api.context import Jobs
from app.api.formats import ARROW_STREAM, CSV, PARQUET, essence
from app.api.requests import JsonRoute
from app.api.responses import problems, rows_content
from app.api.schemas import Buffer
from app.api.tables import table_response
from app.errors import UnsupportedMediaType
from app.store import models

UPLOADED = (ARROW_STREAM, PARQUET, CSV)

router = APIRouter(prefix="/v1/buffers", tags=["buffers"], route_class=JsonRoute)

Accept = Annotated[str | SkipJsonSchema[None], Header(alias="Accept", include_in_schema=False)]


def _plain_csv(content_type: str) -> bool:
    message = Message()
    message["content-type"] = content_type
    charset = str(message.get_param("charset", "utf-8")).lower()
    return charset in ("utf-8", "utf8", "us-ascii") and message.get_param("header") != "absent"


def _document(buffer: models.Buffer) -> Buffer:
    return Buffer(
        id=buffer.id,
        digest=buffer.digest,
        fields=buffer.fields,
        row_count=buffer.row_count,
        created_at=buffer.created_at,
        expires_at=buffer.expires_at,
    )


@router.post(
    "",
    operation_id="createBuffer",
    summary="Upload a table",
    status_code=201,
    responses=problems(413, 415, 422, 503),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def create_buffer(request: Request, response: Response, jobs: Jobs) -> Buffer:
    """The raw body is the table: an Arrow stream, or by its `Content-Type` Parquet or CSV with a header.

    It is stored sealed while it arrives, then read by a worker; it goes at its expiry.
    """
    media_type = essence(request.headers.get("content-type", ""))
    if media_type not in UPLOADED:
        raise UnsupportedMediaType(f"a buffer is uploaded as {', '.join(UPLOADED)}")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("a buffer is uploaded without a content coding; Parquet compresses itself")
    if not _plain_csv(request.headers["content-type"]):
        raise UnsupportedMediaType("CSV is uploaded in UTF-8 with a header of field names")
    buffer = await jobs.create_buffer(request.stream(), media_type)
    response.headers["Location"] = f"/v1/buffers/{buffer.id}"
    return _document(buffer)


@router.get("/{buffer_id}", operation_id="getBuffer", summary="Get one buffer", responses=problems(404))
async def get_buffer(buffer_id: str, jobs: Jobs) -> Buffer:
    """What the buffer holds, without its rows."""
    return _document(await jobs.get_buffer(buffer_id))


@router.get(
    "/{buffer_id}/rows",
    operation_id="getBufferRows",
    summary="Get a buffer's rows",
    responses=rows_content("The rows.") | problems(404, 406),
)
async def get_buffer_rows(buffer_id: str, jobs: Jobs, accept: Accept = None) -> Response:
    """The rows as `Accept` asks."""
    buffer = await jobs.get_buffer(buffer_id)
    table = await jobs.buffer_table(buffer_id)
    return await table_response(table, buffer.digest, accept)


@router.delete(
    "/{buffer_id}",
    operation_id="deleteBuffer",
    summary="Delete a buffer",
    status_code=204,
    responses=problems(404),
)
async def delete_buffer(buffer_id: str, jobs: Jobs) -> None:
    """Remove the buffer at once. Jobs that were made from it keep what they need."""
    await jobs.delete_buffer(buffer_id)
