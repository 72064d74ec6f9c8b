"""Large buffers through a real service: memory does not follow their size, and no work goes on in vain."""

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from benchmarks.http.buffers import ARROW, arrow_stream, csv_text
from demo.processes import children, watched
from demo.service import service_process
from tests.api.calls import PARQUET
from tests.faults.running import PATIENCE

pytestmark = pytest.mark.faults

SIZE = 200 * 10**6
MOST = 150 * 10**6
"""Three quarters of the table: a service that held all of it once would be found out."""


@dataclass(frozen=True)
class Service:
    address: str
    pid: int
    client: httpx.Client


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    home = tmp_path_factory.mktemp("large")
    with (
        service_process(home, workers="1") as (address, pid),
        httpx.Client(base_url=address, timeout=240) as client,
    ):
        small = client.post("/v1/buffers", content=b"a\n1\n", headers={"content-type": "text/csv"})
        client.get(f"/v1/buffers/{small.json()['id']}/rows")  # what is imported at its first use
        yield Service(address, pid, client)


@pytest.fixture(scope="module")
def large(service: Service) -> str:
    """The id of a buffer of `SIZE` bytes."""
    answer = service.client.post("/v1/buffers", content=arrow_stream(SIZE), headers={"content-type": ARROW})
    return str(answer.raise_for_status().json()["id"])


def test_an_upload_takes_little_memory_of_the_service_and_of_its_worker(service: Service) -> None:
    (worker,) = [worker for server in children(service.pid) for worker in children(server)]
    for media_type, content in ((ARROW, arrow_stream(SIZE)), ("text/csv", csv_text(SIZE // 2))):
        with watched(service.pid) as rise, watched(worker) as worker_rise:
            answer = service.client.post("/v1/buffers", content=content, headers={"content-type": media_type})
            assert answer.status_code == 201, answer.text
        assert rise.bytes < 60 * 10**6, media_type
        assert worker_rise.bytes < 250 * 10**6, media_type
        assert service.client.delete(f"/v1/buffers/{answer.json()['id']}").status_code == 204


def test_an_upload_by_a_form_takes_as_little(service: Service) -> None:
    def form() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="large.csv"\r\n\r\n'
        yield from csv_text(SIZE // 2)
        yield b"\r\n--x--\r\n"

    headers = {"content-type": "multipart/form-data; boundary=x"}
    with watched(service.pid) as rise:
        answer = service.client.post("/v1/buffers", content=form(), headers=headers)
    assert answer.status_code == 201, answer.text
    assert rise.bytes < 60 * 10**6
    assert service.client.delete(f"/v1/buffers/{answer.json()['id']}").status_code == 204


@pytest.mark.parametrize("media_type", [ARROW, PARQUET, "text/csv", "application/json"])
def test_rows_are_given_in_memory_that_does_not_hold_them(
    service: Service, large: str, media_type: str
) -> None:
    with watched(service.pid) as rise:
        got = 0
        with service.client.stream(
            "GET", f"/v1/buffers/{large}/rows", headers={"accept": media_type}
        ) as answer:
            for block in answer.iter_raw():
                got += len(block)
    assert got > SIZE / 5
    assert rise.bytes < MOST


def test_head_of_a_large_buffer_reads_none_of_it(service: Service, large: str) -> None:
    spent = _cpu_seconds(service.pid)
    for _ in range(20):
        assert service.client.head(f"/v1/buffers/{large}/rows").status_code == 200
    assert _cpu_seconds(service.pid) - spent < 5  # one reading of it as JSON takes longer
    _wait_until_closed(service.pid)


def test_a_caller_who_goes_away_stops_the_work(service: Service, large: str) -> None:
    place = urlsplit(service.address)
    assert place.hostname is not None
    with socket.create_connection((place.hostname, int(place.port or 80))) as connection:
        lines = f"GET /v1/buffers/{large}/rows HTTP/1.1\r\nHost: {place.netloc}\r\nAccept: text/csv\r\n\r\n"
        connection.sendall(lines.encode())
        assert connection.recv(100_000).startswith(b"HTTP/1.1 200")
        assert _open_blobs(service.pid)
    _wait_until_closed(service.pid)


def _wait_until_closed(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while _open_blobs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _open_blobs(pid: int) -> list[str]:
    links = []
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(str(handle.readlink()))
        except FileNotFoundError:
            continue
    return [link for link in links if "/blobs/" in link]
