"""Context variable with the id of the current request."""

import re
import uuid
from contextvars import ContextVar

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")

_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id_of(given: str | None) -> str:
    """Return the caller's request id if it is safe to log, else a new one."""
    return given if given is not None and _ACCEPTABLE.fullmatch(given) else uuid.uuid4().hex
