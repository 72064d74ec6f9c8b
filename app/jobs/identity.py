"""Identifiers in the order of their making."""

import secrets
import time
import uuid

_VERSION = 7 << 76
_VARIANT = 2 << 62


def new_id() -> str:
    """A UUID version 7 (RFC 9562, 5.7): milliseconds, their fraction in 12 bits (6.2, method 3), chance."""
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    fraction = nanoseconds * 4096 // 1_000_000
    moment = (milliseconds & (2**48 - 1)) << 80
    return str(uuid.UUID(int=moment | _VERSION | fraction << 64 | _VARIANT | secrets.randbits(62)))
