"""Request id, trace span, metrics and log line of every request.

Metrics, logs and spans use the route's template instead of the path, whose segments and query come from the
client. Attributes and names of spans are those of OpenTelemetry's conventions for HTTP servers.
"""

import logging
import time
from http import HTTPStatus

from prometheus_client import Counter, Histogram
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.telemetry import tracing
from app.telemetry.logs import FIELDS
from app.telemetry.metrics import METHODS, Metrics, known
from app.telemetry.request_id import REQUEST_ID, request_id_of

REQUEST_ID_HEADER = "X-Request-ID"

_HEADER = REQUEST_ID_HEADER.lower().encode()

_log = logging.getLogger("rowveil.http")

_UNMATCHED = "unmatched"

_ABORTED = "aborted"

_SPAN_METHODS = frozenset({*METHODS, "CONNECT", "TRACE"})
"""Methods that a span may have; any other is `_OTHER`, and `HTTP` in the span's name."""

_SCRUBBED = "REDACTED"
"""Attribute `url.path`, which is required, of a request without a route."""

_PROBES = ("/livez", "/readyz", "/metrics")
"""Paths requested every few seconds; logged at `debug`."""


class RequestLog:
    """Outermost middleware."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._series: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}
        """Method, route and status -> series of the metrics."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and record its outcome."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = request_id_of(headers.get(REQUEST_ID_HEADER))
        REQUEST_ID.set(request_id)  # safe: the server runs each request in a context of its own
        started = time.perf_counter()
        status = 0

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                kept = [pair for pair in message.get("headers", ()) if pair[0] != _HEADER]
                message["headers"] = [*kept, (_HEADER, request_id.encode())]
            await send(message)

        method = known(scope["method"], METHODS)
        name = scope["method"] if scope["method"] in _SPAN_METHODS else "HTTP"
        begun = {
            "http.request.method": "_OTHER" if name == "HTTP" else name,
            "url.scheme": scope.get("scheme", "http"),
        }
        with tracing.span(name, begun, headers.get("traceparent"), "server") as span:
            try:
                await self._app(scope, receive, watched_send)
            finally:
                route = getattr(scope.get("route"), "path", None)
                span.set({"url.path": route or _SCRUBBED, "rowveil.request_id": request_id})
                if route is not None:
                    span.name(f"{name} {route}")
                    span.set({"http.route": route})
                if status:
                    span.set({"http.response.status_code": status})
                if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    span.failed(str(status))
                self._log_request(method, route or _UNMATCHED, status, time.perf_counter() - started)

    def _log_request(self, method: str, route: str, status: int, seconds: float) -> None:
        shown = str(status) if status else _ABORTED
        series = self._series.get((method, route, shown))
        if series is None:  # its labels are looked up once
            series = (
                self._metrics.requests.labels(method, route, shown),
                self._metrics.request_seconds.labels(method, route),
            )
            self._series[method, route, shown] = series
        requests, request_seconds = series
        requests.inc()
        request_seconds.observe(seconds)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._metrics.server_errors.inc()
        level = logging.DEBUG if route in _PROBES else logging.INFO
        if not _log.isEnabledFor(level):
            return
        fields = {"method": method, "route": route, "status": shown, "seconds": round(seconds, 4)}
        _log.log(level, "request", extra={FIELDS: fields})
