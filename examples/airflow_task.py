"""Airflow task that swaps an object of a bucket into another; no row passes through Airflow.

The service reads and writes both by reference: allow their prefixes by ``ROWVEIL_SOURCE_PREFIXES`` and
``ROWVEIL_DESTINATION_PREFIXES``. The API key is in the worker's environment variable ``ROWVEIL_API_KEY``.
`swap_object` is a plain function, and runs without Airflow.
"""

import os
import time
from typing import Any

import httpx


def swap_object(
    source: str,
    destination: str,
    service: str,
    parameters: dict[str, Any],
    address: str,
    key: str,
    patience: float = 3600,
) -> dict[str, Any]:
    """Swap one object into another; return the job's id, outcome, event counts and both digests.

    ``key`` is an idempotency key: a retry with the same key waits for the same job and does not
    start a second one.
    """
    call = {
        "source": {"reference": source},
        "parameters": parameters,
        "destination": {"reference": destination},
    }
    ended = time.monotonic() + patience
    api_key = os.environ.get("ROWVEIL_API_KEY")
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    with httpx.Client(base_url=address, headers=headers, timeout=patience) as client:
        headers = {"idempotency-key": key, "prefer": "respond-async"}
        job = _checked(client.post(f"/v1/services/{service}", json=call, headers=headers))
        while job["state"] in ("queued", "running"):
            if time.monotonic() > ended:
                raise TimeoutError(f"job {job['id']} is still {job['state']}")
            time.sleep(1)
            job = _checked(client.get(f"/v1/jobs/{job['id']}"))
    if job["state"] != "succeeded":
        raise RuntimeError(f"job {job['id']} {job['state']}: {job.get('error', {}).get('detail', '')}")
    return {
        "job": job["id"],
        "outcome": job["outcome"],
        "events": job["event_counts"],
        "source": job["source"]["digest"],
        "destination": job["destination"]["digest"],
    }


def _checked(answer: httpx.Response) -> dict[str, Any]:
    """Return the document of the response; raise an error with the problem's message."""
    document: dict[str, Any] = answer.json()
    if answer.is_error:
        raise RuntimeError(document["detail"])
    return document


try:
    from airflow.sdk import dag, task
except ImportError:  # called as a plain function
    pass
else:

    @dag(schedule="@daily", catchup=False)
    def release_people() -> None:
        """Swap the incomes of the day's people within their towns, every day."""

        @task(retries=3)
        def swap(ds: str = "", run_id: str = "") -> dict[str, Any]:
            return swap_object(
                source=f"s3://microdata/people/date={ds}/people.parquet",
                destination=f"s3://released/people/date={ds}/people.parquet",
                service="CDSWAP",
                parameters={"swap_fields": ["income"], "control_field": "town"},
                address="http://rowveil:8080",
                key=f"release_people/{run_id}",
            )

        swap()

    release_people()
