"""JSON bodies that take many times their size in memory when they are parsed."""

from pathlib import Path
from statistics import median

import httpx
import pytest

from tests.hostile.conftest import MIB, Target

LISTS = 2 * MIB // 3
"""Empty lists in 2 MiB of text. Parsed, they take 25 times that."""


def high_water(pid: int) -> int:
    """Most bytes that the process has had in memory since the last `reset`."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def reset(pid: int) -> int:
    """Begin to note the most memory again, and return the present amount."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return high_water(pid)


def post(target: Target, body: bytes) -> httpx.Response:
    return httpx.post(f"{target.address}/v1/services/DSWAP", content=body, timeout=60)


def lists(count: int) -> bytes:
    return b"[" + b"[]," * (count - 1) + b"[]]"


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (b'{"parameters":{"swap_fields":["a"]},"source":{"columns":{"a":', b"}}}", 200),
        (b'{"parameters":{"swap_fields":["a"]},"source":{"rows":', b"}}", 422),
        (b'{"source":{"rows":[{"a":1}]},"parameters":{"swap_fields":', b"}}", 413),
        (b"", b"", 413),
    ],
    ids=["columns", "rows", "parameters", "whole"],
)
def test_empty_lists_take_little_memory_in_the_service(
    target: Target, before: bytes, after: bytes, status: int
) -> None:
    """The median growth of three requests counts: other threads of the service take memory at times, too."""
    body = before + lists(LISTS) + after
    post(target, body)  # starts the processes
    growth = []
    for _ in range(3):
        present = reset(target.pid)
        assert post(target, body).status_code == status
        growth.append(high_water(target.pid) - present)
    assert median(growth) < 8 * len(body), growth


def test_a_body_that_needs_too_much_memory_is_refused_and_the_next_one_is_read(target: Target) -> None:
    response = post(target, b'{"source":{"columns":{"a":' + lists(8 * MIB) + b"}}}")
    assert (response.status_code, response.json()["code"]) == (413, "memory_limit")
    assert "ROWVEIL_BODY_MEMORY_BYTES" in response.json()["detail"]
    rows = b'{"city":"Bern","income":12},' * 60_000
    body = b'{"parameters":{"swap_fields":["income"]},"source":{"rows":[' + rows[:-1] + b"]}}"
    response = post(target, body)
    assert (response.status_code, response.json()["row_count"]) == (200, 60_000)
    assert len(response.json()["destination"]["rows"]) == 60_000


def test_all_memory_is_returned_to_the_budget(target: Target) -> None:
    post(target, b"{}")
    metrics = httpx.get(f"{target.address}/metrics").text
    assert "rowveil_request_memory_bytes 0.0" in metrics
