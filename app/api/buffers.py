"""``/v1/buffers``: tables too large for JSON, uploaded once and named in a ``source``."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api.codings import decoded
from app.api.context import Jobs, ServiceSettings
from app.api.formats import ARROW_STREAM, essence
from app.api.forms import FileForm
from app.api.requests import JsonRoute, caller_gone
from app.api.responses import problems, rows_content
from app.api.schemas import Buffer
from app.api.tables import WantedRows, table_response
from app.api.terms import Asking, CallTerms
from app.api.uploads import CsvOptions, type_of_file, uploaded_type
from app.errors import TooLarge, UnsupportedMediaType
from app.jobs.buffers import Upload
from app.jobs.service import JobService
from app.settings import Settings
from app.store import models

FORM = "multipart/form-data"
_REFUSALS = (400, 413, 415, 422, 429, 503, 507)
_BINARY = {"type": "string", "format": "binary"}

router = APIRouter(prefix="/v1/buffers", tags=["buffers"], route_class=JsonRoute)


def _document(buffer: models.Buffer) -> Buffer:
    return Buffer(
        id=buffer.id,
        digest=buffer.digest,
        fields=buffer.fields,
        row_count=buffer.row_count,
        created_at=buffer.created_at,
        expires_at=buffer.expires_at,
    )


def _form_schema() -> dict[str, Any]:
    """The form's fields: the file, and what the query says of a raw body."""
    schema = CsvOptions.model_json_schema()
    fields = {
        name: {**said, "description": said["description"]} for name, said in schema["properties"].items()
    }
    fields["fields"]["examples"] = ["{}"]  # which Swagger UI puts into the form, where it would put "string"
    described = (
        "The table: CSV, Parquet or an Arrow stream, by the part's `Content-Type` or the name's suffix."
    )
    return {
        "type": "object",
        "required": ["file"],
        "properties": {"file": {**_BINARY, "description": described}, **fields},
    }


@router.post(
    "",
    operation_id="createBuffer",
    summary="Upload a table",
    status_code=201,
    responses=problems(*_REFUSALS),
    openapi_extra={"requestBody": {"required": True, "content": {ARROW_STREAM: {"schema": _BINARY}}}},
)
async def create_buffer(
    request: Request,
    response: Response,
    jobs: Jobs,
    settings: ServiceSettings,
    asking: CallTerms,
    options: Annotated[CsvOptions, Query()],
) -> Buffer:
    """The raw body is the table: an Arrow stream, or by its `Content-Type` Parquet or CSV with a header.

    It is stored sealed while it arrives, then read by a worker; it goes at its expiry. `fields` in
    the answer says which types a CSV's fields were found to have. A form is taken here too, as
    `POST /v1/buffers/form` describes it. The body may come with `Content-Encoding: gzip`.

    [A table to try it with](swagger/people.arrow).
    """
    content_type = request.headers.get("content-type", "")
    if essence(content_type) == FORM:
        return await _from_form(request, response, jobs, asking, options)
    uploaded_type(content_type)
    said = options.described(content_type)
    _refuse_declared_length(request, settings)
    body = decoded(request.headers.get("content-encoding"), request.stream())
    buffer = await jobs.create_buffer(
        body, lambda: said, partial(caller_gone, request), asking.upload_terms()
    )
    return _created(buffer, response, asking)


@router.post(
    "/form",
    operation_id="createBufferFromForm",
    summary="Upload a table by a form",
    status_code=201,
    responses=problems(*_REFUSALS),
    openapi_extra={"requestBody": {"required": True, "content": {FORM: {"schema": _form_schema()}}}},
)
async def create_buffer_from_form(
    request: Request, response: Response, jobs: Jobs, asking: CallTerms
) -> Buffer:
    """The same from a form, as browsers send it: a `file`, and fields that say how a CSV is written.

    [A table to try it with](swagger/people.csv).
    """
    content_type = request.headers.get("content-type", "")
    if essence(content_type) != FORM:
        raise UnsupportedMediaType(f"this operation takes {FORM}; POST /v1/buffers takes a table as it is")
    return await _from_form(request, response, jobs, asking, CsvOptions())


async def _from_form(
    request: Request, response: Response, jobs: JobService, asking: Asking, options: CsvOptions
) -> Buffer:
    form = FileForm(request.headers["content-type"], list(CsvOptions.model_fields))
    _refuse_declared_length(request, asking.settings)
    body = decoded(request.headers.get("content-encoding"), request.stream())

    def described() -> Upload:
        return _options_of(form, options).described(type_of_file(form.file_type, form.file_name))

    gone = partial(caller_gone, request)
    buffer = await jobs.create_buffer(form.chunks(body), described, gone, asking.upload_terms())
    return _created(buffer, response, asking)


def _created(buffer: models.Buffer, response: Response, asking: Asking) -> Buffer:
    response.headers["Location"] = f"/v1/buffers/{buffer.id}"
    response.headers.update(asking.headers(buffer.created_at))
    return _document(buffer)


def _options_of(form: FileForm, options: CsvOptions) -> CsvOptions:
    """What the form's fields say, beside what the query said. Raises RequestValidationError."""
    said: dict[str, Any] = options.model_dump(exclude_unset=True)
    for name, values in form.values.items():
        said[name] = values if name == "null_tokens" or len(values) > 1 else values[0]
    try:
        return CsvOptions.model_validate(said)
    except ValidationError as error:
        faults = [{**fault, "loc": ("form", *fault["loc"])} for fault in error.errors()]
        raise RequestValidationError(faults) from None


def _refuse_declared_length(request: Request, settings: Settings) -> None:
    """Raise TooLarge where the body says itself that it is, before any of it is read."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > settings.max_buffer_bytes:
        raise TooLarge(
            f"a buffer holds at most {settings.max_buffer_bytes} bytes (ROWVEIL_MAX_BUFFER_BYTES); "
            "upload the table in parts"
        )


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
async def get_buffer_rows(buffer_id: str, jobs: Jobs, wanted: WantedRows) -> Response:
    """The rows as `Accept` asks."""
    buffer = await jobs.get_buffer(buffer_id)
    return await table_response(partial(jobs.open_buffer, buffer), buffer.digest, wanted)


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
