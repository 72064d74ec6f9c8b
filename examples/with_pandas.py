"""Swap a column of a pandas DataFrame: ``with_pandas.py people.parquet released.parquet [address]``.

The API key is in the environment variable ROWVEIL_API_KEY.
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
    """Return the frame released by a service."""
    key = os.environ.get("ROWVEIL_API_KEY")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=address, headers=headers, timeout=600) as client:
        content = io.BytesIO()
        table = pa.Table.from_pandas(frame, preserve_index=False)
        with pa.ipc.new_stream(content, table.schema) as stream:
            stream.write_table(table)
        content.seek(0)
        upload = client.post("/v1/buffers", content=content, headers={"content-type": ARROW})
        buffer = _checked(upload).json()["id"]
        try:
            call = {"source": {"buffer": buffer}, "parameters": parameters}
            job = _checked(client.post(f"/v1/services/{service}", json=call)).json()
            while job["state"] in ("queued", "running"):
                time.sleep(1)
                job = _checked(client.get(f"/v1/jobs/{job['id']}")).json()
            if job["state"] != "succeeded":
                raise RuntimeError(job.get("error", job)["detail"])
            rows = _checked(client.get(f"/v1/jobs/{job['id']}/rows", headers={"accept": ARROW}))
        finally:
            client.delete(f"/v1/buffers/{buffer}")
    released: pd.DataFrame = pa.ipc.open_stream(rows.content).read_pandas()
    return released


def _checked(answer: httpx.Response) -> httpx.Response:
    """Return the response; raise an error with the problem's message."""
    if answer.is_error:
        raise RuntimeError(answer.json()["detail"])
    return answer


if __name__ == "__main__":
    source, destination, *rest = sys.argv[1:]
    people = pd.read_parquet(source)
    parameters = {"swap_fields": ["income"], "control_field": "town"}
    released = swapped(people, "CDSWAP", parameters, *rest or ["http://127.0.0.1:8080"])
    released.to_parquet(destination)
