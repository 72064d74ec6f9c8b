"""Server of a benchmark: uvicorn with one application, in a process of its own."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx

_TRIES = 300
_LOOK_SECONDS = 0.1


def free_port() -> int:
    """Return a port of this machine that nobody uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(module: str, *options: str) -> Iterator[tuple[str, int]]:
    """Serve the `app` of a module; yield the address, which responds, and the process id."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", f"{module}:app", "--port", str(port), *options]
    with subprocess.Popen([*command, "--log-level", "warning"]) as server:
        address = f"http://127.0.0.1:{port}"
        try:
            for _ in range(_TRIES):
                with contextlib.suppress(httpx.TransportError):
                    httpx.get(address)
                    break
                time.sleep(_LOOK_SECONDS)
            yield address, server.pid
        finally:
            server.terminate()
