"""Metrics of requests, by the middleware that records them."""

import asyncio
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from app.api.middleware.request_log import RequestLog
from app.telemetry.metrics import Metrics


def request(status: int, metrics: Metrics) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("", status)(scope, receive, send)

    async def unused(message: Any = None) -> Any:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    asyncio.run(RequestLog(app, metrics)(scope, unused, unused))


def test_the_first_server_error_of_a_route_counts_from_zero() -> None:
    metrics = Metrics()

    def errors() -> float | None:
        return metrics.registry.get_sample_value("rowveil_http_server_errors_total")

    assert errors() == 0
    for status in (200, 404, 499):
        request(status, metrics)
    assert errors() == 0
    for status in (500, 503):
        request(status, metrics)
    assert errors() == 2
