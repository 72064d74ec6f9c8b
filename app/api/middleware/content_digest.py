"""Integrity fields of requests and responses (RFC 9530): content that was altered on its way is noticed.

A request's `Content-Digest` and `Repr-Digest` are compared with its content as it arrived, before its content
encoding is undone. A response has the fields that `Want-Content-Digest` and `Want-Repr-Digest` ask for if its
content is complete when its headers are sent. Streamed rows have the digest of their table instead.
"""

import binascii
import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import BadRequest, DigestMismatch

_ALGORITHMS: Final = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}
"""Active algorithms of the registry of hash algorithms (RFC 9530, section 7.2), by key."""

_FIELDS: Final = {b"content-digest": "Content-Digest", b"repr-digest": "Repr-Digest"}

_WISHES: Final = {b"want-content-digest": b"content-digest", b"want-repr-digest": b"repr-digest"}

_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")

_WEIGHT = re.compile(r"10|[0-9]")

_WHOLE = frozenset({200, 201, 202})
"""Statuses of responses whose content is a whole representation, in addition to those of errors."""


class ContentDigests:
    """Middleware that compares requests with their digests, and adds digests to responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on. Reading its content raises BadRequest or DigestMismatch in the application."""
        if scope["type"] == "http":
            given = {name for name, _ in scope["headers"]}
            if not given.isdisjoint(_FIELDS):
                receive = _compared(scope, receive)
            if not given.isdisjoint(_WISHES):
                send = _with_digests(scope, send)
        await self._app(scope, receive, send)


class _Expected(NamedTuple):
    """One digest that a request states."""

    field: str
    algorithm: str
    digest: bytes


def _compared(scope: Scope, receive: Receive) -> Receive:
    """Return a function that receives the request, and raises when its content is not what its fields say."""
    expected: list[_Expected] = []
    hashes: dict[str, hashlib._Hash] = {}
    received = 0

    async def receive_compared() -> Message:
        nonlocal received
        if not hashes:
            expected.extend(_stated(scope["headers"]))
            hashes.update((each.algorithm, _ALGORITHMS[each.algorithm]()) for each in expected)
        message = await receive()
        if message["type"] != "http.request":
            return message
        body = message.get("body", b"")
        received += len(body)
        for hashed in hashes.values():
            hashed.update(body)
        if not message.get("more_body", False):
            for field, algorithm, digest in expected:
                if hashes[algorithm].digest() != digest:
                    raise DigestMismatch(
                        f"the content that arrived, {received} bytes, has another {algorithm} than the "
                        f"header '{field}' states; compare the number of bytes, then send the request "
                        "again or correct the digest"
                    )
        return message

    return receive_compared


def _stated(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[_Expected]:
    """Yield the digests that a request states. Raises BadRequest if a field has none that can be compared."""
    for name, field in _FIELDS.items():
        lines = [value.decode("latin-1") for key, value in headers if key == name]
        if not lines:
            continue
        found = {key: value for key, value in _members(", ".join(lines)) if key in _ALGORITHMS}
        if not found:
            raise BadRequest(
                f"the header '{field}' has no digest by {' or '.join(_ALGORITHMS)}; add one, or leave it out"
            )
        for algorithm, value in found.items():
            yield _Expected(field, algorithm, _digest(field, algorithm, value))


def _digest(field: str, algorithm: str, value: str) -> bytes:
    """Return the bytes of a byte sequence (RFC 9651, section 3.3.5). Raises BadRequest."""
    size = _ALGORITHMS[algorithm]().digest_size
    try:
        digest = b64decode(value[1:-1], validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if len(digest) != size or not (value.startswith(":") and value.endswith(":")):
        raise BadRequest(
            f"the header '{field}' has no {algorithm} of {size} bytes in base64 between colons, such as "
            f"'{algorithm}=:{b64encode(bytes(size)).decode()}:'; correct it, or leave it out"
        )
    return digest


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a dictionary field (RFC 9651, section 3.2), without their parameters."""
    for member in text.split(","):
        key, _, value = member.partition(";")[0].strip().partition("=")
        if _KEY.fullmatch(key):
            yield key, value


def _wanted(text: str) -> str | None:
    """Return the algorithm of the largest weight; None if there is none, or the field cannot be read."""
    weights = {key: int(value) for key, value in _members(text) if _WEIGHT.fullmatch(value)}
    known = {key: weight for key, weight in weights.items() if weight and key in _ALGORITHMS}
    return max(known, key=known.__getitem__, default=None)


def _with_digests(scope: Scope, send: Send) -> Send:
    """Return a function that sends the response with the digests that its request asks for."""
    started: Message | None = None

    async def send_with_digests(message: Message) -> None:
        nonlocal started
        if message["type"] == "http.response.start":
            if any(name == b"content-length" for name, _ in message.get("headers", ())):
                started = message  # its content may follow in one piece
                return
        elif started is not None:
            start, started = started, None
            if not message.get("more_body", False):
                start["headers"] = [
                    *start["headers"],
                    *_digests(scope, start["status"], message.get("body", b"")),
                ]
            await send(start)
        await send(message)

    return send_with_digests


def _digests(scope: Scope, status: int, body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the fields of a response. That to HEAD has no representation, so that it has no digest of one."""
    for wish, field in _WISHES.items():
        text = ", ".join(value.decode("latin-1") for key, value in scope["headers"] if key == wish)
        algorithm = _wanted(text)
        is_whole = scope["method"] != "HEAD" and (status in _WHOLE or status >= 400)
        if algorithm is not None and (is_whole or field == b"content-digest"):
            digest = b64encode(_ALGORITHMS[algorithm](body).digest())
            yield field, algorithm.encode() + b"=:" + digest + b":"
