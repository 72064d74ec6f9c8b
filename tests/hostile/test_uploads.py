"""Broken and hostile uploads over a real socket: the response is a problem, and no file remains."""

import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import httpx
import pytest

from tests.api.calls import Api
from tests.hostile.conftest import Target
from tests.hostile.files import CSV, FILES, Hostile

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def api(target: Target) -> Iterator[Api]:
    with httpx.Client(base_url=target.address, timeout=120) as client:
        yield Api(client)


def _rows_of_buffers(target: Target) -> int:
    with closing(sqlite3.connect(f"file:{target.home / 'rowveil.db'}?mode=ro", uri=True)) as database:
        return int(database.execute("SELECT count(*) FROM buffers").fetchone()[0])


def _nothing_left(target: Target) -> None:
    deadline = time.monotonic() + 60
    while left := target.left_behind():
        assert time.monotonic() < deadline, [path.name for path in left]
        time.sleep(0.05)
    assert _rows_of_buffers(target) == 0


@pytest.mark.parametrize("hostile", FILES, ids=lambda hostile: hostile.name)
def test_a_hostile_upload_is_a_problem_and_leaves_nothing(api: Api, target: Target, hostile: Hostile) -> None:
    headers = {"content-type": hostile.media_type, **hostile.headers}
    answer = api.client.post("/v1/buffers", content=hostile.make(), headers=headers)
    assert answer.status_code in hostile.status, answer.text
    problem = api.problem(answer, answer.status_code)
    assert hostile.says in problem["detail"]
    assert str(target.home) not in answer.text
    _nothing_left(target)
    assert api.client.get("/livez").json()["status"] == "ok"


def _raw(target: Target, head: str, body: bytes = b"") -> socket.socket:
    place = urlsplit(target.address)
    assert place.hostname is not None
    connection = socket.create_connection((place.hostname, int(place.port or 80)), timeout=30)
    lines = f"POST /v1/buffers HTTP/1.1\r\nHost: localhost\r\nContent-Type: {CSV}\r\n{head}\r\n\r\n"
    connection.sendall(lines.encode() + body)
    return connection


def _status(connection: socket.socket) -> int:
    return int(connection.recv(4096).split(b" ", 2)[1])


def test_a_body_that_says_it_is_too_long_is_refused_before_it_is_sent(target: Target) -> None:
    with _raw(target, "Content-Length: 1000000000000\r\nExpect: 100-continue") as connection:
        assert _status(connection) == 413


@pytest.mark.parametrize("head", ["Content-Length: 5000000", "Transfer-Encoding: chunked"])
def test_a_caller_who_leaves_in_the_middle_of_a_body_leaves_nothing(target: Target, head: str) -> None:
    sent = b"a,b\n" + b"1,2\n" * 500_000
    body = sent if "Length" in head else f"{len(sent):x}\r\n".encode() + sent + b"\r\n"
    with _raw(target, head, body):
        deadline = time.monotonic() + 30
        while not target.left_behind():  # while it is being stored
            assert time.monotonic() < deadline
            time.sleep(0.01)
    _nothing_left(target)


def test_a_body_in_broken_chunks_is_refused(target: Target) -> None:
    with _raw(target, "Transfer-Encoding: chunked", b"zz\r\nnot a length\r\n") as connection:
        assert connection.recv(4096)[:12] in (b"HTTP/1.1 400", b"")
    _nothing_left(target)


def test_a_caller_who_leaves_while_a_worker_reads_leaves_nothing(target: Target) -> None:
    body = b"a,b\n" + b"1.5,x y\n" * 4_000_000
    with _raw(target, f"Content-Length: {len(body)}", body):
        deadline = time.monotonic() + 30
        while len(target.left_behind()) < 2:  # the upload, and the table made of it
            assert time.monotonic() < deadline
            time.sleep(0.01)
    _nothing_left(target)


def test_a_coding_that_is_not_undone_is_refused_with_those_that_are(api: Api) -> None:
    headers = {"content-type": CSV, "content-encoding": "br"}
    answer = api.client.post("/v1/buffers", content=b"a,b\n1,2\n", headers=headers)
    api.problem(answer, 415, "unsupported_media_type")
    assert answer.headers["accept-encoding"] == "gzip, identity"


def test_the_service_has_lived_through_it_all(api: Api, target: Target) -> None:
    os.kill(target.pid, 0)
    answer = api.client.post("/v1/buffers", content=b"a,b\n1,2\n", headers={"content-type": CSV})
    assert answer.status_code == 201, answer.text
    assert api.client.delete(f"/v1/buffers/{answer.json()['id']}").status_code == 204
    _nothing_left(target)
