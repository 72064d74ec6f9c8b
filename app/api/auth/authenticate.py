"""Authentication: checks the API key or OIDC token before the request body is read."""

import hmac
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import Request

from app.callers import ANONYMOUS, SCRAPER, Caller
from app.errors import Forbidden, InvalidToken, ScopeMissing, Unauthenticated
from app.jobs.api_keys import ApiKeys
from app.settings import LOOPBACK
from app.telemetry.metrics import AUTHENTICATION_FAILURES, Metrics, known
from app.telemetry.request_id import REQUEST_ID

if TYPE_CHECKING:
    from app.api.auth.oidc import Tokens

_HOW = "send 'Authorization: Bearer <key>'; `rowveil keys create` makes a key"


async def authenticate(request: Request) -> Caller:
    """Return the caller of the request.

    Raises
    ------
    Unauthenticated, InvalidToken, Forbidden
    """
    try:
        return replace(await _identified(request), request=REQUEST_ID.get())
    except (Unauthenticated, Forbidden) as error:
        _count_failure(request, error)
        raise


def authorize(request: Request, caller: Caller, scope: str) -> None:
    """Raise ScopeMissing if the caller of the request does not hold the scope."""
    if scope not in caller.scopes:
        error = ScopeMissing(scope)
        _count_failure(request, error)
        raise error


def _count_failure(request: Request, error: Unauthenticated | Forbidden) -> None:
    metrics: Metrics = request.app.state.jobs.metrics
    metrics.authentication_failures.labels(known(error.code, AUTHENTICATION_FAILURES)).inc()


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
            raise InvalidToken(
                "the key is unknown to this service, was revoked, or has expired; `rowveil keys create` "
                "makes another"
            )
        return caller
    if _is_metrics_key(request, text):
        return SCRAPER
    tokens: Tokens | None = request.app.state.tokens
    if tokens is None:
        raise InvalidToken(f"this is not a key of this service, which accepts no tokens: {_HOW}")
    return await tokens.caller(text)


def _is_metrics_key(request: Request, text: str) -> bool:
    """Return whether the credential is a key for the metrics, which no database has."""
    sent = text.encode()
    return any(hmac.compare_digest(sent, key) for key in request.app.state.metrics_keys)


def _must_be_of_this_machine(request: Request) -> None:
    """Reject requests from web sites, which a browser on this machine would otherwise allow.

    The Host header reveals DNS rebinding; the Origin header reveals another site.
    """
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    allowed = request.app.state.settings.cors_origins
    if _hostname(host) not in LOOPBACK:
        raise Forbidden(
            "authentication is off: the service accepts requests only at localhost; call it there, or set "
            "ROWVEIL_AUTH=on"
        )
    if origin is not None and origin not in (f"http://{host}", f"https://{host}", *allowed):
        raise Forbidden(
            "authentication is off: pages of other origins may not call the service; ROWVEIL_CORS_ORIGINS "
            "names those that may"
        )


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:  # such as an unclosed bracket
        return None
