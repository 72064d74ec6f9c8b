"""Client for asyncio, with the methods of `rowveil_client.client.Rowveil` as coroutines."""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self, Unpack

import httpx
import pyarrow as pa

from rowveil_client.calls import (
    Call,
    Submission,
    Webhook,
    attack_call,
    changes,
    frontier_call,
    listing,
    measure_call,
    run_call,
    run_of,
)
from rowveil_client.client import is_final, waits
from rowveil_client.problem import Problem, checked
from rowveil_client.progress import is_interactive, progress_bar, show
from rowveil_client.tables import ARROW, T, arrow_stream, as_arrow

_SPOOLED = 1 << 26
"""Bytes of a response that are kept in memory before they are put into a temporary file."""


class AsyncRowveil:
    """Connection to a service with an API key, for one task. Use it with ``async with``, or call `close`.

    Tasks that run at the same time need one connection each, because `job` is that of the last call.
    """

    def __init__(
        self, url: str, key: str | None = None, *, progress: bool | None = None, timeout: float = 60.0
    ) -> None:
        """``key``: an API key. ``progress``: show a bar; by default in terminals and notebooks.

        ``timeout``: seconds of silence before a request fails. A job may run for as long as it takes.
        """
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._client = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout)
        self._silence = timeout
        self._shown = is_interactive() if progress is None else progress
        self.job: dict[str, Any] = {}
        """Job of the last call, from its acceptance on: id, outcome, events and digests."""

    async def dswap(self, table: T, **asked: Any) -> T:
        """Exchange values between any rows. ``asked``: arguments of `run`."""
        return await self.run("DSWAP", table, **asked)

    async def cdswap(self, table: T, **asked: Any) -> T:
        """Exchange values within classes of the control fields."""
        return await self.run("CDSWAP", table, **asked)

    async def ddswap(self, table: T, **asked: Any) -> T:
        """Exchange values between rows with near values of the control field."""
        return await self.run("DDSWAP", table, **asked)

    async def mews(self, table: T, **asked: Any) -> T:
        """Exchange values within bins of equal width."""
        return await self.run("MEWS", table, **asked)

    async def meds(self, table: T, **asked: Any) -> T:
        """Exchange values within bins of equal size."""
        return await self.run("MEDS", table, **asked)

    async def rwn(self, table: T, **asked: Any) -> T:
        """Replace values by those of near neighbours."""
        return await self.run("RWN", table, **asked)

    async def pabidot(self, table: T, **asked: Any) -> T:
        """Rotate, reflect and expand numbers."""
        return await self.run("PABIDOT", table, **asked)

    async def locality(self, table: T, **asked: Any) -> T:
        """Redraw values such that relations among near values hold."""
        return await self.run("LOCALITY", table, **asked)

    async def rswap(self, table: T, **asked: Any) -> T:
        """Exchange the geography of households at risk with similar households elsewhere."""
        return await self.run("RSWAP", table, **asked)

    async def run(
        self,
        service: str,
        table: T,
        *,
        seed: str | int | None = None,
        report: str = "summary",
        measures: dict[str, Any] | None = None,
        candidates: int | dict[str, Any] | None = None,
        attacks: bool | dict[str, Any] | None = None,
        priority: str | None = None,
        deadline_seconds: float | None = None,
        webhook: Webhook | None = None,
        name: str | None = None,
        label: str | None = None,
        notes: str | None = None,
        **parameters: Any,
    ) -> T:
        """Run a service and return the released table, as `Rowveil.run` does. Raises Problem."""
        members: dict[str, Any] = {"seed": seed, "report": report, "measures": measures}
        members |= {"candidates": candidates, "attacks": attacks, "priority": priority}
        members |= {"deadline_seconds": deadline_seconds, "webhook": webhook}
        members |= {"name": name, "label": label, "notes": notes}
        arrow, back = as_arrow(table)
        await self._run_job(run_call(service, arrow, members, parameters))
        return back(await self._rows(self.job["id"]))

    async def validate(self, service: str, table: Any, **asked: Any) -> dict[str, Any]:
        """Check a run and return its plan, as `Rowveil.validate` does. Raises Problem."""
        names = {"seed", "report", "measures", "candidates", "attacks", *Submission.__annotations__}
        members = {name: asked.pop(name) for name in names & asked.keys()}
        call = run_call(service, as_arrow(table)[0], members, asked)
        async with self._uploaded(call.tables) as sources:
            plan: dict[str, Any] = checked(
                await self._client.post(call.path, json=call.body(sources, validate_only=True))
            ).json()["plan"]
        return plan

    async def measure(
        self,
        table: Any,
        release: Any,
        *,
        measures: dict[str, Any] | None = None,
        aligned: bool | None = None,
        seed: str | int | None = None,
        **submission: Unpack[Submission],
    ) -> dict[str, Any]:
        """Measure a release that any tool made, as `Rowveil.measure` does. Raises Problem."""
        members = {"measures": measures, "aligned": aligned, "seed": seed, **submission}
        await self._run_job(measure_call(table, release, members))
        return await self.report()

    async def frontier(
        self,
        table: Any,
        services: Sequence[dict[str, Any]],
        *,
        measures: dict[str, Any] | None = None,
        seed: str | int | None = None,
        priority: str | None = None,
        deadline_seconds: float | None = None,
        webhook: Webhook | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Compare services and parameters, as `Rowveil.frontier` does. Raises Problem."""
        members = options | {"measures": measures, "seed": seed, "priority": priority}
        members |= {"deadline_seconds": deadline_seconds, "webhook": webhook}
        await self._run_job(frontier_call(table, services, members))
        return await self.report()

    async def attack(
        self,
        table: Any,
        release: Any = None,
        *,
        known: Sequence[str] = (),
        secret: Sequence[str] = (),
        control: Any = None,
        job: str | None = None,
        **asked: Any,
    ) -> dict[str, Any]:
        """Attack a release, as `Rowveil.attack` does. Raises Problem."""
        members = asked | {"known": list(known), "secret": list(secret)}
        await self._run_job(attack_call(table, release, control, job or run_of(self.job), members))
        return await self.report()

    async def report(self) -> dict[str, Any]:
        """Return the report of the last call. Raises Problem."""
        report: dict[str, Any] = checked(await self._client.get(f"/v1/jobs/{self.job['id']}/report")).json()
        return report

    async def manifest(self) -> dict[str, Any]:
        """Return the signed manifest of the last call. Raises Problem."""
        answer = await self._client.get(f"/v1/jobs/{self.job['id']}/manifest")
        manifest: dict[str, Any] = checked(answer).json()
        return manifest

    async def jobs(self, *, name: str | None = None, label: str | None = None) -> list[dict[str, Any]]:
        """Return the visible jobs whose name contains ``name``, and whose label is ``label``, newest first.

        Raises Problem.
        """
        page = checked(await self._client.get("/v1/jobs", params=listing(name, label))).json()
        found: list[dict[str, Any]] = page["jobs"]
        while "next_page_token" in page:
            page = checked(await self._client.get("/v1/jobs", params=listing(name, label, page))).json()
            found += page["jobs"]
        return found

    async def annotate(
        self, *, name: str | None = None, label: str | None = None, notes: str | None = None
    ) -> None:
        """Change the name, the label or the notes of the last call's job; an empty text removes one.

        What is None stays. Raises Problem.
        """
        path = f"/v1/jobs/{self.job['id']}"
        self.job = checked(await self._client.patch(path, json=changes(name, label, notes))).json()

    async def cancel(self) -> None:
        """Cancel the job of the last call, which another task may wait for. Raises Problem."""
        checked(await self._client.post(f"/v1/jobs/{self.job['id']}/cancel"))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def _uploaded(self, tables: dict[str, pa.Table]) -> AsyncIterator[dict[str, Any]]:
        """Upload tables; yield them as members of a request, and delete the buffers afterwards."""
        buffers: dict[str, str] = {}
        try:
            for role, table in tables.items():
                buffers[role] = await self._upload(table)
            yield {role: {"buffer": buffer} for role, buffer in buffers.items()}
        finally:
            with suppress(httpx.TransportError):  # the service also deletes them at their expiry
                for buffer in buffers.values():
                    await self._client.delete(f"/v1/buffers/{buffer}")

    async def _run_job(self, call: Call) -> None:
        """Submit a job and wait for its end; cancel it if this task is cancelled. Raises Problem."""
        async with self._uploaded(call.tables) as sources:
            answer = await self._client.post(
                call.path, json=call.body(sources), headers={"prefer": "respond-async"}
            )
            self.job = checked(answer).json()
            try:
                self.job = await self._ended(self.job["id"])
            except asyncio.CancelledError:
                with suppress(httpx.TransportError):
                    await self._client.post(f"/v1/jobs/{self.job['id']}/cancel")
                raise
        if self.job["state"] != "succeeded":
            raise Problem(self.job.get("error") or {"detail": f"the job was {self.job['state']}"})

    async def _upload(self, table: pa.Table) -> str:
        async def content() -> AsyncIterator[bytes]:
            for chunk in arrow_stream(table):
                yield chunk

        headers = {"content-type": ARROW}
        answer = await self._client.post("/v1/buffers", content=content(), headers=headers)
        buffer: str = checked(answer).json()["id"]
        return buffer

    async def _ended(self, job_id: str) -> dict[str, Any]:
        """Wait for the end of the job and return it, also across a restart of the service."""
        heard = time.monotonic()
        with progress_bar(self._shown) as bar:
            for seconds in waits():
                async for update in self._events(job_id):
                    show(bar, update)
                    heard = time.monotonic()
                try:
                    job: dict[str, Any] = checked(await self._client.get(f"/v1/jobs/{job_id}")).json()
                except (httpx.TransportError, Problem) as error:
                    if is_final(error) or time.monotonic() - heard > self._silence:
                        raise
                else:
                    heard = time.monotonic()
                    if job["state"] not in ("queued", "running"):
                        return job
                await asyncio.sleep(seconds)
        raise AssertionError  # polling follows in any case

    async def _events(self, job_id: str) -> AsyncIterator[dict[str, Any]]:
        try:
            async with self._client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
                if answer.is_error:
                    return
                async for line in answer.aiter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line.removeprefix("data:"))
        except httpx.TransportError:
            return

    async def _rows(self, job_id: str) -> pa.Table:
        request = self._client.stream("GET", f"/v1/jobs/{job_id}/rows", headers={"accept": ARROW})
        with tempfile.SpooledTemporaryFile(_SPOOLED) as content:
            async with request as answer:
                if answer.is_error:
                    await answer.aread()
                async for chunk in checked(answer).aiter_bytes():
                    content.write(chunk)
            content.seek(0)
            return await asyncio.to_thread(lambda: pa.ipc.open_stream(content).read_all())
