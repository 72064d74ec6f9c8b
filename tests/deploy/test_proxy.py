"""nginx with the shipped configuration, over TLS on loopback, in front of the real service."""

import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest

from app.settings import Settings
from deploy.certificates import ensure_authority, ensure_certificate
from tests.api.calls import ARROW
from tests.free_port import free_port
from tests.preloaded.processes import running_service

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx" / "rowveil.conf"
GUIDE = Path(__file__).parents[2] / "docs" / "deployment.md"
NAME = "localhost"
SHORT = 2
"""Seconds in place of the time limits, so that the tests need not wait for these."""
MAIN = """
daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    fastcgi_temp_path {folder}/unused-1;
    uwsgi_temp_path {folder}/unused-2;
    scgi_temp_path {folder}/unused-3;
    include {folder}/rowveil.conf;
}}
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    """Running proxy."""

    port: int
    folder: Path
    context: ssl.SSLContext

    @contextlib.contextmanager
    def client(self) -> Iterator[httpx.Client]:
        with httpx.Client(base_url=f"https://{NAME}:{self.port}", verify=self.context, timeout=60) as client:
            yield client

    @contextlib.contextmanager
    def connected(self) -> Iterator[ssl.SSLSocket]:
        """Open a raw TLS connection."""
        with (
            socket.create_connection(("127.0.0.1", self.port), 20) as plain,
            self.context.wrap_socket(plain, server_hostname=NAME) as sealed,
        ):
            yield sealed


def adapted(text: str, port: int, address: str, certificates: Path) -> str:
    """Return the configuration with this machine's names and short time limits."""
    for shipped, here in {
        "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
        "server_name rowveil.example;": f"server_name {NAME};",
        "/etc/nginx/tls/rowveil.pem": str(certificates / "tls.pem"),
        "/etc/nginx/tls/rowveil.key": str(certificates / "tls.key"),
        "server 127.0.0.1:8080;": f"server {httpx.URL(address).netloc.decode()};",
        "/var/log/nginx/rowveil.log": str(certificates / "access.log"),
        "client_header_timeout 20s;": f"client_header_timeout {SHORT}s;",
        "client_body_timeout 20s;": f"client_body_timeout {SHORT}s;",
        "send_timeout 30s;\n    keepalive": f"send_timeout {SHORT}s;\n    keepalive",
        "lingering_time 10s;": f"lingering_time {SHORT}s;",
        "limit_conn rowveil_caller 64;": "limit_conn rowveil_caller 8;",
    }.items():
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, here)
    [below_a_path] = re.findall(r"```nginx\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return text.replace("    location / {", f"{below_a_path}    location / {{", 1)


@pytest.fixture(scope="module")
def nginx() -> str:
    found = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        missing = "there is no nginx: apt-get install nginx"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return found


@pytest.fixture(scope="module")
def proxy(nginx: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("proxy")
    folder.chmod(0o755)
    folder.parent.chmod(0o755)
    authority, home = ensure_authority(folder), tmp_path_factory.mktemp("home")
    ensure_certificate(folder, [NAME], authority)
    with running_service(home, workers="1", warm_workers="false") as address:
        port = free_port()
        (folder / "rowveil.conf").write_text(adapted(CONFIGURATION.read_text(), port, address, folder))
        (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
        command = [
            nginx,
            "-p",
            str(folder),
            "-e",
            str(folder / "error.log"),
            "-c",
            str(folder / "nginx.conf"),
        ]
        subprocess.run([*command, "-t"], check=True)
        process = subprocess.Popen(command)
        try:
            context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
            made = Proxy(port, folder, context)
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), made.connected():
                    break
                time.sleep(0.05)
            yield made
        finally:
            process.terminate()
            process.wait(30)


def head(method: str, path: str, *more: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {NAME}", *more, "", ""]).encode()


def received(connection: ssl.SSLSocket) -> bytes:
    pieces = []
    with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
        while piece := connection.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


CALL = {
    "source": {"rows": [{"a": index, "c": "x"} for index in range(50)]},
    "parameters": {"swap_fields": ["a"], "control_field": "c"},
}


def large_buffer(client: httpx.Client, rows: int) -> tuple[str, bytes]:
    table = pa.table({name: np.random.default_rng(0).random(rows) for name in "abcd"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content = sink.getvalue().to_pybytes()
    answer = client.post("/v1/buffers", content=content, headers={"content-type": ARROW})
    buffer: str = answer.raise_for_status().json()["id"]
    return buffer, content


def test_a_call_goes_through_over_tls(proxy: Proxy) -> None:
    with proxy.client() as client:
        answer = client.post("/v1/services/CDSWAP", json=CALL, headers={"x-request-id": "of-the-caller"})
        assert answer.raise_for_status().json()["state"] == "succeeded"
        assert answer.headers["x-request-id"] == "of-the-caller"
        assert answer.headers["strict-transport-security"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    with pytest.raises(httpx.ConnectError), httpx.Client() as strangers:  # an unknown authority
        strangers.get(f"https://{NAME}:{proxy.port}/livez")
    answer = httpx.get(f"http://{NAME}:{proxy.port}/livez")  # no response without TLS
    assert answer.status_code == 400


def test_a_service_below_a_path(proxy: Proxy) -> None:
    """The page's addition to the configuration: links lead back below the path, and limits stay."""
    with proxy.client() as client:
        contract = client.get("/rowveil/openapi.json")
        base = contract.url.join(contract.json()["servers"][0]["url"])
        assert base.path == "/rowveil/"
        started = client.post(base.join("v1/services/CDSWAP"), json=CALL, headers={"prefer": "wait=60"})
        job = started.raise_for_status().url.join(started.headers["location"])
        assert job == base.join(f"v1/jobs/{started.json()['id']}")
        with client.stream("GET", f"{job}/events") as events:
            assert events.headers["content-type"].startswith("text/event-stream")
        content = b"a\n" + b"123456789\n" * 7_000_000  # more than a JSON body may have
        sent = client.post(base.join("v1/buffers"), content=content, headers={"content-type": "text/csv"})
        assert sent.status_code == 201
        assert client.get(sent.headers["location"]).status_code == 200
        refused = client.post(base.join("v1/services/CDSWAP"), content=content)
        assert refused.json()["code"] == "content_too_large"


def test_the_log_has_the_address_and_the_request_id_and_no_query(proxy: Proxy) -> None:
    """An address of a caller is found by the id that the service's log and the audit have."""
    with proxy.client() as client:
        answer = client.get("/v1/jobs?label=Jane%20Doe", headers={"x-forwarded-for": "192.0.2.7"})
    request_id = answer.headers["x-request-id"]
    lines: list[str] = []
    deadline = time.monotonic() + 30
    while not lines and time.monotonic() < deadline:  # it is written after the response
        log = (proxy.folder / "access.log").read_text()
        lines = [line for line in log.splitlines() if line.endswith(f" {request_id}")]
    (line,) = lines
    assert re.match(r'127\.0\.0\.1 \[\S+\] "GET /v1/jobs" 200 \d+ [\d.]+ ', line)
    assert "Jane" not in log
    assert "192.0.2.7" not in log


def test_old_tls_is_refused(proxy: Proxy) -> None:
    context = ssl.create_default_context(cafile=str(proxy.folder / "ca.pem"))
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # which is why
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with (
        socket.create_connection(("127.0.0.1", proxy.port), 20) as plain,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
    ):
        context.wrap_socket(plain, server_hostname=NAME)


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_an_oversized_body_is_refused(proxy: Proxy, framing: str) -> None:
    """The proxy rejects it by its length before the service sees it; or while it arrives."""
    with proxy.connected() as connection:
        if framing == "length":
            connection.sendall(head("POST", "/v1/services/CDSWAP", f"Content-Length: {65 * 2**20}"))
        else:
            with contextlib.suppress(OSError):
                connection.sendall(head("POST", "/v1/services/CDSWAP", "Transfer-Encoding: chunked"))
                for _ in range(70):
                    connection.sendall(b"100000\r\n" + b" " * 2**20 + b"\r\n")
        answer = received(connection)
    assert b" 413 " in answer.partition(b"\r\n")[0]
    assert b"application/problem+json" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == 413


def test_an_upload_may_be_larger(proxy: Proxy) -> None:
    """The proxy does not buffer it in a file."""
    with proxy.client() as client:
        _, content = large_buffer(client, 2_500_000)
    assert len(content) > 70 * 2**20
    log = (proxy.folder / "error.log").read_text()
    assert "buffered to a temporary file" not in log


def test_the_window_of_an_upload_over_http2(proxy: Proxy) -> None:
    """An upload is sent at its window divided by the round trip, however fast the connection is."""
    context = ssl.create_default_context(cafile=str(proxy.folder / "ca.pem"))
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", proxy.port), 20) as plain,
        context.wrap_socket(plain, server_hostname=NAME) as sealed,
        sealed.makefile("rb") as stream,
    ):
        sealed.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        head = stream.read(9)
        assert head[3] == 4  # SETTINGS (RFC 9113, 6.5)
        settings = dict(struct.iter_unpack(">HI", stream.read(int.from_bytes(head[:3], "big"))))
    assert settings[4] == 512 * 2**10  # SETTINGS_INITIAL_WINDOW_SIZE


def test_a_slow_head_is_cut(proxy: Proxy) -> None:
    with proxy.connected() as connection:
        started = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - started < 10 * SHORT:
                connection.sendall(b"GET / HTTP/1.1\r\nx: " if time.monotonic() - started < 0.1 else b"y")
                time.sleep(0.3)
        assert SHORT / 2 < time.monotonic() - started < 5 * SHORT


def test_a_body_that_pauses_is_cut(proxy: Proxy) -> None:
    with proxy.connected() as connection:
        connection.sendall(head("POST", "/v1/services/CDSWAP", "Content-Length: 1000") + b"half")
        started = time.monotonic()
        assert b" 200 " not in received(connection)
        assert time.monotonic() - started < 5 * SHORT


def test_a_byte_now_and_then_after_an_early_answer(proxy: Proxy) -> None:
    with proxy.connected() as connection:
        connection.sendall(head("POST", "/v1/nothing", "Content-Length: 1000000"))
        assert b" 404 " in connection.recv(65536).partition(b"\r\n")[0]
        started = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - started < 30:
                connection.sendall(b"x")
                time.sleep(0.3)
        assert time.monotonic() - started < 15


def test_a_caller_has_a_limit_of_connections(proxy: Proxy) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            connection = stack.enter_context(proxy.connected())
            connection.sendall(head("POST", "/v1/services/CDSWAP", "Content-Length: 1000") + b"half")
        time.sleep(0.5)
        with proxy.client() as client:
            answer = client.get("/livez")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "2"
    assert answer.json()["code"] == "unavailable"


def test_events_are_sent_as_they_come(proxy: Proxy) -> None:
    """The first event arrives long before the job's end."""
    with proxy.client() as client:
        buffer, _ = large_buffer(client, 100_000)
        parameters = {"swap_fields": ["a"], "control_field": "b", "block_size": 5}
        call = {"source": {"buffer": buffer}, "parameters": parameters, "report": "full"}
        job = client.post("/v1/services/DDSWAP", json=call, headers={"prefer": "respond-async"}).json()
        assert job["state"] in ("queued", "running")
        with client.stream("GET", f"/v1/jobs/{job['id']}/events") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = (line for line in answer.iter_lines() if line.startswith("event:"))
            times = [(line.removeprefix("event:").strip(), time.monotonic()) for line in lines]
        assert [name for name, _ in times][-1] == "end"
        assert times[0][0] == "progress"
        assert times[-1][1] - times[0][1] > 0.2


def test_a_large_table_streams_down(proxy: Proxy) -> None:
    """Also to a slow reader, and without a temporary file."""
    with proxy.client() as client:
        buffer, content = large_buffer(client, 1_000_000)
        size, started = 0, time.monotonic()
        with client.stream("GET", f"/v1/buffers/{buffer}/rows", headers={"accept": ARROW}) as answer:
            for piece in answer.iter_bytes(2**20):
                size += len(piece)
                time.sleep(0.15)
        assert time.monotonic() - started > SHORT
        assert size >= len(content)
    assert "temporary file" not in (proxy.folder / "error.log").read_text()
    assert not [path for path in (proxy.folder / "answers").rglob("*") if path.is_file()]


def test_forged_forwarding_headers_do_not_arrive(nginx: str, tmp_path: Path) -> None:
    """The server behind the proxy responds with the headers that it received."""
    tmp_path.chmod(0o755)
    ensure_certificate(tmp_path, [NAME], ensure_authority(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port, address = free_port(), f"http://127.0.0.1:{listening.getsockname()[1]}"
        (tmp_path / "rowveil.conf").write_text(adapted(CONFIGURATION.read_text(), port, address, tmp_path))
        (tmp_path / "nginx.conf").write_text(MAIN.format(folder=tmp_path))
        command = [nginx, "-p", str(tmp_path), "-e", str(tmp_path / "error.log")]
        process = subprocess.Popen([*command, "-c", str(tmp_path / "nginx.conf")])
        try:
            made = Proxy(port, tmp_path, ssl.create_default_context(cafile=str(tmp_path / "ca.pem")))
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), made.connected():
                    break
                time.sleep(0.05)
            with made.connected() as connection:
                forged = ("X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: http", "Forwarded: for=1.2.3.4")
                connection.sendall(head("GET", "/livez", *forged, "X-Forwarded-Host: evil.example"))
                arrived, _ = listening.accept()
                with arrived:
                    seen = arrived.recv(65536).decode().lower()
        finally:
            process.terminate()
            process.wait(30)
    assert "x-forwarded-for: 127.0.0.1\r\n" in seen
    assert "x-forwarded-proto: https\r\n" in seen
    assert "1.2.3.4" not in seen
    assert "evil.example" not in seen


def test_the_limits_of_proxy_and_service_fit_together() -> None:
    """The proxy accepts what the service accepts, waits longer, and keeps idle connections for less time."""
    shipped = CONFIGURATION.read_text()
    settings = {name: field.default for name, field in Settings.model_fields.items()}
    assert settings["max_body_bytes"] == 64 * 2**20
    assert "client_max_body_size 64m;" in shipped
    assert settings["max_buffer_bytes"] == 16 * 2**30
    assert "client_max_body_size 16g;" in shipped
    assert settings["keep_alive_seconds"] > 10
    assert "keepalive_timeout 10s;" in shipped
    assert settings["max_wait_seconds"] < 600
    assert "proxy_read_timeout 600s;" in shipped
    assert settings["max_connections"] > 448
    assert "limit_conn rowveil_all 448;" in shipped
