"""Connections held open on purpose are closed; those of slow but honest clients are not."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse

from app import server
from app.api import problems
from app.api.middleware.connections import ConnectionLimits, SurplusConnections, protocol
from app.processes.api_process import ApiProcess
from tests.api.calls import ARROW
from tests.preloaded.processes import service_process

LINGER = 0.6
PATIENCE = 0.8
RATE = 20_000
MOST = 4
LIMITS = ConnectionLimits(5.0, LINGER, PATIENCE, RATE, MOST)
LARGE = 8 * 2**20
MUCH_LONGER = 15.0


class Endless:
    """Open streams, and those that have begun."""

    open = begun = 0


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Service that responds early, at length, and slowly."""
    app = FastAPI()
    problems.install(app)
    app.add_middleware(SurplusConnections)

    @app.post("/refused")
    async def refused() -> None:
        raise HTTPException(401)

    @app.post("/read")
    async def read(request: Request) -> dict[str, int]:
        return {"bytes": len(await request.body())}

    @app.get("/large")
    async def large() -> StreamingResponse:
        async def pieces() -> Any:
            Endless.open += 1
            Endless.begun += 1
            try:
                for _ in range(LARGE // 2**16):
                    yield bytes(2**16)
            finally:
                Endless.open -= 1

        return StreamingResponse(pieces())

    @app.get("/seldom")
    async def seldom() -> StreamingResponse:
        async def pieces() -> Any:
            for _ in range(3):
                await asyncio.sleep(1.2 * PATIENCE)
                yield b"x"

        return StreamingResponse(pieces())

    @app.get("/echo/{path:path}")
    async def echo(request: Request) -> dict[str, str]:
        return {"path": request.scope["path"], "host": request.headers["host"], "query": request.url.query}

    @app.get("/livez")
    async def live() -> str:
        return "ok"

    config = uvicorn.Config(
        app, port=0, log_level="critical", http=protocol(LIMITS), timeout_keep_alive=1, ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


@contextmanager
def connected(port: int, buffer: int = 0) -> Iterator[socket.socket]:
    with socket.socket() as connection:
        if buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", port))
        yield connection


def head(method: str, path: str, *more: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *more, "", ""]).encode()


def received(connection: socket.socket) -> bytes:
    """Read everything until the service closes."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def seconds_until_closed(connection: socket.socket, interval: float = 0.1) -> float:
    """Send one byte per interval until the connection accepts no more."""
    started = time.monotonic()
    while time.monotonic() - started < MUCH_LONGER:
        try:
            connection.sendall(b"x")
        except (ConnectionResetError, BrokenPipeError):
            break
        time.sleep(interval)
    return time.monotonic() - started


@pytest.mark.parametrize("framing", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
def test_a_byte_now_and_then_after_an_early_answer(port: int, framing: str) -> None:
    """The answer can be read, says that the connection ends, and it does."""
    with connected(port) as connection:
        started = time.monotonic()
        connection.sendall(head("POST", "/refused", framing))
        answer = received(connection)
        assert answer.startswith(b"HTTP/1.1 401")
        assert b"connection: close" in answer.lower()
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == 401
        if "chunked" in framing:
            connection.sendall(b"f4240\r\n")
        assert seconds_until_closed(connection) < 5 * LINGER
        assert time.monotonic() - started > LINGER / 3


def test_the_answer_reaches_a_caller_that_sends_on(port: int) -> None:
    """A client that reads only after sending a large body gets the response, not a reset."""
    with connected(port) as connection:
        size = 20 * 2**20
        connection.sendall(head("POST", "/refused", f"Content-Length: {size}"))
        connection.sendall(bytes(size))
        assert received(connection).startswith(b"HTTP/1.1 401")


def test_a_whole_body_that_nobody_read_keeps_the_connection(port: int) -> None:
    """Head and body arrive together, so the body has ended before the early answer."""
    with connected(port) as connection:
        for path, status in (("/refused", 401), ("/refused", 401), ("/read", 200)):
            connection.sendall(head("POST", path, "Content-Length: 5") + b"12345")
            answer = http.client.HTTPResponse(connection, method="POST")
            answer.begin()
            assert answer.status == status
            assert answer.headers["connection"] is None
            answer.read()


def test_what_is_no_request_is_answered_and_closed(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(b"\x16\x03\x01 no head\r\n\r\n" + b"x" * 100_000)
        assert received(connection).startswith(b"HTTP/1.1 400")
        assert seconds_until_closed(connection) < 5 * LINGER


def test_a_body_with_two_lengths_is_refused_and_closes_the_connection(port: int) -> None:
    """The request after it is not answered: a proxy may have read another body."""
    smuggled = b"5\r\n12345\r\n0\r\n\r\n" + head("GET", "/livez")
    with connected(port) as connection:
        lengths = ("Content-Length: 5", "Transfer-Encoding: chunked")
        connection.sendall(head("POST", "/read", *lengths) + smuggled)
        answer = received(connection)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"a body of one Content-Length or in chunks" in answer
        assert answer.count(b"HTTP/1.1 ") == 1
        assert seconds_until_closed(connection) < 5 * LINGER


def test_an_idle_connection_is_closed(port: int) -> None:
    with connected(port) as connection:
        started = time.monotonic()
        connection.sendall(head("GET", "/livez"))
        received(connection)
        assert 0.5 < time.monotonic() - started < 5


def until(condition: Any) -> bool:
    deadline = time.monotonic() + MUCH_LONGER
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())


def test_a_caller_that_reads_nothing_is_cut(port: int) -> None:
    with connected(port, 4096) as connection:
        begun = Endless.begun
        connection.sendall(head("GET", "/large"))
        assert until(lambda: Endless.begun > begun)
        started = time.monotonic()
        assert until(lambda: Endless.open == 0)
        assert time.monotonic() - started < 6 * PATIENCE
        with pytest.raises(ConnectionResetError):
            received(connection)


def test_a_caller_that_reads_almost_nothing_is_cut(port: int) -> None:
    """The client makes some progress within the patience, at a tenth of the least rate."""
    with connected(port, 4096) as connection:
        connection.sendall(head("GET", "/large"))
        started = time.monotonic()
        try:
            while time.monotonic() - started < MUCH_LONGER:
                connection.recv(RATE // 50)
                time.sleep(0.2)
        except ConnectionResetError:
            pass
        assert PATIENCE < time.monotonic() - started < MUCH_LONGER
        assert until(lambda: Endless.open == 0)


def test_a_caller_that_reads_slowly_is_not_cut(port: int) -> None:
    """The client reads for several times the patience, at some times the least rate.

    It is cut if this process gets no processor for the patience: then it reads again.
    """
    assert any(is_read_slowly(port) for _ in range(5))


def is_read_slowly(port: int) -> bool:
    """Read an answer slowly. Return False if it was cut because this process stood still."""
    with connected(port, 65536) as connection:
        connection.sendall(head("GET", "/large", "Connection: close"))
        started = last = time.monotonic()
        longest, size = 0.0, 0
        try:
            while last - started < 5 * PATIENCE:
                size += len(connection.recv(50_000))
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
                time.sleep(0.1)
            size += len(received(connection))
        except ConnectionResetError:
            assert max(longest, time.monotonic() - last) > PATIENCE / 2
            return False
        assert size > LARGE
        return True


def test_an_answer_that_is_complete_is_not_held_either(port: int) -> None:
    """The last bytes are in the service's buffer: closing must not wait for them forever."""
    with connected(port, 4096) as connection:
        requests = head("GET", "/livez") * 50 + head("GET", "/large", "Connection: close")
        connection.sendall(requests)
        time.sleep(4 * PATIENCE)
        with pytest.raises(ConnectionResetError):
            received(connection)


def test_an_answer_may_pause(port: int) -> None:
    """The client reads everything available, as with server-sent events and waiting requests."""
    with connected(port) as connection:
        connection.sendall(head("GET", "/seldom", "Connection: close"))
        answer = received(connection)
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"0\r\n\r\n")


def test_connections_beyond_the_limit(port: int) -> None:
    """Rejected with a problem, except health checks; then reset; accepted again after others have closed."""
    with ExitStack() as stack:
        for _ in range(MOST):
            stack.enter_context(connected(port))
        answer = posted(port)
        document = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert (document["status"], document["code"]) == (503, "unavailable")
        assert b"retry-after: 5" in answer.lower()
        with connected(port) as connection:
            connection.sendall(head("GET", "/livez", "Connection: close"))
            assert received(connection).endswith(b'"ok"')
        surplus, reset = [], 0
        for _ in range(40):
            try:
                surplus.append(stack.enter_context(connected(port)))
            except ConnectionResetError:  # before this process has seen that it is connected
                reset += 1
        if not reset:
            with pytest.raises(ConnectionResetError):
                surplus[-1].recv(10)
        assert surplus[0].recv(10) == b""  # a surplus connection has two seconds for its head
    assert until(lambda: posted(port).startswith(b"HTTP/1.1 200"))


def posted(port: int) -> bytes:
    """Return the response to a request on a connection of its own."""
    with connected(port) as connection:
        connection.sendall(head("POST", "/read", "Content-Length: 5", "Connection: close") + b"x" * 5)
        with contextlib.suppress(ConnectionResetError):
            return received(connection)
    return b""


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://x/echo/a%20b?q=1", "/echo/a b"),
        ("HTTPS://x:1/echo/", "/echo/"),
        ("/echo/http://", "/echo/http://"),
    ],
)
def test_a_target_may_be_in_absolute_form(port: int, target: str, path: str) -> None:
    with connected(port) as connection:
        connection.sendall(head("GET", target, "Connection: close"))
        answer = json.loads(received(connection).rpartition(b"\r\n\r\n")[2])
    host = target.partition("://")[2].partition("/")[0] or "127.0.0.1"
    assert answer == {"path": path, "host": host, "query": target.partition("?")[2]}


CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    ("request_bytes", "instance"),
    [
        (b"GARBAGE\r\n\r\n", None),
        (b"GET /livez HTTP/1.1\r\n\r\n", None),
        (head("GET", "/livez", "Host: other"), None),
        (head("POST", "/read", "Content-Length: 2", "Content-Length: 3") + b"{}", None),
        (head("POST", "/read", "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", None),
        (head("POST", "/read", CHUNKED) + b"zz\r\n\r\n", "/read"),
        (head("GET", "/livez") + head("POST", "/read", CHUNKED) + b"zz\r\n\r\n", "/read"),
    ],
)
def test_a_request_that_is_not_http_gets_a_problem(
    port: int, request_bytes: bytes, instance: str | None
) -> None:
    """The request that is being read stops, and the connection is closed."""
    with connected(port) as connection:
        connection.sendall(request_bytes)
        answer = received(connection)
    status, *fields = answer[answer.rindex(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
    document = json.loads(answer.rpartition(b"\r\n\r\n")[2])
    assert status == b"http/1.1 400 bad request"
    assert {b"content-type: application/problem+json", b"connection: close"} <= set(fields)
    assert (document["status"], document["code"]) == (400, "bad_request")
    assert document.get("instance") == instance


def test_a_head_request_that_is_not_http_gets_no_content(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(head("HEAD", "/livez", CHUNKED) + b"zz\r\n\r\n")
        answer = received(connection)
    assert b"content-type: application/problem+json" in answer
    assert answer.endswith(b"\r\n\r\n")


# ---------------------------------------------------------------------- the service's own process


def open_files(process: int) -> list[str]:
    """Return the files, without sockets, that a process has open."""
    folder = Path(f"/proc/{process}/fd")
    names = []
    for entry in folder.iterdir():
        try:
            names.append(str(entry.readlink()))
        except FileNotFoundError:
            continue
    return sorted(name for name in names if name.endswith(".blob") or "/blobs/" in name)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    settings = {"workers": "1", "response_patience": "3", "linger_seconds": "1", "warm_workers": "false"}
    with service_process(tmp_path_factory.mktemp("held"), **settings) as (address, number):
        yield address, number


def test_a_table_that_nobody_reads_is_closed(process: tuple[str, int]) -> None:
    """The file of a large `/rows` is open while it is sent, and closed when its reader is cut off."""
    address, number = process
    table = pa.table({name: np.random.default_rng(0).random(700_000) for name in "abcdefgh"})  # 45 MB
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    headers = {"content-type": ARROW}
    content = sink.getvalue().to_pybytes()
    answer = httpx.post(f"{address}/v1/buffers", content=content, headers=headers, timeout=60)
    buffer = answer.raise_for_status().json()["id"]
    idle = open_files(number)
    with connected(httpx.URL(address).port or 0, 4096) as connection:
        connection.sendall(head("GET", f"/v1/buffers/{buffer}/rows", f"Accept: {ARROW}"))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert until(lambda: len(open_files(number)) > len(idle))
        assert until(lambda: open_files(number) == idle)
        with pytest.raises(ConnectionResetError):
            received(connection)
    rows = f"{address}/v1/buffers/{buffer}/rows"
    with httpx.stream("GET", rows, headers={"accept": ARROW}, timeout=60) as whole:
        size = 0
        for index, piece in enumerate(whole.iter_bytes(2**20)):
            size += len(piece)
            if index % 5 == 0:
                time.sleep(0.3)
    assert size >= len(content)


def test_early_refusals_of_the_service_close(process: tuple[str, int]) -> None:
    """The service responds 413 for a declared length, and 415, before reading the body."""
    address, _ = process
    for path, kind, status in (
        ("/v1/services/DSWAP", "application/json", 413),
        ("/v1/buffers", "text/x", 415),
    ):
        with connected(httpx.URL(address).port or 0) as connection:
            more = (f"Content-Type: {kind}", f"Content-Length: {2**40}")
            connection.sendall(head("POST", path, *more))
            answer = received(connection)
            assert answer.startswith(f"HTTP/1.1 {status}".encode())
            assert b"connection: close" in answer.lower()
            assert seconds_until_closed(connection, 0.25) < 5


class Unready:
    """Job service without workers."""

    async def health(self) -> dict[str, str]:
        return {"workers": "starting"}


def test_a_stop_ends_each_connection_with_its_next_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that keeps calling on one connection is not reset: the last response announces the end."""
    monkeypatch.setattr(server, "_LAST_REQUESTS_SECONDS", 0.5)  # a busy machine may delay a request
    app, process = FastAPI(), ApiProcess()
    app.state.jobs = Unready()

    @app.get("/livez")
    async def live() -> str:
        return "ok"

    def is_stopping() -> bool:
        return process.stopping

    http_protocol = protocol(LIMITS, is_stopping=is_stopping)
    config = uvicorn.Config(app, port=0, log_level="critical", http=http_protocol, ws="none")
    stopped = server.AnnouncingServer(config, process)
    thread = threading.Thread(target=stopped.run)
    thread.start()
    while not stopped.started:
        time.sleep(0.01)
    port = stopped.servers[0].sockets[0].getsockname()[1]
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(client):
        client.request("GET", "/livez")
        response = client.getresponse()
        assert (response.read(), response.getheader("connection")) == (b'"ok"', None)
        process.stopping = stopped.should_exit = True
        client.request("GET", "/livez")
        response = client.getresponse()
        assert (response.read(), response.getheader("connection")) == (b'"ok"', "close")
    thread.join()
