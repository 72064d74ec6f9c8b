"""Content encodings of a request body (RFC 9110, section 8.4), decoded while it arrives, in bounded memory.

Only gzip, which every client has: Arrow and Parquet have better compression of their own.
"""

import zlib
from collections.abc import AsyncIterator

from anyio import to_thread
from fastapi import Request

from app.api.request_headers import combined
from app.errors import BadRequest, TooLarge, UnsupportedCoding

_PIECE = 1 << 20

_ALWAYS_ALLOWED = 1 << 30

_MOST_SWELLING = 200


def content_encoding(request: Request) -> str | None:
    """Return the header `Content-Encoding`, whose lines are one list; None: there is no line."""
    return combined(request.headers.getlist("content-encoding"))


def decoded(content_encoding: str | None, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the decoded body. Raises UnsupportedCoding immediately, BadRequest and TooLarge while reading."""
    codings = [name.strip().lower() for name in (content_encoding or "").split(",") if name.strip()]
    match [name for name in codings if name != "identity"]:
        case []:
            return body
        case ["gzip"] | ["x-gzip"]:
            return _unzipped(body)
    raise UnsupportedCoding(
        f"the body was sent with Content-Encoding '{', '.join(codings)[:100]}'; send it without or with "
        "gzip; Arrow and Parquet have compression of their own"
    )


async def _unzipped(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    taken = given = 0
    async for chunk in body:
        taken += len(chunk)
        left = chunk
        while left:
            try:
                # one byte may expand to a thousand: decompress in a thread, in bounded steps
                member, piece, left = await to_thread.run_sync(_decompress, member, left)
            except zlib.error:
                raise BadRequest(
                    "the body is not complete gzip data, as its Content-Encoding requires; compress it, or "
                    "leave the header out"
                ) from None
            given += len(piece)
            if given > max(_ALWAYS_ALLOWED, _MOST_SWELLING * taken):
                raise TooLarge(
                    f"the body takes over {_MOST_SWELLING} times its size when it is decoded; send it "
                    "less compressed"
                )
            if piece:
                yield piece
    if taken and not member.eof:
        raise BadRequest("the body's gzip data is truncated; send all of it")


def _decompress(member: "zlib._Decompress", data: bytes) -> "tuple[zlib._Decompress, bytes, bytes]":
    """Return the present gzip member, up to `_PIECE` decoded bytes, and the data that is left.

    Another member may follow each one (RFC 1952, section 2.2). Many small ones are decoded together: a thread
    for each of 20 bytes would take a hundred times as long as the member itself.
    """
    pieces: list[bytes] = []
    size = 0
    while data and size < _PIECE:
        if member.eof:
            member = zlib.decompressobj(wbits=31)
        pieces.append(member.decompress(data, _PIECE - size))
        size += len(pieces[-1])
        data = member.unused_data if member.eof else member.unconsumed_tail
    return member, b"".join(pieces), data
