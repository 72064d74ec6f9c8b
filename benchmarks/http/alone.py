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
    more = scope["method"] == "POST"
    if more:
        _kept.clear()
    while more:
        message = await receive()
        _kept.append(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["method"] != "POST":
        body = b"".join(_kept)
        for start in range(0, len(body), _PIECE):
            await send(
                {"type": "http.response.body", "body": body[start : start + _PIECE], "more_body": True}
            )
    await send({"type": "http.response.body", "body": b""})


def running() -> AbstractContextManager[tuple[str, int]]:
    """Run the baseline server in a process of its own: address and process id."""
    return serving(__name__, "--http", "h11")
