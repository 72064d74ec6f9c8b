"""Upload and download of tables of several gigabytes, and the service's memory meanwhile."""

import io
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

from benchmarks.harness import table
from demo.processes import children, watched
from demo.service import service_process

ARROW = "application/vnd.apache.arrow.stream"
MOST_RISE = 200 * 10**6
MIB = 2**20


def _batch(rows: int) -> pa.RecordBatch:
    drawn = np.random.default_rng(7)
    return pa.record_batch(
        {
            "id": pa.array(drawn.integers(0, 10**12, rows)),
            "income": pa.array(drawn.normal(40_000, 9_000, rows)),
            "town": pa.array(drawn.choice(["Oslo", "Bergen", "Tromsø"], rows)),
        }
    )


def arrow_stream(size: int, rows: int = 200_000) -> Iterator[bytes]:
    """Yield an Arrow stream of about `size` bytes, never all of it at once."""
    batch = _batch(rows)
    head, end = io.BytesIO(), b"\xff\xff\xff\xff\0\0\0\0"
    pa.ipc.new_stream(head, batch.schema).close()
    whole = io.BytesIO()
    with pa.ipc.new_stream(whole, batch.schema) as writer:
        writer.write_batch(batch)
    schema = head.getvalue().removesuffix(end)
    message = whole.getvalue().removeprefix(schema).removesuffix(end)
    yield schema
    for _ in range(max(1, size // len(message))):
        yield message
    yield end


def csv_text(size: int, rows: int = 50_000) -> Iterator[bytes]:
    """Yield a CSV of about `size` bytes."""
    lines = [f"{row['id']},{row['income']!r},{row['town']}\r\n" for row in _batch(rows).to_pylist()]
    block = "".join(lines).encode()
    yield b"id,income,town\r\n"
    for _ in range(max(1, size // len(block))):
        yield block


def _up_and_down(
    client: httpx.Client, pid: int, media_type: str, content: Iterator[bytes]
) -> list[list[str]]:
    lines = []

    def note(what: str, seconds: float, size: int, service: int, worker: str) -> None:
        met = "met" if service <= MOST_RISE else "MISSED"
        figures = [f"{size / 1e9:.2f}", f"{seconds:.0f}", f"{service / 1e6:.0f}", worker]
        lines.append([what, *figures, f"{MOST_RISE / 1e6:.0f}", met])

    sent = 0

    def counted() -> Iterator[bytes]:
        nonlocal sent
        for block in content:
            sent += len(block)
            yield block

    start = time.perf_counter()
    with ExitStack() as stack:
        workers = [worker for server in children(pid) for worker in children(server)]
        rises = [stack.enter_context(watched(process)) for process in (pid, *workers)]
        answer = client.post("/v1/buffers", content=counted(), headers={"content-type": media_type})
    buffer = answer.raise_for_status().json()
    worker = f"{max(rise.bytes for rise in rises[1:]) / 1e6:.0f}"
    note(f"up, {media_type}", time.perf_counter() - start, sent, rises[0].bytes, worker)

    start, got = time.perf_counter(), 0
    rows_path = f"/v1/buffers/{buffer['id']}/rows"
    with watched(pid) as rise, client.stream("GET", rows_path, headers={"accept": ARROW}) as rows:
        for block in rows.iter_raw(MIB):
            got += len(block)
    note(f"down, {ARROW}", time.perf_counter() - start, got, rise.bytes, "-")
    client.delete(f"/v1/buffers/{buffer['id']}").raise_for_status()
    return lines


def measure(size: int) -> str:
    """Return the results for tables of `size` bytes as Markdown."""
    with tempfile.TemporaryDirectory() as home, service_process(Path(home), workers="1") as (address, pid):
        client = httpx.Client(base_url=address, timeout=3600)
        lines = _up_and_down(client, pid, ARROW, arrow_stream(size))
        lines += _up_and_down(client, pid, "text/csv", csv_text(size))
    header = ["a buffer", "GB", "s", "service rose by, MB", "worker rose by, MB", "goal, MB", ""]
    return table(header, lines) + "\n"
