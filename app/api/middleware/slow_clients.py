"""Time limit on request bodies: a body sent byte by byte must not hold a connection.

uvicorn waits for a body without end. Here a body may pause for the patience, and may lag behind the least
rate by the same time. Time in which the service itself does not read is not counted. The other limits of
a connection are in `app.api.middleware.connections`.
"""

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class SlowBodies:
    """Middleware that responds with 408 to a client that sends its body too slowly."""

    def __init__(self, app: ASGIApp, patience: float, least_rate: int) -> None:
        """``patience``: seconds. ``least_rate``: bytes per second; 0: no limit."""
        self._app = app
        self._patience = patience
        self._least_rate = least_rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with a body that ends in time or is cut off."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        clock = asyncio.get_running_loop().time
        waited = received = 0.0
        ended = False

        async def receive_in_time() -> Message:
            nonlocal waited, received, ended
            if ended:  # after the body, receive waits for the disconnect
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
