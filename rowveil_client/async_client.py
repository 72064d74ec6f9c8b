"""Client for asyncio, with the methods of `rowveil_client.client.Rowveil` as coroutines."""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NoReturn, Self, Unpack

import httpx
import pyarrow as pa

from rowveil_client.calls import (
    Call,
    Submission,
    Webhook,
    attack_call,
    changes,
    credentials,
    frontier_call,
    listing,
    measure_call,
    path_of,
    run_call,
    run_of,
    unpicklable,
)
from rowveil_client.problem import Problem, checked, content_of
from rowveil_client.progress import is_interactive, progress_bar, show
from rowveil_client.retries import (
    ONCE,
    TEMPORARY,
    Patience,
    idempotency_key,
    is_final,
    limits,
    pauses,
    repeated_async,
    requested_pause,
    spread,
)
from rowveil_client.tables import ARROW, ByteReader, T, arrow_stream, as_arrow, whole_table

_SPOOLED = 1 << 26
"""Bytes of a response that are kept in memory before they are put into a temporary file."""

_PIECE = 1 << 20
"""Bytes of the temporary file that are read at a time."""


class AsyncRowveil:
    """Connection to a service with an API key, for one task. Use it with ``async with``, or call `close`.

    Tasks that run at the same time need one connection each, because `job` is that of the last call.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        progress: bool | None = None,
        timeout: float = 60.0,
        retry_seconds: float = 20.0,
        connect_seconds: float = 5.0,
    ) -> None:
        """Keep the arguments; the first call connects.

        Parameters
        ----------
        url
            Address of the service.
        key
            API key.
        progress
            Whether to show a bar. Default: in terminals and notebooks.
        timeout
            Seconds of silence before a request fails, at most 10 for a connection. A job may run for as long
            as it takes.
        retry_seconds
            Seconds for which a request is repeated that got no whole answer, or that the service asks to
            repeat; 0: no request is repeated.
        connect_seconds
            The same for connections that fail as long as nothing has answered this client, because the
            address may be wrong; at most ``retry_seconds``. An unknown host is an error at once.
        """
        self._client = httpx.AsyncClient(base_url=url, headers=credentials(key), timeout=limits(timeout))
        self._silence = timeout
        self._patience = Patience(retry_seconds, connect_seconds)
        self._shown = is_interactive() if progress is None else progress
        self.job: dict[str, Any] = {}
        """Job of the last call, from its acceptance on: id, outcome, events and digests. If tasks make calls
        at the same time, it is that of the call whose job was accepted or has ended last."""

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
        job = await self._run_job(run_call(service, arrow, members, parameters))
        return back(await self._rows(job["id"]))

    async def validate(self, service: str, table: Any, **asked: Any) -> dict[str, Any]:
        """Check a run and return its plan, as `Rowveil.validate` does. Raises Problem."""
        names = {"seed", "report", "measures", "candidates", "attacks", *Submission.__annotations__}
        members = {name: asked.pop(name) for name in names & asked.keys()}
        call = run_call(service, as_arrow(table)[0], members, asked)
        async with self._uploaded(call.tables) as sources:
            body = call.body(sources, validate_only=True)
            answer = await self._send("POST", call.path, json=body)
        plan: dict[str, Any] = answer["plan"]
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
        return await self._report(await self._run_job(measure_call(table, release, members)))

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
        return await self._report(await self._run_job(frontier_call(table, services, members)))

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
        members = asked | {"known": known, "secret": secret}
        call = attack_call(table, release, control, job or run_of(self.job), members)
        return await self._report(await self._run_job(call))

    async def report(self) -> dict[str, Any]:
        """Return the report of the last call. Raises Problem."""
        return await self._report(self.job)

    async def manifest(self) -> dict[str, Any]:
        """Return the signed manifest of the last call. Raises Problem."""
        manifest: dict[str, Any] = await self._send("GET", path_of(self.job, "/manifest"))
        return manifest

    async def jobs(self, *, name: str | None = None, label: str | None = None) -> list[dict[str, Any]]:
        """Return the visible jobs whose name contains ``name``, and whose label is ``label``, newest first.

        Raises Problem.
        """
        page = await self._send("GET", "/v1/jobs", params=listing(name, label))
        found: list[dict[str, Any]] = page["jobs"]
        while "next_page_token" in page:
            page = await self._send("GET", "/v1/jobs", params=listing(name, label, page))
            found += page["jobs"]
        return found

    async def annotate(
        self, *, name: str | None = None, label: str | None = None, notes: str | None = None
    ) -> None:
        """Change the name, the label or the notes of the last call's job; an empty text removes one.

        What is None stays. Raises Problem.
        """
        self.job = await self._send("PATCH", path_of(self.job), json=changes(name, label, notes))

    async def cancel(self) -> None:
        """Cancel the job of the last call, which another task may wait for. Raises Problem."""
        await self._send("POST", path_of(self.job, "/cancel"))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: connections are of one loop, and the key would be among the bytes."""
        raise TypeError(unpicklable(type(self).__name__))

    @asynccontextmanager
    async def _uploaded(self, tables: dict[str, pa.Table]) -> AsyncIterator[dict[str, Any]]:
        """Upload tables; yield them as members of a request, and delete the buffers afterwards."""
        buffers: dict[str, str] = {}
        try:
            for role, table in tables.items():
                buffers[role] = await self._upload(table)
            yield {role: {"buffer": buffer} for role, buffer in buffers.items()}
        except BaseException:
            await self._delete(buffers.values(), ONCE)
            raise
        await self._delete(buffers.values(), self._patience)

    async def _delete(self, buffers: Iterable[str], patience: Patience) -> None:
        """Delete buffers, which the service also does at their expiry: a failure is no error of the run."""

        async def attempt(buffer: str) -> None:
            answer = await self._client.delete(f"/v1/buffers/{buffer}")
            if answer.status_code != httpx.codes.NOT_FOUND:  # an attempt without an answer deleted it
                checked(answer)

        with suppress(httpx.TransportError, Problem):
            for buffer in buffers:
                await repeated_async(partial(attempt, buffer), patience)

    async def _report(self, job: dict[str, Any]) -> dict[str, Any]:
        report: dict[str, Any] = await self._send("GET", path_of(job, "/report"))
        return report

    async def _run_job(self, call: Call) -> dict[str, Any]:
        """Submit a job, wait for its end and return it; cancel it if this task is cancelled. Raises Problem.

        Another task may make calls at the same time: the job of this one is a local variable.
        """
        async with self._uploaded(call.tables) as sources:
            headers = {"prefer": "respond-async"}
            self.job = job = await self._send("POST", call.path, headers=headers, json=call.body(sources))
            try:
                self.job = job = await self._ended(job["id"])
            except asyncio.CancelledError:
                with suppress(httpx.TransportError):
                    await self._client.post(path_of(job, "/cancel"))
                raise
        if job["state"] != "succeeded":
            raise Problem(job.get("error") or {"detail": f"the job was {job['state']}"})
        return job

    async def _upload(self, table: pa.Table) -> str:
        async def content() -> AsyncIterator[bytes]:
            for chunk in arrow_stream(table):
                yield chunk

        headers = {"content-type": ARROW} | idempotency_key("POST")

        async def upload() -> str:
            answer = await self._client.post("/v1/buffers", content=content(), headers=headers)
            buffer: str = content_of(answer)["id"]
            return buffer

        return await repeated_async(upload, self._patience)

    async def _send(
        self, method: str, path: str, headers: dict[str, str] | None = None, **request: Any
    ) -> Any:
        """Send a request, repeatedly if needed, and return the content of the answer. Raises Problem."""
        sent = (headers or {}) | idempotency_key(method)

        async def attempt() -> Any:
            return content_of(await self._client.request(method, path, headers=sent, **request))

        return await repeated_async(attempt, self._patience)

    async def _ended(self, job_id: str) -> dict[str, Any]:
        """Wait for the end of the job and return it, also across a restart of the service."""
        heard = time.monotonic()
        with progress_bar(self._shown) as bar:
            for seconds in pauses():
                async for update in self._events(job_id):
                    show(bar, update)
                    heard = time.monotonic()
                try:
                    job: dict[str, Any] = content_of(await self._client.get(f"/v1/jobs/{job_id}"))
                except TEMPORARY as error:
                    if is_final(error) or time.monotonic() - heard > self._silence:
                        raise
                    seconds = max(seconds, requested_pause(error))
                else:
                    heard = time.monotonic()
                    if job["state"] not in ("queued", "running"):
                        return job
                await asyncio.sleep(spread(seconds))
        raise AssertionError  # polling follows in any case

    async def _events(self, job_id: str) -> AsyncIterator[dict[str, Any]]:
        try:
            async with self._client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
                if answer.is_error:
                    return
                async for line in answer.aiter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line.removeprefix("data:"))
        except (httpx.TransportError, ValueError):  # a proxy may end a cut stream in order, within a line
            return

    async def _rows(self, job_id: str) -> pa.Table:
        return await repeated_async(lambda: self._read_rows(job_id), self._patience)

    async def _read_rows(self, job_id: str) -> pa.Table:
        request = self._client.stream("GET", f"/v1/jobs/{job_id}/rows", headers={"accept": ARROW})
        with tempfile.SpooledTemporaryFile(_SPOOLED) as content:
            async with request as answer:
                if answer.is_error:
                    await answer.aread()
                async for chunk in checked(answer).aiter_bytes():
                    content.write(chunk)
            content.seek(0)
            pieces = iter(lambda: content.read(_PIECE), b"")
            return await asyncio.to_thread(lambda: whole_table(ByteReader(pieces)))
