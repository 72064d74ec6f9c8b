"""Callers who send so slowly that they mean to hold a connection: a head, or a body, byte by byte.

uvicorn waits for both without an end. Here a head must have come within the patience; a body may
pause for the patience, and be late by it against the least rate. Time in which the service itself
does not read is not counted.
"""

import asyncio
from typing import Any

import h11
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol


class SlowBodies:
    """Middleware that answers 408 to who sends a body too slowly."""

    def __init__(self, app: ASGIApp, patience: float, least_rate: int) -> None:
        """``patience``: seconds. ``least_rate``: bytes a second; 0, none."""
        self._app = app
        self._patience = patience
        self._least_rate = least_rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with a body that ends in time or not at all."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        clock = asyncio.get_running_loop().time
        waited = received = 0.0
        ended = False

        async def receive_in_time() -> Message:
            nonlocal waited, received, ended
            if ended:  # what is waited for now is that the caller goes
                return await receive()
            left = self._patience
            if self._least_rate:
                left = min(left, self._patience + received / self._least_rate - waited)
            started = clock()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, headers={"Connection": "close"}) from None
            waited += clock() - started
            received += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            return message

        await self._app(scope, receive_in_time, send)


def protocol(patience: float) -> type[asyncio.Protocol]:
    """Uvicorn's protocol, which hangs up where a head has not come whole within so many seconds."""

    class PatientProtocol(H11Protocol):
        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._waiting = self.loop.call_later(patience, self._hang_up)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._wait_no_more()
            elif self._waiting is None:  # the start of the next request
                self._waiting = self.loop.call_later(patience, self._hang_up)

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait_no_more()
            super().connection_lost(exc)

        def _wait_no_more(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _hang_up(self) -> None:
            self._waiting = None
            if not self.transport.is_closing():
                self.transport.close()

    return PatientProtocol
