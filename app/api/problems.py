"""Every error as a problem document (RFC 9457), in one place.

A message says what is wrong, where, and what would be right: never a stack trace, a path of the
server, or a value of a row. A log line of an unexpected error has its frames but not its message,
since a library's message may quote a value.
"""

import logging
import traceback
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.formats import FormatError
from app.errors import AppError, BadRequest, InvalidRequest, UnsupportedMediaType
from app.telemetry.requests import REQUEST_ID
from providers.errors import ProviderError, reference_token
from providers.params import OPTIM_OPERANDS

MEDIA_TYPE = "application/problem+json"

_log = logging.getLogger("rowveil.http")


def problem_response(
    document: Mapping[str, Any], instance: str, headers: Mapping[str, str] | None = None
) -> Response:
    """The document as an HTTP response."""
    told = {"request_id": request_id} if (request_id := REQUEST_ID.get()) else {}
    return Response(
        orjson.dumps(dict(document) | {"instance": instance} | told),
        status_code=document["status"],
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def json_pointer(parts: tuple[Any, ...]) -> str:
    """RFC 6901, such as ``/parameters/swap_fields/0``."""
    return "".join(f"/{reference_token(part)}" for part in parts)


def error_items(error: RequestValidationError) -> list[dict[str, str]]:
    """What is wrong, each thing once: at the innermost place, and by one branch of a union."""
    items: dict[str, dict[str, str]] = {}
    for found in error.errors():
        where, *path = found["loc"]
        message = found["msg"].replace("Tuple", "List").replace("a valid tuple", "a list")  # JSON has lists
        message = message[:1].lower() + message[1:]
        if where != "body":
            name = ".".join(str(part) for part in path) or str(where)
            items.setdefault(name, {"parameter": name, "message": message})
            continue
        absent = [path.pop()] if found["type"] == "missing" and path else []
        if found["type"] == "unknown_name":
            absent = [found["ctx"]["name"]]
        pointer = json_pointer(_path_in(error.body, path) + tuple(absent))
        items.setdefault(pointer, {"pointer": pointer, "message": message})
    return [
        item for place, item in items.items() if not any(other.startswith(f"{place}/") for other in items)
    ]


def _path_in(body: Any, path: Sequence[Any]) -> tuple[Any, ...]:
    """The path as far as it stands in the body: a location also names union branches, which do not.

    A parameter that was given by Optim's name stands there under that.
    """
    found: list[Any] = []
    for name in path:
        part = name
        if isinstance(body, dict) and name not in body:
            part = next((each for each in body if OPTIM_OPERANDS.get(each) == name), name)
        inside = isinstance(body, dict) and part in body
        if inside or (isinstance(body, list) and isinstance(part, int) and part < len(body)):
            body = body[part]
            found.append(part)
    return tuple(found)


def _invalid_request(errors: list[dict[str, str]]) -> dict[str, Any]:
    first = errors[0]
    place = first.get("pointer") or first.get("parameter") or "the body"
    detail = f"{place}: {first['message']}"
    if len(errors) > 1:
        detail += f" (and {len(errors) - 1} more)"
    return InvalidRequest(detail).problem() | {"errors": errors}


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "not JSON")
        problem = BadRequest(f"the body is not valid JSON: {reason}").problem()
    elif first["loc"][0] == "body" and not _is_json(request):
        problem = UnsupportedMediaType("this operation takes application/json").problem()
    else:
        problem = _invalid_request(error_items(error))
    return problem_response(problem, request.url.path)


def _is_json(request: Request) -> bool:
    content_type = request.headers.get("content-type", "application/json")
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


async def _on_app_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AppError)
    return problem_response(error.problem(), request.url.path, error.headers())


async def _on_provider_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProviderError)
    problem = InvalidRequest(error.message, error.pointer).problem() | {"code": error.code}
    return problem_response(problem, request.url.path)


async def _on_format_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FormatError)
    problem = InvalidRequest(error.message, error.pointer).problem() | {"code": "invalid_source"}
    return problem_response(problem, request.url.path)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: no such route, method, or a body over the limit."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    details = {
        404: f"there is nothing at {request.url.path}; GET /openapi.json lists what there is",
        405: f"{request.method} is not possible here; see the Allow header for what is",
        408: "the body came too slowly (ROWVEIL_REQUEST_PATIENCE, ROWVEIL_LEAST_BODY_RATE); send it again",
        413: "the body is larger than this operation takes; upload a table in POST /v1/buffers",
    }
    problem = {
        "type": f"urn:rowveil:problem:{status.name.lower()}",
        "title": status.phrase,
        "status": status.value,
        "detail": details.get(status.value, str(error.detail)),
        "code": status.name.lower(),
    }
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(_allowed_methods(request)))
    return problem_response(problem, request.url.path, headers)


def _allowed_methods(request: Request) -> set[str]:
    """Every method of the path: the framework names those of one route only."""
    methods = {
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        for route in request.app.routes
        if route.matches(dict(request.scope) | {"method": method})[0] is Match.FULL
    }
    return methods | {"HEAD"} if "GET" in methods else methods


def install(app: FastAPI) -> None:
    """Register the one handler of each kind of error."""
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(AppError, _on_app_error)
    app.add_exception_handler(ProviderError, _on_provider_error)
    app.add_exception_handler(FormatError, _on_format_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_middleware(UnexpectedErrors)


class UnexpectedErrors:
    """ASGI middleware: what nobody foresaw becomes a 500 without a word of its message."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer 500 if that raises before the response began."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watched_send)
        except ClientDisconnect:
            return None  # nobody is there to be answered
        except Exception as error:
            _log.error("%s %s failed: %s", scope["method"], scope["path"], describe(error))
            if started:
                raise ConnectionError("the response broke off") from None
            problem = AppError("the service failed; the request may be tried again").problem()
            await problem_response(problem, scope["path"])(scope, receive, send)


def describe(error: BaseException) -> str:
    """Where and as what an error arose, without its message, which may quote a value of a row."""
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames[-6:]))
    return f"{type(error).__module__}.{type(error).__qualname__} at {where}"
