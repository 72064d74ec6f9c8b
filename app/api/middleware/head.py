"""HEAD requests: the response of GET without its content (RFC 9110, section 9.3.2)."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadIsGetWithoutContent:
    """Middleware that serves HEAD for every GET route, so that no route has to declare it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on the status and the headers; end the answer before its first content."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        ended = False

        async def send_head(message: Message) -> None:
            nonlocal ended
            if ended:
                return
            await send(message)
            if message["type"] == "http.response.start":
                ended = True
                await send({"type": "http.response.body", "body": b""})

        async def gone() -> Message:
            """Report a disconnect, so that a streamed response stops."""
            return {"type": "http.disconnect"} if ended else await receive()

        asked = {**scope, "method": "GET"}
        try:
            await self._app(asked, gone, send_head)
        finally:
            scope["route"] = asked.get("route")  # read by the request log and the metrics
