"""``/v1/buffers``: tables too large for JSON, uploaded once and named in a ``source``."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic.json_schema import SkipJsonSchema

from app.api.content_encoding import content_encoding, decoded
from app.api.dependencies import Jobs, PageSize, PageToken, ServiceSettings
from app.api.job_options import RequestSubmission, Submission
from app.api.job_response import document_response, page_response, utc_time
from app.api.json_request import JsonRoute, claim_upload, client_disconnected, repeated_parameter
from app.api.multipart import FileForm
from app.api.openapi_responses import FILE_SCHEMA, TABLE_FILES, listed, problems, rows_content, stored
from app.api.schemas import Buffer, BufferPage
from app.api.table_response import RequestedRepresentation, table_response
from app.api.table_schemas import TableProfile
from app.errors import AppError, InvalidFields, TooLarge, UnsupportedMediaType
from app.formats.media_types import essence, sent_as
from app.jobs.service import JobService
from app.jobs.tables.uploads import Upload, checked_start
from app.requests.annotations import AnnotationChange, Line
from app.requests.copies import CopyRequest
from app.requests.uploads import UploadOptions, refuse_long_content_type, type_of_file, uploaded_type
from app.settings import Settings
from app.store.sql import models
from providers.errors import SourceError

FORM = "multipart/form-data"

_REFUSALS = (400, 413, 415, 422, 429, 507)

router = APIRouter(prefix="/v1/buffers", tags=["buffers"], route_class=JsonRoute)


def _document(buffer: models.Buffer) -> dict[str, Any]:
    """Return the Buffer resource as plain JSON values: a model of 100,000 fields takes a second."""
    document = {
        "id": buffer.id,
        "name": buffer.name,
        "label": buffer.label,
        "notes": buffer.notes,
        "digest": buffer.digest,
        "fields": buffer.fields,
        "row_count": buffer.row_count,
        "created_at": utc_time(buffer.created_at),
        "expires_at": utc_time(buffer.expires_at),
    }
    return {name: value for name, value in document.items() if value is not None}


def _form_schema() -> dict[str, Any]:
    """Return the schema of the form: the file, and the same options as the raw upload."""
    schema = UploadOptions.model_json_schema()
    fields = dict(schema["properties"])
    fields["fields"]["examples"] = ["{}"]  # Swagger UI would otherwise fill in the text "string"
    file_description = (
        "The table as CSV, Parquet or an Arrow stream, by the part's `Content-Type` or the file's suffix."
    )
    return {
        "type": "object",
        "required": ["file"],
        "properties": {"file": {**FILE_SCHEMA, "description": file_description}, **fields},
    }


@router.post(
    "",
    operation_id="createBuffer",
    summary="Upload a table",
    status_code=201,
    response_model=Buffer,
    responses=stored() | problems(*_REFUSALS),
    openapi_extra={"requestBody": {"required": True, "content": TABLE_FILES}},
)
async def create_buffer(
    request: Request,
    jobs: Jobs,
    settings: ServiceSettings,
    submission: RequestSubmission,
    options: Annotated[UploadOptions, Query()],
) -> Response:
    """Upload a table as the raw body.

    The body is an Arrow stream, Parquet or CSV, as the `Content-Type` states. The
    table is stored sealed while it arrives, then read by a worker; it is deleted at its expiry. For CSV,
    `fields` in the response lists the inferred types. A form is accepted here too, as described for
    `POST /v1/buffers/form`. The body may have `Content-Encoding: gzip`.

    [A sample table](swagger/people.arrow).
    """
    content_type = request.headers.get("content-type", "")
    if essence(content_type) == FORM:
        return await _from_form(request, jobs, submission, options)
    claim_upload(request)
    uploaded_type(content_type)
    upload = options.described(content_type)
    _refuse_declared_length(request, settings)
    body = decoded(content_encoding(request), request.stream())
    buffer = await _create(
        jobs,
        checked_start(body, lambda: upload),
        lambda: upload,
        partial(client_disconnected, request),
        submission.upload_options(),
        _declared_length(request),
    )
    return _created(buffer, submission)


@router.post(
    "/form",
    operation_id="createBufferFromForm",
    summary="Upload a table with a form",
    status_code=201,
    response_model=Buffer,
    responses=stored() | problems(*_REFUSALS),
    openapi_extra={"requestBody": {"required": True, "content": {FORM: {"schema": _form_schema()}}}},
)
async def create_buffer_from_form(request: Request, jobs: Jobs, submission: RequestSubmission) -> Response:
    """Upload a table with a form, as browsers send it: a `file`, and fields with the CSV dialect.

    [A sample table](swagger/people.csv).
    """
    content_type = request.headers.get("content-type", "")
    if essence(content_type) != FORM:
        raise UnsupportedMediaType(
            f"{sent_as(content_type)}; this operation takes {FORM}; POST /v1/buffers takes a table without a "
            "form"
        )
    return await _from_form(request, jobs, submission, UploadOptions())


async def _from_form(
    request: Request, jobs: JobService, submission: Submission, options: UploadOptions
) -> Response:
    claim_upload(request)
    refuse_long_content_type(request.headers["content-type"])
    form = FileForm(request.headers["content-type"], list(UploadOptions.model_fields))
    _refuse_declared_length(request, submission.settings)
    body = decoded(content_encoding(request), request.stream())

    def described() -> Upload:
        return _options_of(form, options).described(type_of_file(form.file_type, form.file_name))

    def described_so_far() -> Upload | None:
        try:
            return described()
        except (AppError, RequestValidationError):  # fields after the file may complete the description
            return None

    gone = partial(client_disconnected, request)
    chunks = checked_start(form.chunks(body), described_so_far, is_complete=False)
    buffer = await _create(
        jobs, chunks, described, gone, submission.upload_options(), _declared_length(request)
    )
    return _created(buffer, submission)


async def _create(jobs: JobService, *arguments: Any) -> models.Buffer:
    """Create a buffer. Raises InvalidFields, since `fields` is a parameter and has no pointer."""
    try:
        return await jobs.buffers.create(*arguments)
    except SourceError as error:
        if error.pointer.startswith("/fields"):
            raise InvalidFields(error.message, "fields") from None
        raise


def _created(buffer: models.Buffer, submission: Submission) -> Response:
    headers = {"Location": f"/v1/buffers/{buffer.id}"} | submission.headers(buffer.created_at)
    return document_response(_document(buffer), 201, headers)


def _options_of(form: FileForm, options: UploadOptions) -> UploadOptions:
    """Combine the options of the form's fields with those of the query. Raises RequestValidationError."""
    given: dict[str, Any] = options.model_dump(exclude_unset=True)
    for name, values in form.values.items():
        given[name] = values if name == "null_tokens" else values[0]
    repeated = [name for name, values in form.values.items() if name != "null_tokens" and len(values) > 1]
    if repeated:
        raise RequestValidationError(
            [repeated_parameter("form", name, len(form.values[name])) for name in repeated]
        )
    try:
        return UploadOptions.model_validate(given)
    except ValidationError as error:
        faults = [{**fault, "loc": ("form", *fault["loc"])} for fault in error.errors()]
        raise RequestValidationError(faults) from None


def _declared_length(request: Request) -> int:
    """Return the declared length of the body in bytes; 0 if it declares none."""
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isdecimal() else 0


def _refuse_declared_length(request: Request, settings: Settings) -> None:
    """Raise TooLarge before reading the body if its declared length exceeds the limit."""
    if _declared_length(request) > settings.max_buffer_bytes:
        raise TooLarge(
            f"a buffer holds at most {settings.max_buffer_bytes} bytes (ROWVEIL_MAX_BUFFER_BYTES); "
            "upload the table in parts"
        )


@router.get(
    "",
    operation_id="listBuffers",
    summary="List buffers, newest first",
    response_model=BufferPage,
    responses=listed() | problems(422),
)
async def list_buffers(
    jobs: Jobs,
    request: Request,
    name: Annotated[
        Line | SkipJsonSchema[None],
        Query(
            description="Only buffers whose name contains this text; upper and lower case are equal. "
            "[up to 120 characters]"
        ),
    ] = None,
    label: Annotated[
        Line | SkipJsonSchema[None],
        Query(description="Only buffers with exactly this label. [up to 120 characters]"),
    ] = None,
    page_size: PageSize = 20,
    page_token: PageToken = None,
) -> Response:
    """Get one page of your buffers that have not expired.

    The `Link` header points to the next page (RFC 8288).
    """
    found, next_token = await jobs.list_buffers(page_size, page_token, name, label)
    return page_response(request, "buffers", [_document(buffer) for buffer in found], next_token)


@router.get(
    "/{buffer_id}",
    operation_id="getBuffer",
    summary="Get one buffer",
    response_model=Buffer,
    responses=problems(404),
)
async def get_buffer(buffer_id: str, jobs: Jobs) -> Response:
    """Get the buffer's digest, fields, row count and expiry, without its rows."""
    return document_response(_document(await jobs.buffers.get(buffer_id)))


@router.get(
    "/{buffer_id}/rows",
    operation_id="getBufferRows",
    summary="Get a buffer's rows",
    responses=rows_content("The rows.") | problems(404, 406, 412, 422, 507),
)
async def get_buffer_rows(buffer_id: str, jobs: Jobs, wanted: RequestedRepresentation) -> Response:
    """Get the rows in the media type that `Accept` requests."""
    buffer = await jobs.buffers.get(buffer_id)
    return await table_response(partial(jobs.buffers.open, buffer), buffer.digest, wanted)


@router.get(
    "/{buffer_id}/profile",
    operation_id="getBufferProfile",
    summary="Get a profile of a buffer's fields",
    responses=problems(404, 422, 429, 507),
)
async def get_buffer_profile(
    buffer_id: str,
    jobs: Jobs,
    rows: Annotated[int, Query(ge=0, le=50, description="Number of first rows to return. [0 to 50]")] = 20,
) -> TableProfile:
    """Get nulls, distinct values, range and a small histogram of each field, and the first rows.

    A worker reads up to 100 million cells of the table, and the first 300 fields. The response shows
    values, so the call counts as a read of the rows, also in the audit log.
    """
    return TableProfile.model_validate(await jobs.profile(buffer_id, rows))


@router.post(
    "/{buffer_id}/copies",
    operation_id="copyBuffer",
    summary="Copy a buffer with other fields or types",
    status_code=201,
    response_model=Buffer,
    responses=stored() | problems(*_REFUSALS, 404),
)
async def copy_buffer(
    buffer_id: str, body: CopyRequest, jobs: Jobs, submission: RequestSubmission
) -> Response:
    """Create a buffer from another one: without some fields, with other types, or with more nulls.

    The first buffer stays as it is. A value that does not fit its new type is refused with its field and
    row. The copy keeps the order of fields and rows, and the name and the label unless the request gives
    others. A copy of another caller's buffer needs the scope `read`, too.
    """
    options = await submission.copy_options()
    made = await jobs.buffers.copy(
        buffer_id, body.drop, body.types, body.null_tokens, body.annotations, options
    )
    return _created(made, submission)


@router.patch(
    "/{buffer_id}",
    operation_id="annotateBuffer",
    summary="Change a buffer's name, label or notes",
    response_model=Buffer,
    responses=problems(400, 403, 404, 413, 415, 422, 507),
)
async def annotate_buffer(buffer_id: str, body: AnnotationChange, jobs: Jobs) -> Response:
    """Set or remove the name, the label or the notes; members that are left out stay.

    Only the buffer's creator may do so. The audit log has a line without the texts.
    """
    return document_response(_document(await jobs.buffers.annotate(buffer_id, body.changes)))


@router.delete(
    "/{buffer_id}",
    operation_id="deleteBuffer",
    summary="Delete a buffer",
    status_code=204,
    responses=problems(404, 507),
)
async def delete_buffer(buffer_id: str, jobs: Jobs) -> None:
    """Delete the buffer immediately. Jobs created from it keep the data that they need."""
    await jobs.buffers.delete(buffer_id)
