"""The whole way over HTTP beside the kernel alone, for 100 000 rows as JSON and as Arrow."""

import json
import tempfile
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa

from benchmarks.harness import in_turn, table
from benchmarks.kernels import SWAPPED, people_table, swap_work
from demo.service import running_service

ROWS = 100_000
GOAL = 3.0
ARROW = "application/vnd.apache.arrow.stream"


def _arrow_bytes(source: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, source.schema) as writer:
        writer.write_table(source)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def measure(rounds: int) -> str:
    """The comparison, as Markdown."""
    source = people_table(ROWS).select(["a", "b", "c", "d"])
    parameters: dict[str, Any] = {"swap_fields": list(SWAPPED)}
    body = orjson.dumps({"source": {"rows": source.to_pylist()}, "parameters": parameters, "seed": "07"})
    arrow = _arrow_bytes(source)
    as_json = {"content-type": "application/json"}

    with tempfile.TemporaryDirectory() as home, running_service(Path(home)) as address:
        client = httpx.Client(base_url=address, timeout=120)

        def over_json() -> object:
            return client.post("/v1/services/DSWAP", content=body, headers=as_json).raise_for_status()

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
                "read and write that Arrow": lambda: _arrow_bytes(pa.ipc.open_stream(arrow).read_all()),
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
