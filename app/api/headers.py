"""What every answer says to browsers and caches, whatever it answers."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; form-action 'none'",
}
"""Unless the answer says it itself: a page has a policy of its own."""
_KEPT_BY_NOBODY = "no-store"
_GUARDED = "/v1/"


class SafeHeaders:
    """Middleware that adds them; what is answered below `/v1` is the caller's alone: no cache keeps it."""

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
