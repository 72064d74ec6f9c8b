"""Security and cache headers of every response."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_DEFAULTS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; form-action 'none'",
}
"""Default headers; a response may override them, such as a page with its own policy."""

_GUARDED = "/v1/"

ALWAYS = [(name.lower().encode(), value.encode()) for name, value in _DEFAULTS.items()]
"""Names and values as bytes, encoded once for all responses."""

_OF_GUARDED = [*ALWAYS, (b"cache-control", b"no-store")]


class SecurityHeaders:
    """Middleware that adds the headers. Responses below `/v1` are private, so no cache may store them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                given = {name for name, _ in headers}
                defaults = _OF_GUARDED if scope["path"].startswith(_GUARDED) else ALWAYS
                message["headers"] = headers + [pair for pair in defaults if pair[0] not in given]
            await send(message)

        await self._app(scope, receive, send_safely)
