"""A table as a response, in the media type that the caller asks for, streamed in bounded memory."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated

import pyarrow as pa
from anyio import CancelScope, to_thread
from fastapi import Depends, Header, Response
from fastapi.responses import StreamingResponse
from pydantic.json_schema import SkipJsonSchema

from app import __version__
from app.api.conditional import none_match
from app.api.formats import MEDIA_TYPES, FormatError, negotiate, stream_chunks
from app.errors import NotAcceptable
from app.store.tables import TableReader

_CHARSET = {"text/csv": "text/csv; charset=utf-8; header=present"}


Accept = Annotated[str | SkipJsonSchema[None], Header(alias="Accept", include_in_schema=False)]
"""The header as it came. The media types that are offered stand in the answers."""


class Wanted:
    """What a request says of the representation that it wants."""

    def __init__(self, accept: str | None, if_none_match: str | None) -> None:
        self.accept = accept
        self.if_none_match = if_none_match


async def _wanted(
    accept: Accept = None,
    if_none_match: Annotated[
        str | SkipJsonSchema[None],
        Header(description="Entity tags that the caller has: 304 where one of them is the rows' own."),
    ] = None,
) -> Wanted:
    return Wanted(accept, if_none_match)


WantedRows = Annotated[Wanted, Depends(_wanted)]


async def table_response(
    open_rows: Callable[[], Awaitable[TableReader]], digest: str, wanted: Wanted
) -> Response:
    """The table in the offered type that the caller wants most; 304 where the caller has it.

    What the caller wants is judged before anything is read. The entity tag is of the table's
    digest, the type, and the versions that decide on the bytes of a file.

    Raises
    ------
    NotAcceptable
        None of the types is wanted, or the one that is cannot carry a field's type.
    """
    media_type = negotiate(wanted.accept, MEDIA_TYPES)
    if media_type is None:
        raise NotAcceptable(f"a table is to be had as {', '.join(MEDIA_TYPES)}")
    made_by = f"{digest} {media_type} {__version__} {pa.__version__}"
    headers = {"ETag": f'"{hashlib.sha256(made_by.encode()).hexdigest()[:32]}"', "Vary": "Accept"}
    if not none_match(wanted.if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    rows = await open_rows()
    try:
        chunks = await to_thread.run_sync(stream_chunks, media_type, rows.schema, rows)
    except BaseException as error:
        rows.close()
        if isinstance(error, FormatError):
            raise NotAcceptable(error.message) from None
        raise
    return StreamingResponse(
        made_ahead(chunks, rows.close), headers=headers, media_type=_CHARSET.get(media_type, media_type)
    )


async def made_ahead(
    chunks: Iterator[bytes], close: Callable[[], object] = lambda: None
) -> AsyncIterator[bytes]:
    """The chunks, for as long as somebody takes them: each made in a thread while the one before is sent.

    ``close`` is called at the end, whatever it is.
    """

    def begun() -> asyncio.Future[bytes | None]:
        return asyncio.ensure_future(to_thread.run_sync(next, chunks, None))

    ahead = begun()
    try:
        while (chunk := await asyncio.shield(ahead)) is not None:
            ahead = begun()
            yield chunk
    finally:
        with CancelScope(shield=True):  # a file is not closed under a thread that reads it
            await asyncio.wait([ahead])
        close()
