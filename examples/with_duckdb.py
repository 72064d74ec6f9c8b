"""Swap a column of a query's result, batch by batch: ``with_duckdb.py people.duckdb [address]``.

Neither the query's result nor the response is ever completely in this process's memory. The API key is in the
environment variable ROWVEIL_API_KEY.
"""

import io
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import duckdb
import httpx
import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"
QUERY = "SELECT * FROM people"
INTO = "CREATE OR REPLACE TABLE released AS SELECT * FROM swapped"


def swap(database: duckdb.DuckDBPyConnection, service: str, parameters: dict[str, Any], address: str) -> None:
    """Create the table ``released`` from the query's swapped result."""
    key = os.environ.get("ROWVEIL_API_KEY")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=address, headers=headers, timeout=600) as client:
        batches = database.sql(QUERY).to_arrow_reader(100_000)
        upload = client.post("/v1/buffers", content=_stream(batches), headers={"content-type": ARROW})
        buffer = _checked(upload).json()["id"]
        try:
            call = {"source": {"buffer": buffer}, "parameters": parameters}
            job = _checked(client.post(f"/v1/services/{service}", json=call)).json()
            while job["state"] in ("queued", "running"):
                time.sleep(1)
                job = _checked(client.get(f"/v1/jobs/{job['id']}")).json()
            if job["state"] != "succeeded":
                raise RuntimeError(job.get("error", job)["detail"])
            path = f"/v1/jobs/{job['id']}/rows"
            with client.stream("GET", path, headers={"accept": ARROW}) as answer:
                answer.raise_for_status()
                rows = io.BufferedReader(_Received(answer.iter_bytes()), 2**20)
                database.register("swapped", pa.ipc.open_stream(rows))
                database.execute(INTO)
                database.unregister("swapped")
        finally:
            client.delete(f"/v1/buffers/{buffer}")


def _stream(batches: pa.RecordBatchReader) -> Iterator[bytes]:
    """Encode the batches as an Arrow stream, each as soon as it is available."""
    content = io.BytesIO()
    with pa.ipc.new_stream(content, batches.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield content.getvalue()
            content.seek(0)
            content.truncate()
    yield content.getvalue()


class _Received(io.RawIOBase):
    """Body of a response as a file that can be read once."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any, /) -> int:
        self._left = self._left or next(self._chunks, b"")
        taken = min(len(into), len(self._left))
        into[:taken], self._left = self._left[:taken], self._left[taken:]
        return taken


def _checked(answer: httpx.Response) -> httpx.Response:
    """Return the response; raise an error with the problem's message."""
    if answer.is_error:
        raise RuntimeError(answer.json()["detail"])
    return answer


if __name__ == "__main__":
    file, *rest = sys.argv[1:]
    parameters = {"swap_fields": ["income"], "control_field": "town"}
    with duckdb.connect(file) as connection:
        swap(connection, "CDSWAP", parameters, *rest or ["http://127.0.0.1:8080"])
