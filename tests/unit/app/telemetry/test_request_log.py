"""Metrics of requests, by the middleware that records them."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from app.api.middleware.request_log import RequestLog
from app.telemetry import tracing
from app.telemetry.metrics import Metrics


def request(status: int, metrics: Metrics, method: str = "GET", route: str | None = None) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if route is not None:
            scope["route"] = SimpleNamespace(path=route)
        if status:
            await PlainTextResponse("", status)(scope, receive, send)

    async def unused(message: Any = None) -> Any:
        return {"type": "http.request"}

    scope = {"type": "http", "method": method, "path": "/secret", "headers": [], "scheme": "https"}
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


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


@pytest.mark.parametrize(
    ("method", "route", "status", "name", "attributes"),
    [
        ("GET", "/v1/jobs/{job_id}", 404, "GET /v1/jobs/{job_id}", {"http.route": "/v1/jobs/{job_id}"}),
        ("GET", None, 404, "GET", {"url.path": "REDACTED"}),
        ("TRACE", None, 405, "TRACE", {"url.path": "REDACTED"}),
        ("5EED", None, 405, "HTTP", {"http.request.method": "_OTHER", "url.path": "REDACTED"}),
        ("POST", "/v1/buffers", 0, "POST /v1/buffers", {"http.route": "/v1/buffers"}),
        ("POST", "/v1/buffers", 503, "POST /v1/buffers", {"http.route": "/v1/buffers", "error.type": "503"}),
    ],
)
def test_spans_are_named_as_the_conventions_for_http_say(
    spans: InMemorySpanExporter,
    method: str,
    route: str | None,
    status: int,
    name: str,
    attributes: dict[str, Any],
) -> None:
    """No route is no attribute, an unknown method is `_OTHER`, and without a response there is no status."""
    request(status, Metrics(), method, route)
    (span,) = spans.get_finished_spans()
    found = dict(span.attributes or {})
    assert len(str(found.pop("rowveil.request_id"))) == 32
    expected = {"http.request.method": method, "url.scheme": "https", "url.path": route} | attributes
    assert (span.name, found) == (name, expected | ({"http.response.status_code": status} if status else {}))
    assert "secret" not in str(found)
