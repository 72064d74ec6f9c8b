"""The identifier of the request that is being worked on, wherever in its work one is."""

import re
import uuid
from contextvars import ContextVar

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")

_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id_of(given: str | None) -> str:
    """The caller's own where it is one that may stand in a log line, else a new one."""
    return given if given is not None and _ACCEPTABLE.fullmatch(given) else uuid.uuid4().hex
