"""Request of a process that a server forks, and what the server sends of it.

Imports nothing but the standard library: `tests.preloaded.command` is started for each command.
"""

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

MOST_BYTES = 2**17
"""Most bytes of a request."""


def request_fork(requests: socket.socket, given: Mapping[str, Any], files: list[int]) -> tuple[int, int]:
    """Request a process; return its id, and the descriptor from which its exit code will be read."""
    readable, writable = os.pipe()
    try:
        socket.send_fds(requests, [json.dumps(given).encode()], [writable, *files])
    finally:
        os.close(writable)
    return received(readable), readable


def connected(path: str) -> socket.socket:
    """Connect to a server, and wait until it serves requests. Raises OSError, RuntimeError."""
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    requests.connect(path)
    received(requests.fileno())
    return requests


def number_bytes(number: int) -> bytes:
    """Return what a server sends of a number: see `received`."""
    return number.to_bytes(8, "little", signed=True)


def received(status: int) -> int:
    """Return the next number that the server sends. Raises RuntimeError if the server has ended."""
    number = os.read(status, 8)
    if not number:
        raise RuntimeError("the server of preloaded processes has ended")
    return int.from_bytes(number, "little", signed=True)
