"""Calls of ``rowveil_client``, with blocking methods and with coroutines: the same requests and results."""

import asyncio
import copy
import inspect
import json
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rowveil_client import AsyncRowveil, Problem, Rowveil, Webhook, calls
from tests.cli.conftest import SEED
from tests.cli.people import people

HOOK: Webhook = {"url": "https://hooks.example/done", "secret": "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"}
ANNOTATIONS = {"name": "Second wave", "label": "wave-2", "notes": "with\nnew weights"}
SUBMISSION: dict[str, Any] = {"priority": "low", "deadline_seconds": 900.0, "webhook": HOOK, **ANNOTATIONS}
SWAP: dict[str, Any] = {"swap_fields": ["income"], "control_field": "city"}
MEASURES: dict[str, Any] = {"key_fields": ["age", "city"]}


@pytest.mark.parametrize("kind", [Rowveil, AsyncRowveil])
def test_a_client_cannot_be_pickled_and_says_what_to_do(kind: type) -> None:
    """Its key is not in the message."""
    client = kind("http://localhost:1", "key-of-ada")
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="create one in each process") as caught:
            copied(client)
        assert "key-of-ada" not in str(caught.value)


class Blocking:
    """A coroutine client whose methods can be called without a loop, so that both kinds share their tests."""

    def __init__(self, inner: AsyncRowveil) -> None:
        self.inner = inner
        self.runner = asyncio.Runner()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            return self.runner.run(found(*arguments, **named))

        return call


@pytest.fixture(params=["blocking", "asyncio"])
def rowveil(request: pytest.FixtureRequest, client: httpx.Client) -> Iterator[Any]:
    """Both clients of the running service."""
    key = client.headers.get("authorization", "").removeprefix("Bearer ") or None
    if request.param == "blocking":
        with Rowveil(str(client.base_url), key) as connection:
            yield connection
        return
    wrapped = Blocking(AsyncRowveil(str(client.base_url), key))
    with wrapped.runner:
        yield wrapped
        wrapped.close()


def test_a_run_with_its_options(rowveil: Any) -> None:
    options = {"priority": "low", "deadline_seconds": 900.0, "report": "none"}
    released = rowveil.cdswap(people(), **SWAP, seed=SEED, **options)
    assert isinstance(released, pa.Table)
    assert released["city"].to_pylist() == people()["city"].to_pylist()
    assert released["income"].to_pylist() != people()["income"].to_pylist()
    assert rowveil.job["priority"] == "low"
    assert rowveil.job["deadline"] > rowveil.job["created_at"]
    assert rowveil.manifest()["manifest"]["job"] == rowveil.job["id"]


def test_jobs_are_named_found_and_renamed(rowveil: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are found on all pages of the list; `annotate` leaves the texts that are not given."""
    monkeypatch.setattr(calls, "_PAGE_SIZE", 1)
    label = f"clients-{os.urandom(8).hex()}"
    rowveil.dswap(people(), swap_fields=["income"], report="none", name="First", label=label, notes="x")
    first = rowveil.job
    assert (first["name"], first["label"], first["notes"]) == ("First", label, "x")
    rowveil.dswap(people(), swap_fields=["income"], report="none", name="Second", label=label)
    rowveil.annotate(name="Renamed", notes="")
    assert (rowveil.job["name"], rowveil.job["label"], rowveil.job.get("notes")) == ("Renamed", label, None)
    assert [job["id"] for job in rowveil.jobs(label=label)] == [rowveil.job["id"], first["id"]]
    assert [job["id"] for job in rowveil.jobs(name="firs", label=label)] == [first["id"]]
    with pytest.raises(Problem, match="give 'name', 'label' or 'notes'"):
        rowveil.annotate()


def test_a_plan_is_made_and_nothing_stored(rowveil: Any, client: httpx.Client) -> None:
    newest = client.get("/v1/jobs?page_size=1").json()["jobs"]
    plan = rowveil.validate("CDSWAP", people(), **SWAP, priority="low")
    assert plan["rows"] == 400
    assert plan["groups"] == 3
    assert client.get("/v1/jobs?page_size=1").json()["jobs"] == newest
    assert rowveil.job == {}
    with pytest.raises(Problem, match="did you mean 'income'"):
        rowveil.validate("DSWAP", people(), swap_fields=["incom"])


def test_measures_frontier_and_attack_return_their_reports(rowveil: Any) -> None:
    table = people()
    released = rowveil.dswap(table, swap_fields=["income"], seed=SEED, report="none")
    measured = rowveil.measure(table, released, measures=MEASURES, seed=SEED, priority="low")
    assert rowveil.job["kind"] == "measures"
    assert rowveil.job["priority"] == "low"
    assert measured["measures"]
    services = [{"service": "CDSWAP", "parameters": SWAP, "vary": {"rate": [0.5, 1]}}]
    compared = rowveil.frontier(table, services, seed=SEED, key_fields=["age", "city"])
    assert rowveil.job["kind"] == "frontier"
    assert len(compared["frontier"]["points"]) == 2
    asked = {"known": ["age", "city"], "secret": ["income"], "attacks": 40, "seed": SEED}
    attacked = rowveil.attack(table, released, **asked, deadline_seconds=900)
    assert rowveil.job["kind"] == "attacks"
    assert attacked["verdict"]["state"] in ("low", "elevated", "high")


def test_arguments_of_numpy_and_pandas_are_sent_as_plain_ones() -> None:
    """A notebook has them; what JSON cannot hold is refused before a table is uploaded."""
    frame = pd.DataFrame({"day": pd.to_datetime(["2026-01-31"]), "income": [1]})
    given = {
        "swap_fields": frame.columns[1:],
        "rate": np.float64(0.5),
        "classifier": {"breaks": frame["day"]},
    }
    call = calls.run_call("CDSWAP", pa.table({}), {"seed": np.int64(7)}, given)
    breaks = {"breaks": ["2026-01-31T00:00:00"]}
    plain = {"swap_fields": ["income"], "rate": 0.5, "classifier": breaks}
    assert call.members == {"seed": 7, "parameters": plain}
    with pytest.raises(TypeError, match="of type set"):
        calls.run_call("DSWAP", pa.table({}), {}, {"swap_fields": {"income"}})


def test_calls_at_the_same_time_return_their_own_results(client: httpx.Client) -> None:
    """Tasks and threads that share a client; each got the release of the call that had ended last."""
    address = str(client.base_url)
    key = client.headers.get("authorization", "").removeprefix("Bearer ") or None
    tables = [pa.table({"v": range(1000 * part, 1000 * part + 50)}) for part in range(6)]

    async def gathered() -> list[pa.Table]:
        async with AsyncRowveil(address, key) as rowveil:
            return await asyncio.gather(*(rowveil.dswap(table, swap_fields=["v"]) for table in tables))

    with Rowveil(address, key) as rowveil, ThreadPoolExecutor(len(tables)) as threads:
        released = list(threads.map(lambda table: rowveil.dswap(table, swap_fields=["v"]), tables))
        measured = list(threads.map(lambda table: rowveil.measure(table, table.slice(20)), tables))
    for releases in (released, asyncio.run(gathered())):
        assert [sorted(release["v"].to_pylist()) for release in releases] == [
            table["v"].to_pylist() for table in tables
        ]
    assert all(report["summary"]["destination_rows"] == 30 for report in measured)


def test_a_cancelled_task_cancels_its_job(client: httpx.Client) -> None:
    """The coroutine ends at once, and the service does not go on."""
    key = client.headers.get("authorization", "").removeprefix("Bearer ") or None

    async def run() -> str:
        async with AsyncRowveil(str(client.base_url), key) as rowveil:
            work = asyncio.create_task(
                rowveil.dswap(people(60_000), swap_fields=["income"], candidates=32, report="none")
            )
            while not rowveil.job:
                await asyncio.sleep(0.05)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            return str(rowveil.job["id"])

    job = asyncio.run(run())
    for _ in range(600):
        if (state := client.get(f"/v1/jobs/{job}").json()["state"]) not in ("queued", "running"):
            break
    assert state == "cancelled"


class Recorder(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Service that keeps the bodies of calls, and fails every job at once."""

    def __init__(self) -> None:
        self.calls: dict[str, Any] = {}
        self.deleted: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self._answer(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return self._answer(request)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if request.method == "DELETE":
            self.deleted.append(path)
            return httpx.Response(204)
        if path == "/v1/buffers":
            return httpx.Response(201, json={"id": f"buffer{len(self.deleted)}"})
        if request.method == "POST":
            self.calls[path] = json.loads(request.content)
            return httpx.Response(202, json={"id": "1", "state": "queued"})
        if path.endswith("/events"):
            return httpx.Response(200, text="")
        return httpx.Response(200, json={"id": "1", "state": "failed", "error": {"detail": "as planned"}})


CALLS: dict[str, tuple[Callable[[Any], Any], str, set[str]]] = {
    "run": (
        lambda each: each.run("CDSWAP", people(), **SWAP, **SUBMISSION),
        "/v1/services/CDSWAP",
        {"source", "parameters", "report"},
    ),
    "measure": (
        lambda each: each.measure(people(), people(), measures=MEASURES, **SUBMISSION),
        "/v1/measures",
        {"source", "destination", "measures"},
    ),
    "frontier": (
        lambda each: each.frontier(people(), [{"service": "CDSWAP"}], key_fields=["age"], **SUBMISSION),
        "/v1/frontier",
        {"source", "services", "key_fields"},
    ),
    "attack": (
        lambda each: each.attack(people(), people(), known=["age"], secret=["income"], **SUBMISSION),
        "/v1/attacks",
        {"source", "destination", "known", "secret"},
    ),
}


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
@pytest.mark.parametrize("name", CALLS)
def test_every_call_takes_priority_deadline_and_webhook(kind: str, name: str) -> None:
    """The request holds them, and each uploaded table is deleted when the job has ended."""
    call, path, members = CALLS[name]
    recorder = Recorder()
    if kind == "blocking":
        each: Any = Rowveil("http://service")
        each._client = httpx.Client(base_url="http://service", transport=recorder)
        with each, pytest.raises(Problem, match="as planned"):
            call(each)
    else:
        each = AsyncRowveil("http://service")
        each._client = httpx.AsyncClient(base_url="http://service", transport=recorder)

        async def run() -> None:
            async with each:
                with pytest.raises(Problem, match="as planned"):
                    await call(each)

        asyncio.run(run())
    body = recorder.calls[path]
    assert {name: body[name] for name in SUBMISSION} == SUBMISSION
    assert set(body) == members | set(SUBMISSION)
    assert len(recorder.deleted) == len({"source", "destination"} & set(body))


def test_both_clients_have_the_same_methods() -> None:
    """The parameters of each method are the same too."""
    for name, method in inspect.getmembers(Rowveil, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(method) == inspect.signature(getattr(AsyncRowveil, name)), name
            assert inspect.iscoroutinefunction(getattr(AsyncRowveil, name)), name
