"""API client of the contract tests, with the checks that every response must pass."""

from typing import Any
from urllib.parse import unquote

import httpx
import numpy as np
import pyarrow as pa

from app.api.schemas import Job, Problem
from app.errors import problem_codes

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"


class Api:
    """Client that validates every response against the response models."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def run(self, service: str, rows: Any, parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Run a service on inline rows; return the job, which must have ended."""
        body = {"source": {"rows": rows}, "parameters": parameters, **more}
        answer = self.client.post(f"/v1/services/{service}", json=body)
        assert answer.status_code == 200, answer.text
        return self.job(answer)

    @staticmethod
    def job(answer: httpx.Response) -> dict[str, Any]:
        """Return the response's job after strict validation."""
        document: dict[str, Any] = answer.json()
        Job.model_validate(document, strict=False, extra="forbid")
        return document

    @staticmethod
    def problem(answer: httpx.Response, status: int, code: str | None = None) -> dict[str, Any]:
        """Return the response's problem document after strict validation."""
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        document: dict[str, Any] = answer.json()
        Problem.model_validate(document, extra="forbid")
        assert document["status"] == status
        assert document["code"] in problem_codes()
        assert document["type"] == f"urn:rowveil:problem:{document['code']}"
        assert unquote(document["instance"]) == answer.request.url.path
        if code is not None:
            assert document["code"] == code
        return document

    def refused(self, service: str, body: Any, status: int = 422) -> dict[str, Any]:
        """Return the first error of a request that must be rejected."""
        answer = self.client.post(f"/v1/services/{service}", json=body)
        document = self.problem(answer, status)
        first: dict[str, Any] = document["errors"][0]
        return first


def slow_call(client: httpx.Client) -> dict[str, Any]:
    """Return a request that takes seconds: millions of different texts must be sorted."""
    rows = 2_000_000
    mixed = pa.array(np.arange(rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    table = pa.table({"code": mixed.cast(pa.string()), "x": np.arange(rows)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    answer = client.post("/v1/buffers", content=sink.getvalue().to_pybytes(), headers={"content-type": ARROW})
    parameters = {"swap_fields": ["x"], "control_field": "code", "block_size": 5}
    return {"source": {"buffer": answer.raise_for_status().json()["id"]}, "parameters": parameters}
