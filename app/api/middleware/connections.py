"""Connection limits: slow request heads, early responses, slow readers, idle time, number of connections.

uvicorn itself closes a connection that is idle after a response (`timeout_keep_alive`). It has no limit for
the other cases, so its protocol is extended here:

- A request head must arrive completely within the patience.
- A request that is not HTTP/1.1 is answered with a problem document.
- A response sent before the end of the request body (401, 413, 415, ...) has ``Connection: close``. Further
  input is dropped for a short time, so that the client can read the response; then the connection is closed.
  Closing immediately would reset the connection, and the response might be lost (RFC 9112, section 9.6).
- While the service stops, each response has ``Connection: close``: uvicorn closes the connection after it,
  and the client's next request on it would be reset.
- A client must read the response: without progress for the patience, or below the least rate, the
  connection is reset, and the table that is being read for it is closed. Progress is what the client's
  system acknowledges.
- Beyond the connection limit requests are rejected with 503, and from 32 more on connections are reset.
  uvicorn's `limit_concurrency` would reject health checks too, and keep all connections open.
"""

import asyncio
import contextlib
import fcntl
import logging
import socket
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.api.middleware.security_headers import ALWAYS
from app.api.problems import problem_response
from app.errors import BadRequest, Unavailable
from app.settings import Settings

_RESERVE = 32  # connections beyond the limit that are still accepted, to be rejected with 503

_SURPLUS_PATIENCE = 2.0  # seconds that such a connection has for its request head

_LOOKS = 10  # checks of a slow reader within the patience

_SURPLUS = "rowveil.surplus"

_NOT_HTTP = (
    "the request is not HTTP/1.1: it needs one Host, header fields of at most 64 KiB in all, and a body of "
    "one Content-Length or in chunks ('Transfer-Encoding: chunked' alone)"
)

_BOTH_LENGTHS = {b"content-length", b"transfer-encoding"}

_PROBES = ("/livez", "/readyz", "/metrics")

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, zero seconds

_log = logging.getLogger("rowveil.http")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of each connection, and of their number."""

    head_patience: float
    """Seconds within which a request head must arrive."""
    linger_seconds: float
    """Seconds for which a client that got an early response may continue sending."""
    read_patience: float
    """Seconds for which a client may read nothing of a response."""
    least_read_rate: int
    """Bytes per second that a client must read on average, after that patience; 0: no limit."""
    most: int
    """Maximum number of connections."""

    @classmethod
    def of(cls, settings: Settings) -> "ConnectionLimits":
        """Return the limits of the settings."""
        return cls(
            head_patience=settings.request_patience,
            linger_seconds=settings.linger_seconds,
            read_patience=settings.response_patience,
            least_read_rate=settings.least_response_rate,
            most=settings.max_connections,
        )


class SurplusConnections:
    """Middleware that rejects requests on a connection beyond the limit with 503, except health checks."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        if scope.get(_SURPLUS) and scope["path"] not in _PROBES:
            error = Unavailable(
                "the service has reached its limit of connections; try again in a few seconds"
            )
            headers = {**error.headers(), "Connection": "close"}
            await problem_response(error.problem(), scope["path"], headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class _Transport:
    """Transport of a connection that counts written bytes, and leaves closing to the protocol."""

    def __init__(self, transport: asyncio.Transport, protocol: "_LimitedProtocol") -> None:
        self.inner = transport
        self.written = 0
        """Bytes written."""
        self.lingering = False
        """Whether the response is complete, so that further input is dropped."""
        self._protocol = protocol
        self._head: list[bytes] | None = None

    def hold_head(self) -> None:
        """Hold back what is written until `send_head`, so that one packet has head and first content."""
        self._head = []

    def send_head(self) -> None:
        """Send what was held back."""
        if self._head is not None:
            head, self._head = self._head, None
            self.write(b"".join(head))

    def write(self, data: bytes) -> None:
        """Send the data, unless the response is complete."""
        if self._head is not None:
            self._head.append(data)
        elif data and not self.lingering:
            self.written += len(data)
            self.inner.write(data)

    def close(self) -> None:
        """Close so that the client can still read the response."""
        self._protocol.end_connection()

    def is_closing(self) -> bool:
        """Return whether the connection is closing."""
        return self.lingering or self.inner.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _LimitedProtocol(H11Protocol):
    """uvicorn's protocol with connection limits."""

    limits: ConnectionLimits
    on_closed: Callable[[], None]
    is_stopping: Callable[[], bool]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._inner_app = self.app
        self.app = self._answer
        self._surplus = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._watched_from = self._moved_at = 0.0
        self._taken_first = self._taken = 0

    # ------------------------------------------------------------------------ callbacks of asyncio

    def connection_made(self, transport: Any) -> None:
        wrapped: Any = _Transport(transport, self)
        super().connection_made(wrapped)
        patience = self.limits.head_patience
        if len(self.connections) > self.limits.most:
            self._surplus = True
            patience = min(patience, _SURPLUS_PATIENCE)
            if len(self.connections) > self.limits.most + _RESERVE:
                self._reset()
                return
        self._head_timer = self.loop.call_later(patience, self._end_idle)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()
        elif self._head_timer is None:  # the start of the next request
            self._head_timer = self.loop.call_later(self.limits.head_patience, self._end_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        for timer in (self._linger_timer, self._reader_timer):
            if timer is not None:
                timer.cancel()
        self._linger_timer = self._reader_timer = None
        super().connection_lost(exc)
        self.on_closed()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    # ------------------------------------------------------------------------------------- requests

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; a response before the end of the body, or in a stop, closes the connection."""
        if {name for name, _ in scope["headers"]} >= _BOTH_LENGTHS:
            # h11 reads the chunks. A proxy that reads the other length would take a part of the body for the
            # next request (RFC 9112, sections 6.1 and 11.2).
            self.send_400_response("")
            return
        if self._surplus:
            self._surplus = len(self.connections) > self.limits.most
            scope[_SURPLUS] = self._surplus
        if scope["raw_path"].lower().startswith((b"http://", b"https://")):
            _read_absolute_form(scope)

        async def send_and_close(message: Message) -> None:
            is_last = self.conn.their_state is h11.SEND_BODY or self.is_stopping()
            if message["type"] == "http.response.start" and is_last:
                headers = list(message.get("headers", ()))
                if all(name.lower() != CLOSE_HEADER[0] for name, _ in headers):
                    message = {**message, "headers": [*headers, CLOSE_HEADER]}
            transport = self._transport
            if message["type"] != "http.response.start":
                await send(message)
                transport.send_head()
                return
            transport.hold_head()
            await send(message)

        application: Any = self._inner_app
        await application(scope, receive, send_and_close)

    def send_400_response(self, msg: str) -> None:
        """Respond to a request that h11 cannot read with a problem document, and close the connection.

        h11's own message may quote the request. Once the response has begun, the connection is only closed.
        """
        state = self.conn.our_state
        if self.cycle is not None:  # the application, which may be reading the body, stops
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if state in (h11.IDLE, h11.SEND_RESPONSE):
            head_is_read = state is h11.SEND_RESPONSE  # else the scope is that of the last request
            path = self.scope["path"] if head_is_read else None
            response = problem_response(BadRequest(_NOT_HTTP).problem(), path)
            without_content = head_is_read and self.scope["method"] == "HEAD"
            body = b"" if without_content else bytes(response.body)
            headers = [*response.raw_headers, *ALWAYS, CLOSE_HEADER]
            head = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    # -------------------------------------------------------------------------------------- closing

    def end_connection(self) -> None:
        """Close the connection; in the middle of a request first drop input for a short time."""
        transport = self._transport
        transport.send_head()
        if transport.inner.is_closing():
            return
        in_the_middle = self.conn.their_state in (h11.SEND_BODY, h11.ERROR)
        if in_the_middle and not transport.lingering and self.limits.linger_seconds > 0:
            transport.lingering = True
            self.flow.resume_reading()
            with contextlib.suppress(OSError):  # the client has disconnected already
                transport.inner.write_eof()
            self._linger_timer = self.loop.call_later(self.limits.linger_seconds, self.end_connection)
            return
        transport.inner.close()
        if transport.inner.get_write_buffer_size():
            self._watch_reader()  # closing waits until the client has read the response

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_idle(self) -> None:
        self._head_timer = None
        self.end_connection()

    def _reset(self) -> None:
        """Close immediately; the system drops unsent data."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.inner.abort()

    # ------------------------------------------------------------------------------------- reading

    def _watch_reader(self) -> None:
        """Check periodically, until the response is handed to the system, that the client reads it."""
        if self._reader_timer is None:
            self._watched_from = self._moved_at = self.loop.time()
            self._taken_first = self._taken = self._acknowledged()
            self._look_again()

    def _look_again(self) -> None:
        self._reader_timer = self.loop.call_later(self.limits.read_patience / _LOOKS, self._check_reader)

    def _check_reader(self) -> None:
        self._reader_timer = None
        if not self._transport.inner.get_write_buffer_size():
            return
        now, taken = self.loop.time(), self._acknowledged()
        if taken > self._taken:
            self._taken, self._moved_at = taken, now
        late = now - self._moved_at
        if rate := self.limits.least_read_rate:
            late = max(late, now - self._watched_from - (taken - self._taken_first) / rate)
        if late > self.limits.read_patience:
            _log.info("a caller did not read its response in time; its connection was reset")
            self._reset()
            return
        self._look_again()

    def _acknowledged(self) -> int:
        """Return the bytes that the client's system has acknowledged: all but those still buffered here."""
        waiting: int = self._transport.inner.get_write_buffer_size()
        with contextlib.suppress(OSError):
            waiting += struct.unpack("i", fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
        return self._transport.written - waiting

    @property
    def _transport(self) -> _Transport:
        wrapped: Any = self.transport
        assert isinstance(wrapped, _Transport)
        return wrapped

    @property
    def _socket(self) -> Any:
        return self._transport.inner.get_extra_info("socket")


def _read_absolute_form(scope: Scope) -> None:
    """Take path and host from a target in absolute form, as for a proxy (RFC 9112, section 3.2.2)."""
    host, _, path = scope["raw_path"].partition(b"://")[2].partition(b"/")
    others = [(name, value) for name, value in scope["headers"] if name != b"host"]
    scope["raw_path"] = b"/" + path
    scope["path"] = unquote(scope["raw_path"].decode("ascii"))
    scope["headers"] = [(b"host", host), *others]


def _ignore() -> None:
    pass


def _never() -> bool:
    return False


def protocol(
    limits: ConnectionLimits,
    on_closed: Callable[[], None] = _ignore,
    is_stopping: Callable[[], bool] = _never,
) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with these limits.

    Parameters
    ----------
    limits
        Limits of each connection, and of their number.
    on_closed
        Called when a connection is closed.
    is_stopping
        Returns whether the service stops, so that each connection ends with its next response.
    """
    members = {
        "limits": limits,
        "on_closed": staticmethod(on_closed),
        "is_stopping": staticmethod(is_stopping),
    }
    return type("LimitedProtocol", (_LimitedProtocol,), members)
