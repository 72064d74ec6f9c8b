"""Writes whose answers are lost after the storage has acted: what is there counts."""

from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from app.references import ReferenceFault, parse_reference
from app.store.reference_s3 import open_bucket, write_object
from tests.references.storage import Storage

pytestmark = pytest.mark.faults

PART = 17 * 2**20
"""Size of an object that is written in parts."""

Loses = Callable[[str, str], bool]


class LossyProxy(ThreadingHTTPServer):
    """Proxy before an S3 server that closes the connection in place of some answers."""

    daemon_threads = True

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.upstream = server.removeprefix("http://")
        self.loses: Loses = lambda method, path: False


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LossyProxy

    def do_GET(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        upstream = HTTPConnection(self.server.upstream)
        upstream.request(self.command, self.path, content, dict(self.headers.items()))
        answer = upstream.getresponse()
        body = answer.read()
        upstream.close()
        self.close_connection = self.server.loses(self.command, self.path)
        if self.close_connection:
            return
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def proxy(storage: Storage, s3_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyProxy]:
    """The proxy, which this process uses in place of the server."""
    with LossyProxy(s3_address) as server:
        serving = Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        open_bucket.cache_clear()
        yield server
        open_bucket.cache_clear()
        server.shutdown()
        serving.join()


def write(key: str, size: int, overwrite: bool = False) -> None:
    write_object(parse_reference(f"s3://released/{key}"), [b"r" * size], "text/csv", "draft.1", overwrite)


@pytest.mark.parametrize(
    ("key", "size", "overwrite", "lost"),
    [
        ("small.csv", 100, False, ("PUT", "/small.csv")),
        ("copied.csv", PART, False, ("POST", "/copied.csv?uploadId=")),
        ("draft-stays.csv", PART, False, ("POST", "?delete")),
        ("replaced.csv", PART, True, ("POST", "/replaced.csv?uploadId=")),
    ],
)
def test_a_write_whose_answers_are_lost_counts_if_its_bytes_are_there(
    storage: Storage, proxy: LossyProxy, key: str, size: int, overwrite: bool, lost: tuple[str, str]
) -> None:
    """The job would fail, and its release be there without an entry in the ledger."""
    proxy.loses = lambda method, path: method == lost[0] and lost[1] in path
    write(key, size, overwrite)
    assert storage.object("released", key) == b"r" * size


def test_other_bytes_are_no_write(storage: Storage, proxy: LossyProxy) -> None:
    storage.s3.put_object(Bucket="released", Key="other.csv", Body=b"other")
    proxy.loses = lambda method, path: method == "PUT"
    with pytest.raises(ReferenceFault, match="the storage did not take it"):
        write("other.csv", 100)
    assert storage.object("released", "other.csv") == b"other"


def test_a_write_of_which_nothing_is_known_says_so(storage: Storage, proxy: LossyProxy) -> None:
    proxy.loses = lambda method, path: "/unknown.csv" in path
    with pytest.raises(ReferenceFault, match="did not answer whether it has taken it") as caught:
        write("unknown.csv", 100)
    assert caught.value.temporary
    assert storage.object("released", "unknown.csv") == b"r" * 100
