"""Base of all API requests: authenticated caller, known query parameters, JSON body with exact integers.

FastAPI would use the standard library's parser. This one takes less than half the time and keeps
integers of any size exact, where others turn them into floats.
"""

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from http import HTTPStatus
from typing import Any, NoReturn, TypeVar, get_origin

from anyio import to_thread
from fastapi import HTTPException, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.datastructures import QueryParams

from app.api.auth.authenticate import authenticate, authorize
from app.api.auth.scopes import NEEDED
from app.api.content_encoding import content_encoding, decoded
from app.api.problems import ADMITTED, OPEN
from app.api.request_budget import LARGE_BODY, UPLOAD_BYTES, Claim, memory_of
from app.errors import AppError, InvalidRequest
from app.formats.errors import FormatError
from app.formats.json_text import check_text, is_dense, is_doubtful, reason_not_json, without_byte_order_mark
from app.requests.validation_errors import MOST_ERRORS, pointer_as_sent
from providers.errors import ProviderError, did_you_mean

_CONTRACT = "/v1/"
"""Path prefix below which unknown query parameters are rejected; probes and scrapers may add any."""


class JsonRequest(Request):
    """Request whose JSON body is size-limited and parsed by pydantic's parser."""

    refusal: AppError | None = None
    """Reason for rejecting the body. FastAPI would turn any other error into an empty 400."""

    claim: Claim | None = None
    """Share in the budget of the requests in flight; None until something is read."""

    @property
    def body_read(self) -> bytes | None:
        """Body, if it has been read."""
        return getattr(self, "_body", None)

    @property
    def document_read(self) -> Any:
        """Value of the JSON body, if it has been read; else None."""
        return getattr(self, "_json", None)

    def claim_memory(self, size: int) -> None:
        """Take ``size`` bytes of the budget in all, until the response is complete.

        Raises Unavailable, LimitReached.
        """
        if self.claim is None:
            self.claim = Claim(self.app.state.request_budget, self.state.caller.owner)
        self.claim.raise_to(size)

    async def body(self) -> bytes:
        """Return the body after undoing its content encoding.

        Raises
        ------
        HTTPException
            413 as soon as more than the limit has arrived or has been decompressed; 400 with `refusal`
            if the encoding is unknown or the body does not have it, or if the requests in flight
            use all memory that is allowed.
        """
        if not hasattr(self, "_body"):
            limit = self.app.state.settings.max_body_bytes
            declared = self.headers.get("content-length", "")
            chunks: list[bytes] = []
            received = 0
            if declared.isdecimal() and int(declared) > limit:
                raise HTTPException(413)
            try:
                if declared.isdecimal():
                    owner = self.state.caller.owner
                    self.app.state.request_budget.check(memory_of(int(declared)), owner)
                async for chunk in decoded(content_encoding(self), self._sent(limit)):
                    chunks.append(chunk)
                    received += len(chunk)
                    if received > limit:
                        raise HTTPException(413)
                    self.claim_memory(memory_of(received))
            except AppError as error:
                self._refuse(error)
            self._body = b"".join(chunks)
        return self._body

    async def _sent(self, limit: int) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; raise HTTPException(413) if more than the limit does.

        Encoded, a body may be endless and decode to nothing.
        """
        sent = 0
        async for chunk in self.stream():
            sent += len(chunk)
            if sent > limit:
                raise HTTPException(413)
            yield chunk

    async def json(self) -> Any:
        """Return the value of the body.

        Raises
        ------
        json.JSONDecodeError
            The body is not JSON; FastAPI expects this error.
        HTTPException
            400 with `refusal`: an object has a duplicate name, a number loses digits, or the body takes too
            much memory.
        """
        if not hasattr(self, "_json"):
            body = without_byte_order_mark(await self.body())
            try:
                if len(body) > LARGE_BODY or is_dense(body):
                    document = await self.app.state.body_parser.parse(body, self.state.caller.owner)
                else:
                    document = from_json(body, allow_inf_nan=False, cache_strings="keys")
                    if is_doubtful(body, document):
                        await to_thread.run_sync(check_text, body)
            except FormatError as error:
                self._refuse(InvalidRequest(error.message, error.pointer))
            except AppError as error:
                self._refuse(error)
            except ValueError as error:
                reason = await to_thread.run_sync(reason_not_json, body, str(error))
                raise json.JSONDecodeError(reason, "", 0) from None
            self._json = document
        return self._json

    def _refuse(self, error: AppError) -> NoReturn:
        self.refusal = error
        raise HTTPException(400) from None


_DIRECT: set[Callable[..., Any]] = set()

Endpoint = TypeVar("Endpoint", bound=Callable[..., Coroutine[Any, Any, Response]])


def direct(endpoint: Endpoint) -> Endpoint:
    """Mark an operation that is called without FastAPI's solving of dependencies, which costs more than it.

    Its arguments are path parameters of type str and ``jobs``; it returns a Response. FastAPI still describes
    it in the OpenAPI document.
    """
    _DIRECT.add(endpoint)
    return endpoint


def _direct_handler(endpoint: Callable[..., Any]) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def handle(request: Request) -> Response:
        jobs = request.app.state.jobs.on_behalf_of(request.state.caller)
        response: Response = await endpoint(**request.path_params, jobs=jobs)
        return response

    return handle


Usual = Callable[[JsonRequest], Coroutine[Any, Any, Response | None]]
"""Answers a request in the usual form; None: the request is not in that form."""

_USUAL: dict[Callable[..., Any], Usual] = {}


def answer_usual(endpoint: Callable[..., Any], usual: Usual) -> None:
    """Have requests to the operation answered by ``usual``: see `app.api.usual_requests`."""
    _USUAL[endpoint] = usual


Body = TypeVar("Body", bound=BaseModel)


async def usual_body(request: JsonRequest, model: type[Body]) -> Body | None:
    """Return the request's body; None if it is not plainly declared as JSON, is empty or does not fit."""
    headers = request.headers
    if headers.get("content-type") != "application/json" or "content-encoding" in headers:
        return None
    try:
        return model.model_validate(await request.json()) if await request.body() else None
    except (json.JSONDecodeError, ValidationError):
        return None


class JsonRoute(APIRoute):
    """Route that checks the caller's scope and rate and reads a `JsonRequest`; omits absent fields."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.scope = NEEDED[options["operation_id"]]
        """Scope that the caller needs; None: no authentication."""
        # A body without a content type is read as JSON.
        own: dict[str, Any] = {"response_model_exclude_none": True, "strict_content_type": False}
        if options.get("status_code") == HTTPStatus.NO_CONTENT:
            own["response_class"] = Response  # without a type of the content that there is not
        super().__init__(*arguments, **options | own)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, called with a `JsonRequest` after authentication."""
        handler = _direct_handler(self.endpoint) if self.endpoint in _DIRECT else super().get_route_handler()

        async def handle(request: Request) -> Response:
            response: Response = await answered(JsonRequest(request.scope, request.receive), handler)
            return response

        answered = self._answer_of()
        return handle

    def usual_handler(self) -> Callable[[JsonRequest], Coroutine[Any, Any, Response | None]] | None:
        """Return the handler of requests in the usual form; None if the operation has no such form."""
        usual = _USUAL.get(self.endpoint)
        if usual is None:
            return None
        answered = self._answer_of()
        return lambda request: answered(request, usual)

    def _answer_of(self) -> Callable[[JsonRequest, Callable[[Any], Any]], Coroutine[Any, Any, Any]]:
        """Return a function that admits a request's caller and returns what a handler does."""
        scope = self.scope
        is_limited = scope is not None and self.path.startswith(_CONTRACT)
        check_query = _query_check(self.dependant) if self.path.startswith(_CONTRACT) else None

        async def answered(request: JsonRequest, handler: Callable[[Any], Any]) -> Response | None:
            if ADMITTED not in request.scope:
                if scope is not None:
                    request.state.caller = await authenticate(request)
                rates = request.app.state.jobs.rates
                allowance = rates.take(request.state.caller.owner) if is_limited else None
                request.scope[ADMITTED] = allowance
                if is_limited:
                    request.scope[OPEN] = request.app.state.open_requests.enter(request.state.caller.owner)
                if scope is not None:  # a refused request counts, too
                    authorize(request, request.state.caller, scope)
            allowance = request.scope[ADMITTED]
            if check_query is not None:
                check_query(request.query_params)
            try:
                response: Response | None = await handler(request)
            except HTTPException:
                if request.refusal is not None:
                    raise request.refusal from None
                raise
            except (AppError, ProviderError) as error:
                error.pointer = pointer_as_sent(error.pointer, request.document_read)
                raise
            finally:
                if request.claim is not None:
                    request.claim.release()
            if allowance is not None and response is not None:
                response.headers.update(allowance.headers())
            return response

        return answered


def _query_check(dependant: Dependant) -> Callable[[QueryParams], None]:
    """Return a function that raises RequestValidationError for unknown or repeated query parameters.

    Parameters
    ----------
    dependant : Dependant
        FastAPI's description of the route's handler. A query given as one model lists its own fields.
    """
    is_list = {}
    for field in _query_fields(dependant):
        annotation = field.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            members = annotation.model_fields.items()
            is_list.update({each.alias or name: _is_list(each.annotation) for name, each in members})
        else:
            is_list[field.alias] = _is_list(annotation)

    def check(query: QueryParams) -> None:
        if not query:
            return
        faults = []
        for name, count in Counter(name for name, _ in query.multi_items()).items():
            if name not in is_list:
                message = f"unknown query parameter '{name}'{did_you_mean(name, is_list)}"
                faults.append({"type": "query", "loc": ("query", name), "msg": message})
            elif count > 1 and not is_list[name]:
                faults.append(repeated_parameter("query", name, count))
            if len(faults) > MOST_ERRORS:
                break  # no more are listed
        if faults:
            raise RequestValidationError(faults)

    return check


def repeated_parameter(place: str, name: str, count: int) -> dict[str, Any]:
    """Return the validation error of a parameter that is given several times and is no list."""
    return {"type": place, "loc": (place, name), "msg": f"'{name}' is given {count} times; give it once"}


def _query_fields(dependant: Dependant) -> Iterator[Any]:
    """Yield the query parameters of a handler and of all its dependencies."""
    yield from dependant.query_params
    for inner in dependant.dependencies:
        yield from _query_fields(inner)


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) in (list, tuple)


def claim_upload(request: Request) -> None:
    """Take the memory of an upload from the budget of the requests in flight.

    Raises Unavailable, LimitReached.
    """
    assert isinstance(request, JsonRequest)
    request.claim_memory(UPLOAD_BYTES)


async def client_disconnected(request: Request) -> None:
    """Wait until the client has disconnected. Call it only after the body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def fingerprint(request: Request) -> str:
    """Return a digest that shows whether two requests under one idempotency key are the same request."""
    digest = hashlib.sha256(request.url.path.encode() + b"\0")
    body = await request.body()
    if len(body) > LARGE_BODY:
        await to_thread.run_sync(digest.update, body)
    else:
        digest.update(body)
    return digest.hexdigest()[:16]
