"""Large Arrow table over HTTP, stage by stage, compared with the kernel alone and HTTP alone."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from benchmarks.harness import table
from benchmarks.http import alone
from benchmarks.http.formats import ARROW, arrow_bytes
from benchmarks.methods.kernels import SWAPPED, people_table, swap_work
from demo.service import running_service

GOAL = 3.0
"""Most time of all stages, in times of the kernel."""
HTTP_GOAL = 2.0
"""Most time of all stages, in times of the same bytes with only memory behind them."""
STAGES = ("upload", "swap", "download")
ALL = "all three"
KERNEL = "kernel alone"
HTTP = "HTTP alone, up and down"
_PIECE = 2**20


def _timed(work: Callable[[], httpx.Response]) -> tuple[float, httpx.Response]:
    started = time.perf_counter()
    answer = work().raise_for_status()
    return time.perf_counter() - started, answer


def _pieces(content: bytes) -> Iterator[bytes]:
    """Split the body; of one large body the client would copy the rest at every send."""
    return (content[at : at + _PIECE] for at in range(0, len(content), _PIECE))


def _there_and_back(client: httpx.Client, content: bytes) -> float:
    """Return the seconds for the same bytes against the baseline server."""
    sent = {"content-length": str(len(content))}
    up, _ = _timed(lambda: client.post("/", content=_pieces(content), headers=sent))
    down, answer = _timed(lambda: client.get("/"))
    if len(answer.content) != len(content):
        raise RuntimeError("bytes were lost on the way")
    return up + down


def _round(client: httpx.Client, content: bytes, parameters: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of each stage; the service stores nothing afterwards."""
    seconds = {}
    sent = {"content-type": ARROW, "content-length": str(len(content))}
    seconds["upload"], answer = _timed(
        lambda: client.post("/v1/buffers", content=_pieces(content), headers=sent)
    )
    buffer = answer.json()["id"]
    call = {"source": {"buffer": buffer}, "parameters": parameters, "seed": "07"}
    waiting = {"prefer": "wait=60"}
    seconds["swap"], answer = _timed(lambda: client.post("/v1/services/DSWAP", json=call, headers=waiting))
    job = answer.json()
    if job["state"] != "succeeded":
        raise RuntimeError(f"the job is {job['state']}")
    rows = f"/v1/jobs/{job['id']}/rows"
    seconds["download"], answer = _timed(lambda: client.get(rows, headers={"accept": ARROW}))
    received = pa.ipc.open_stream(answer.content).read_all()
    if received.num_rows != job["row_count"]:
        raise RuntimeError("rows were lost on the way")
    client.delete(f"/v1/jobs/{job['id']}").raise_for_status()
    client.delete(f"/v1/buffers/{buffer}").raise_for_status()
    return seconds


def measure(rows: int, rounds: int) -> str:
    """Return the comparison as Markdown."""
    source = people_table(rows).select(["a", "b", "c", "d"])
    parameters: dict[str, Any] = {"swap_fields": list(SWAPPED)}
    kernel = swap_work(source, "DSWAP", parameters)
    content = arrow_bytes(source)
    taken: list[dict[str, float]] = []
    with (
        tempfile.TemporaryDirectory() as home,
        running_service(Path(home), workers="1") as address,
        alone.running() as (alone_at, _),
        httpx.Client(base_url=address, timeout=600) as client,
        httpx.Client(base_url=alone_at, timeout=600) as bare,
    ):
        for _ in range(rounds + 1):  # the first round warms both up
            seconds = _round(client, content, parameters)
            started = time.perf_counter()
            kernel()
            seconds[KERNEL] = time.perf_counter() - started
            seconds[HTTP] = _there_and_back(bare, content)
            taken.append(seconds)
    del taken[0]
    for seconds in taken:
        seconds[ALL] = sum(seconds[stage] for stage in STAGES)
    lines = [
        [
            name,
            f"{statistics.median(seconds[name] for seconds in taken):.2f}",
            *(f"{_ratio(taken, name, floor):.2f}" for floor in (KERNEL, HTTP)),
        ]
        for name in (*STAGES, ALL, HTTP, KERNEL)
    ]
    header = [
        f"Arrow over HTTP, {rows:,} x 4 ({source.nbytes / 10**6:.0f} MB)",
        "s",
        "by the kernel",
        "by HTTP alone",
    ]
    verdicts = [
        f"Goal: at most {goal:g} times {floor}: {ratio:.1f}, {'met' if ratio <= goal else 'MISSED'}."
        for floor, goal in ((KERNEL, GOAL), (HTTP, HTTP_GOAL))
        for ratio in [_ratio(taken, ALL, floor)]
    ]
    return table(header, lines) + "\n\n" + "\n".join(verdicts) + "\n"


def _ratio(taken: list[dict[str, float]], name: str, floor: str) -> float:
    """Return the median over rounds of the time of a stage, in times of a floor of the same round."""
    return statistics.median(seconds[name] / seconds[floor] for seconds in taken)
