"""Error responses: every error becomes a problem document (RFC 9457) here.

A message says what is wrong, where, and how to correct it. It never contains a stack trace, a path
of the server, or a value of a row. The log line of an unexpected error has its frames but not its
message, since a library's message may quote a value.
"""

import asyncio
import difflib
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import (
    FRAMEWORK_ERRORS,
    AppError,
    BadRequest,
    InvalidRequest,
    NotFound,
    Unavailable,
    UnsupportedMediaType,
    invalid_request_problem,
    storage_error,
)
from app.formats.errors import FormatError
from app.formats.media_types import sent_as
from app.requests.validation_errors import MOST_ERRORS, error_items
from app.store.blobs.bucket import BucketUnusable
from app.telemetry.request_id import REQUEST_ID
from providers import PROVIDERS
from providers.errors import ProviderError, SourceError, did_you_mean

MEDIA_TYPE = "application/problem+json"

ADMITTED = "rowveil.admitted"
"""Key of a request's scope: what is left to its caller, once it has been authenticated and counted."""

OPEN = "rowveil.open"
"""Key of a request's scope: the function to call when its response has ended, if it counts as open."""

_log = logging.getLogger("rowveil.http")


def problem_response(
    document: Mapping[str, Any], path: str | None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the document as an HTTP response.

    ``path``: decoded path of the request; None: its head cannot be read.
    """
    members = {"instance": path and _reference(path), "request_id": REQUEST_ID.get()}
    return Response(
        orjson.dumps(dict(document) | {name: value for name, value in members.items() if value}),
        status_code=document["status"],
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def _reference(path: str) -> str:
    """Return a decoded path as a URI reference (RFC 3986, section 4.2), in which `//` would begin a host."""
    quoted = quote(path, safe="/!$&'()*+,;=:@")
    return f"/.{quoted}" if quoted.startswith("//") else quoted


def _invalid_request(errors: list[dict[str, str]]) -> dict[str, Any]:
    first = errors[0]
    place = first.get("pointer") or first.get("parameter") or "the body"
    detail = f"{place}: {first['message']}"
    if len(errors) > 1:
        at_least = "at least " if len(errors) == MOST_ERRORS else ""
        detail += f" (and {at_least}{len(errors) - 1} more)"
    return InvalidRequest(detail).problem() | {"errors": errors}


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "not JSON")
        message = f"the body is not valid JSON: {reason}"
        problem = BadRequest(message).problem() | {"errors": [{"pointer": "", "message": message}]}
    elif first["loc"][0] == "body" and not _is_json(request):
        problem = UnsupportedMediaType(
            f"{sent_as(request.headers.get('content-type'))}; this operation takes application/json"
        ).problem()
    else:
        problem = _invalid_request(error_items(error.errors(), error.body))
    return problem_response(problem, request.url.path)


def _is_json(request: Request) -> bool:
    content_type = request.headers.get("content-type", "application/json")
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


async def _on_app_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AppError)
    return problem_response(error.problem(), request.url.path, error.headers())


async def _on_storage_error(request: Request, error: Exception) -> Response:
    """Return the response to a bucket that does not respond or refuses; the log has the cause."""
    assert isinstance(error, BucketUnusable)
    _log.error("%s %s failed: %s", request.method, request.url.path, error.strerror)
    return await _on_app_error(request, storage_error(error))


async def _on_provider_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProviderError)
    return problem_response(
        invalid_request_problem(error.message, error.pointer, error.code), request.url.path
    )


async def _on_format_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FormatError)
    return problem_response(
        invalid_request_problem(error.message, error.pointer, SourceError.code), request.url.path
    )


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Return the response to an error of the framework: unknown route or method, or a body over the limit."""
    assert isinstance(error, HTTPException)
    service = _unknown_service(request.url.path) if error.status_code in (404, 405) else None
    if service is not None:
        missing = NotFound(f"there is no service '{service}'{did_you_mean(service, PROVIDERS)}")
        return problem_response(missing.problem(), request.url.path)
    status = HTTPStatus(error.status_code)
    kind = FRAMEWORK_ERRORS.get(status.value, BadRequest if status < 500 else AppError)
    detail = _detail(request, status.value) or str(error.detail)
    problem = kind(detail).problem() | {"status": status.value}
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(_allowed_methods(request)))
    return problem_response(problem, request.url.path, headers)


def _detail(request: Request, status: int) -> str | None:
    """Return the cause of an error of the framework and its remedy; None if the framework names it."""
    match status:
        case HTTPStatus.NOT_FOUND:
            nearest = _nearest_path(request)
            return (
                f"there is no resource at {request.url.path}{nearest}; GET /openapi.json lists all operations"
            )
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return f"{request.method} is not allowed here; the Allow header lists the methods that are"
        case HTTPStatus.REQUEST_TIMEOUT:
            settings = "ROWVEIL_REQUEST_PATIENCE, ROWVEIL_LEAST_BODY_RATE"
            return f"the body was sent too slowly ({settings}); send it again"
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            most = request.app.state.settings.max_body_bytes
            return (
                f"the body, as it was sent or when it is decoded, is larger than {most} bytes "
                "(ROWVEIL_MAX_BODY_BYTES); upload a table in POST /v1/buffers"
            )
    return None


_SERVICES = "/v1/services/"


def _unknown_service(path: str) -> str | None:
    """Return the service that a path names, if there is none of that name."""
    name = path.removeprefix(_SERVICES) if path.startswith(_SERVICES) else ""
    return name if name and "/" not in name and name not in PROVIDERS else None


_LONGEST_COMPARED = 200
"""Characters of a path from which on it is compared with none: to index one of 16 KiB takes milliseconds."""


def _nearest_path(request: Request) -> str:
    """Return ``"; did you mean /v1/jobs?"`` with the nearest path that has no parameters, if one is near."""
    paths = sorted(path for path in request.app.state.paths if "{" not in path)
    sent = request.url.path
    near = difflib.get_close_matches(sent, paths, n=1, cutoff=0.75) if len(sent) < _LONGEST_COMPARED else []
    return f"; did you mean {near[0]}?" if near else ""


def _allowed_methods(request: Request) -> set[str]:
    """Return all methods of the path; the framework lists those of only one route."""
    methods = {
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        for route in request.app.routes
        if route.matches(dict(request.scope) | {"method": method})[0] is Match.FULL
    }
    return methods | {"HEAD"} if "GET" in methods else methods


_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    RequestValidationError: _on_validation_error,
    AppError: _on_app_error,
    BucketUnusable: _on_storage_error,
    ProviderError: _on_provider_error,
    FormatError: _on_format_error,
    HTTPException: _on_http_exception,
}

EXPECTED: tuple[type[Exception], ...] = tuple(_HANDLERS)
"""Classes of the errors that have a response of their own."""


async def error_response(request: Request, error: Exception) -> Response:
    """Return the response to an error of one of the classes `EXPECTED`."""
    handle = next(handle for kind, handle in _HANDLERS.items() if isinstance(error, kind))
    response = await handle(request, error)
    _add_rate_headers(response, request.scope)
    return response


def _add_rate_headers(response: Response, scope: Scope) -> None:
    """Add the rate headers of an authenticated request, unless the error is another limit with its own."""
    allowance = scope.get(ADMITTED)
    if allowance is not None:
        for name, value in allowance.headers().items():
            response.headers.setdefault(name, value)


def install(app: FastAPI) -> None:
    """Register the handler for each kind of error."""
    for kind in EXPECTED:
        app.add_exception_handler(kind, error_response)


class UnexpectedErrors:
    """ASGI middleware that turns an unforeseen exception into a 500 without the exception's message.

    A request that the server cancels, because it lasts longer than the grace time of a stop, gets a 503.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; respond with 500 or 503 if that raises before the response began."""
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
            return None  # the client has disconnected
        except asyncio.CancelledError:
            if started:
                raise
            _log.warning("%s %s did not end before the service stopped", scope["method"], scope["path"])
            stopped = Unavailable(
                "the service stopped before the request was done; what it creates may exist already: send it "
                "again with its Idempotency-Key, or look for it first"
            )
            headers = stopped.headers() | {"Connection": "close"}
            response = problem_response(stopped.problem(), scope["path"], headers)
            _add_rate_headers(response, scope)
            await response(scope, receive, send)
        except Exception as error:
            _log.error("%s %s failed: %s", scope["method"], scope["path"], describe(error))
            if started:
                raise ConnectionError("the response broke off") from None
            problem = AppError("the service failed; the request may be tried again").problem()
            response = problem_response(problem, scope["path"])
            _add_rate_headers(response, scope)
            await response(scope, receive, send)


def describe(error: BaseException) -> str:
    """Return type and frames of an error without its message, which may quote a value of a row."""
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames[-6:]))
    return f"{type(error).__module__}.{type(error).__qualname__} at {where}"
