"""HTTP client that costs almost nothing: prepared bytes over kept connections, bodies not parsed.

A call is timed from the first byte sent to the last byte of the response.
"""

import contextlib
import itertools
import selectors
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_PIECE = 1 << 18


class Refused(RuntimeError):
    """A response other than 200."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one measurement."""

    seconds: list[float] = field(repr=False)
    """Duration of each call."""
    elapsed: float

    @property
    def rate(self) -> float:
        """Calls per second."""
        return len(self.seconds) / self.elapsed

    def percentile(self, percent: int) -> float:
        """Return a percentile of the durations."""
        if len(self.seconds) == 1:
            return self.seconds[0]
        return statistics.quantiles(self.seconds, n=100, method="inclusive")[percent - 1]


def request_bytes(method: str, address: str, path: str, key: str = "", body: bytes = b"") -> bytes:
    """Return the bytes of a request with a JSON body."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {urlsplit(address).netloc}", f"content-length: {len(body)}"]
    if body:
        lines.append("content-type: application/json")
    if key:
        lines.append(f"authorization: Bearer {key}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class _Connection:
    """One connection, with the response that it is reading."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.started = 0.0
        self._missing = -1
        self._tail = b""
        self._head = b""
        self.body = b""
        """Body of a response that has a length; read only if ``keep`` is true."""
        self.keep = False

    def send(self, request: bytes) -> None:
        """Send a request; the server reads it while this blocks."""
        self.started = time.perf_counter()
        self._missing, self._head, self._tail, self.body = -1, b"", b"", b""
        self.socket.sendall(request)

    def read(self) -> bool:
        """Read what has arrived; return whether the response is complete. Raises Refused."""
        data = self.socket.recv(_PIECE)
        if not data:
            raise Refused("the connection was closed")
        if self._missing == -1:
            self._head += data
            head, separator, data = self._head.partition(b"\r\n\r\n")
            if not separator:
                return False
            lines = head.lower().split(b"\r\n")
            if b" 200" not in lines[0]:
                raise Refused(f"{lines[0].decode()}: {data[:300].decode(errors='replace')}")
            self._missing = -2
            for line in lines[1:]:
                if line.startswith(b"content-length:"):
                    self._missing = int(line.partition(b":")[2])
        if self.keep:
            self.body += data
        if self._missing >= 0:
            self._missing -= len(data)
            return self._missing == 0
        self._tail = (self._tail + data)[-5:]
        return self._tail == b"0\r\n\r\n"  # the last chunk of a chunked body


def run_calls(
    address: str,
    request: bytes | Sequence[bytes],
    connections: int,
    seconds: float,
    take: Callable[[bytes], None] | None = None,
) -> Calls:
    """Repeat a request, or several in turn, on several connections at once for some seconds. Raises Refused.

    ``take`` gets the body of each response that has a length.
    """
    parts = urlsplit(address)
    assert parts.hostname is not None  # noqa: S101 - an address of a running server
    assert parts.port is not None  # noqa: S101 - the same
    requests = itertools.cycle([request] if isinstance(request, bytes) else request)
    taken: list[float] = []
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as opened:
        started = time.perf_counter()
        for _ in range(connections):
            connection = _Connection(parts.hostname, parts.port)
            connection.keep = take is not None
            opened.enter_context(connection.socket)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send(next(requests))
        busy = connections
        while busy:
            for key, _ in selector.select():
                connection = key.data
                if connection.read():
                    now = time.perf_counter()
                    taken.append(now - connection.started)
                    if take is not None:
                        take(connection.body)
                    if now - started < seconds:
                        connection.send(next(requests))
                    else:
                        busy -= 1
        return Calls(taken, time.perf_counter() - started)
