"""Security and cache headers of every response."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; form-action 'none'",
}
"""Default headers; a response may override them, such as a page with its own policy."""

_KEPT_BY_NOBODY = "no-store"

_GUARDED = "/v1/"


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
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith(_GUARDED):
                    headers.setdefault("Cache-Control", _KEPT_BY_NOBODY)
            await send(message)

        await self._app(scope, receive, send_safely)
