"""Load test with many concurrent clients: ``python -m benchmarks.http.load --minutes 10 --clients 64``.

Each client runs a seeded random mix of small runs of several services, reruns, cancels, listings and reads; a
few upload, swap and download large tables. A 429 or 503 with a delay is obeyed and counted; any other
unexpected response is an error. The exit code is 1 if there was an error, or memory grew.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson

from benchmarks.harness import table
from benchmarks.http.formats import ARROW, AS_JSON, arrow_bytes
from benchmarks.methods.kernels import people_table
from benchmarks.resident import Resident, watched
from demo.service import own_key, service_process

SMALL_ROWS = 1000
LARGE_CLIENTS = 1 / 32
"""Fraction of the clients that move large tables."""
KEEPALIVE_SECONDS = (
    3.0  # below the server's keep-alive of five seconds: no request uses a connection that is being closed
)
PATIENCE = 300.0
BUSY = (429, 503)
ENDED = ("succeeded", "failed", "cancelled")

SMALL: dict[str, dict[str, Any]] = {
    "DSWAP": {"swap_fields": ["a", "b"]},
    "CDSWAP": {"swap_fields": ["a"], "control_field": "class100"},
    "DDSWAP": {"swap_fields": ["a", "b"], "control_field": "age", "block_size": 10},
    "MEWS": {"swap_fields": ["a", "b"], "degree": 50},
    "RWN": {"q": 0.5, "perturb_fields": ["a"]},
}
MIX = {"run": 70, "rerun": 8, "cancel": 6, "list": 10, "read": 6}
"""Percentage of each operation of a client of small requests."""


class Unexpected(Exception):
    """Response that no client should get."""


@dataclass
class Load:
    """Results of a load test."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Operation -> duration of each, including its job, without waits requested by the service."""
    refusals: Counter[int] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    resident: Resident = field(default_factory=Resident)
    elapsed: float = 0.0

    def report(self) -> str:
        """Return the results as Markdown."""
        lines = [
            [kind, str(len(taken)), f"{len(taken) / self.elapsed:.1f}", f"{percentile(taken, 50):.2f}",
             f"{percentile(taken, 99):.2f}", f"{max(taken):.2f}"]
            for kind, taken in sorted(self.seconds.items())
        ]  # fmt: skip
        refused = (
            ", ".join(f"{count} x {status}" for status, count in sorted(self.refusals.items())) or "none"
        )
        calls = table(["kind", "calls", "a second", "p50 s", "p99 s", "longest s"], lines)
        refusals = f"Refused, and sent again after Retry-After: {refused}. Errors: {len(self.errors)}."
        return "\n\n".join([calls, refusals, self.resident.report()])

    @property
    def well(self) -> bool:
        """Return whether there was no error, every operation occurred, and memory stayed flat."""
        return not self.errors and {*MIX, "large"} <= self.seconds.keys() and self.resident.flat


def percentile(taken: list[float], percent: int) -> float:
    """Return the percentile of the durations."""
    return (
        taken[0] if len(taken) == 1 else statistics.quantiles(taken, n=100, method="inclusive")[percent - 1]
    )


@dataclass
class Caller:
    """One client."""

    http: httpx.AsyncClient
    load: Load
    until: float
    choice: random.Random
    bodies: dict[str, bytes]
    jobs: list[str] = field(default_factory=list)
    """Its most recent succeeded jobs."""
    waited: float = 0.0
    """Seconds of requested waits within the current operation."""

    async def go(self, ways: dict[str, tuple[int, Callable[[], Awaitable[None]]]]) -> None:
        """Run random operations until the time is over."""
        names, weights = list(ways), [weight for weight, _ in ways.values()]
        while time.monotonic() < self.until:
            (kind,) = self.choice.choices(names, weights)
            if kind in ("rerun", "read") and not self.jobs:
                kind = "run"
            self.waited, started = 0.0, time.monotonic()
            try:
                await ways[kind][1]()
            except (Unexpected, httpx.HTTPError) as error:
                self.load.errors.append(f"{kind}: {str(error) or type(error).__qualname__}")
            else:
                self.load.seconds.setdefault(kind, []).append(time.monotonic() - started - self.waited)

    async def ask(
        self, method: str, path: str, expected: tuple[int, ...] = (200, 202), **request: Any
    ) -> httpx.Response:
        """Send a request, and retry as requested by 429 and 503 responses, until an expected one."""
        while True:
            answer = await self.http.request(method, path, **request)
            if answer.status_code in expected:
                return answer
            again = answer.headers.get("retry-after", "")
            if answer.status_code not in BUSY or not again.isdigit():
                raise Unexpected(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
            self.load.refusals[answer.status_code] += 1
            self.waited += int(again)
            await asyncio.sleep(int(again))

    async def ended(self, answer: httpx.Response) -> dict[str, Any]:
        """Wait for the end of the response's job, and return it."""
        job: dict[str, Any] = orjson.loads(answer.content)
        while job["state"] not in ENDED:
            await asyncio.sleep(float(answer.headers.get("retry-after", 1)))
            answer = await self.ask("GET", f"/v1/jobs/{job['id']}")
            job = orjson.loads(answer.content)
        return job

    async def succeeded(self, answer: httpx.Response) -> dict[str, Any]:
        """Wait for the success of the response's job, and return it."""
        job = await self.ended(answer)
        if job["state"] != "succeeded":
            raise Unexpected(f"job {job['id']} is {job['state']}: {job.get('error')}")
        return job

    async def run(self) -> None:
        """Run a service on a small inline table."""
        service = self.choice.choice(list(SMALL))
        sent: dict[str, Any] = {"content": self.bodies[service], "headers": AS_JSON | {"prefer": "wait=20"}}
        job = await self.succeeded(await self.ask("POST", f"/v1/services/{service}", **sent))
        self.jobs = [*self.jobs[-9:], job["id"]]
        if "rows" in job["destination"] and len(job["destination"]["rows"]) != SMALL_ROWS:
            raise Unexpected(f"job {job['id']} has lost rows")

    async def rerun(self) -> None:
        """Rerun a job, which must reproduce its result."""
        earlier = (await self.ask("GET", f"/v1/jobs/{self.choice.choice(self.jobs)}")).json()
        source = orjson.loads(self.bodies[earlier["service"]])["source"]
        body: dict[str, Any] = {"content": orjson.dumps({"source": source}), "headers": AS_JSON}
        job = await self.succeeded(await self.ask("POST", f"/v1/jobs/{earlier['id']}/rerun", **body))
        if job["reproduced"] is not True:
            raise Unexpected(f"job {job['id']} did not reproduce {earlier['id']}")

    async def cancel(self) -> None:
        """Cancel a job, unless it has ended before."""
        sent: dict[str, Any] = {
            "content": self.bodies["MEWS"],
            "headers": AS_JSON | {"prefer": "respond-async"},
        }
        answer = await self.ask("POST", "/v1/services/MEWS", **sent)
        await self.ask("POST", f"/v1/jobs/{answer.json()['id']}/cancel", expected=(200, 409))
        if (job := await self.ended(answer))["state"] == "failed":
            raise Unexpected(f"job {job['id']} failed: {job.get('error')}")

    async def list(self) -> None:
        """List a page of jobs, and the next one."""
        page = (await self.ask("GET", "/v1/jobs?page_size=20")).json()
        if token := page.get("next_page_token"):
            await self.ask("GET", "/v1/jobs", params={"page_size": 20, "page_token": token})

    async def read(self) -> None:
        """Read rows, report and manifest of a job."""
        job = self.choice.choice(self.jobs)
        for what in ("rows", "report", "manifest"):
            await self.ask("GET", f"/v1/jobs/{job}/{what}")

    async def large(self) -> None:
        """Upload, swap, download and delete a large table."""
        sent: dict[str, Any] = {"content": self.bodies["large"], "headers": {"content-type": ARROW}}
        buffer = (await self.ask("POST", "/v1/buffers", expected=(200, 201), **sent)).json()
        call = {"source": {"buffer": buffer["id"]}, "parameters": {"swap_fields": ["a", "b"]}}
        started = await self.ask("POST", "/v1/services/DSWAP", json=call, headers={"prefer": "wait=20"})
        job = await self.succeeded(started)
        rows = await self.ask("GET", f"/v1/jobs/{job['id']}/rows", headers={"accept": ARROW})
        if job["row_count"] != buffer["row_count"] or len(rows.content) < len(self.bodies["large"]) // 2:
            raise Unexpected(f"job {job['id']} has lost rows")
        await self.ask("DELETE", f"/v1/jobs/{job['id']}", expected=(204,))
        await self.ask("DELETE", f"/v1/buffers/{buffer['id']}", expected=(204,))


def bodies(large_rows: int) -> dict[str, bytes]:
    """Return service -> request body, and a large table."""
    rows = people_table(SMALL_ROWS).to_pylist()
    calls = {
        service: orjson.dumps({"source": {"rows": rows}, "parameters": parameters, "report": "summary"})
        for service, parameters in SMALL.items()
    }
    return calls | {"large": arrow_bytes(people_table(large_rows).select(["a", "b", "c", "d"]))}


async def drive(address: str, key: str, seconds: float, clients: int, large_rows: int, load: Load) -> None:
    """Run the clients for `seconds`, and complete their current operations."""
    contents = bodies(large_rows)
    limits = httpx.Limits(max_connections=clients, keepalive_expiry=KEEPALIVE_SECONDS)
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=PATIENCE, limits=limits) as http:
        started = time.monotonic()
        going = []
        for number in range(clients):
            caller = Caller(http, load, started + seconds, random.Random(number), contents)
            small = {kind: (weight, getattr(caller, kind)) for kind, weight in MIX.items()}
            is_large = number < max(1, round(clients * LARGE_CLIENTS))
            going.append(caller.go({"large": (1, caller.large)} if is_large else small))
        await asyncio.gather(*going)
        load.elapsed = time.monotonic() - started


def measure(seconds: float, clients: int, large_rows: int) -> Load:
    """Load-test a new service that allows fewer concurrent jobs than there are clients."""
    load = Load()
    settings = {"auth": "on", "caller_jobs": str(max(1, clients * 3 // 4)), "warm_workers": "true"}
    settings["caller_request_rate"] = "0"  # all clients have one key
    with (
        tempfile.TemporaryDirectory() as home,
        service_process(Path(home), **settings) as (address, process),
        watched(process, load.resident),
    ):
        key = own_key(Path(home), **settings)
        asyncio.run(drive(address, key, seconds, clients, large_rows, load))
    return load


def main() -> int:
    """Run the load test, print the results, and return 0 on success."""
    parser = argparse.ArgumentParser(prog="make load", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--large-rows", type=int, default=1_000_000)
    given = parser.parse_args()
    load = measure(60 * given.minutes, given.clients, given.large_rows)
    print(f"{given.clients} clients, {load.elapsed / 60:.1f} minutes\n\n{load.report()}")
    for error in load.errors[:20]:
        print(error, file=sys.stderr)
    return 0 if load.well else 1


if __name__ == "__main__":
    sys.exit(main())
