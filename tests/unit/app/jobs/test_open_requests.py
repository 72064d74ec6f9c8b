"""Requests of one caller that are answered at the same time, and their end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.responses import StreamingResponse

from app.api.json_request import JsonRoute
from app.api.problems import OPEN
from app.errors import LimitReached
from app.jobs.fairness.open_requests import OpenRequests
from app.jobs.fairness.rates import Rates
from app.main import create_app
from app.settings import Settings
from app.telemetry.metrics import Metrics


def test_each_caller_has_its_own_number() -> None:
    metrics = Metrics("0")
    limit = OpenRequests(Settings(caller_open_requests=2), metrics)
    leave = [limit.enter("a"), limit.enter("a"), limit.enter("b")]
    with pytest.raises(LimitReached) as caught:
        limit.enter("a")
    assert caught.value.headers()["RateLimit"] == '"open-requests";r=0;t=1'
    assert caught.value.headers()["Connection"] == "close"
    leave[0]()
    limit.enter("a")
    assert b'rowveil_limited_total{limit="open-requests"} 1.0' in metrics.text()


def test_callers_that_left_are_forgotten() -> None:
    limit = OpenRequests(Settings(), Metrics("0"))
    for number in range(100):
        limit.enter(f"caller {number}")()
    assert not limit._open


def test_half_of_the_connections_by_default() -> None:
    assert Settings(max_connections=512).caller_open_requests == 256
    assert Settings(max_connections=1).caller_open_requests == 1


def test_a_stream_counts_until_it_ends(tmp_path: Path) -> None:
    """All others are refused meanwhile, and the next one is answered, also after a client has gone."""
    settings = Settings(home=tmp_path, auth="off", caller_open_requests=1)
    app = create_app(settings)
    app.state.jobs = SimpleNamespace(metrics=Metrics("0"), rates=Rates(settings, Metrics("0")))
    begun, end = asyncio.Event(), asyncio.Event()

    async def piece() -> AsyncIterator[bytes]:
        begun.set()
        await end.wait()
        yield b"."

    async def stream() -> Any:
        return StreamingResponse(piece())

    route = JsonRoute("/v1/stream", stream, methods=["GET"], operation_id="watchJob")
    app.router.routes.insert(0, route)

    async def status(path: str) -> int:
        found: list[int] = []

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                found.append(message["status"])

        messages = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Any:
            if not messages:
                await asyncio.Event().wait()  # the client stays
            return messages.pop()

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        await app(scope, receive, send)
        assert OPEN not in scope
        return found[0]

    async def scenario() -> list[int]:
        streaming = asyncio.create_task(status("/v1/stream"))
        await begun.wait()
        refused = await status("/v1/services")
        end.set()
        found = [refused, await streaming, await status("/v1/services"), await status("/v1/services/NONE")]
        begun.clear()
        end.clear()
        gone = asyncio.create_task(status("/v1/stream"))
        await begun.wait()
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone
        return [*found, await status("/v1/services")]

    assert asyncio.run(scenario()) == [429, 200, 200, 404, 200]
