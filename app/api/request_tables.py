"""Tables named in a request: resolves ``source`` and ``destination`` to tables, buffers or references."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any, ParamSpec, TypeVar

import pyarrow as pa
from anyio import to_thread
from fastapi import Depends, Request

from app.api.content_encoding import decoded
from app.api.dependencies import Jobs
from app.api.json_request import client_disconnected
from app.errors import AppError, BadRequest, InvalidRequest, NotFound, UnsupportedMediaType
from app.formats import CsvStyle, stream_chunks
from app.formats.errors import FormatError
from app.formats.json_input import table_from_columns, table_from_rows
from app.formats.media_types import CSV
from app.jobs.requests import SendTo, StoredTable
from app.jobs.service import JobService
from app.jobs.tables.uploads import Upload
from app.requests.source import ParsedTable, SentTo, Source, SourceTable, schema_of_fields
from app.requests.uploads import UPLOADED, CsvOptions, CsvWriting, type_of_name, uploaded_type
from providers.errors import SourceError

_ZIPPED = ".gz"

_TABS = ".tsv"
"""Suffix of a CSV whose delimiter is the tab."""

_SMALL_BODY = 1 << 17
"""Largest request body in bytes whose table is read in the event loop: a thread costs more than that work."""

_FEW_FIELDS = 100
"""Most fields of a table against which a request is checked in the event loop."""

T = TypeVar("T")
P = ParamSpec("P")


class Tables:
    """Tables of one request.

    Tables read by reference are deleted after the response, unless a job took them.
    """

    def __init__(self, request: Request, jobs: JobService) -> None:
        self._request = request
        self._jobs = jobs
        self._stored: list[StoredTable] = []

    async def read(self, source: Source, place: str = "/source") -> SourceTable:
        """Return the table: inline rows, a buffer, or the stored copy of a reference.

        Parameters
        ----------
        source : Source
        place : str
            JSON pointer to the source in the request.

        Raises
        ------
        FormatError
            The rows do not form a table; the pointer gives the location.
        InvalidRequest
            The buffer does not exist, or the reference cannot be read.
        SourceError, TooLarge, MemoryLimit, TimeLimit, StorageFull, ReferenceUnavailable
            As for an upload: the reference names no table of its type, or one that is too large.
        """
        if source.reference is not None:
            return await self._fetched(source, source.reference, place)
        if source.buffer is None:
            table = await self.in_thread_unless_small(0, _inline_table, source, place)
            return SourceTable(table, table.schema, table.num_rows)
        try:
            buffer = await self._jobs.buffers.get(source.buffer)
        except NotFound as error:
            raise InvalidRequest(error.message, f"{place}/buffer") from None
        return SourceTable(buffer.id, schema_of_fields(buffer.fields), buffer.row_count, buffer.digest)

    async def in_thread_unless_small(
        self, fields: int, function: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Return ``function(*arguments)``, computed in a thread unless body and table are small.

        ``fields``: the number of fields that the function reads apart from the body, such as a buffer's.
        """
        if fields <= _FEW_FIELDS and len(await self._request.body()) <= _SMALL_BODY:
            return function(*arguments, **named)
        return await to_thread.run_sync(partial(function, *arguments, **named))

    async def release_unused(self) -> None:
        """Delete tables that were read by reference and that no job has taken."""
        for stored in self._stored:
            await self._jobs.buffers.discard(stored)

    async def _fetched(self, source: Source, reference: str, place: str) -> SourceTable:
        name = reference.rpartition("/")[2].lower()
        decode = partial(decoded, "gzip" if name.endswith(_ZIPPED) else None)
        try:
            upload = _described(source, name.removesuffix(_ZIPPED))
            stored = await self._jobs.buffers.read_reference(
                reference, upload, decode, partial(client_disconnected, self._request)
            )
        except UnsupportedMediaType as error:
            raise InvalidRequest(error.message, f"{place}/media_type") from None
        except BadRequest:
            raise InvalidRequest(
                "the content of the reference is not complete gzip data, as its suffix .gz requires",
                f"{place}/reference",
            ) from None
        except (AppError, SourceError) as error:
            raise type(error)(error.message, f"{place}{error.pointer or '/reference'}") from None
        self._stored.append(stored)
        return SourceTable(stored, schema_of_fields(stored.fields), stored.rows, stored.digest)


async def _tables(request: Request, jobs: Jobs) -> AsyncIterator[Tables]:
    tables = Tables(request, jobs)
    try:
        yield tables
    finally:
        await tables.release_unused()


RequestTables = Annotated[Tables, Depends(_tables)]


async def checked_destination(requested: SentTo | None, jobs: JobService) -> SendTo | None:
    """Return reference and media type to write the destination to. Raises InvalidRequest."""
    if requested is None:
        return None
    try:
        await jobs.buffers.check_destination(requested.reference, requested.overwrite)
    except AppError as error:
        pointer = f"/destination{error.pointer or '/reference'}"
        raise type(error)(error.message, pointer) from None
    media_type = requested.media_type or type_of_name(requested.reference)
    suffix = PurePosixPath(requested.reference).suffix.lower()
    if suffix == _ZIPPED:
        raise InvalidRequest(
            f"the reference ends in {suffix}, but destinations are not compressed: give it another suffix",
            "/destination/reference",
        )
    if suffix == _TABS and requested.csv_delimiter != "tab":
        raise InvalidRequest(
            f"the reference ends in {suffix}: give 'csv_delimiter' as 'tab', or another suffix",
            "/destination/reference",
        )
    if media_type is None:
        raise InvalidRequest(
            f"the reference's suffix is of no known type: give 'media_type', one of {', '.join(UPLOADED)}",
            "/destination/media_type",
        )
    try:
        style = CsvStyle(requested.csv_formulas, requested.csv_delimiter, requested.csv_decimal_mark)
    except FormatError as error:
        raise InvalidRequest(error.message, "/destination/csv_delimiter") from None
    if media_type != CSV and style.stated:
        name = f"csv_{style.stated[0]}"
        raise InvalidRequest(f"'{name}' is for CSV; leave it out with {media_type}", f"/destination/{name}")
    return SendTo(requested.reference, media_type, requested.overwrite, style)


def check_carried(send_to: SendTo | None, schema: pa.Schema) -> None:
    """Raise FormatError if the destination's media type cannot represent a field of the schema."""
    if send_to is not None:
        try:
            stream_chunks(send_to.media_type, schema, iter(()))
        except FormatError as error:
            raise FormatError(error.message, "/destination/media_type") from None


def _described(source: Source, name: str) -> Upload:
    """Return the upload that the reference names. Raises UnsupportedMediaType, InvalidRequest."""
    stated = source.media_type
    media_type = type_of_name(name) if stated is None else uploaded_type(stated, "the reference")
    if media_type is None:
        raise UnsupportedMediaType(
            f"the reference's suffix is of no known type: give 'media_type', one of {', '.join(UPLOADED)}"
        )
    options: dict[str, Any] = {
        option: getattr(source, option)
        for option in CsvWriting.model_fields
        if option in source.model_fields_set
    }
    if source.fields is not None:
        options["fields"] = json.dumps(source.fields)
    return CsvOptions.model_validate(options).described(media_type)


def _inline_table(source: Source, place: str) -> pa.Table:
    given: Any = source.columns if source.rows is None else source.rows
    try:
        if isinstance(given, ParsedTable):
            return given.table()
        if not given and not source.fields:
            form = "columns" if source.rows is None else "rows"
            raise FormatError(
                f"'{form}' is empty, so the table has no fields: give at least one row, or state the fields "
                'of an empty table in \'fields\', such as {"age": "int64"}',
                f"/{form}",
            )
        if source.rows is not None:
            return table_from_rows(source.rows, source.fields)
        assert source.columns is not None
        return table_from_columns(source.columns, source.fields)
    except FormatError as error:
        raise FormatError(error.message, f"{place}{error.pointer}") from None
