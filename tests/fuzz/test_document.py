"""A few hundred requests over the whole document, single and in sequences; `make fuzz` makes 20,000."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.marks import SEED, TEXT, found_in, marked
from tests.fuzz.running import Target, target

SEED_OF_CI = 20261121
LYING_DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "one call that is answered wrongly", "version": "1"},
    "paths": {
        "/v1/services/DSWAP": {
            "post": {
                "operationId": "runDswap",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"type": "object"}}},
                },
                "responses": {"422": {"description": "refused", "content": {"text/plain": {}}}},
            }
        }
    },
}


class Liar(BaseHTTPRequestHandler):
    """Server that returns its input instead of a problem document."""

    def do_GET(self) -> None:
        self._answer(200, "application/json", json.dumps(LYING_DOCUMENT).encode())

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer(422, "text/plain", b"not taken: " + sent)

    def _answer(self, status: int, media_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class names it
        """Log nothing."""


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[Target]:
    log = tmp_path / "service.log"
    log.touch()
    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Target(f"http://127.0.0.1:{server.server_port}", "rv_key", log)
        server.shutdown()
        thread.join()


def test_an_answer_that_reveals_a_value_is_found(liar: Target) -> None:
    """The service's own checks are active and find their violations."""
    done = liar.fuzz(SEED_OF_CI, examples=8, phases=("fuzzing",))
    assert done.failed
    assert "problem_documents" in done.output
    assert "no_secret_is_revealed" in done.output


def test_every_secret_of_a_call_has_its_mark() -> None:
    call = {
        "source": {"rows": [{"a": "x", "b": ["y", {"c": "z"}]}], "fields": {"a": "string"}},
        "seed": "ab12",
        "parameters": {"SWAP_SEED": "no hex", "swap_fields": ["a"]},
        "webhook": {"url": "https://hooks.example.com", "secret": "mine"},
    }
    made = marked(call)
    assert made["source"]["rows"] == [{"a": TEXT + "x", "b": [TEXT + "y", {"c": TEXT + "z"}]}]
    assert made["source"]["fields"] == {"a": "string"}
    assert made["seed"] == SEED + "ab12"
    assert made["parameters"] == {"SWAP_SEED": SEED + "no hex", "swap_fields": ["a"]}
    assert marked({"label": TEXT + "Galway"}) == {"label": "Galway"}
    for secret in (made["seed"], made["source"]["rows"][0]["a"].upper(), made["webhook"]["secret"]):
        assert found_in(f"the value {secret} is not right") is not None


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_every_answer_is_as_the_document_says(tmp_path: Path) -> None:
    """No 500, no undocumented response, no value, seed or secret in a rejection or in the log."""
    with target(tmp_path) as service:
        done = service.fuzz(SEED_OF_CI, examples=45, phases=("fuzzing", "stateful"))
    assert not done.failed, done.output
    assert done.calls > 1500, done.output
    assert done.errors == ()
    assert done.leaked is None
