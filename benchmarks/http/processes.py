"""Calls and reads with one API process and with two, in turn, on SQLite and on PostgreSQL.

The client and the workers share the processors with them: on two of these, two API processes are at most
what a client leaves.
"""

import contextlib
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from benchmarks.harness import table
from benchmarks.http.calls import Round, Server, descendants, first_response, measured_round
from benchmarks.http.databases import DATABASES, settings_of
from benchmarks.http.plain_client import request_bytes
from benchmarks.methods.kernels import people_table
from demo.service import own_key, service_process

PROCESSES = (1, 2)
CONNECTIONS = (1, 4, 16)
_SECONDS = 3.0
_WARM_UP = 2.0
_PARAMETERS = {"swap_fields": ["a"], "control_field": "class100"}


def measure(rounds: int) -> str:
    """Return rates, latencies and processor time by number of API processes as Markdown."""
    return (
        "`1` and `2`: number of API processes. A call is CDSWAP, `read` is GET of a job, `rows` is GET of "
        "its 1,000 rows. Processor time is that of all processes of the service, with its workers and "
        "without the database's.\n\n"
        + "\n".join(f"{name}:\n\n{_measure_on(name, rounds)}\n" for name in DATABASES)
    )


def _measure_on(database: str, rounds: int) -> str:
    found: dict[tuple[int, str, int], list[Round]] = {}
    with contextlib.ExitStack() as opened:
        new_database = opened.enter_context(settings_of(database))
        servers = []
        for count in PROCESSES:
            servers += [(count, server) for server in _servers(count, new_database(), opened)]
        for _, server in servers:
            measured_round(server, max(CONNECTIONS), _WARM_UP)
        for connections in CONNECTIONS:
            for _ in range(rounds):
                for count, server in servers:
                    result = measured_round(server, connections, _SECONDS)
                    found.setdefault((connections, server.name, count), []).append(result)
    names = list(dict.fromkeys(server.name for _, server in servers))
    lines = [
        _line(connections, name, *(found[connections, name, count] for count in PROCESSES))
        for connections in CONNECTIONS
        for name in names
    ]
    columns = ["a second, 1", "2", "2 / 1", "p50 ms, 1", "2", "ms of processor, 1", "2"]
    return table(["connections", "what", *columns], lines)


def _servers(count: int, url: Mapping[str, str], opened: contextlib.ExitStack) -> list[Server]:
    """Start a service with this number of API processes; return it with each request in turn."""
    home = Path(opened.enter_context(tempfile.TemporaryDirectory()))
    settings = {"api_processes": str(count), "workers": "2", "auth": "on", "caller_request_rate": "0"}
    address, process = opened.enter_context(service_process(home, **settings, **url))
    key, others = own_key(home, **url), descendants(process)

    def server(name: str, method: str, path: str, body: bytes = b"") -> Server:
        return Server(name, address, request_bytes(method, address, path, key, body), process, others)

    rows = people_table(1000).select(["a", "b", "c", "class100"]).to_pylist()
    body, tiny = (
        orjson.dumps({"source": {"rows": some}, "parameters": _PARAMETERS}) for some in (rows, rows[:3])
    )
    call = server("call, 1,000 rows", "POST", "/v1/services/CDSWAP", body)
    job = orjson.loads(first_response(call))
    if job["state"] != "succeeded":
        raise RuntimeError("the job fails: see the service's log")
    return [
        call,
        server("call, 3 rows", "POST", "/v1/services/CDSWAP", tiny),
        server("read", "GET", f"/v1/jobs/{job['id']}"),
        server("rows", "GET", f"/v1/jobs/{job['id']}/rows"),
    ]


def _line(connections: int, name: str, one: Sequence[Round], more: Sequence[Round]) -> list[str]:
    ratio = statistics.median(
        theirs.calls.rate / mine.calls.rate for mine, theirs in zip(one, more, strict=True)
    )
    both = (one, more)
    middles = [statistics.median(each.calls.percentile(50) for each in results) for results in both]
    return [
        str(connections),
        name,
        *(f"{statistics.median(each.calls.rate for each in results):,.0f}" for results in both),
        f"{ratio:.2f}",
        *(f"{1000 * middle:.1f}" for middle in middles),
        *(
            f"{1000 * statistics.median(each.service + each.workers for each in results):.2f}"
            for results in both
        ),
    ]
