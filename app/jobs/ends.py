"""Tells the rest of the service that a job has ended, once that has been committed."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from app.jobs.kinds import FRONTIER, MEASURES
from app.jobs.states import State
from app.store.models import Job
from app.telemetry.metrics import OTHER, Metrics, known
from providers import PROVIDERS

CODES = frozenset(
    {
        "attempts_exhausted",
        "content_too_large",
        "deadline_exceeded",
        "destination_not_sent",
        "internal_error",
        "invalid_parameter",
        "invalid_source",
        "memory_limit",
        "provider_error",
        "storage_full",
        "time_limit",
        "unavailable",
        "unswappable_rows",
        "worker_died",
    }
)
"""What the metrics tell apart; whatever else there will be counts as `other`."""
_NO_CODE = "none"
_HOW = (
    (State.SUCCEEDED, _NO_CODE),
    (State.CANCELLED, _NO_CODE),
    *((State.FAILED, code) for code in (*sorted(CODES), OTHER)),
)


class Ends:
    """Counts ends, and wakes whoever delivers messages. Called from any thread."""

    def __init__(self, metrics: Metrics, wake_deliverer: Callable[[], None]) -> None:
        self._metrics = metrics
        self._wake_deliverer = wake_deliverer
        self._event_loop = asyncio.get_running_loop()
        for service in (*PROVIDERS, MEASURES, FRONTIER):
            for state, code in _HOW:
                metrics.ended.labels(service, state, code)  # from 0 on: an alert sees the first end rise

    def tell(self, job: Job, state: str, values: Mapping[str, Any]) -> None:
        """The job, as it was before, is in this state now; ``values`` are those of its end."""
        metrics = self._metrics
        error = values.get("error")
        code = known(error["code"], CODES) if error else _NO_CODE
        metrics.ended.labels(job.service, state, code).inc()
        if job.started_at is not None:
            metrics.run_seconds.labels(job.service).observe(_seconds(values["finished_at"] - job.started_at))
        if state == "succeeded":
            metrics.rows.labels(job.service).inc(job.row_count)
        if job.sealed_webhook is not None:
            self._event_loop.call_soon_threadsafe(self._wake_deliverer)

    def tell_started(self, job: Job) -> None:
        """The job was claimed."""
        if job.started_at is not None:
            self._metrics.wait_seconds.labels(job.service).observe(_seconds(job.started_at - job.created_at))

    def tell_requeued(self) -> None:
        """A job was put back into the queue."""
        self._metrics.requeued.inc()


def _seconds(span: Any) -> float:
    return max(0.0, float(span.total_seconds()))
