"""CORS whose refused preflights are problem documents."""

from fastapi.middleware.cors import CORSMiddleware
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.problems import problem_response
from app.errors import BadRequest


class Cors(CORSMiddleware):
    """Starlette's middleware, which refuses preflights as plain text."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Return the response to a preflight, or the problem if it is refused."""
        response = super().preflight_response(request_headers)
        return response if response.status_code < 400 else _Refusal(response)


class _Refusal(Response):
    """Problem document of a refused preflight; its ``instance`` is known only from the request's scope."""

    def __init__(self, refused: Response) -> None:
        super().__init__(refused.body, refused.status_code, refused.headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        causes = bytes(self.body).decode().removeprefix("Disallowed CORS ")
        error = BadRequest(
            f"the CORS preflight is refused because of its {causes}; ROWVEIL_CORS_ORIGINS lists the allowed "
            "origins, and Access-Control-Allow-Methods the allowed methods"
        )
        kept = {name: value for name, value in self.headers.items() if not name.startswith("content-")}
        await problem_response(error.problem(), scope["path"], kept)(scope, receive, send)
