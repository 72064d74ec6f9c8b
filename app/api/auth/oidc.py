"""OIDC: validates bearer tokens of the configured issuer.

A token is accepted if a published key of the issuer signed it, with an algorithm that the settings
allow and that fits the key, and if issuer, audience and times are valid (RFC 9068, RFC 8725). Only the
settings determine the URL of the keys: the token's own header fields for that (`jku`, `x5u`, `jwk`, `x5c`)
are ignored.

An ID token has the same issuer, key and often the same audience, but says that a person has signed in to
some client, not that the bearer may call this service. It is refused: by its type (RFC 9068, section 4), or
by claims that only ID tokens have (OpenID Connect Core 1.0, sections 2 and 3.3.2.11; the last two are those
of Keycloak and Amazon Cognito).
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from app.callers import SCOPES, Caller, token_owner
from app.errors import InvalidToken, Unavailable
from app.settings import Settings, is_issuer_address

_log = logging.getLogger("rowveil.oidc")

_DISCOVERY = "/.well-known/openid-configuration"

_LEEWAY_SECONDS = 30

_KEYS_LAST_SECONDS = 3600.0

_BETWEEN_FETCHES_SECONDS = 30.0

_FETCH_SECONDS = 10.0

_MOST_BYTES = 1 << 20

_LONGEST_TOKEN = 1 << 14

_ACCESS_TOKEN = ("at+jwt", "application/at+jwt")
"""Values of an access token's `typ` header, in lower case."""

_OF_ID_TOKENS = ("nonce", "at_hash", "c_hash")

_KINDS = {"typ": "id", "token_use": "id"}
"""Claims with which issuers name the kind of a token, and their values in an ID token, in lower case."""

_LEAST_RSA_BITS = 2048

_SUBJECT = re.compile(r"[\x21-\x7e]{1,255}")

_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class Tokens:
    """Validator of the tokens of one issuer."""

    def __init__(self, settings: Settings) -> None:
        """Fetch nothing yet, so that the service can start while its issuer is unavailable."""
        self._settings = settings
        loopback = settings.mode != "production"
        self._keys = IssuerKeys(settings.oidc_issuer, settings.oidc_jwks_url, loopback)

    async def caller(self, token: str) -> Caller:
        """Return the caller that the token identifies.

        Raises
        ------
        InvalidToken
        Unavailable
            The issuer's keys cannot be fetched.
        """
        if len(token) > _LONGEST_TOKEN:
            raise InvalidToken(f"the token is longer than {_LONGEST_TOKEN} characters")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise InvalidToken("this is neither a key of this service nor a signed token") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.oidc_algorithm_list:
            allowed = ", ".join(self._settings.oidc_algorithm_list)
            raise InvalidToken(
                f"the algorithm of the token's signature is not allowed; allowed are {allowed}"
            )
        if not isinstance(key_id, str):
            raise InvalidToken("the token's header lacks 'kid', the id of the key that signed it")
        key = await self._keys.find(key_id)
        if key is None or key.algorithm_name != algorithm:
            raise InvalidToken(
                "the issuer does not publish the key that signed the token, or not for this algorithm"
            )
        claims = self._verified(token, key, algorithm)
        self._check_kind(str(header.get("typ", "")).lower(), claims)
        return self._named_by(claims)

    def _verified(self, token: str, key: jwt.PyJWK, algorithm: str) -> Mapping[str, Any]:
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._settings.oidc_audience,
                issuer=self._settings.oidc_issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise InvalidToken("the token has expired; get a new one from its issuer") from None
        except jwt.ImmatureSignatureError:
            raise InvalidToken(
                f"the token is not valid within the next {_LEEWAY_SECONDS} seconds; if it is new, the clocks "
                "of its issuer and of this service differ"
            ) from None
        except jwt.InvalidAudienceError:
            raise InvalidToken("the token is meant for another audience than this service") from None
        except jwt.InvalidIssuerError:
            raise InvalidToken("the token's issuer is not the one that this service trusts") from None
        except jwt.PyJWTError:
            raise InvalidToken(
                "the token is not valid: its signature or its times are wrong, or a claim is missing"
            ) from None
        return claims

    def _check_kind(self, kind: str, claims: Mapping[str, Any]) -> None:
        """Refuse a token that is no access token. Raises InvalidToken."""
        if kind in _ACCESS_TOKEN:
            return
        if self._settings.oidc_typed_tokens:
            raise InvalidToken("the token's header does not have the type 'at+jwt' of an access token")
        named = any(str(claims.get(name, "")).lower() == value for name, value in _KINDS.items())
        if named or any(name in claims for name in _OF_ID_TOKENS):
            raise InvalidToken("this is an ID token; send the access token that its issuer gave with it")

    def _named_by(self, claims: Mapping[str, Any]) -> Caller:
        settings = self._settings
        subject = claims["sub"]
        if not isinstance(subject, str) or not _SUBJECT.fullmatch(subject):
            raise InvalidToken("the token's subject is not 1 to 255 visible ASCII characters")
        project = claims.get(settings.oidc_project_claim) if settings.oidc_project_claim else None
        if project is not None and not (isinstance(project, str) and _PROJECT.fullmatch(project)):
            raise InvalidToken(f"the token's claim '{settings.oidc_project_claim}' is not a project's name")
        claim = claims.get(settings.oidc_scope_claim, [])
        words = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
        scopes = frozenset(scope for scope in SCOPES if f"{settings.oidc_scope_prefix}{scope}" in words)
        return Caller(token_owner(settings.oidc_issuer, subject), project, scopes)


class IssuerKeys:
    """Keys that the issuer publishes (RFC 7517), cached for an hour.

    An unknown key id triggers a new fetch, so that an issuer may rotate its keys; at most one every 30
    seconds, so that tokens with made-up key ids cause no load. After half an hour, a known key id triggers a
    fetch in the background, so that no call notices an issuer that is away for a short time.
    """

    def __init__(self, issuer: str, url: str, loopback: bool) -> None:
        """Fetch nothing yet.

        Parameters
        ----------
        issuer
            Address of the issuer.
        url
            Address of the key set; empty: taken from the issuer's discovery document.
        loopback
            Whether that document may name an http address of this machine.
        """
        self._issuer = issuer
        self._url = url
        self._loopback = loopback
        self._failure = ""
        """Cause of the last fetch's failure, which is logged; empty if it succeeded."""
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = self._tried = -float("inf")
        self._fetching = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None

    async def find(self, key_id: str) -> jwt.PyJWK | None:
        """Return the key with that id, if any. Raises Unavailable."""
        if key_id not in self._keys or self._is_over(self._fetched, _KEYS_LAST_SECONDS):
            async with self._fetching:
                if key_id not in self._keys or self._is_over(self._fetched, _KEYS_LAST_SECONDS):
                    await self._fetch_seldom()
        elif self._is_over(self._fetched, _KEYS_LAST_SECONDS / 2) and not self._fetching.locked():
            self._refreshing = asyncio.create_task(self._refresh())
        key = self._keys.get(key_id)
        if self._is_over(self._fetched, _KEYS_LAST_SECONDS) or (key is None and self._failure):
            raise Unavailable("the keys of the tokens' issuer cannot be fetched at present; try again")
        return key

    async def _refresh(self) -> None:
        async with self._fetching:
            await self._fetch_seldom()

    async def _fetch_seldom(self) -> None:
        """Fetch the keys unless that was tried a moment ago. Cached ones remain if it fails."""
        if not self._is_over(self._tried, _BETWEEN_FETCHES_SECONDS):
            return
        self._tried = time.monotonic()
        failure = ""
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                self._keys = await self._fetch()
            self._fetched = time.monotonic()
        except TimeoutError:
            failure = f"no whole answer came within {_FETCH_SECONDS:g} seconds"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            failure = str(error) or type(error).__name__
        except ValueError as error:
            failure = str(error)
        self._log_change(failure)

    async def _fetch(self) -> dict[str, jwt.PyJWK]:
        """Return the published keys by their ids. Raises HTTPError, ValueError."""
        async with httpx.AsyncClient(timeout=None, follow_redirects=False) as client:  # noqa: S113 - see caller
            url: Any = self._url
            if not url:
                address = self._issuer.rstrip("/") + _DISCOVERY
                discovery = await _json(client, address)
                if (named := discovery.get("issuer")) != self._issuer:
                    raise ValueError(
                        f"{address} is of the issuer {named!r:.200}; ROWVEIL_OIDC_ISSUER must be equal to it"
                    )
                url = discovery.get("jwks_uri")
                if not self._accepts(url):
                    raise ValueError(
                        f"its discovery document names jwks_uri {url!r:.200}, which is not an https:// "
                        "address; correct the document, or set ROWVEIL_OIDC_JWKS_URL"
                    )
            published = (await _json(client, url)).get("keys")
        usable = map(_usable, published if isinstance(published, list) else ())
        keys = {key.key_id: key for key in usable if key is not None and key.key_id}
        if not keys:
            raise ValueError(f"{url} holds no list 'keys' with a key that verifies signatures")
        return keys

    def _accepts(self, url: object) -> bool:
        """Whether the address may give keys, as in the settings. Over http anyone could give their own."""
        return isinstance(url, str) and is_issuer_address(url, self._loopback)

    def _log_change(self, failure: str) -> None:
        """Log a cause of failure once, and its end."""
        if failure and failure != self._failure:
            _log.error("the keys of the issuer %s cannot be fetched: %s", self._issuer, failure)
        elif self._failure and not failure:
            _log.warning("the keys of the issuer %s can be fetched again", self._issuer)
        self._failure = failure

    @staticmethod
    def _is_over(since: float, seconds: float) -> bool:
        return time.monotonic() - since >= seconds


async def _json(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """Fetch a JSON object. Raises HTTPError, ValueError."""
    content = bytearray()
    async with client.stream("GET", url) as answer:
        if not answer.is_success:
            raise ValueError(f"{url} answered with status {answer.status_code}; redirects are not followed")
        async for chunk in answer.aiter_bytes():
            content += chunk
            if len(content) > _MOST_BYTES:
                raise ValueError(f"{url} answered with more than {_MOST_BYTES} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ValueError(f"{url} answered with something else than a JSON object")
    return document


def _usable(published: Any) -> jwt.PyJWK | None:
    """Return the key if it is a strong enough signature verification key with an id."""
    if not isinstance(published, dict) or not isinstance(published.get("kid"), str):
        return None
    if published.get("use", "sig") != "sig" or published.get("kty") == "oct":
        return None
    try:
        key = jwt.PyJWK(published)
    except jwt.PyJWTError:
        return None
    weak = isinstance(key.key, RSAPublicKey) and key.key.key_size < _LEAST_RSA_BITS
    return None if weak else key
