"""Responses to requests that end with an error that no route foresees."""

import asyncio
from contextlib import suppress

import orjson
from starlette.types import Message, Receive, Scope, Send

from app.api.problems import MEDIA_TYPE, UnexpectedErrors

SCOPE = {"type": "http", "method": "POST", "path": "/v1/buffers", "headers": []}


def cancelled(begun: bool) -> list[Message]:
    """Messages of a response to a request that the server cancels, before or after the response has begun."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    async def serve() -> None:
        waiting = asyncio.Event()

        async def endless(scope: Scope, receive: Receive, send: Send) -> None:
            if begun:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            waiting.set()
            await asyncio.Event().wait()

        request = asyncio.create_task(UnexpectedErrors(endless)(SCOPE, receive, send))
        await waiting.wait()
        request.cancel()
        with suppress(asyncio.CancelledError):
            await request

    asyncio.run(serve())
    return sent


def test_a_request_that_lasts_longer_than_a_stop_gets_a_503() -> None:
    """It was a 500 with a plain text, which no client repeats."""
    start, body = cancelled(begun=False)
    headers = dict(start["headers"])
    assert start["status"] == 503
    assert headers[b"content-type"] == MEDIA_TYPE.encode()
    assert (headers[b"retry-after"], headers[b"connection"]) == (b"5", b"close")
    assert orjson.loads(body["body"])["code"] == "unavailable"


def test_a_response_that_a_stop_breaks_off_gets_no_second_one() -> None:
    assert [message["type"] for message in cancelled(begun=True)] == ["http.response.start"]
