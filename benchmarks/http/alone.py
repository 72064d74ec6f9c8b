"""Baseline of HTTP itself: the same server with a handler that only stores and returns bytes."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx

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


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Run the baseline server in a process of its own; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", f"{__name__}:app", "--port", str(port), "--http", "h11"]
    with subprocess.Popen([*command, "--log-level", "warning"]) as server:
        address = f"http://127.0.0.1:{port}"
        try:
            for _ in range(100):
                with contextlib.suppress(httpx.TransportError):
                    httpx.get(address)
                    break
                time.sleep(0.1)
            yield address
        finally:
            server.terminate()
