"""Slow clients against a real uvicorn on a real port."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request

from app.api import problems
from app.api.middleware.connections import ConnectionLimits, protocol
from app.api.middleware.slow_clients import SlowBodies

PATIENCE = 1.5
RATE = 1000
LONG = 10 * PATIENCE
LIMITS = ConnectionLimits(PATIENCE, PATIENCE, PATIENCE, RATE, 100)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Service that reads bodies, and responds slowly on request."""
    app = FastAPI()
    problems.install(app)
    app.add_middleware(SlowBodies, patience=PATIENCE, least_rate=RATE)

    @app.post("/read")
    async def read(request: Request) -> dict[str, int]:
        return {"bytes": len(await request.body())}

    @app.get("/slow")
    async def slow(request: Request) -> dict[str, bool]:
        """Wait for the client to disconnect, longer than the patience."""
        await request.receive()
        try:
            async with asyncio.timeout(3 * PATIENCE):
                await request.receive()
        except TimeoutError:
            return {"waited": True}
        return {"waited": False}

    config = uvicorn.Config(app, port=0, log_level="critical", http=protocol(LIMITS))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def answer_of(connection: socket.socket) -> tuple[int, Any]:
    """Return status and document of everything received until the service closes."""
    received = b""
    while piece := connection.recv(65536):
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_a_head_that_does_not_come_is_hung_up_on(port: int) -> None:
    """The client sends nothing, or a little at a time forever."""
    for drip in (b"", b"GET / HTTP/1.1\r\nx: "):
        started = time.monotonic()
        with connected(port) as connection:
            try:
                while time.monotonic() - started < LONG:
                    if drip:
                        connection.sendall(drip)
                        drip = b"y"
                    connection.settimeout(0.05)
                    try:
                        if connection.recv(100) == b"":
                            break
                    except TimeoutError:
                        continue
            except (ConnectionResetError, BrokenPipeError):
                pass
            assert PATIENCE / 2 < time.monotonic() - started < LONG


def test_a_body_that_pauses_is_a_problem(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
        status, problem = answer_of(connection)
    assert (status, problem["code"]) == (408, "request_timeout")
    assert "ROWVEIL_REQUEST_PATIENCE" in problem["detail"]


def test_a_body_byte_by_byte_is_a_problem(port: int) -> None:
    """No pause exceeds the patience, but the average is too slow."""
    with connected(port) as connection:
        connection.sendall(b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        started = time.monotonic()
        connection.settimeout(0.05)
        received = b""
        while not received and time.monotonic() - started < LONG:
            connection.sendall(b"x")
            try:
                received = connection.recv(65536)
            except TimeoutError:
                continue
        assert received.startswith(b"HTTP/1.1 408")
        assert time.monotonic() - started < LONG


def test_a_body_in_its_time_is_read(port: int) -> None:
    """The body may also take longer than the patience, above the least rate."""
    with connected(port) as connection:
        head = b"POST /read HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 20000\r\n\r\n"
        connection.sendall(head)
        for _ in range(20):
            connection.sendall(b"x" * 1000)
            time.sleep(PATIENCE / 10)
        assert answer_of(connection) == (200, {"bytes": 20000})


def test_an_answer_may_take_its_time(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer_of(connection) == (200, {"waited": True})
