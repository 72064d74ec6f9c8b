"""Bodies count in the budget of the requests in flight as they arrive, and until their responses are sent."""

import asyncio
import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import HTTPException

from app.api.json_request import JsonRequest
from app.api.request_budget import LARGE_BODY, RequestBudget, memory_of
from app.callers import Caller
from app.errors import LimitReached, Unavailable
from app.formats.json_text import MOST_NAMES, MOST_OPENINGS
from app.settings import Settings
from app.telemetry.metrics import Metrics


class Service:
    """Requests to an application with a budget, which takes four bodies of the largest size at a time."""

    def __init__(self, home: Path, largest: int = 2**16) -> None:
        settings = Settings(home=home, max_body_bytes=largest, request_memory_bytes=4 * memory_of(largest))
        self.requests = 0
        self.metrics = Metrics()
        self.budget = RequestBudget(settings, self.metrics)
        self.app = SimpleNamespace(state=SimpleNamespace(settings=settings, request_budget=self.budget))

    def request(
        self,
        *chunks: bytes,
        declared: int | None = None,
        owner: str | None = None,
        coding: str | None = None,
    ) -> JsonRequest:
        """Return a request of the owner, by default of one who sends no other."""
        left = list(chunks)
        self.requests += 1
        caller = Caller(owner or f"caller {self.requests}")

        async def receive() -> dict[str, Any]:
            chunk = left.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(left)}

        headers = [] if declared is None else [(b"content-length", str(declared).encode())]
        headers += [] if coding is None else [(b"content-encoding", coding.encode())]
        scope = {"type": "http", "app": self.app, "headers": headers, "state": {"caller": caller}}
        return JsonRequest(scope, receive)


def refusal_of(request: JsonRequest) -> Exception | None:
    with pytest.raises(HTTPException):
        asyncio.run(request.body())
    return request.refusal


def test_a_body_beyond_the_budget_is_refused_until_others_have_been_answered(tmp_path: Path) -> None:
    service = Service(tmp_path)
    half = bytes(2**15)
    answered = [service.request(half, half) for _ in range(4)]
    for request in answered:
        asyncio.run(request.body())
    assert service.budget.taken == service.budget.limit
    late = service.request(b"{}")
    refusal = refusal_of(late)
    assert isinstance(refusal, Unavailable)
    assert (refusal.status, refusal.headers()) == (503, {"Retry-After": "5"})
    assert late.claim is not None
    late.claim.release()
    assert service.metrics.requests_refused._value.get() == 1
    assert answered[0].claim is not None
    answered[0].claim.release()
    answered[0].claim.release()
    assert service.budget.taken == 3 * memory_of(2**16)
    assert asyncio.run(service.request(b"{}").body()) == b"{}"


def test_a_declared_length_that_does_not_fit_is_refused_before_the_body(tmp_path: Path) -> None:
    service = Service(tmp_path)
    first = service.request(bytes(2**16))
    asyncio.run(first.body())
    for _ in range(2):
        asyncio.run(service.request(bytes(2**16)).body())
    asyncio.run(service.request(bytes(100)).body())
    assert isinstance(refusal_of(service.request(declared=2**16)), Unavailable)  # no chunk is read


def test_one_caller_leaves_a_quarter_to_others(tmp_path: Path) -> None:
    """Also if the length is declared; what is answered no longer counts."""
    service = Service(tmp_path)
    first = [service.request(bytes(2**16), owner="ada") for _ in range(3)]
    for request in first:
        asyncio.run(request.body())
    for more in (service.request(b"{}", owner="ada"), service.request(declared=9, owner="ada")):
        refusal = refusal_of(more)
        assert isinstance(refusal, LimitReached)
        assert (refusal.policy, refusal.left) == ("request-memory", 0)
    assert asyncio.run(service.request(b"{}").body()) == b"{}"
    assert first[0].claim is not None
    first[0].claim.release()
    assert asyncio.run(service.request(b"{}", owner="ada").body()) == b"{}"
    assert service.metrics.requests_refused._value.get() == 0


def test_one_body_of_the_largest_size_always_fits(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, max_body_bytes=2**26, request_memory_bytes=1)
    budget = RequestBudget(settings, Metrics())
    assert budget.limit == budget.caller_limit == memory_of(2**26)


def test_memory_grows_with_each_byte() -> None:
    sizes = [0, 1, LARGE_BODY - 1, LARGE_BODY, LARGE_BODY + 1, 2**26]
    memory = [memory_of(size) for size in sizes]
    assert memory[:2] == [0, 30]
    assert memory == sorted(set(memory))


def test_a_body_that_decodes_to_nothing_has_an_end(tmp_path: Path) -> None:
    """The limit counted decoded bytes only, so that empty members of gzip were taken for ever."""
    service = Service(tmp_path)
    members = [gzip.compress(b"") * 100] * 40
    with pytest.raises(HTTPException) as refused:
        asyncio.run(service.request(*members, coding="gzip").body())
    assert refused.value.status_code == 413
    assert asyncio.run(service.request(*members[:30], gzip.compress(b"{}"), coding="gzip").body()) == b"{}"


@pytest.mark.parametrize(
    ("body", "is_parsed_here"),
    [
        (b"[" + b"[]," * (MOST_OPENINGS - 2) + b"[]]", True),
        (b"[" + b"[]," * (MOST_OPENINGS - 1) + b"[]]", False),
        (b"[" + b"{}," * (MOST_OPENINGS - 1) + b"{}]", False),
        (b"{" + b'"a":1,' * MOST_NAMES + b'"a":1}', False),
        (b"[" + b"1," * LARGE_BODY + b"1]", False),
    ],
)
def test_a_body_that_takes_long_is_not_parsed_in_the_event_loop(
    tmp_path: Path, body: bytes, is_parsed_here: bool
) -> None:
    """Nested lists of 1 MiB stopped all other requests for two seconds."""
    service = Service(tmp_path, largest=2**22)
    parsed: list[bytes] = []

    async def parse(text: bytes, _: str) -> str:
        parsed.append(text)
        return "elsewhere"

    service.app.state.body_parser = SimpleNamespace(parse=parse)
    document = asyncio.run(service.request(body).json())
    assert (document != "elsewhere", not parsed) == (is_parsed_here, is_parsed_here)
