"""A table as a response, in the media type that the caller asks for."""

import pyarrow as pa
from anyio import to_thread
from fastapi import Response
from fastapi.responses import StreamingResponse

from app.api.formats import MEDIA_TYPES, FormatError, negotiate, write_chunks
from app.errors import NotAcceptable

_CHARSET = {"text/csv": "text/csv; charset=utf-8; header=present"}


async def table_response(table: pa.Table, digest: str, accept: str | None) -> Response:
    """The table in the offered type that `accept` wants most.

    The entity tag is the table's digest with the type: the bytes of a destination never change.

    Raises
    ------
    NotAcceptable
        None of the types is wanted, or the one that is cannot carry a field's type.
    """
    media_type = negotiate(accept, MEDIA_TYPES)
    if media_type is None:
        raise NotAcceptable(f"a table is to be had as {', '.join(MEDIA_TYPES)}")
    try:
        chunks = await to_thread.run_sync(write_chunks, media_type, table)
    except FormatError as error:
        raise NotAcceptable(error.message) from None
    tag = f'"{digest.removeprefix("sha256:")[:32]}-{media_type.rsplit(".", 1)[-1].rsplit("/", 1)[-1]}"'
    headers = {"ETag": tag, "Vary": "Accept"}
    return StreamingResponse(chunks, headers=headers, media_type=_CHARSET.get(media_type, media_type))
