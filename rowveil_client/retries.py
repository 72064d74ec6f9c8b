"""Repetition of requests: which errors are temporary, how long to wait, and when to give up.

A request is repeated if the connection fails or is closed before the whole answer has arrived, and if the
service or a proxy answers that it is unavailable or that the caller has to wait. A `POST` has an
`Idempotency-Key`, the same in each attempt, so that its repetition creates no second job or buffer.

As long as nothing has answered a client, its address may be wrong: an unknown host is an error at once, and a
connection that fails is repeated for a shorter time.
"""

import asyncio
import itertools
import random
import socket
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import httpx

from rowveil_client.problem import Problem

R = TypeVar("R")

TEMPORARY = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.TimeoutException, Problem)
"""Errors that may be temporary; of a `Problem`, its status decides."""

_STATUSES = (429, 502, 503, 504)
_CODES = ("", "limit_reached", "unavailable")
"""Codes of temporary problems. A proxy gives no code; other codes belong to a failed job."""

_PAUSES = (0.1, 0.5, 2.0)
"""Seconds between attempts; the last one repeats."""


_CONNECT_TIMEOUT = 10.0
"""Seconds after which an address that does not respond to a connection counts as away."""

_UNKNOWN_HOST = {
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_FAIL") if hasattr(socket, name)
}
"""Errors of a name look-up that repetitions meet again; not `EAI_AGAIN`, which means that a name server is
away."""


class Patience:
    """Times for which one client repeats its requests; ``reached``: whether anything has answered it yet."""

    def __init__(self, retry_seconds: float, connect_seconds: float) -> None:
        self._retry_seconds = retry_seconds
        self._connect_seconds = min(retry_seconds, connect_seconds)
        self.reached = False

    def seconds_after(self, error: Exception) -> float:
        """Return the seconds from its first attempt for which a request with this error is repeated."""
        if self.reached or not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            self.reached = True
            return self._retry_seconds
        return 0.0 if _is_unknown_host(error) else self._connect_seconds


ONCE = Patience(0.0, 0.0)
"""No repetition."""


class Retries:
    """Pauses between the attempts of one request, for a limited time."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._start = time.monotonic()
        self._pauses = pauses()

    def pause_after(self, error: Exception) -> float:
        """Return the seconds before the next attempt. Raises the error if there is none."""
        pause = max(next(self._pauses), requested_pause(error))
        left = self._start + self._patience.seconds_after(error) - time.monotonic()
        if is_final(error) or pause > left:
            raise error
        return min(spread(pause), left)


def limits(timeout: float) -> httpx.Timeout:
    """Return the seconds of silence that each step of a request may take, given those of an answer."""
    return httpx.Timeout(timeout, connect=min(timeout, _CONNECT_TIMEOUT))


def pauses() -> Iterator[float]:
    """Yield the seconds between attempts, for ever; each client adds a random part (`spread`)."""
    yield from _PAUSES
    yield from itertools.repeat(_PAUSES[-1])


def spread(seconds: float) -> float:
    """Return the seconds of a pause, and up to a quarter more.

    Without the random part, clients that a restart has cut off at the same moment would all repeat at once,
    and so would clients that got the same `Retry-After`.
    """
    return seconds * random.uniform(1.0, 1.25)  # noqa: S311 - no secret


def requested_pause(error: Exception) -> float:
    """Return the seconds that the answer asks to wait (`Retry-After`); 0 if it does not."""
    return (error.retry_after or 0.0) if isinstance(error, Problem) else 0.0


def is_final(error: Exception) -> bool:
    """Return whether a repetition would meet the error again."""
    if isinstance(error, Problem):
        return error.status not in _STATUSES or error.code not in _CODES
    certificates = (cause for cause in _causes(error) if isinstance(cause, ssl.SSLCertVerificationError))
    return not isinstance(error, TEMPORARY) or any(certificates)


def _is_unknown_host(error: BaseException) -> bool:
    look_ups = (cause for cause in _causes(error) if isinstance(cause, socket.gaierror))
    return any(cause.errno in _UNKNOWN_HOST for cause in look_ups)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes; httpx keeps the system's errors as causes or contexts."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def idempotency_key(method: str) -> dict[str, str]:
    """Return the headers that let a request be repeated: a new key for `POST`; other methods need none."""
    return {"idempotency-key": str(uuid.uuid4())} if method == "POST" else {}


def repeated(attempt: Callable[[], R], patience: Patience) -> R:
    """Return the result of the first attempt that succeeds. Raises the error of the last one."""
    retries = Retries(patience)
    while True:
        try:
            result = attempt()
        except TEMPORARY as error:
            pause = retries.pause_after(error)
        else:
            patience.reached = True
            return result
        time.sleep(pause)


async def repeated_async(attempt: Callable[[], Awaitable[R]], patience: Patience) -> R:
    """Return the result of the first attempt that succeeds. Raises the error of the last one."""
    retries = Retries(patience)
    while True:
        try:
            result = await attempt()
        except TEMPORARY as error:
            pause = retries.pause_after(error)
        else:
            patience.reached = True
            return result
        await asyncio.sleep(pause)
