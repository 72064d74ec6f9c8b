"""Number of requests of each caller that are being answered, in the memory of this process.

A wait and an event stream last as long as their job. Without this limit the streams of one caller could take
all connections, and all other callers would get 503.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

from app.errors import LimitReached
from app.settings import Settings
from app.telemetry.metrics import Metrics

POLICY = "open-requests"
"""Name of the limit in the response headers."""

_RETRY_SECONDS = 1


class OpenRequests:
    """Counts the requests of all callers between their admission and the end of their responses."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._most = settings.caller_open_requests
        self._metrics = metrics
        self._open: Counter[str] = Counter()

    def enter(self, owner: str) -> Callable[[], None]:
        """Count a request, and return the function that is to be called at its end. Raises LimitReached."""
        if self._open[owner] >= self._most:
            self._metrics.limited.labels(POLICY).inc()
            raise LimitReached(
                f"at most {self._most} requests of a caller are answered at the same time "
                "(ROWVEIL_CALLER_OPEN_REQUESTS); close unneeded event streams and waits",
                POLICY,
                quota=self._most,
                seconds=_RETRY_SECONDS,
                closes=True,
            )
        self._open[owner] += 1
        return partial(self._leave, owner)

    def _leave(self, owner: str) -> None:
        self._open[owner] -= 1
        if not self._open[owner]:
            del self._open[owner]
