"""What the tests of the contract call, with the checks that every answer must pass."""

from typing import Any

import httpx
import numpy as np
import pyarrow as pa

from app.api.schemas import Job, Problem

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"


class Api:
    """A client that holds every answer against the contract's own models."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def run(self, service: str, rows: Any, parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Run a service on inline rows; the job, which must have ended."""
        body = {"source": {"rows": rows}, "parameters": parameters, **more}
        answer = self.client.post(f"/v1/services/{service}", json=body)
        assert answer.status_code == 200, answer.text
        return self.job(answer)

    @staticmethod
    def job(answer: httpx.Response) -> dict[str, Any]:
        """The answer's job, which must be one to the letter."""
        document: dict[str, Any] = answer.json()
        Job.model_validate(document, strict=False, extra="forbid")
        return document

    @staticmethod
    def problem(answer: httpx.Response, status: int, code: str | None = None) -> dict[str, Any]:
        """The answer's problem document, which must be one to the letter."""
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        document: dict[str, Any] = answer.json()
        Problem.model_validate(document, extra="forbid")
        assert document["status"] == status
        assert document["instance"] == answer.request.url.path
        if code is not None:
            assert document["code"] == code
        return document

    def refused(self, service: str, body: Any, status: int = 422) -> dict[str, Any]:
        """The first error of a call that must be refused."""
        answer = self.client.post(f"/v1/services/{service}", json=body)
        document = self.problem(answer, status)
        first: dict[str, Any] = document["errors"][0]
        return first


def slow_call(client: httpx.Client) -> dict[str, Any]:
    """A call that takes seconds: millions of different texts have to be put in order."""
    rows = 2_000_000
    mixed = (np.arange(rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(str)
    table = pa.table({"code": mixed, "x": np.arange(rows)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    answer = client.post("/v1/buffers", content=sink.getvalue().to_pybytes(), headers={"content-type": ARROW})
    parameters = {"swap_fields": ["x"], "control_field": "code", "block_size": 5}
    return {"source": {"buffer": answer.raise_for_status().json()["id"]}, "parameters": parameters}
