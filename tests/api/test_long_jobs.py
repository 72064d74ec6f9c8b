"""Long jobs of the numeric services: kernels report progress and can be cancelled."""

import io
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from tests.api.calls import ARROW, Api

ROWS = 400_000
LONG: dict[str, dict[str, Any]] = {
    "MEDS": {"swap_fields": ["a", "b", "c"], "k": 3},
    "MEWS": {"swap_fields": ["a"], "degree": 90_000},
    "RWN": {"k": 200},
    "LOCALITY": {"fields": ["a", "b", "c", "d"], "segment_size": 300, "sigma": 1.0},
}
"""Service -> parameters of a run that takes many seconds."""


@pytest.fixture(scope="module")
def buffer(client: httpx.Client) -> Iterator[str]:
    """Skewed numbers without duplicates."""
    random = np.random.default_rng(5)
    table = pa.table({name: np.exp(random.normal(size=ROWS)) for name in "abcd"})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    headers = {"content-type": ARROW}
    answer = client.post("/v1/buffers", content=sink.getvalue(), headers=headers).raise_for_status()
    yield answer.json()["id"]
    client.delete(f"/v1/buffers/{answer.json()['id']}").raise_for_status()


@pytest.mark.parametrize("service", LONG)
def test_a_long_job_reports_its_progress_and_is_cancelled_midway(api: Api, buffer: str, service: str) -> None:
    """Progress grows step by step while a kernel works; a cancel then stops it before its end."""
    body = {"source": {"buffer": buffer}, "parameters": LONG[service]}
    headers = {"prefer": "respond-async"}
    answer = api.client.post(f"/v1/services/{service}", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    job = api.job(answer)
    fractions: list[float] = []
    with api.client.stream("GET", f"/v1/jobs/{job['id']}/events", timeout=60) as events:
        for line in events.iter_lines():
            if line.startswith("data:") and '"running"' in line:
                fractions.append(float(line.split('"fraction":')[1].split(",")[0].rstrip("}")))
            if len(set(fractions)) == 4:
                break
            assert "event: end" not in line, f"it ended after {fractions}"
    assert fractions == sorted(fractions)
    cancelled = api.job(api.client.post(f"/v1/jobs/{job['id']}/cancel"))
    assert cancelled["state"] == "cancelled"
    api.problem(api.client.get(f"/v1/jobs/{job['id']}/rows"), 409)
