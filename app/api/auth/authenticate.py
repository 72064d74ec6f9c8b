"""Authentication: checks the API key or OIDC token before the request body is read."""

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import Request

from app.callers import ANONYMOUS, Caller
from app.errors import Forbidden, InvalidToken, ScopeMissing, Unauthenticated
from app.jobs.api_keys import ApiKeys
from app.settings import LOOPBACK
from app.telemetry.metrics import AUTHENTICATION_FAILURES, Metrics, known
from app.telemetry.request_id import REQUEST_ID

if TYPE_CHECKING:
    from app.api.auth.oidc import Tokens

_HOW = "send 'Authorization: Bearer <key>'; `rowveil keys create` makes a key"


async def authenticate(request: Request, scope: str) -> Caller:
    """Return the caller of the request, who must hold `scope`.

    Raises
    ------
    Unauthenticated, InvalidToken, ScopeMissing, Forbidden
    """
    try:
        caller = replace(await _identified(request), request=REQUEST_ID.get())
        if scope not in caller.scopes:
            raise ScopeMissing(scope)
    except (Unauthenticated, Forbidden) as error:
        metrics: Metrics = request.app.state.jobs.metrics
        metrics.authentication_failures.labels(known(error.code, AUTHENTICATION_FAILURES)).inc()
        raise
    return caller


async def _identified(request: Request) -> Caller:
    if request.app.state.settings.auth == "off":
        _must_be_of_this_machine(request)
        return ANONYMOUS
    given = request.headers.getlist("authorization")
    if not given:
        raise Unauthenticated(f"this operation needs credentials: {_HOW}")
    kind, _, text = given[0].partition(" ")
    if len(given) > 1 or kind.lower() != "bearer" or not text.strip():
        raise Unauthenticated(f"the Authorization header is not a single bearer credential: {_HOW}")
    text = text.strip()
    if text.startswith("rv_"):
        keys: ApiKeys = request.app.state.jobs.api_keys
        caller = await keys.find_caller(text)
        if caller is None:
            raise InvalidToken("the key is unknown to this service, was revoked, or has expired")
        return caller
    tokens: Tokens | None = request.app.state.tokens
    if tokens is None:
        raise InvalidToken(f"this is not a key of this service, which accepts no tokens: {_HOW}")
    return await tokens.caller(text)


def _must_be_of_this_machine(request: Request) -> None:
    """Reject requests from web sites, which a browser on this machine would otherwise allow.

    The Host header reveals DNS rebinding; the Origin header reveals another site.
    """
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    allowed = request.app.state.settings.cors_origins
    if _hostname(host) not in LOOPBACK:
        raise Forbidden("authentication is off: the service accepts requests only at localhost")
    if origin is not None and origin not in (f"http://{host}", f"https://{host}", *allowed):
        raise Forbidden("authentication is off: pages of other origins may not call the service")


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:  # such as an unclosed bracket
        return None
