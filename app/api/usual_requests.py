"""Shortcut to operations that are called thousands of times with small tables.

FastAPI matches a request with each route in turn, solves the operation's dependencies, and passes the request
through five layers more; together they take as long as a small call itself. A request in the usual form needs
none of them: its path is one of a table, its body is JSON and fits the operation's model. Every other request
is passed to FastAPI, which finds its errors; its caller is authenticated and counted once.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.json_request import JsonRequest, JsonRoute
from app.api.problems import EXPECTED, OPEN, error_response

_Handlers = Mapping[str, tuple[BaseRoute, Callable[[JsonRequest], Coroutine[Any, Any, Response | None]]]]
"""Path of an operation by POST -> its route, and the handler of requests in the usual form."""


def usual_handlers(routes: Iterable[BaseRoute]) -> _Handlers:
    """Return the handlers of those routes that have one."""
    found = {}
    for route in routes:
        if isinstance(route, JsonRoute) and (handler := route.usual_handler()) is not None:
            found[route.path] = (route, handler)
    return found


class UsualRequests:
    """Middleware that answers requests in the usual form itself."""

    def __init__(self, app: ASGIApp, handlers: _Handlers) -> None:
        self._app = app
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on; after its response it is no longer counted as open."""
        try:
            await self._answer(scope, receive, send)
        finally:
            if (close := scope.pop(OPEN, None)) is not None:
                close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._handlers.get(scope["path"]) if scope["type"] == "http" else None
        if found is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope["route"], handler = found  # read by the request log and the metrics
        request = JsonRequest(scope, receive)
        try:
            response = await handler(request)
        except EXPECTED as error:
            response = await error_response(request, error)
        if response is None:
            await self._app(scope, _again(request, receive), send)
        else:
            await response(scope, receive, send)


def _again(request: JsonRequest, receive: Receive) -> Receive:
    """Return a function that receives the request's body again, if it has been read."""
    body = request.body_read
    if body is None:
        return receive
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again
