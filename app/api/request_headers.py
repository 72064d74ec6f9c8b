"""Request headers `If-None-Match` (RFC 9110), `Prefer` (RFC 7240) and `Idempotency-Key`."""

import re
from dataclasses import dataclass
from typing import Annotated

from fastapi import Header
from pydantic import Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from app.settings import Settings

_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')


def combined(lines: list[str] | None) -> str | None:
    """Join the lines of a header field that is a list (RFC 9110, section 5.3); None: there is no line."""
    return ", ".join(lines) if lines else None


def none_match(if_none_match: str | None, tag: str) -> bool:
    """Return whether no entity tag of the header equals ``tag``, which is the condition to send content.

    Tags are compared weakly (RFC 9110, section 13.1.2). A header that is not a list of tags matches nothing.
    """
    if if_none_match is None:
        return True
    if if_none_match.strip() == "*":
        return False
    return tag.removeprefix("W/") not in _TAG.findall(if_none_match)


def is_match(if_match: str | None, tag: str) -> bool:
    """Return whether the header is absent or holds the strong entity tag (RFC 9110, section 13.1.1)."""
    if if_match is None or if_match.strip() == "*":
        return True
    return any(found[0] == tag for found in _TAG.finditer(if_match))


PreferHeaders = Annotated[
    list[str] | SkipJsonSchema[None],
    Header(
        alias="Prefer",
        description=(
            "`wait=N`: wait up to N seconds for the end of the job; `respond-async`: respond immediately."
        ),
    ),
    # Several headers are one whose values are joined by commas (RFC 9110, 5.3); generators send that one.
    WithJsonSchema({"type": "string"}),
]


@dataclass(frozen=True, slots=True)
class Preference:
    """Seconds to wait for the end of a job, and the value of the response header `Preference-Applied`."""

    wait_seconds: float
    applied: str


def _elements(text: str, separator: str) -> list[str]:
    """Split a header at separators outside of quoted strings; some elements may be empty.

    A quoted string that is not closed ends with the header.
    """
    return re.findall(rf'(?:[^"{separator}]|"(?:[^"\\]|\\.?)*"?)*', text)


def parse_prefer(headers: list[str], default_wait: float, longest_wait: float) -> Preference:
    """Parse `Prefer` headers.

    ``respond-async`` alone responds immediately; ``wait=N`` waits up to N seconds, at most
    `longest_wait`; both together wait up to N (RFC 7240, section 4.3). The first of several
    equal preferences counts, and unreadable preferences are ignored (section 2).
    """
    asked: dict[str, str] = {}
    for header in headers:
        for part in _elements(header, ","):
            name, _, value = _elements(part, ";")[0].partition("=")
            asked.setdefault(name.strip().lower(), value.strip().strip('"'))
    wait = asked.get("wait", "")
    if wait.isascii() and wait.isdigit() and len(wait) < 10:
        seconds = min(int(wait), longest_wait)
        applied = f"wait={seconds:g}"
        if "respond-async" in asked:
            applied = f"respond-async, {applied}"
        return Preference(seconds, applied)
    if "respond-async" in asked:
        return Preference(0, "respond-async")
    return Preference(default_wait, "")


def preference_of(headers: list[str] | None, settings: Settings) -> Preference:
    """Parse the `Prefer` headers of a request with the waiting times of the settings."""
    return parse_prefer(headers or [], settings.default_wait_seconds, settings.max_wait_seconds)


_LONGEST_KEY = 255
"""Characters of an idempotency key."""


def are_usual_keys(lines: list[str]) -> bool:
    """Return whether the header `Idempotency-Key` is absent, or is one line of a length that is allowed."""
    return not lines or (len(lines) == 1 and 1 <= len(lines[0]) <= _LONGEST_KEY)


IdempotencyKey = Annotated[
    Annotated[str, Field(min_length=1, max_length=_LONGEST_KEY)] | SkipJsonSchema[None],
    Header(
        alias="Idempotency-Key",
        description=(
            "Repeating a request with the same key returns the same job or buffer. The same key with a "
            "different request is rejected with 422. Keys expire after a day (`ROWVEIL_IDEMPOTENCY_TTL`); "
            "the response header `Idempotency-Key-Expires` gives the exact time. An expired key may be "
            "reused."
        ),
    ),
]
