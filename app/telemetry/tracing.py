"""OpenTelemetry traces: off, and not imported, unless environment variables enable them.

The standard variables apply: ``OTEL_EXPORTER_OTLP_ENDPOINT`` or ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` name a
collector, which receives OTLP over HTTP; ``OTEL_SDK_DISABLED`` turns traces off again; ``OTEL_SERVICE_NAME``,
``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_TRACES_SAMPLER``, ``OTEL_EXPORTER_OTLP_HEADERS`` and others have their
standard meaning.

Span attributes are numbers and names from the code, never an error's message.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

Attributes = Mapping[str, str | int | float | bool]
Kind = Literal["internal", "server"]

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_FLUSH_MILLISECONDS = 2000

PRELOAD = ("opentelemetry.sdk.trace.export", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
"""Modules that a worker imports at its start if traces are enabled, before its memory is limited."""

_provider: "TracerProvider | None" = None
_tracer: "Tracer | None" = None


def wanted() -> bool:
    """Return whether environment variables enable traces."""
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return (
        not disabled
        and os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"
        and any(map(os.environ.get, _ENDPOINTS))
    )


def set_up_tracing() -> None:
    """Start tracing if environment variables enable it. Idempotent."""
    global _provider, _tracer
    if _tracer is not None or not wanted():
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # Given attributes override the environment's, so the name is given only if that has none.
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    _provider = TracerProvider(resource=Resource.create({} if named else {"service.name": "rowveil"}))
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _tracer = _provider.get_tracer("rowveil")


def flush() -> None:
    """Send ended spans, within a bounded time."""
    if _provider is not None:
        _provider.force_flush(_FLUSH_MILLISECONDS)


def trace_id() -> str:
    """Return the id of the current trace in hex; empty if there is none."""
    if _tracer is None:
        return ""
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


def current_parent() -> str | None:
    """Return the current span as a ``traceparent`` (W3C Trace Context); None if there is none."""
    if _tracer is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


class TracedSpan:
    """Span, or no-op if traces are off."""

    def __init__(self, span: "Span | None" = None) -> None:
        self._span = span

    def name(self, name: str) -> None:
        """Rename the span."""
        if self._span is not None:
            self._span.update_name(name)

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""
        if self._span is not None:
            for key, value in attributes.items():
                self._span.set_attribute(key, value)

    def failed(self, code: str) -> None:
        """Mark the span as failed, with an error code."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_status(StatusCode.ERROR)
            self._span.set_attribute("error.type", code)


_NOTHING = TracedSpan()


@contextmanager
def span(
    name: str,
    attributes: Attributes | None = None,
    parent: str | None = None,
    kind: Kind = "internal",
    started: float | None = None,
) -> Iterator[TracedSpan]:
    """Open a span around the block, as a child of the current one.

    Parameters
    ----------
    name : str
    attributes : mapping
    parent : str
        A ``traceparent``; without one, the current span is the parent.
    kind : str
    started : float
        Start in seconds since the epoch, if it was before the block.
    """
    if _tracer is None:
        yield _NOTHING
        return
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": parent}) if parent else None
    with _tracer.start_as_current_span(
        name,
        context,
        SpanKind.SERVER if kind == "server" else SpanKind.INTERNAL,
        dict(attributes or {}),
        start_time=int(started * 1e9) if started is not None else None,
        record_exception=False,  # the message may quote a value
        set_status_on_exception=False,
    ) as begun:
        traced = TracedSpan(begun)
        try:
            yield traced
        except Exception as error:
            traced.failed(type(error).__qualname__)
            raise
