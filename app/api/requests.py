"""How a request body is read: JSON with exact integers, fast.

FastAPI would parse with the standard library; this parser takes less than half the time, and
keeps an integer of any size whole where others turn it into a float.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json


class JsonRequest(Request):
    """A request whose JSON body is parsed by pydantic's own parser."""

    async def json(self) -> Any:
        """The body's value; raises json.JSONDecodeError, as FastAPI expects."""
        if not hasattr(self, "_json"):
            body = await self.body()
            try:
                self._json = from_json(body, allow_inf_nan=False, cache_strings="keys")
            except ValueError as error:
                raise json.JSONDecodeError(str(error), "", 0) from None
        return self._json


class JsonRoute(APIRoute):
    """A route that reads its body as a `JsonRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own handler, given the other request."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return handle
