"""Update metrics and wake the webhook deliverer after a job's end has been committed."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from app.job_kinds import ATTACKS, FRONTIER, MEASURES
from app.jobs.states import State
from app.jobs.units.repeated_tasks import REASONS
from app.store.sql.models import Job
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
        "job_altered",
        "memory_limit",
        "provider_error",
        "released_before",
        "reversible_groups",
        "revision_gone",
        "storage_full",
        "time_limit",
        "unavailable",
        "unswappable_rows",
        "worker_died",
    }
)
"""Problem codes with a metric label of their own; any other code counts as `other`."""

_NO_CODE = "none"

_ENDS = (
    (State.SUCCEEDED, _NO_CODE),
    (State.CANCELLED, _NO_CODE),
    *((State.FAILED, code) for code in (*sorted(CODES), OTHER)),
)


class JobMetrics:
    """Counts starts, requeues and ends, and wakes the webhook deliverer. Called from any thread."""

    def __init__(self, metrics: Metrics, wake_deliverer: Callable[[], None]) -> None:
        self._metrics = metrics
        self._wake_deliverer = wake_deliverer
        self._event_loop = asyncio.get_running_loop()
        for service in (*PROVIDERS, MEASURES, FRONTIER, ATTACKS):
            for state, code in _ENDS:
                metrics.ended.labels(
                    service, state, code
                )  # exported as 0, so that an alert notices the first end

        for reason in REASONS:
            metrics.repeated.labels(reason)

    def count_end(self, job: Job, state: str, values: Mapping[str, Any]) -> None:
        """Count an end and wake the deliverer if the job has a webhook.

        Parameters
        ----------
        job
            The job's row before it ended.
        state
            Its state now.
        values
            Columns that the end has set, with ``finished_at`` and, if it failed, ``error``.
        """
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

    def count_start(self, job: Job) -> None:
        """Record the time that a claimed job has waited in the queue."""
        if job.started_at is not None:
            self._metrics.wait_seconds.labels(job.service).observe(_seconds(job.started_at - job.created_at))

    def count_requeue(self) -> None:
        """Count a job that was put back into the queue."""
        self._metrics.requeued.inc()

    def count_repeat(self, reason: str) -> None:
        """Count a task of a divided job that was started again."""
        self._metrics.repeated.labels(reason).inc()


def _seconds(span: Any) -> float:
    return max(0.0, float(span.total_seconds()))
