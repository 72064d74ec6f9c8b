"""From a request's ``source`` (or ``destination``) to a table, or to what names one."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import pyarrow as pa
from anyio import to_thread
from fastapi import Depends, Request

from app.api.codings import decoded
from app.api.context import Jobs
from app.api.formats import FormatError, stream_chunks, table_from_columns, table_from_rows
from app.api.requests import caller_gone
from app.api.schemas import SentTo, Source
from app.api.uploads import UPLOADED, CsvOptions, CsvWriting, type_of_name, uploaded_type
from app.errors import AppError, BadRequest, InvalidRequest, NotFound, UnsupportedMediaType
from app.jobs.buffers import Upload
from app.jobs.service import JobService
from app.jobs.tables import GivenTable, SendTo, StoredTable
from providers.digest import table_digest
from providers.errors import SourceError
from providers.types import parse_type

_ZIPPED = ".gz"


@dataclass(frozen=True, slots=True)
class SourceTable:
    """Where a run's rows come from, and what identifies them."""

    table: GivenTable
    schema: pa.Schema
    rows: int
    known_digest: str = ""

    @property
    def digest(self) -> str:
        """The table's digest; computed where the rows came in the request."""
        return self.known_digest or table_digest(self.table)

    @property
    def inline(self) -> bool:
        """Whether the rows came in the request, so that the answer brings rows along."""
        return isinstance(self.table, pa.Table)

    @property
    def reference(self) -> str | None:
        """Where it was read, if that was by reference."""
        return self.table.reference if isinstance(self.table, StoredTable) else None


class Tables:
    """Reads the tables of one request; what a reference gave is let go when the request has been answered."""

    def __init__(self, request: Request, jobs: JobService) -> None:
        self._request = request
        self._jobs = jobs
        self._stored: list[StoredTable] = []

    async def read(self, source: Source, place: str = "/source") -> SourceTable:
        """The source's table, parsed in a thread; its buffer's id and schema; or what its reference gave.

        Parameters
        ----------
        source : Source
        place : str
            JSON pointer to it in the request.

        Raises
        ------
        FormatError
            The rows do not make a table; the pointer says where.
        InvalidRequest
            There is no such buffer, or nothing to be read by that reference.
        SourceError, TooLarge, MemoryLimit, TimeLimit, StorageFull, ReferenceUnavailable
            As of an upload: the reference names no table of its type, or too large a one.
        """
        if source.reference is not None:
            return await self._fetched(source, source.reference, place)
        if source.buffer is None:
            table = await to_thread.run_sync(_inline_table, source, place)
            return SourceTable(table, table.schema, table.num_rows)
        try:
            buffer = await self._jobs.get_buffer(source.buffer)
        except NotFound as error:
            raise InvalidRequest(error.message, f"{place}/buffer") from None
        return SourceTable(buffer.id, _schema(buffer.fields), buffer.row_count, buffer.digest)

    async def let_go(self) -> None:
        """Delete what was read by reference and no job has taken."""
        for stored in self._stored:
            await self._jobs.let_go(stored)

    async def _fetched(self, source: Source, reference: str, place: str) -> SourceTable:
        name = reference.rpartition("/")[2].lower()
        decode = partial(decoded, "gzip" if name.endswith(_ZIPPED) else None)
        try:
            upload = _described(source, name.removesuffix(_ZIPPED))
            stored = await self._jobs.read_reference(
                reference, upload, decode, partial(caller_gone, self._request)
            )
        except UnsupportedMediaType as error:
            raise InvalidRequest(error.message, f"{place}/media_type") from None
        except BadRequest:
            raise InvalidRequest(
                "what the reference names is not whole gzip, as its suffix .gz says", f"{place}/reference"
            ) from None
        except (AppError, SourceError) as error:
            raise type(error)(error.message, f"{place}{error.pointer or '/reference'}") from None
        self._stored.append(stored)
        return SourceTable(stored, _schema(stored.fields), stored.rows, stored.digest)


async def _tables(request: Request, jobs: Jobs) -> AsyncIterator[Tables]:
    tables = Tables(request, jobs)
    try:
        yield tables
    finally:
        await tables.let_go()


RequestTables = Annotated[Tables, Depends(_tables)]


async def checked_destination(wanted: SentTo | None, jobs: JobService) -> SendTo | None:
    """Where the destination is to be written, and as what. Raises InvalidRequest."""
    if wanted is None:
        return None
    try:
        await jobs.check_destination(wanted.reference)
    except AppError as error:
        raise type(error)(error.message, "/destination/reference") from None
    media_type = wanted.media_type or type_of_name(wanted.reference)
    if media_type is None:
        raise InvalidRequest(
            f"the reference's suffix is of no known type: give 'media_type', one of {', '.join(UPLOADED)}",
            "/destination/media_type",
        )
    return SendTo(wanted.reference, media_type)


def check_carried(send_to: SendTo | None, schema: pa.Schema) -> None:
    """Raise FormatError where the destination's type cannot carry a field of the schema."""
    if send_to is not None:
        try:
            stream_chunks(send_to.media_type, schema, iter(()))
        except FormatError as error:
            raise FormatError(error.message, "/destination/media_type") from None


def _described(source: Source, name: str) -> Upload:
    """What the reference names. Raises UnsupportedMediaType, InvalidRequest."""
    media_type = uploaded_type(source.media_type) if source.media_type is not None else type_of_name(name)
    if media_type is None:
        raise UnsupportedMediaType(
            f"the reference's suffix is of no known type: give 'media_type', one of {', '.join(UPLOADED)}"
        )
    said: dict[str, Any] = {
        option: getattr(source, option)
        for option in CsvWriting.model_fields
        if option in source.model_fields_set
    }
    if source.fields is not None:
        said["fields"] = json.dumps(source.fields)
    return CsvOptions.model_validate(said).described(media_type)


def _inline_table(source: Source, place: str) -> pa.Table:
    try:
        if source.rows is not None:
            return table_from_rows(source.rows, source.fields)
        assert source.columns is not None
        return table_from_columns(source.columns, source.fields)
    except FormatError as error:
        raise FormatError(error.message, f"{place}{error.pointer}") from None


def _schema(fields: list[dict[str, Any]]) -> pa.Schema:
    return pa.schema([(field["name"], parse_type(field["type"])) for field in fields])
