"""Observed service: its traces go to a collector, its log to a file, and its limits are low."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.own_key import own_key
from tests.watch.collector import PATIENCE, Collector

SETTINGS = {
    "PORT": "0",
    "WORKERS": "1",
    "LOG_FORMAT": "json",
    "LOG_LEVEL": "debug",
    "CALLER_BUFFER_BYTES": "20000",
}


@dataclass(frozen=True)
class WatchedService:
    """Process of the observed service."""

    client: httpx.Client
    collector: Collector
    log: Path

    def line(self, request_id: str) -> dict[str, Any]:
        """Return the log line of a request, which is written while its response is already being sent."""
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            lines = [
                orjson.loads(line) for line in self.log.read_text().splitlines(True) if line.endswith("\n")
            ]
            if found := [line for line in lines if line.get("request_id") == request_id]:
                (one,) = found
                return dict(one)
            time.sleep(0.01)
        raise AssertionError(f"no line of request {request_id}")

    def lines(self) -> list[dict[str, Any]]:
        """Return all log lines so far."""
        last = self.client.get("/livez").headers["X-Request-ID"]
        self.line(last)
        return [orjson.loads(line) for line in self.log.read_text().splitlines()]

    def metrics(self) -> str:
        """Return the metrics."""
        return self.client.get("/metrics").raise_for_status().text


@pytest.fixture(scope="package")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedService]:
    folder = tmp_path_factory.mktemp("watched")
    collector = Collector()
    environment = os.environ | {f"ROWVEIL_{name}": value for name, value in SETTINGS.items()}
    environment |= {
        "ROWVEIL_HOME": str(folder / "home"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    log = folder / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "app", "serve"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None, log.read_text()
        headers = {"authorization": f"Bearer {own_key(folder / 'home')}"}
        with httpx.Client(base_url=address[0].rstrip("/"), timeout=60, headers=headers) as client:
            yield WatchedService(client, collector, log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        assert process.stdout is not None
        process.stdout.close()
        collector.close()
    assert process.returncode == 0
