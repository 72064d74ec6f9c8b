"""Rate of requests of each caller: token buckets in the memory of this process.

A bucket holds up to ``burst`` tokens and gains ``rate`` tokens a second; a request takes one. It is stored as
the time at which it is full again, as in the generic cell rate algorithm (ITU-T I.371, annex A).
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from app.errors import LimitReached
from app.settings import Settings
from app.telemetry.metrics import Metrics

POLICY = "requests"
"""Name of the limit in the response headers."""

_MOST_BUCKETS = 10_000
"""Number of buckets above which the full ones are dropped."""

_ROUNDING = 1e-6
"""Rounding errors of the clock's seconds, in tokens and in seconds, are smaller."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Requests that a caller has left."""

    quota: int
    """Tokens of a full bucket."""
    left: int
    """Tokens now."""
    seconds: int
    """Seconds until the bucket is full."""
    window: int
    """Seconds in which an empty bucket fills."""

    def headers(self) -> dict[str, str]:
        """Return the headers of draft-ietf-httpapi-ratelimit-headers-10."""
        return {
            "RateLimit-Policy": f'"{POLICY}";q={self.quota};w={self.window}',
            "RateLimit": f'"{POLICY}";r={self.left};t={self.seconds}',
        }


class Rates:
    """Token buckets of all callers."""

    def __init__(
        self, settings: Settings, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = settings.caller_request_rate
        self._burst = settings.caller_request_burst
        self._metrics = metrics
        self._clock = clock
        self._full_at: dict[str, float] = {}

    def take(self, owner: str) -> Allowance | None:
        """Take a token of the owner's bucket; None: requests are not limited. Raises LimitReached."""
        if self._rate == 0:
            return None
        now = self._clock()
        if len(self._full_at) > _MOST_BUCKETS:
            self._full_at = {name: full for name, full in self._full_at.items() if full > now}
        full_at = max(now, self._full_at.get(owner, now)) + 1 / self._rate
        left = math.floor(self._burst - (full_at - now) * self._rate + _ROUNDING)
        if left < 0:
            self._metrics.limited.labels(POLICY).inc()
            seconds = max(1, _whole_seconds(full_at - now - self._burst / self._rate))
            raise LimitReached(
                f"a caller sends at most {self._burst} requests at once and {self._rate:g} a second after "
                "that (ROWVEIL_CALLER_REQUEST_RATE); wait, or poll less often with 'Prefer: wait'",
                POLICY,
                self._burst,
                0,
                seconds,
                self._window,
            )
        self._full_at[owner] = full_at
        return Allowance(self._burst, left, _whole_seconds(full_at - now), self._window)

    @property
    def _window(self) -> int:
        return _whole_seconds(self._burst / self._rate)


def _whole_seconds(seconds: float) -> int:
    """Round up. ``(now + 1000.0) - now`` may exceed 1000 by a rounding error, which must not add a second."""
    return math.ceil(seconds - _ROUNDING)
