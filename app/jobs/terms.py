"""What a call says of a job besides what it is: whose, how urgent, until when, and who is told."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args

Priority = Literal["low", "normal", "high"]
PRIORITIES: tuple[Priority, ...] = get_args(Priority)


@dataclass(frozen=True, slots=True)
class Webhook:
    """Whom to tell of a job's end."""

    url: str = field(repr=False)
    secret: str = field(repr=False)
    """``whsec_`` and base64, of the caller's making: messages are signed with it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms something is asked for."""

    idempotency_key: str | None = None
    request_fingerprint: str | None = None
    """Equal for equal requests. Kept as a keyed hash: the request holds a seed and rows."""
    priority: Priority = "normal"
    deadline_seconds: float | None = None
    """From its acceptance on."""
    webhook: Webhook | None = None
    trace_parent: str | None = None
    """The span of the request, where traces are taken."""


PLAIN = Terms()
"""Nobody's in particular, and no hurry."""


def head_start(priority: Priority, seconds: float) -> timedelta:
    """How much earlier than it came a job counts as having come.

    A step of priority is worth a fixed time of waiting, so nothing starves: whatever comes later than
    that ranks behind.
    """
    return timedelta(seconds=seconds) * (PRIORITIES.index(priority) - PRIORITIES.index("normal"))
