"""HTTP benchmarks: 100 000 rows compared with the kernel alone, and many concurrent small requests."""

import json
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa

from benchmarks.harness import in_turn, table
from benchmarks.methods.kernels import SWAPPED, people_table, swap_work
from demo.service import own_key, running_service

ROWS = 100_000
GOAL = 3.0
SMALL_ROWS = 1000
SMALL_CALLS = 400
SMALL_GOAL = 300.0
AS_JSON = {"content-type": "application/json"}
ARROW = "application/vnd.apache.arrow.stream"


def arrow_bytes(source: pa.Table) -> bytes:
    """Encode the table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, source.schema) as writer:
        writer.write_table(source)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def measure(rounds: int) -> str:
    """Return the comparison as Markdown."""
    source = people_table(ROWS).select(["a", "b", "c", "d"])
    parameters: dict[str, Any] = {"swap_fields": list(SWAPPED)}
    body = orjson.dumps({"source": {"rows": source.to_pylist()}, "parameters": parameters, "seed": "07"})
    arrow = arrow_bytes(source)

    with tempfile.TemporaryDirectory() as home, running_service(Path(home), auth="on") as address:
        key = {"authorization": f"Bearer {own_key(Path(home))}"}
        client = httpx.Client(base_url=address, timeout=120, headers=key)

        def over_json() -> object:
            return client.post("/v1/services/DSWAP", content=body, headers=AS_JSON).raise_for_status()

        def over_arrow() -> object:
            upload = client.post("/v1/buffers", content=arrow, headers={"content-type": ARROW})
            buffer = upload.raise_for_status().json()["id"]
            call = {"source": {"buffer": buffer}, "parameters": parameters, "seed": "07"}
            job = client.post("/v1/services/DSWAP", json=call).raise_for_status().json()
            path = f"/v1/jobs/{job['id']}/rows"
            return client.get(path, headers={"accept": ARROW}).raise_for_status()

        timings = in_turn(
            {
                "JSON call": over_json,
                "parse and write that JSON (orjson)": lambda: orjson.dumps(orjson.loads(body)),
                "parse and write that JSON (standard library)": lambda: json.dumps(json.loads(body)),
                "Arrow: upload, run, download": over_arrow,
                "read and write that Arrow": lambda: arrow_bytes(pa.ipc.open_stream(arrow).read_all()),
                "kernel alone": swap_work(source, "DSWAP", parameters),
            },
            rounds,
        )
        client.close()
    call = timings["JSON call"]
    lines = [
        [name, f"{timing.median:.4f}", f"{call.ratio_to(timing):.2f}"] for name, timing in timings.items()
    ]
    ratio = call.ratio_to(timings["parse and write that JSON (orjson)"])
    verdict = "met" if ratio <= GOAL else "MISSED"
    return (
        table([f"HTTP, {ROWS:,} x 4", "s", "JSON call / this"], lines)
        + f"\n\nGoal: a JSON call at most {GOAL:g} times parsing and writing its JSON: "
        + f"{ratio:.2f} with orjson, {verdict}.\n"
    )


def measure_small(clients: int) -> str:
    """Return rate and latency of concurrent small requests as Markdown."""
    rows = people_table(SMALL_ROWS).select(["a", "b", "c", "d"]).to_pylist()
    body = orjson.dumps(
        {"source": {"rows": rows}, "parameters": {"swap_fields": list(SWAPPED)}, "seed": "07"}
    )

    with tempfile.TemporaryDirectory() as home, running_service(Path(home), auth="on") as address:
        key = {"authorization": f"Bearer {own_key(Path(home))}"}

        def calls(count: int) -> list[float]:
            taken = []
            with httpx.Client(base_url=address, timeout=120, headers=key) as client:
                for _ in range(count):
                    started = time.perf_counter()
                    client.post("/v1/services/DSWAP", content=body, headers=AS_JSON).raise_for_status()
                    taken.append(time.perf_counter() - started)
            return taken

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(calls, [10] * clients))  # every worker has run its first job
            started = time.perf_counter()
            taken = list(chain.from_iterable(pool.map(calls, [SMALL_CALLS // clients] * clients)))
            elapsed = time.perf_counter() - started
    rate = len(taken) / elapsed
    figures = [
        str(clients),
        f"{rate:.0f}",
        f"{1000 * statistics.median(taken):.1f}",
        f"{1000 * max(taken):.1f}",
    ]
    return (
        table(
            [f"HTTP, {SMALL_ROWS:,} x 4, clients at once", "calls a second", "median ms", "longest ms"],
            [figures],
        )
        + f"\n\nGoal: {SMALL_GOAL:g} calls a second: {'met' if rate >= SMALL_GOAL else 'MISSED'}.\n"
    )
