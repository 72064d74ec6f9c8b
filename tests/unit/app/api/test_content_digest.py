"""Digests of requests are compared with what arrives; those of responses are what the algorithms give."""

import asyncio
import hashlib
from base64 import b64encode

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.api.middleware.content_digest import ContentDigests
from app.errors import BadRequest, DigestMismatch

CONTENT = b"age,income\n" + b"31,52000\n" * 3
PIECES = (CONTENT[:7], CONTENT[7:20], b"", CONTENT[20:])


def field(algorithm: str, content: bytes = CONTENT) -> str:
    """Return the member of a digest field for the content."""
    digest = hashlib.new(algorithm.replace("-", ""), content).digest()
    return f"{algorithm}=:{b64encode(digest).decode()}:"


def answered(
    *headers: tuple[str, str],
    method: str = "POST",
    status: int = 200,
    sent: tuple[bytes, ...] = (CONTENT,),
    length: bool = True,
) -> dict[str, str]:
    """Send the pieces with the headers; return the digest fields of the response.

    ``sent``: pieces of the response's content. ``length``: the response states its length.
    """
    messages: list[Message] = []
    left = [
        {"type": "http.request", "body": piece, "more_body": number < len(PIECES) - 1}
        for number, piece in enumerate(PIECES)
    ]

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        assert body == CONTENT
        assert (await receive())["type"] == "http.disconnect"
        stated = [(b"content-length", str(sum(map(len, sent))).encode())] if length else []
        await send({"type": "http.response.start", "status": status, "headers": stated})
        for number, piece in enumerate(sent):
            await send({"type": "http.response.body", "body": piece, "more_body": number < len(sent) - 1})

    async def receive() -> Message:
        return left.pop(0) if left else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.append(message)

    scope = {
        "type": "http",
        "method": method,
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
    }
    asyncio.run(ContentDigests(application)(scope, receive, send))
    assert [each["type"] for each in messages] == ["http.response.start", *["http.response.body"] * len(sent)]
    assert b"".join(each["body"] for each in messages[1:]) == b"".join(sent)
    return {name.decode(): value.decode() for name, value in messages[0]["headers"] if b"digest" in name}


@pytest.mark.parametrize("name", ["Content-Digest", "Repr-Digest"])
@pytest.mark.parametrize(
    "value",
    [
        field("sha-256"),
        field("sha-512"),
        f"{field('sha-512')} , {field('sha-256')}",
        f"md5=:AAAA:, {field('sha-256')};of=all",
        f"{field('sha-256', b'')},{field('sha-256')}",  # the last of equal keys counts
    ],
)
def test_content_with_the_stated_digest_is_received(name: str, value: str) -> None:
    assert answered((name, value)) == {}


@pytest.mark.parametrize("name", ["Content-Digest", "Repr-Digest"])
@pytest.mark.parametrize("algorithm", ["sha-256", "sha-512"])
def test_content_with_another_digest_is_refused(name: str, algorithm: str) -> None:
    right = "sha-512" if algorithm == "sha-256" else "sha-256"
    headers = (name, field(right)), (name, field(algorithm, CONTENT[:-1]))
    with pytest.raises(DigestMismatch, match=rf"{len(CONTENT)} bytes, has another {algorithm} .*'{name}'"):
        answered(*headers)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "no digest by sha-256 or sha-512"),
        ("md5=:AAAA:", "no digest by sha-256 or sha-512"),
        (f"SHA-256={field('sha-256')[8:]}", "no digest by sha-256 or sha-512"),
        ("sha-256", "no sha-256 of 32 bytes in base64 between colons"),
        ("sha-256=abc", "no sha-256 of 32 bytes in base64 between colons"),
        ("sha-256=:abc:", "no sha-256 of 32 bytes in base64 between colons"),
        (field("sha-256").replace(":", "", 1), "no sha-256 of 32 bytes"),
        (field("sha-256")[:-1], "no sha-256 of 32 bytes"),
        (field("sha-512").replace("512", "256"), "no sha-256 of 32 bytes"),
        (field("sha-256").replace("sha-256", "sha-512"), "no sha-512 of 64 bytes"),
    ],
)
def test_a_field_that_states_no_digest_is_refused(value: str, message: str) -> None:
    """A caller that states a digest believes that its content is compared."""
    with pytest.raises(BadRequest, match=message) as refused:
        answered(("Content-Digest", value))
    assert not isinstance(refused.value, DigestMismatch)


@pytest.mark.parametrize(
    ("wish", "algorithm"),
    [
        ("sha-256=1", "sha-256"),
        ("sha-256=3, sha-512=10", "sha-512"),
        ("sha-512=0, sha-256=1", "sha-256"),
        ("md5=10, sha-512=1;any", "sha-512"),
    ],
)
def test_a_response_has_the_digests_that_are_asked_for(wish: str, algorithm: str) -> None:
    assert answered(("Want-Content-Digest", wish)) == {"content-digest": field(algorithm)}
    assert answered(("Want-Repr-Digest", wish)) == {"repr-digest": field(algorithm)}
    both = answered(("Want-Repr-Digest", wish), ("Want-Content-Digest", wish), status=422)
    assert both == {"content-digest": field(algorithm), "repr-digest": field(algorithm)}


@pytest.mark.parametrize(
    "wish", ["", "sha-256", "sha-256=0", "sha-256=11", "sha-256=-1", "md5=1", "sha-256=:a:"]
)
def test_no_digest_is_sent_without_an_algorithm_that_is_wanted(wish: str) -> None:
    assert answered(("Want-Content-Digest", wish), ("Want-Repr-Digest", wish)) == {}


def test_a_response_in_pieces_has_no_digest() -> None:
    wish = ("Want-Content-Digest", "sha-256=1")
    assert answered(wish, sent=(CONTENT, b"more")) == {}
    assert answered(wish, length=False) == {}


def test_a_response_without_a_representation_has_the_digest_of_its_content_alone() -> None:
    wishes = ("Want-Content-Digest", "sha-256=1"), ("Want-Repr-Digest", "sha-256=1")
    nothing = {"content-digest": field("sha-256", b"")}
    assert answered(*wishes, method="HEAD", sent=(b"",)) == nothing
    assert answered(*wishes, status=304, sent=(b"",)) == nothing
