"""Processor time of open event streams: of a queued job, and of a running job whose progress changes."""

import math
import selectors
import socket
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.harness import table
from benchmarks.http.calls import processor_seconds
from benchmarks.http.databases import settings_of
from benchmarks.http.plain_client import request_bytes
from benchmarks.methods.kernels import people_table
from demo.service import own_key, service_process

STREAMS = 500
GOAL = 10
"""Percent of a core."""
_PATIENCE = 60.0
"""Seconds within which every stream sends its first event."""
_SETTLE = 3.0
"""Seconds after it in which the row of the job is read once more, by the heartbeat."""
_SECONDS = 10.0
_ROWS = 300_000
_ONE_CALLER = {"caller_request_rate": "0", "caller_open_requests": str(STREAMS + 10)}
"""Settings that let one caller open all streams."""
_RUN = {"parameters": {"swap_fields": ["a", "b"], "control_field": "class100"}, "candidates": 100}
"""A run that is busy for much longer than the measurement."""


def measure(rounds: int, database: str) -> str:
    """Return the load of the service's process as Markdown. Its only worker runs one job; another waits."""
    rows = people_table(_ROWS).select(["a", "b", "c", "class100"]).to_pylist()
    with (
        tempfile.TemporaryDirectory() as home,
        settings_of(database) as new_database,
        ExitStack() as opened,
    ):
        url = new_database()
        service = service_process(Path(home), auth="on", workers="1", **_ONE_CALLER, **url)
        address, process = opened.enter_context(service)
        key = own_key(Path(home), **url)
        authorized = {"authorization": f"Bearer {key}", "prefer": "respond-async"}
        with httpx.Client(base_url=address, headers=authorized, timeout=120) as client:
            found: dict[str, list[tuple[float, float]]] = {"none": [], "queued": [], "running": []}
            for _ in range(rounds):
                found["none"].append(_load(address, key, "none", 0, process))
                for name in ("queued", "running"):
                    found[name].append(_load_of_jobs(client, rows, name, address, key, process))
    lines = [
        [
            name,
            str(0 if name == "none" else STREAMS),
            f"{100 * statistics.median(load for load, _ in loads):.1f}",
            f"{statistics.median(events for _, events in loads):.0f}",
        ]
        for name, loads in found.items()
    ]
    return (
        f"On {database}.\n\n"
        + table(["streams of a job that is", "streams", "% of a core", "events a second"], lines)
        + f"\n\nGoal: {STREAMS} open streams at less than {GOAL} % of a core.\n"
    )


def _load_of_jobs(
    client: httpx.Client, rows: list[dict[str, Any]], state: str, address: str, key: str, process: int
) -> tuple[float, float]:
    """Start a job that runs and one that waits, and return `_load` with streams of the one in this state."""
    running, queued = (
        client.post("/v1/services/CDSWAP", json={"source": {"rows": some}, **_RUN}).json()["id"]
        for some in (rows, rows[:3])
    )
    while client.get(f"/v1/jobs/{running}").json()["state"] == "queued":
        time.sleep(0.1)
    found = _load(address, key, running if state == "running" else queued, STREAMS, process)
    if client.get(f"/v1/jobs/{running}").json()["state"] != "running":
        raise RuntimeError("the job has ended: give it more rows")
    for job in (queued, running):
        client.post(f"/v1/jobs/{job}/cancel")
    return found


def _load(address: str, key: str, job: str, streams: int, process: int) -> tuple[float, float]:
    """Open streams, wait until they have settled, and return the process's load and events per second."""
    parts = urlsplit(address)
    request = request_bytes("GET", address, f"/v1/jobs/{job}/events", key)
    with selectors.DefaultSelector() as selector, ExitStack() as opened:
        for _ in range(streams):
            connection = opened.enter_context(socket.create_connection((parts.hostname, parts.port)))
            connection.sendall(request)
            selector.register(connection, selectors.EVENT_READ)
        if _read(selector, _PATIENCE, streams) < streams:
            raise RuntimeError("not every stream has sent an event")
        _read(selector, _SETTLE)
        before, started = processor_seconds([process]), time.monotonic()
        events = _read(selector, _SECONDS)
        elapsed = time.monotonic() - started
        return (processor_seconds([process]) - before) / elapsed, events / elapsed


def _read(selector: selectors.BaseSelector, seconds: float, most: float = math.inf) -> int:
    """Read what arrives within some seconds, or up to ``most`` events; return the number of events."""
    events, ends = 0, time.monotonic() + seconds
    while events < most and (left := ends - time.monotonic()) > 0:
        if not selector.get_map():
            time.sleep(left)
        for key, _ in selector.select(min(left, 0.1)):
            assert isinstance(key.fileobj, socket.socket)  # noqa: S101 - they are registered above
            data = key.fileobj.recv(1 << 16)
            if not data:
                selector.unregister(key.fileobj)
            events += data.count(b"event:")
    return events
