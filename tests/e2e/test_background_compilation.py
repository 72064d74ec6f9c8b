"""A service with an empty cache folder accepts jobs at once, and reports the kernels that it compiles."""

import contextlib
import time
from pathlib import Path

import httpx
import pytest

from demo.service import running_service

pytestmark = pytest.mark.slow

PATIENCE = 120.0


def test_the_service_is_ready_while_it_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is compiled yet when it is ready; the child process ends with the service."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with (
        (tmp_path / "log").open("w+b") as log,
        running_service(
            tmp_path / "home", log, workers="1", compile_kernels="true", log_level="info"
        ) as address,
        httpx.Client(base_url=address, timeout=PATIENCE) as client,
    ):
        deadline = time.monotonic() + PATIENCE
        while True:
            ready = client.get("/readyz")
            assert ready.status_code == 200
            assert ready.json()["status"] == "ok"
            kernels = ready.json()["kernels"]
            if kernels["kernels"] and kernels["running"]:
                break
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert kernels["compiled"] < kernels["kernels"]
        missing = [line for line in client.get("/metrics").text.splitlines() if "kernels_missing " in line]
        assert 0 < float(missing[-1].split()[-1]) <= kernels["kernels"]
        log.seek(0)
        assert b"compiling kernels in the background" in log.read()
        deadline = time.monotonic() + PATIENCE
    while processes_with(str(tmp_path)):  # a killed process takes its time
        assert time.monotonic() < deadline
        time.sleep(0.1)


def processes_with(text: str) -> list[str]:
    """Return the processes that have a text in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found
