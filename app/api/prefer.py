"""Request headers of the calls that make a job: Prefer (RFC 7240) and Idempotency-Key."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Header
from pydantic import WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from app.settings import Settings

PreferHeaders = Annotated[
    list[str] | SkipJsonSchema[None],
    Header(
        alias="Prefer",
        description="`wait=N` waits up to N seconds for the job's end; `respond-async` answers at once.",
    ),
    # Several headers are one whose values are joined by commas (RFC 9110, 5.3); generators send that one.
    WithJsonSchema({"type": "string"}),
]
IdempotencyKey = Annotated[
    str | SkipJsonSchema[None],
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description=(
            "The same key with the same request gives the same job or buffer, however often it is sent; "
            "with another request it is refused by 422. A key stands for a day "
            "(`ROWVEIL_IDEMPOTENCY_TTL`), until the moment that `Idempotency-Key-Expires` in the answer "
            "says; then it may be used anew."
        ),
    ),
]


@dataclass(frozen=True, slots=True)
class Preference:
    """How many seconds to wait for the end of a job, and what to say was applied."""

    wait_seconds: float
    applied: str


def parse_prefer(headers: list[str], default_wait: float, longest_wait: float) -> Preference:
    """What `Prefer` headers ask for.

    ``respond-async`` alone answers at once; ``wait=N`` waits up to N seconds, at most
    `longest_wait`; both together wait up to N, as RFC 7240 section 4.3 describes. The first of
    several equal preferences counts, and what cannot be read is ignored (section 2).
    """
    asked: dict[str, str] = {}
    for header in headers:
        for part in header.split(","):
            name, _, value = part.split(";")[0].partition("=")
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
    """What a call's `Prefer` headers ask for, by the waits that the service allows."""
    return parse_prefer(headers or [], settings.default_wait_seconds, settings.max_wait_seconds)
