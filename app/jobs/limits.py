"""What one caller may have going and keep at a time, checked in the transaction that accepts more."""

import math
from datetime import datetime

from app.errors import LimitReached, TooLarge
from app.settings import Settings
from app.store import callers
from app.store.db import Session
from app.telemetry.metrics import Metrics

_JOBS_SECONDS = 5
"""When to try again where it depends on the end of jobs, which nobody knows."""


class Limits:
    """Refuses what would be too much."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics

    def admit_job(self, session: Session, owner: str, rows: int, size: int) -> None:
        """Return if one more job fits. The owner's row is locked by now.

        Raises LimitReached; TooLarge (it would not fit even if it were the only one).
        """
        most = self._settings
        going = callers.going(session, owner)
        self._fits("rows", rows, going.rows, most.caller_rows, "the rows of jobs that have not ended")
        self._fits("bytes", size, going.bytes, most.caller_bytes, "the bytes of jobs that have not ended")
        self._fits("jobs", 1, going.jobs, most.caller_jobs, "jobs that have not ended")

    def admit_buffer(self, session: Session, owner: str, size: int, moment: datetime) -> None:
        """Return if a buffer of so many bytes fits beside those that are kept.

        Raises LimitReached; TooLarge (it would not fit even if it were the only one).
        """
        kept = callers.kept(session, owner, moment)
        seconds = _JOBS_SECONDS
        if kept.first_expiry is not None:
            seconds = max(1, math.ceil((kept.first_expiry - moment).total_seconds()))
        most = self._settings.caller_buffer_bytes
        self._fits("buffer_bytes", size, kept.bytes, most, "the bytes of buffers that are kept", seconds)

    def _fits(
        self, name: str, more: int, now: int, most: int, what: str, seconds: int = _JOBS_SECONDS
    ) -> None:
        setting = f"ROWVEIL_CALLER_{name.upper()}"
        if more > most:
            raise TooLarge(
                f"one caller may have {most} at a time of {what} ({setting}); this alone is {more}"
            )
        if now + more > most:
            self._metrics.limited.labels(name).inc()
            raise LimitReached(
                f"one caller may have {most} at a time of {what} ({setting}); there are {now}, and this "
                f"would be {more} more",
                name.replace("_", "-"),
                most,
                max(0, most - now),
                seconds,
            )
