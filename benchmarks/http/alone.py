"""Baseline of HTTP itself: the same server with a handler that only stores and returns bytes."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.http.server import serving

_PIECE = 2**21
"""Chunk size, equal to the one that the service uses for such a table."""

_kept: list[bytes] = []


async def app(
    scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Store the body of a POST in memory; respond to any other request with the stored body."""
    if scope["type"] != "http":
        return
    if scope["method"] == "POST":
        await _keep(receive)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["method"] != "POST":
        for piece in _kept:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _keep(receive: Callable[[], Awaitable[Any]]) -> None:
    """Store the body in pieces; one block of its size would take longer than the rest of the request."""
    _kept.clear()
    piece = bytearray()
    more = True
    while more:
        message = await receive()
        piece += message.get("body", b"")
        more = message.get("more_body", False)
        if len(piece) >= _PIECE or not more:
            _kept.append(bytes(piece))
            piece.clear()


def running() -> AbstractContextManager[tuple[str, int]]:
    """Run the baseline server in a process of its own: address and process id."""
    return serving(__name__, "--http", "h11")
