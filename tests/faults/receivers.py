"""HTTP server that receives webhooks and verifies their signatures."""

import base64
import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.faults.running import PATIENCE

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()

Answer = Callable[[BaseHTTPRequestHandler], None]


def status(code: int, **headers: str) -> Answer:
    """An answer without content."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", "0")
        handler.end_headers()

    return answer


class Receiver:
    """Returns the given statuses one after the other and repeats the last one; records the messages."""

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.messages: list[dict[str, Any]] = []
        """Headers in small letters, `path`, and the body as it was parsed."""
        self._answers = list(answers) or [status(204)]
        self._received = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.port}/hook"

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        """Wait for a number of messages and return them."""
        with self._received:
            assert self._received.wait_for(lambda: len(self.messages) >= count, PATIENCE), self.messages
        return self.messages

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        mac = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{mac}"
        with self._received:
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            self.messages.append(headers | {"path": handler.path, "raw": body, "body": json.loads(body)})
            self._received.notify_all()
        answer(handler)
