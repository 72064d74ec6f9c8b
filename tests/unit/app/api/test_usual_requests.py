"""The shortcut of usual requests answers as FastAPI does, and admits a caller once."""

import asyncio
import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import orjson
import pytest
from fastapi import FastAPI

from app.errors import LimitReached
from app.jobs.fairness.rates import Rates
from app.main import create_app
from app.settings import Settings, thresholds_of
from app.telemetry.metrics import Metrics

PATH = "/v1/services/CDSWAP"
ROWS = [{"age": 31, "city": "x"}, {"age": 32, "city": "x"}]
PARAMETERS = {"swap_fields": ["age"], "control_field": "city"}
CALL: dict[str, Any] = {"source": {"rows": ROWS}, "parameters": PARAMETERS}

USUAL = {"content-type": "application/json", "x-request-id": "one"}
"""Answered by the shortcut."""
UNUSUAL = {"content-type": "application/json; charset=utf-8", "x-request-id": "one"}
"""Passed on to FastAPI before the body is read."""


class NoJobs(SimpleNamespace):
    """A service that refuses every job, so that no worker is needed."""

    may_read = True

    def on_behalf_of(self, caller: Any) -> "NoJobs":
        return self

    async def submit(self, new: Any) -> Any:
        raise LimitReached(f"{new.service} of {new.source.num_rows} rows", "jobs", 3, 0, 5)

    async def accepted_before(self, submission: Any) -> Any:
        return None


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    settings = Settings(home=tmp_path, auth="off", caller_request_rate=0.001, caller_request_burst=100)
    made = create_app(settings)
    metrics = Metrics("0")
    thresholds = thresholds_of(settings, None)
    made.state.jobs = NoJobs(
        metrics=metrics, rates=Rates(settings, metrics), attack_thresholds=thresholds, buffers=None
    )
    return made


def answers(app: FastAPI, *requests: tuple[bytes, dict[str, str]], query: str = "") -> list[httpx.Response]:
    async def call() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [
                await client.post(PATH + query, content=body, headers=headers) for body, headers in requests
            ]

    return asyncio.run(call())


@pytest.mark.parametrize(
    "body",
    [
        orjson.dumps(CALL),
        orjson.dumps(CALL | {"unknown": 1}),
        orjson.dumps(CALL | {"parameters": {**PARAMETERS, "rate": "0.5"}}),
        orjson.dumps(CALL | {"parameters": {**PARAMETERS, "swap_fields": ["wage"]}}),
        orjson.dumps(CALL | {"source": {"rows": [1]}}),
        orjson.dumps(CALL | {"source": {"rows": []}}),
        orjson.dumps(CALL | {"priority": "high", "seed": "0a"}),
        orjson.dumps(CALL).replace(b'"age":32', b'"age":32,"age":33'),
        b"\xef\xbb\xbf" + orjson.dumps(CALL),
        b'{"source": NaN}',
        b"{",
        b"[]",
        b"null",
        b"",
        b"\xff",
        b"[" * 30_000,
    ],
)
def test_both_ways_answer_the_same(app: FastAPI, body: bytes) -> None:
    usual, unusual = answers(app, (body, USUAL), (body, UNUSUAL))
    assert usual.status_code == unusual.status_code >= 400
    assert usual.json() == unusual.json()
    rates = [response.headers.pop("ratelimit") for response in (usual, unusual)]
    assert usual.headers == unusual.headers
    assert rates in (['"jobs";r=0;t=5'] * 2, ['"requests";r=99;t=1000', '"requests";r=98;t=2000'])


def test_a_usual_request_reaches_the_service(app: FastAPI) -> None:
    (answer,) = answers(app, (orjson.dumps(CALL), USUAL))
    assert (answer.status_code, answer.json()["detail"]) == (429, "CDSWAP of 2 rows")


@pytest.mark.parametrize(
    "headers", [{"idempotency-key": ""}, {"idempotency-key": "k" * 256}, {"prefer": "wait=1"}]
)
def test_headers_mean_the_same_both_ways(app: FastAPI, headers: dict[str, str]) -> None:
    body = orjson.dumps(CALL)
    usual, unusual = answers(app, (body, USUAL | headers), (body, UNUSUAL | headers))
    assert (usual.status_code, usual.json()) == (unusual.status_code, unusual.json())


def test_a_compressed_body_is_read_once(app: FastAPI) -> None:
    (answer,) = answers(app, (gzip.compress(orjson.dumps(CALL)), USUAL | {"content-encoding": "gzip"}))
    assert (answer.status_code, answer.json()["detail"]) == (429, "CDSWAP of 2 rows")


def test_an_unknown_query_parameter_is_refused(app: FastAPI) -> None:
    (answer,) = answers(app, (orjson.dumps(CALL), USUAL), query="?wait=5")
    assert answer.status_code == 422
    assert "unknown query parameter 'wait'" in answer.json()["errors"][0]["message"]


def test_a_request_that_fastapi_answers_counts_once(app: FastAPI) -> None:
    app.state.jobs.rates.take("anonymous")
    answers(app, *[(b"{}", USUAL)] * 3)
    assert app.state.jobs.rates.take("anonymous").left == 100 - 5
