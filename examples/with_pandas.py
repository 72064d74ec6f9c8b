"""Swap a column of a pandas DataFrame: ``with_pandas.py people.parquet released.parquet [address]``.

The caller's key is in the variable ROWVEIL_API_KEY.
"""

import io
import os
import sys
import time
from typing import Any

import httpx
import pandas as pd
import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"


def swapped(frame: pd.DataFrame, service: str, parameters: dict[str, Any], address: str) -> pd.DataFrame:
    """The frame that comes out of a service."""
    key = os.environ.get("ROWVEIL_API_KEY")
    said = {"authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=address, headers=said, timeout=600) as client:
        content = io.BytesIO()
        table = pa.Table.from_pandas(frame, preserve_index=False)
        with pa.ipc.new_stream(content, table.schema) as stream:
            stream.write_table(table)
        content.seek(0)
        upload = client.post("/v1/buffers", content=content, headers={"content-type": ARROW})
        buffer = _told(upload).json()["id"]
        try:
            call = {"source": {"buffer": buffer}, "parameters": parameters}
            job = _told(client.post(f"/v1/services/{service}", json=call)).json()
            while job["state"] in ("queued", "running"):
                time.sleep(1)
                job = _told(client.get(f"/v1/jobs/{job['id']}")).json()
            if job["state"] != "succeeded":
                raise RuntimeError(job.get("error", job)["detail"])
            rows = _told(client.get(f"/v1/jobs/{job['id']}/rows", headers={"accept": ARROW}))
        finally:
            client.delete(f"/v1/buffers/{buffer}")
    released: pd.DataFrame = pa.ipc.open_stream(rows.content).read_pandas()
    return released


def _told(answer: httpx.Response) -> httpx.Response:
    """The answer; where it is a problem, what it says is the error's message."""
    if answer.is_error:
        raise RuntimeError(answer.json()["detail"])
    return answer


if __name__ == "__main__":
    source, destination, *rest = sys.argv[1:]
    people = pd.read_parquet(source)
    parameters = {"swap_fields": ["income"], "control_field": "town"}
    released = swapped(people, "CDSWAP", parameters, *rest or ["http://127.0.0.1:8080"])
    released.to_parquet(destination)
