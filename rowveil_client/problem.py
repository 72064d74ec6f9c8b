"""Error responses of the service."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx


class Problem(Exception):
    """Error response of the service: a problem document (RFC 9457)."""

    def __init__(self, document: dict[str, Any], retry_after: float | None = None) -> None:
        """``document``: the problem document; for the error page of a proxy, only its status."""
        super().__init__(document)
        self.status: int = document.get("status", 0)
        self.code: str = document.get("code", "")
        self.detail: str = document.get("detail", "")
        self.errors: list[dict[str, str]] = document.get("errors", [])
        """Errors with location: ``pointer`` and ``message``."""
        self.retry_after = retry_after
        """Seconds after which the service asks to repeat the request; None if it does not."""

    def __str__(self) -> str:
        return self.detail


def checked(answer: httpx.Response) -> httpx.Response:
    """Return the response. Raises Problem."""
    if answer.has_redirect_location:
        target = answer.headers["location"]
        raise _stranger(answer, f"it redirects to {target}; give the client the address of the service there")
    if not answer.is_error:
        return answer
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict) or "detail" not in document:  # of a proxy
        document = {"status": answer.status_code, "detail": f"{answer.status_code} {answer.reason_phrase}"}
    raise Problem(document, _seconds(answer.headers.get("retry-after", "")))


def content_of(answer: httpx.Response) -> Any:
    """Return the JSON of a response. Raises Problem; httpx.RemoteProtocolError: a proxy has cut it."""
    try:
        return checked(answer).json()
    except ValueError as error:
        media_type = answer.headers.get("content-type", "nothing")
        if media_type.startswith("application/json"):
            raise httpx.RemoteProtocolError("the answer was cut: its JSON has no end") from error
        raise _stranger(answer, f"it sent {media_type} in place of JSON") from error


def _stranger(answer: httpx.Response, what: str) -> Problem:
    """Return the problem of an address at which something else answers, such as a proxy's page to sign in."""
    address = f"{answer.url.scheme}://{answer.url.netloc.decode()}"
    return Problem(
        {"status": answer.status_code, "detail": f"no Rowveil service answers at {address}: {what}"}
    )


def _seconds(retry_after: str) -> float | None:
    """Return the seconds of a `Retry-After`, a number or a date (RFC 9110); None if it is neither."""
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)
