"""Error responses of the service."""

from typing import Any

import httpx


class Problem(Exception):
    """Error response of the service: a problem document (RFC 9457)."""

    def __init__(self, document: dict[str, Any]) -> None:
        """``document``: the problem document; for the error page of a proxy, only its status."""
        super().__init__(document)
        self.status: int = document.get("status", 0)
        self.code: str = document.get("code", "")
        self.detail: str = document.get("detail", "")
        self.errors: list[dict[str, str]] = document.get("errors", [])
        """Errors with location: ``pointer`` and ``message``."""

    def __str__(self) -> str:
        return self.detail


def checked(answer: httpx.Response) -> httpx.Response:
    """Return the response. Raises Problem."""
    if not answer.is_error:
        return answer
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict) or "detail" not in document:  # of a proxy
        document = {"status": answer.status_code, "detail": f"{answer.status_code} {answer.reason_phrase}"}
    raise Problem(document)
