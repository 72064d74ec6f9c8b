"""Tables as responses, in the negotiated media type, streamed in bounded memory."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Annotated, TypeVar

import pyarrow as pa
from anyio import CancelScope, CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import Depends, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from app import __version__
from app.api.request_headers import combined, is_match, none_match
from app.errors import InvalidParameter, NotAcceptable, PreconditionFailed
from app.formats import CsvStyle, check_values, needs_values, stream_chunks
from app.formats.csv_dialect import DecimalMark
from app.formats.csv_output import PLAIN, Formulas, WrittenDelimiter
from app.formats.errors import FormatError
from app.formats.media_types import CSV, MEDIA_TYPES, negotiate
from app.store.blobs.arrow_stream import TableReader

T = TypeVar("T")

_MOST_READS = 40

_reads: RunVar[CapacityLimiter] = RunVar("reads of stored rows")

_CHARSET = {"text/csv": "text/csv; charset=utf-8; header=present"}

Accept = Annotated[list[str] | SkipJsonSchema[None], Header(alias="Accept", include_in_schema=False)]
"""Lines of the header. The offered media types are listed in the declared responses."""


class Representation:
    """Requested representation: `Accept`, conditions on the entity tag, and the style of a CSV."""

    def __init__(
        self,
        accept: str | None,
        if_match: str | None,
        if_none_match: str | None,
        csv: CsvStyle = PLAIN,
    ) -> None:
        self.accept = accept
        self.if_match = if_match
        self.if_none_match = if_none_match
        self.csv = csv


async def _wanted(
    accept: Accept = None,
    if_match: Annotated[
        list[str] | SkipJsonSchema[None],
        Header(description="Entity tags; 412 if none of them matches the rows."),
        WithJsonSchema({"type": "string"}),
    ] = None,
    if_none_match: Annotated[
        list[str] | SkipJsonSchema[None],
        Header(description="Entity tags that the caller has cached; 304 if one of them matches the rows."),
        WithJsonSchema({"type": "string"}),
    ] = None,
    csv_formulas: Annotated[
        Formulas,
        Query(
            description="CSV: whether texts that a spreadsheet could take for formulas stay as they are "
            "(`keep`) or follow an apostrophe (`escape`): those that begin with `=`, `+`, `-`, `@`, a tab or "
            "a line break. The table and its digest are the same."
        ),
    ] = "keep",
    csv_delimiter: Annotated[
        WrittenDelimiter,
        Query(description="CSV: the delimiter of cells; the word `tab` means the tab character."),
    ] = ",",
    csv_decimal_mark: Annotated[
        DecimalMark,
        Query(
            description="CSV: the decimal mark of numbers, as in 1234.5 or 1234,5. `comma` needs another "
            "`csv_delimiter` than the comma."
        ),
    ] = "point",
) -> Representation:
    try:
        style = CsvStyle(csv_formulas, csv_delimiter, csv_decimal_mark)
    except FormatError as error:
        raise InvalidParameter(error.message, "csv_delimiter") from None
    return Representation(combined(accept), combined(if_match), combined(if_none_match), style)


RequestedRepresentation = Annotated[Representation, Depends(_wanted)]


async def table_response(
    open_rows: Callable[[], Awaitable[TableReader]], digest: str, wanted: Representation
) -> Response:
    """Return the table in the acceptable media type of highest preference, or 304 if the caller has it.

    The headers are checked before anything is read. The entity tag depends on the table's
    digest, the media type, and the versions that determine the bytes of a file.

    Raises
    ------
    NotAcceptable
        No offered type is acceptable, or the chosen one cannot represent a field's type.
    InvalidParameter
        The style of a CSV is stated for another media type.
    PreconditionFailed
        `If-Match` names other rows, or the rows in another media type.
    """
    media_type = negotiate(wanted.accept, MEDIA_TYPES)
    if media_type is None:
        raise NotAcceptable(
            f"Accept takes none of the types that a table is available as: {', '.join(MEDIA_TYPES)}"
        )
    if wanted.csv != PLAIN and media_type != CSV:
        name = next(f"csv_{each}" for each in wanted.csv.stated)
        raise InvalidParameter(f"'{name}' is for CSV; leave it out with {media_type}", name)
    etag_input = f"{digest} {media_type} {__version__} {pa.__version__} {wanted.csv}"
    headers = {"ETag": f'"{hashlib.sha256(etag_input.encode()).hexdigest()[:32]}"', "Vary": "Accept"}
    if not is_match(wanted.if_match, headers["ETag"]):
        raise PreconditionFailed(
            "the rows have another entity tag than those of If-Match; get them without it"
        )
    if not none_match(wanted.if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    rows = await open_rows()
    try:
        if needs_values(media_type, rows.schema):
            await _check_values(open_rows)
        chunks = await _read(partial(stream_chunks, media_type, rows.schema, rows, wanted.csv))
    except BaseException as error:
        rows.close()
        if isinstance(error, FormatError):
            raise NotAcceptable(error.message) from None
        raise
    return StreamingResponse(
        prefetched(chunks, rows.close), headers=headers, media_type=_CHARSET.get(media_type, media_type)
    )


async def _check_values(open_rows: Callable[[], Awaitable[TableReader]]) -> None:
    """Read all rows once before the response begins. Raises FormatError: a value cannot be represented."""
    rows = await open_rows()
    try:
        with CancelScope(shield=True):  # do not close the file under a thread that reads it
            await _read(partial(check_values, rows.schema, rows))
    finally:
        rows.close()


async def prefetched(
    chunks: Iterator[bytes], close: Callable[[], object] = lambda: None
) -> AsyncIterator[bytes]:
    """Yield the chunks, producing each in a thread while the previous one is sent.

    ``close`` is called at the end, also after an error or cancellation.
    """

    def begun() -> asyncio.Future[bytes | None]:
        return asyncio.ensure_future(_read(partial(next, chunks, None)))

    ahead = begun()
    try:
        while (chunk := await asyncio.shield(ahead)) is not None:
            ahead = begun()
            yield chunk
    finally:
        with CancelScope(shield=True):  # do not close the file under a thread that reads it
            await asyncio.wait([ahead])
        close()


async def _read(function: Callable[[], T]) -> T:
    """Call a function that reads stored rows in a thread.

    Such calls have a limit of their own, so that a folder that does not respond stops no other call.
    """
    try:
        limiter = _reads.get()
    except LookupError:
        limiter = CapacityLimiter(_MOST_READS)
        _reads.set(limiter)
    return await to_thread.run_sync(function, limiter=limiter)
