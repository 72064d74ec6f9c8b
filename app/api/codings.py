"""Content codings of a request body (RFC 9110, section 8.4), undone while it arrives, in bounded memory.

gzip, which every client has, and no other: Arrow and Parquet compress themselves, and better.
"""

import zlib
from collections.abc import AsyncIterator

from anyio import to_thread

from app.errors import BadRequest, TooLarge, UnsupportedCoding

_PIECE = 1 << 20
_ALWAYS_ALLOWED = 1 << 30
_MOST_SWELLING = 200


def decoded(content_encoding: str | None, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The body without its coding. Raises UnsupportedCoding at once, BadRequest and TooLarge on the way."""
    codings = [name.strip().lower() for name in (content_encoding or "").split(",") if name.strip()]
    match [name for name in codings if name != "identity"]:
        case []:
            return body
        case ["gzip"] | ["x-gzip"]:
            return _unzipped(body)
    raise UnsupportedCoding(
        "a buffer is uploaded as it is or with Content-Encoding gzip; Arrow and Parquet compress themselves"
    )


async def _unzipped(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    taken = given = 0
    async for chunk in body:
        taken += len(chunk)
        left = chunk
        while left:
            if member.eof:  # another member follows, RFC 1952, section 2.2
                member = zlib.decompressobj(wbits=31)
            try:
                # one call may make a thousand bytes of one: it takes a thread, and a piece at a time
                piece = await to_thread.run_sync(member.decompress, left, _PIECE)
            except zlib.error:
                raise BadRequest("the body is not whole gzip, as its Content-Encoding says") from None
            left = member.unused_data if member.eof else member.unconsumed_tail
            given += len(piece)
            if given > max(_ALWAYS_ALLOWED, _MOST_SWELLING * taken):
                raise TooLarge(
                    f"the body takes over {_MOST_SWELLING} times its bytes when it is decoded; "
                    "send it less compressed"
                )
            if piece:
                yield piece
    if taken and not member.eof:
        raise BadRequest("the body's gzip is cut short; send it whole")
