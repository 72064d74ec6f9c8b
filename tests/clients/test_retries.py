"""Calls of ``rowveil_client`` whose requests meet a limit, an absent service or a closed connection."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from rowveil_client import AsyncRowveil, Problem, Rowveil
from rowveil_client.retries import Patience, Retries, is_final
from rowveil_client.tables import ByteReader, arrow_stream, whole_table
from tests.cli.people import people

SWAP: dict[str, Any] = {"swap_fields": ["income"], "report": "none", "label": "retries"}
SUBMISSION = ("POST", "/v1/services/DSWAP")


class Cut(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Half of an answer, after which the connection is closed."""

    def __init__(self, content: bytes) -> None:
        self._half = content[: len(content) // 2]

    def __iter__(self) -> Iterator[bytes]:
        yield self._half
        raise httpx.RemoteProtocolError("peer closed connection")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._half
        raise httpx.RemoteProtocolError("peer closed connection")


class Unreliable(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Connection to the real service on which the first requests of each kind meet faults, in turn.

    ``away``: the service gets nothing. ``cut``: half of its answer arrives. ``ended``: the same, and the
    answer ends in order, as that of some proxies does. A response replaces the answer.
    """

    def __init__(self, client: httpx.Client, faults: dict[tuple[str, str], list[Any]]) -> None:
        self._client = client
        self._faults = faults
        self.keys: dict[str, list[str | None]] = {}
        """Path of a `POST` -> idempotency keys of its attempts."""
        self.deleted = ""
        """Buffer that was to be deleted last."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._answer(request, request.read())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self._answer(request, await request.aread())

    def _answer(self, request: httpx.Request, content: bytes) -> httpx.Response:
        path = request.url.path
        if request.method == "POST":
            self.keys.setdefault(path, []).append(request.headers.get("idempotency-key"))
        if request.method == "DELETE":
            self.deleted = path.rpartition("/")[2]
        faults = next(
            (
                left
                for (method, end), left in self._faults.items()
                if request.method == method and path.endswith(end)
            ),
            [],
        )
        fault = faults.pop(0) if faults else "none"
        if isinstance(fault, httpx.Response):
            return fault
        if fault == "away":
            raise httpx.ConnectError("connection refused")
        kept = {name: value for name, value in request.headers.items() if name != "transfer-encoding"}
        answer = self._client.request(request.method, path, content=content, headers=kept)
        if fault == "cut":
            return httpx.Response(answer.status_code, headers=answer.headers, stream=Cut(answer.content))
        arrived = answer.content[: len(answer.content) // 2] if fault == "ended" else answer.content
        media_type = {"content-type": answer.headers.get("content-type", "x/y")}
        return httpx.Response(answer.status_code, content=arrived, headers=media_type)


def problem(status: int, code: str, retry_after: str) -> httpx.Response:
    document = {"status": status, "code": code, "detail": "as planned"}
    return httpx.Response(status, json=document, headers={"retry-after": retry_after})


def run(kind: str, transport: Unreliable, **options: Any) -> dict[str, Any]:
    """Run a swap with one of the clients; return its job."""
    if kind == "blocking":
        with Rowveil("http://service", **options) as rowveil:
            rowveil._client = httpx.Client(base_url="http://service", transport=transport)
            rowveil.dswap(people(), **SWAP)
            return rowveil.job

    async def task() -> dict[str, Any]:
        async with AsyncRowveil("http://service", **options) as rowveil:
            rowveil._client = httpx.AsyncClient(base_url="http://service", transport=transport)
            await rowveil.dswap(people(), **SWAP)
            return rowveil.job

    return asyncio.run(task())


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_requests_are_repeated_and_make_one_job(client: httpx.Client, kind: str) -> None:
    """Limits, an absent service and cut answers delay the run; each `POST` keeps its key."""
    label = {"label": SWAP["label"]}
    before = len(client.get("/v1/jobs", params=label).json()["jobs"])
    unreliable = Unreliable(
        client,
        {
            ("POST", "/v1/buffers"): ["away", "cut", problem(429, "limit_reached", "0")],
            SUBMISSION: [problem(503, "unavailable", "0"), "ended", httpx.Response(502)],
            ("GET", "/events"): ["ended"],
            ("DELETE", ""): ["away", problem(503, "unavailable", "0"), "cut"],
            ("GET", "/rows"): ["cut", "away", "ended"],
        },
    )
    job = run(kind, unreliable)
    assert job["state"] == "succeeded"
    for path in ("/v1/buffers", SUBMISSION[1]):
        keys = unreliable.keys[path]
        assert len(keys) == 4
        assert len(set(keys)) == 1
        assert keys[0]
    found = client.get("/v1/jobs", params=label).json()["jobs"]
    assert len(found) == before + 1
    assert found[0]["id"] == job["id"]
    assert client.get(f"/v1/buffers/{unreliable.deleted}").status_code == 404


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
@pytest.mark.parametrize(
    ("answer", "options"),
    [
        ((429, "limit_reached", "3600"), {}),
        ((503, "unavailable", "1"), {"retry_seconds": 0.0}),
        ((503, "worker_died", "0"), {}),
        ((507, "storage_full", "0"), {}),
    ],
    ids=["longer than retry_seconds", "no repetitions", "a failed job", "no temporary error"],
)
def test_an_answer_that_is_final_is_raised_at_once(
    client: httpx.Client, kind: str, answer: tuple[int, str, str], options: dict[str, Any]
) -> None:
    unreliable = Unreliable(client, {SUBMISSION: [problem(*answer)]})
    with pytest.raises(Problem, match="as planned") as caught:
        run(kind, unreliable, **options)
    assert caught.value.retry_after == float(answer[2])
    assert len(unreliable.keys[SUBMISSION[1]]) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"status_code": 301, "headers": {"location": "https://swap.example/"}}, "redirects to https://swap"),
        ({"status_code": 200, "html": "<p>Sign in</p>"}, "sent text/html; charset=utf-8 in place of JSON"),
    ],
    ids=["another address", "a page to sign in"],
)
@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_an_answer_of_something_else_says_so(
    client: httpx.Client, kind: str, answer: dict[str, Any], message: str
) -> None:
    """It was an error of the JSON parser."""
    with pytest.raises(Problem, match=f"no Rowveil service answers at http://service: it {message}"):
        run(kind, Unreliable(client, {("POST", "/v1/buffers"): [httpx.Response(**answer)]}))


def test_the_pause_is_at_least_what_the_answer_asks_for() -> None:
    """A wrong address or a certificate fault in the client's own settings is not repeated."""
    retries = Retries(Patience(20, 5))
    asked = Problem({"status": 503, "code": "unavailable"}, retry_after=5)
    asked_again = [Retries(Patience(20, 5)).pause_after(asked) for _ in range(20)]
    assert all(5 <= pause <= 6.25 for pause in asked_again)
    assert len(set(asked_again)) == 20  # clients that get the same answer at the same moment come apart
    assert all(Retries(Patience(5.01, 5)).pause_after(asked) <= 5.01 for _ in range(20))
    assert 0 < retries.pause_after(httpx.ReadError("closed")) < 1
    with pytest.raises(httpx.UnsupportedProtocol):
        retries.pause_after(httpx.UnsupportedProtocol("no scheme"))
    refused = httpx.ConnectError("certificate verify failed")
    refused.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    assert is_final(refused)


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_an_unknown_host_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    attempts = []

    def unknown(host: Any, *_: Any, **__: Any) -> Any:
        attempts.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    async def task() -> None:
        async with AsyncRowveil("http://mistyped.example") as rowveil:
            await rowveil.jobs()

    with pytest.raises(httpx.ConnectError, match="Name or service not known"):
        asyncio.run(task()) if kind == "asyncio" else Rowveil("http://mistyped.example").jobs()
    assert len(attempts) == 1


def test_a_first_connection_is_repeated_for_a_shorter_time() -> None:
    """A client that anything has answered waits for a restart, also of the server that knows the name."""
    refused, unknown = httpx.ConnectError("connection refused"), httpx.ConnectError("unknown")
    unknown.__cause__ = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    patience = Patience(20, 1)
    retries = Retries(patience)
    assert retries.pause_after(refused) + retries.pause_after(refused) < 1
    with pytest.raises(httpx.ConnectError, match="refused"):
        retries.pause_after(refused)
    assert retries.pause_after(httpx.ReadError("closed")) > 1
    assert patience.reached
    for error in (refused, unknown):
        assert retries.pause_after(error) > 1


def test_a_table_without_its_end_is_an_error() -> None:
    """Arrow takes the end of the bytes after a batch for the end of the table."""
    table = pa.table({"a": range(200_000)})
    first, *others = arrow_stream(table)
    assert whole_table(ByteReader(iter([first, *others]))).equals(table)
    for kept in ([first], [first, *others[:-1]], [first, others[0][:1000]], []):
        with pytest.raises(httpx.RemoteProtocolError, match="has no end"):
            whole_table(ByteReader(iter(kept)))
