"""Token buckets of callers, and the responses to a caller that is too fast."""

import asyncio
import copy
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from app.errors import LimitReached
from app.jobs.fairness.rates import Rates
from app.main import create_app
from app.settings import Settings
from app.telemetry.metrics import Metrics


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def rates(clock: Clock, rate: float = 2.0, burst: int = 10) -> tuple[Rates, Metrics]:
    metrics = Metrics("0")
    settings = Settings(caller_request_rate=rate, caller_request_burst=burst)
    return Rates(settings, metrics, clock), metrics


def taken(limits: Rates, owner: str, most: int = 100) -> int:
    """Number of requests that pass at once."""
    for count in range(most):
        try:
            limits.take(owner)
        except LimitReached:
            return count
    return most


def test_a_bucket_empties_and_fills() -> None:
    clock = Clock()
    limits, metrics = rates(clock)
    assert taken(limits, "a") == 10
    assert taken(limits, "b") == 10  # each caller has its own
    clock.now = 0.4
    assert taken(limits, "a") == 0
    clock.now = 1.0
    assert taken(limits, "a") == 2
    clock.now = 3600.0
    assert taken(limits, "a") == 10
    assert b'rowveil_limited_total{limit="requests"} 5.0' in metrics.text()


def test_buckets_that_are_not_full_are_kept_however_many_callers_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.jobs.fairness.rates._MOST_BUCKETS", 2)
    clock = Clock()
    limits, _ = rates(clock)
    assert taken(limits, "greedy") == 10
    for owner in "abc":
        limits.take(owner)
    clock.now = 0.6  # those of a, b and c are full again, after half a second for each request
    assert taken(limits, "greedy") == 1
    assert limits._full_at.keys() == {"greedy"}


def test_a_long_run_gets_the_rate() -> None:
    clock = Clock()
    limits, _ = rates(clock)
    passed = 0
    for step in range(1000):
        clock.now = step / 10
        passed += taken(limits, "a", 5)
    assert 10 + 2 * 99.9 - 1 <= passed <= 10 + 2 * 99.9


def test_the_fields_say_what_is_left_and_when() -> None:
    clock = Clock()
    limits, _ = rates(clock)
    allowance = limits.take("a")
    assert allowance is not None
    assert allowance.headers() == {
        "RateLimit-Policy": '"requests";q=10;w=5',
        "RateLimit": '"requests";r=9;t=1',
    }
    taken(limits, "a")
    with pytest.raises(LimitReached) as caught:
        limits.take("a")
    assert caught.value.headers() == {
        "Retry-After": "1",
        "RateLimit-Policy": '"requests";q=10;w=5',
        "RateLimit": '"requests";r=0;t=1',
    }
    assert copy.copy(caught.value).headers() == caught.value.headers()  # by its arguments, as pickle does


def test_a_slow_rate_names_the_seconds_after_which_a_request_passes() -> None:
    clock = Clock()
    limits, _ = rates(clock, rate=0.1, burst=3)
    taken(limits, "a")
    clock.now = 1.0
    with pytest.raises(LimitReached) as caught:
        limits.take("a")
    assert caught.value.seconds == 9
    clock.now += 9
    assert taken(limits, "a") == 1


@pytest.mark.parametrize("now", [24.1, 1100.3, 1600.7, 3_000_000.1, 100_000_000.3])
def test_rounding_of_the_clock_adds_no_second(now: float) -> None:
    clock, metrics = Clock(), Metrics("0")
    settings = Settings(caller_request_rate=0.001, caller_request_burst=1)
    seconds = []
    for step in range(200):
        clock.now = now + step * 0.7
        limits = Rates(settings, metrics, clock)
        allowance = limits.take("a")
        assert allowance is not None
        with pytest.raises(LimitReached) as caught:
            limits.take("a")
        seconds += [allowance.seconds, allowance.window, caught.value.seconds]
    assert set(seconds) == {1000}


def test_a_rate_of_zero_limits_nothing() -> None:
    limits, _ = rates(Clock(), rate=0.0)
    assert limits.take("a") is None
    assert taken(limits, "a", 5000) == 5000


def test_full_buckets_are_forgotten() -> None:
    clock = Clock()
    limits, _ = rates(clock)
    for number in range(30_000):
        clock.now = number * 0.001
        limits.take(f"caller {number}")
    assert len(limits._full_at) <= 10_001


def test_errors_have_the_rate_of_their_caller(tmp_path: Path) -> None:
    """Responses to authenticated requests state what is left, whatever their status is."""
    settings = Settings(home=tmp_path, auth="off", caller_request_rate=0.001, caller_request_burst=9)
    app = create_app(settings)
    app.state.jobs = SimpleNamespace(metrics=Metrics("0"), rates=Rates(settings, Metrics("0"), Clock()))

    async def call() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [
                await client.get("/v1/services/NONE"),
                await client.get("/v1/services?x=1"),
                await client.post("/v1/services/DSWAP", content=b"{"),
                await client.get("/v1/jobs/none"),  # fails: the service here has no jobs
                await client.get("/v1/none"),
            ]

    *errors, no_route = asyncio.run(call())
    assert [response.status_code for response in errors] == [404, 422, 400, 500]
    assert (no_route.status_code, "ratelimit" in no_route.headers) == (404, False)
    left = [response.headers["ratelimit"].split(";")[1] for response in errors]
    assert left == ["r=8", "r=7", "r=6", "r=5"]
    assert {response.headers["ratelimit-policy"] for response in errors} == {'"requests";q=9;w=9000'}


def test_a_caller_that_is_too_fast_gets_429(tmp_path: Path) -> None:
    """Every response of the API has the fields, and neither probes nor the document are limited."""
    settings = Settings(home=tmp_path, auth="off", caller_request_rate=0.001, caller_request_burst=3)
    app = create_app(settings)
    service = SimpleNamespace(metrics=Metrics("0"), rates=Rates(settings, Metrics("0"), Clock()))
    app.state.jobs = service

    async def call() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.get("/v1/services") for _ in range(4)] + [await client.get("/openapi.json")]

    *passed, refused, document = asyncio.run(call())
    assert [response.status_code for response in passed] == [200, 200, 200]
    assert [response.headers["ratelimit"] for response in passed] == [
        '"requests";r=2;t=1000',
        '"requests";r=1;t=2000',
        '"requests";r=0;t=3000',
    ]
    assert passed[0].headers["ratelimit-policy"] == '"requests";q=3;w=3000'
    assert refused.status_code == 429
    assert refused.json()["code"] == "limit_reached"
    assert refused.headers["retry-after"] == "1000"
    assert document.status_code == 200
    limited = [
        operation["operationId"]
        for operations in document.json()["paths"].values()
        for operation in operations.values()
        if "429" in operation["responses"]
    ]
    assert {"listServices", "getJob", "cancelJob", "getBufferRows"} <= set(limited)
    assert not {"getLiveness", "getReadiness", "getMetrics"} & set(limited)
