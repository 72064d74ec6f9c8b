"""OpenTelemetry collector: receives spans by OTLP over HTTP, and stores them."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE = 60.0


class Collector:
    """Collector on a free local port."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self._arrived = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector._take(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def trace(self, trace_id: str, names: set[str]) -> dict[str, Any]:
        """Return name -> span of one trace, once all of those names have arrived."""

        def arrived() -> dict[str, Any]:
            return {span.name: span for span in self.spans if span.trace_id.hex() == trace_id}

        with self._arrived:
            assert self._arrived.wait_for(lambda: names <= arrived().keys(), PATIENCE), arrived().keys()
            return arrived()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        if handler.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        found = [
            span
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        with self._arrived:
            self.spans.extend(found)
            self._arrived.notify_all()
        handler.send_response(200)
        handler.send_header("content-length", "0")
        handler.end_headers()
