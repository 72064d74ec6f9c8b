"""Limits on one caller's active jobs and stored buffers, checked in the transaction that adds to them."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from app.errors import LimitReached, TooLarge
from app.settings import Settings
from app.store.sql import usage
from app.store.sql.db import Transaction
from app.store.sql.usage import ActiveUsage
from app.telemetry.metrics import Metrics

_JOBS_SECONDS = 5
"""Retry interval sent to callers at their job limit, where the time that a job ends is unknown."""


class Limits:
    """Rejects requests beyond a caller's limits."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._tasks: Counter[str] = Counter()
        """Plans and uploads of this replica that wait or run, by owner."""
        self._declared: Counter[str] = Counter()
        """Declared bytes of the uploads that this replica receives, by owner."""

    def admit_job(self, session: Transaction, owner: str, priority: str, rows: int, size: int) -> ActiveUsage:
        """Check that one more job with these rows and bytes fits. The caller holds the owner's lock.

        Return the usage without it. Raises LimitReached; TooLarge (the job would not fit even as the only
        one).
        """
        settings = self._settings
        active = usage.active(session, owner, priority)
        self._check("rows", rows, active.rows, settings.caller_rows, "the rows of jobs that have not ended")
        self._check(
            "bytes", size, active.bytes, settings.caller_bytes, "the bytes of jobs that have not ended"
        )
        self._check_jobs(active, self._tasks[owner])
        return active

    def admit_task(self, session: Transaction, owner: str) -> ActiveUsage:
        """Check that a plan or an upload, which `task_of` counts, fits. Raises LimitReached."""
        active = usage.active(session, owner, "normal")
        self._check_jobs(active, self._tasks[owner] - 1)
        return active

    @contextmanager
    def task_of(self, owner: str) -> Iterator[None]:
        """Count a plan or an upload as one of the owner's jobs while the block lasts."""
        self._tasks[owner] += 1
        try:
            yield
        finally:
            self._tasks[owner] -= 1
            if not self._tasks[owner]:
                del self._tasks[owner]

    def _check_jobs(self, active: ActiveUsage, tasks: int) -> None:
        most = self._settings.caller_jobs
        self._check("jobs", 1, active.jobs + tasks, most, "jobs, plans and uploads that have not ended")

    def admit_buffer(self, session: Transaction, owner: str, size: int, moment: datetime) -> None:
        """Check that a buffer of ``size`` bytes fits in addition to the stored ones.

        Raises LimitReached; TooLarge (the buffer would not fit even as the only one).
        """
        stored = usage.stored(session, owner, moment)
        seconds = _JOBS_SECONDS
        if stored.first_expiry is not None:
            seconds = max(1, math.ceil((stored.first_expiry - moment).total_seconds()))
        most = self._settings.caller_buffer_bytes
        self._check("buffer_bytes", size, stored.bytes, most, "the bytes of buffers that are kept", seconds)

    @contextmanager
    def upload_of(self, owner: str, size: int) -> Iterator[None]:
        """Count the declared bytes of an upload, for which disk space is reserved, while the block lasts.

        The quota of buffers holds for uploads that arrive at the same time. A single upload may declare more,
        because its table may be smaller. Raises LimitReached.
        """
        arriving = self._declared[owner]
        if arriving and size:
            what = "the declared bytes of uploads that arrive at the same time"
            self._check_sum("buffer_bytes", size, arriving, self._settings.caller_buffer_bytes, what)
        self._declared[owner] += size
        try:
            yield
        finally:
            self._declared[owner] -= size
            if not self._declared[owner]:
                del self._declared[owner]

    def _check(
        self, name: str, more: int, now: int, most: int, what: str, seconds: int = _JOBS_SECONDS
    ) -> None:
        """Raise if ``more``, alone or in addition to ``now``, exceeds ``most``."""
        if more > most:
            raise TooLarge(
                f"{what} are limited to {most} for each caller ({_setting(name)}); this request alone has "
                f"{more}"
            )
        self._check_sum(name, more, now, most, what, seconds)

    def _check_sum(
        self, name: str, more: int, now: int, most: int, what: str, seconds: int = _JOBS_SECONDS
    ) -> None:
        """Raise if ``more`` in addition to ``now`` exceeds ``most``; ``seconds`` is the retry interval."""
        if now + more > most:
            self._metrics.limited.labels(name).inc()
            raise LimitReached(
                f"{what} are limited to {most} for each caller ({_setting(name)}); there are {now}, and this "
                f"request adds {more}",
                name.replace("_", "-"),
                most,
                max(0, most - now),
                seconds,
            )


def _setting(name: str) -> str:
    return f"ROWVEIL_CALLER_{name.upper()}"
