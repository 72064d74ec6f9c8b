"""Small calls of CDSWAP over HTTP, in turn with two floors: FastAPI alone, and a swap in its process.

Processor time per call stays comparable on a machine that others use too; calls per second do not.
"""

import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.harness import table
from benchmarks.http import floors
from benchmarks.http.databases import settings_of
from benchmarks.http.plain_client import Calls, request_bytes, run_calls
from benchmarks.methods.kernels import people_table
from demo.service import own_key, service_process

CONNECTIONS = (1, 4, 16)
GOAL = 0.2
READ_GOAL = 1000
_SECONDS = 3.0
_WARM_UP = 2.0
_FIRST_RELEASES = 25
"""Calls before the measurement: a worker measures the risk of the first twenty releases of a table."""
_PARAMETERS = {"swap_fields": ["a"], "control_field": "class100"}
_MOST_RATE = 200
"""Calls a second for which new tables are made before a round."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """A server under test and the request that is sent to it."""

    name: str
    address: str
    request: bytes = field(repr=False)
    process: int
    """Process id."""
    workers: Sequence[int] = ()
    """Process ids of its workers."""
    make: Callable[[], bytes] | None = None
    """Makes a request with another table each time; None: the request is repeated."""


@dataclass(frozen=True, slots=True)
class Round:
    """Calls of one round, and the processor time that they took."""

    calls: Calls
    service: float
    """Seconds of processor time per call in the server's process."""
    workers: float
    """The same in its workers."""


def measure(rounds: int, database: str) -> str:
    """Return rates, latencies and processor time per call on a database as Markdown."""
    rows = people_table(1000).select(["a", "b", "c", "class100"]).to_pylist()
    body, tiny = call_of(rows), call_of(rows[:3])
    with (
        tempfile.TemporaryDirectory() as home,
        floors.running() as (floor, floor_process),
        settings_of(database) as new_database,
        ExitStack() as opened,
    ):
        url = new_database()
        service = service_process(Path(home), auth="on", caller_request_rate="0", **url)
        address, process = opened.enter_context(service)
        key, workers = own_key(Path(home), **url), descendants(process)
        path = "/v1/services/CDSWAP"
        chance = np.random.default_rng(1)

        def new_rows() -> bytes:
            others = [{**row, **dict(zip("abc", chance.random(3).tolist(), strict=True))} for row in rows]
            return request_bytes("POST", address, path, key, call_of(others))

        servers = [
            Server("echo", floor, request_bytes("POST", floor, "/echo", body=body), floor_process),
            Server("swap", floor, request_bytes("POST", floor, "/swap/CDSWAP", body=body), floor_process),
            Server("call", address, request_bytes("POST", address, path, key, body), process, workers),
            Server("new rows", address, b"", process, workers, new_rows),
            Server("3 rows", address, request_bytes("POST", address, path, key, tiny), process, workers),
        ]
        jobs = [orjson.loads(first_response(server)) for server in (servers[2], servers[4])]
        if any(each["state"] != "succeeded" for each in jobs):
            raise RuntimeError("the jobs fail: see the service's log")
        job = jobs[0]["id"]
        read = request_bytes("GET", address, f"/v1/jobs/{job}", key)
        servers.append(Server("read", address, read, process, workers))
        for server in servers:
            measured_round(server, 4, _WARM_UP)
        released = 0
        while released < _FIRST_RELEASES:
            released += len(run_calls(address, servers[2].request, 4, _WARM_UP).seconds)
        lines = []
        for connections in CONNECTIONS:
            found = {server.name: [measured_round(server, connections, _SECONDS)] for server in servers}
            for _ in range(1, rounds):
                for server in servers:
                    found[server.name].append(measured_round(server, connections, _SECONDS))
            lines += [_line(connections, name, results, found["echo"]) for name, results in found.items()]
    head = ["connections", "calls of", "a second", "of the echo", "p50 ms", "p99 ms"]
    costs = ["service, ms of processor", "worker", "service / echo"]
    return (
        f"On {database}. A call is CDSWAP on 1,000 rows, {len(body):,} bytes of JSON; `echo` parses and "
        "writes them in FastAPI, `swap` also swaps them in its process, `read` is GET of a job. "
        "`call` repeats one table, `new rows` sends another one each time.\n\n"
        + table([*head, *costs], lines)
        + f"\n\nGoals: a call at least {GOAL:g} of the echo's calls a second; {READ_GOAL:,} reads a second.\n"
    )


def call_of(rows: list[dict[str, Any]]) -> bytes:
    """Return the body of a call with these rows."""
    return orjson.dumps({"source": {"rows": rows}, "parameters": _PARAMETERS})


def _line(connections: int, name: str, results: Sequence[Round], echoes: Sequence[Round]) -> list[str]:
    pairs = list(zip(results, echoes, strict=True))
    share = statistics.median(mine.calls.rate / echo.calls.rate for mine, echo in pairs)
    cost = statistics.median(mine.service / max(echo.service, 1e-9) for mine, echo in pairs)
    return [
        str(connections),
        name,
        f"{statistics.median(result.calls.rate for result in results):.0f}",
        f"{share:.3f}",
        *(
            f"{1000 * statistics.median(result.calls.percentile(percent) for result in results):.1f}"
            for percent in (50, 99)
        ),
        f"{1000 * statistics.median(result.service for result in results):.2f}",
        f"{1000 * statistics.median(result.workers for result in results):.2f}",
        f"{cost:.1f}",
    ]


def measured_round(server: Server, connections: int, seconds: float) -> Round:
    """Call the server for some seconds. Raises Refused."""
    made = None if server.make is None else [server.make() for _ in range(int(seconds * _MOST_RATE))]
    before = processor_seconds([server.process]), processor_seconds(server.workers)
    calls = run_calls(server.address, made or server.request, connections, seconds)
    count = len(calls.seconds)
    return Round(
        calls,
        (processor_seconds([server.process]) - before[0]) / count,
        (processor_seconds(server.workers) - before[1]) / count,
    )


def first_response(server: Server) -> bytes:
    """Return the body of one response."""
    content: list[bytes] = []
    run_calls(server.address, server.request, 1, 0.0, content.append)
    return content[0]


def processor_seconds(processes: Sequence[int]) -> float:
    """Return the user and system time of processes; 0 for one that has ended."""
    ticks = 0
    for process in processes:
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def descendants(process: int) -> list[int]:
    """Return the ids of all processes that a process has started."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found
