"""An Airflow task that swaps an object of a bucket into another; no row passes through Airflow.

The service reads and writes both by reference: allow their prefixes by ``ROWVEIL_SOURCE_PREFIXES`` and
``ROWVEIL_DESTINATION_PREFIXES``. The caller's key is in the worker's variable ``ROWVEIL_API_KEY``.
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
    """Swap one object into another; the job's id, outcome, counts of events and both digests.

    ``key`` names this piece of work: a retry with the same key waits for the same job and makes no
    second one.
    """
    call = {
        "source": {"reference": source},
        "parameters": parameters,
        "destination": {"reference": destination},
    }
    ended = time.monotonic() + patience
    api_key = os.environ.get("ROWVEIL_API_KEY")
    said = {"authorization": f"Bearer {api_key}"} if api_key else {}
    with httpx.Client(base_url=address, headers=said, timeout=patience) as client:
        headers = {"idempotency-key": key, "prefer": "respond-async"}
        job = _told(client.post(f"/v1/services/{service}", json=call, headers=headers))
        while job["state"] in ("queued", "running"):
            if time.monotonic() > ended:
                raise TimeoutError(f"job {job['id']} is still {job['state']}")
            time.sleep(1)
            job = _told(client.get(f"/v1/jobs/{job['id']}"))
    if job["state"] != "succeeded":
        raise RuntimeError(f"job {job['id']} {job['state']}: {job.get('error', {}).get('detail', '')}")
    return {
        "job": job["id"],
        "outcome": job["outcome"],
        "events": job["event_counts"],
        "source": job["source"]["digest"],
        "destination": job["destination"]["digest"],
    }


def _told(answer: httpx.Response) -> dict[str, Any]:
    """The answer's document; where it is a problem, what it says is the error's message."""
    document: dict[str, Any] = answer.json()
    if answer.is_error:
        raise RuntimeError(document["detail"])
    return document


try:
    from airflow.sdk import dag, task
except ImportError:  # run as a plain function
    pass
else:

    @dag(schedule="@daily", catchup=False)
    def release_people() -> None:
        """Every day, the people of the day, their incomes swapped within their town."""

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
