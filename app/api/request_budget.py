"""Budget of memory for the requests in flight.

A request counts with the memory that its body may take, as its bytes arrive, until its response is complete.
A request that does not fit is refused, before its body is read if it declares its length. No caller takes all
of the budget: bodies whose last bytes arrive slowly would keep all others out.
"""

from collections import Counter

from app.errors import LimitReached, Unavailable
from app.settings import Settings
from app.telemetry.metrics import Metrics

LARGE_BODY = 1 << 20
"""Bytes of the largest JSON body that is parsed in the event loop; not if `json_text.is_dense`."""

_PARSED = 30
"""Bytes of memory for each byte of a body that is parsed here: an empty object of 3 characters takes 88."""

_UNPARSED = 5
"""Bytes of memory for each further byte: the body on its way to another process, and its table."""

UPLOAD_BYTES = 4 << 20
"""Bytes of memory that an upload takes at most, whatever its size."""


POLICY = "request-memory"
"""Name of the limit on one caller in the response headers."""

_RETRY_SECONDS = 5


def memory_of(size: int) -> int:
    """Return the bytes of memory that a request with a JSON body of ``size`` bytes may take."""
    return _PARSED * min(size, LARGE_BODY) + _UNPARSED * max(0, size - LARGE_BODY)


class RequestBudget:
    """Bytes of memory that requests in flight may take together."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """One body of the maximum size fits in any case."""
        largest = memory_of(settings.max_body_bytes)
        self.limit = max(settings.request_memory_bytes, largest)
        self.caller_limit = max(self.limit * 3 // 4, largest)
        """Bytes that the requests of one caller may take together."""
        self.taken = 0
        self._taken_by: Counter[str] = Counter()
        self._refused = metrics.requests_refused
        self._limited = metrics.limited.labels(POLICY)
        metrics.follow(metrics.request_memory, lambda: self.taken)
        metrics.request_memory_limit.set(self.limit)

    def check(self, more: int, owner: str) -> None:
        """Raise Unavailable or LimitReached if ``more`` bytes of a request of the owner do not fit now."""
        if self._taken_by[owner] + more > self.caller_limit:
            self._limited.inc()
            raise LimitReached(
                "your requests already use the three quarters of ROWVEIL_REQUEST_MEMORY_BYTES that one "
                "caller may use; try again in a few seconds",
                POLICY,
                self.caller_limit,
                max(0, self.caller_limit - self._taken_by[owner]),
                _RETRY_SECONDS,
            )
        if self.taken + more > self.limit:
            self._refused.inc()
            raise Unavailable(
                "the requests that are being answered use all memory that is allowed "
                "(ROWVEIL_REQUEST_MEMORY_BYTES); try again in a few seconds"
            )

    def take(self, more: int, owner: str) -> None:
        """Add bytes of a request of the owner; a negative number returns them."""
        self.taken += more
        self._taken_by[owner] += more
        if not self._taken_by[owner]:
            del self._taken_by[owner]


class Claim:
    """Share of one request in the budget."""

    def __init__(self, budget: RequestBudget, owner: str) -> None:
        self._budget = budget
        self._owner = owner
        self._taken = 0

    def raise_to(self, total: int) -> None:
        """Take ``total`` bytes in all. Raises Unavailable, LimitReached."""
        more = total - self._taken
        if more > 0:
            self._budget.check(more, self._owner)
            self._budget.take(more, self._owner)
            self._taken = total

    def release(self) -> None:
        """Return all bytes to the budget."""
        self._budget.take(-self._taken, self._owner)
        self._taken = 0
