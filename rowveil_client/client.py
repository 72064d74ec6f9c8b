"""Client with blocking calls."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
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
    repeated,
    requested_pause,
    spread,
)
from rowveil_client.tables import ARROW, ByteReader, T, arrow_stream, as_arrow, whole_table


class Rowveil:
    """Connection to a service with an API key. Use it as a context manager, or call `close`."""

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
        self._client = httpx.Client(base_url=url, headers=credentials(key), timeout=limits(timeout))
        self._silence = timeout
        self._patience = Patience(retry_seconds, connect_seconds)
        self._shown = is_interactive() if progress is None else progress
        self.job: dict[str, Any] = {}
        """Job of the last call, from its acceptance on: id, outcome, events and digests. If threads make
        calls at the same time, it is that of the call whose job was accepted or has ended last."""

    def dswap(self, table: T, **asked: Any) -> T:
        """Exchange values between any rows. ``asked``: arguments of `run`."""
        return self.run("DSWAP", table, **asked)

    def cdswap(self, table: T, **asked: Any) -> T:
        """Exchange values within classes of the control fields."""
        return self.run("CDSWAP", table, **asked)

    def ddswap(self, table: T, **asked: Any) -> T:
        """Exchange values between rows with near values of the control field."""
        return self.run("DDSWAP", table, **asked)

    def mews(self, table: T, **asked: Any) -> T:
        """Exchange values within bins of equal width."""
        return self.run("MEWS", table, **asked)

    def meds(self, table: T, **asked: Any) -> T:
        """Exchange values within bins of equal size."""
        return self.run("MEDS", table, **asked)

    def rwn(self, table: T, **asked: Any) -> T:
        """Replace values by those of near neighbours."""
        return self.run("RWN", table, **asked)

    def pabidot(self, table: T, **asked: Any) -> T:
        """Rotate, reflect and expand numbers."""
        return self.run("PABIDOT", table, **asked)

    def locality(self, table: T, **asked: Any) -> T:
        """Redraw values such that relations among near values hold."""
        return self.run("LOCALITY", table, **asked)

    def rswap(self, table: T, **asked: Any) -> T:
        """Exchange the geography of households at risk with similar households elsewhere."""
        return self.run("RSWAP", table, **asked)

    def run(
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
        """Run a service and return the released table, in the type of the input.

        Parameters
        ----------
        service : str
            ``"CDSWAP"``; each service also has a method, such as `cdswap`.
        table : pandas.DataFrame, polars.DataFrame or pyarrow.Table
            The index of a pandas DataFrame is not sent; the returned rows get a new index.
        seed : str or int, optional
            Secret seed of the run. Default: drawn by the service.
        report, measures, candidates, attacks
            As in the request of the service.
        priority : {"low", "normal", "high"}, optional
            Scheduling priority; ``"high"`` needs the scope ``priority:high``.
        deadline_seconds : float, optional
            Seconds after acceptance by which the job must have ended, or it fails.
        webhook : Webhook, optional
            Address to notify when the job has ended, with the secret that signs the message.
        name, label, notes : str, optional
            Texts for people; `jobs` finds jobs by name and label.
        **parameters
            Parameters of the service.

        Raises
        ------
        Problem
            The service rejected the request, or the job failed.
        """
        members: dict[str, Any] = {"seed": seed, "report": report, "measures": measures}
        members |= {"candidates": candidates, "attacks": attacks, "priority": priority}
        members |= {"deadline_seconds": deadline_seconds, "webhook": webhook}
        members |= {"name": name, "label": label, "notes": notes}
        arrow, back = as_arrow(table)
        job = self._run_job(run_call(service, arrow, members, parameters))
        return back(self._rows(job["id"]))

    def validate(self, service: str, table: Any, **asked: Any) -> dict[str, Any]:
        """Check a run and return its plan, without running or storing anything.

        ``asked``: arguments of `run`. The plan has the rows and groups that would take part, the rows that
        cannot be swapped, and the estimated memory in bytes. Raises Problem.
        """
        names = {"seed", "report", "measures", "candidates", "attacks", *Submission.__annotations__}
        members = {name: asked.pop(name) for name in names & asked.keys()}
        call = run_call(service, as_arrow(table)[0], members, asked)
        with self._uploaded(call.tables) as sources:
            body = call.body(sources, validate_only=True)
            answer = self._send("POST", call.path, json=body)
        plan: dict[str, Any] = answer["plan"]
        return plan

    def measure(
        self,
        table: Any,
        release: Any,
        *,
        measures: dict[str, Any] | None = None,
        aligned: bool | None = None,
        seed: str | int | None = None,
        **submission: Unpack[Submission],
    ) -> dict[str, Any]:
        """Measure the risk and the utility of a release that any tool made, and return the report.

        Parameters
        ----------
        table, release : pandas.DataFrame, polars.DataFrame or pyarrow.Table
            Source, and the release to compare with it.
        measures : dict, optional
            Options of the measures, such as ``{"key_fields": ["age", "city"]}``.
        aligned : bool, optional
            Whether row i of the release was row i of the source. Default: true if both have as many rows.
        seed : str or int, optional
            Seed from which samples of rows are drawn.
        **submission
            ``priority``, ``deadline_seconds``, ``webhook``, ``name``, ``label`` and ``notes``, as in `run`.

        Raises
        ------
        Problem
            The service rejected the request, or the job failed.
        """
        members = {"measures": measures, "aligned": aligned, "seed": seed, **submission}
        return self._report(self._run_job(measure_call(table, release, members)))

    def frontier(
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
        """Compare services and parameters by risk and utility, and return the report.

        Parameters
        ----------
        table : pandas.DataFrame, polars.DataFrame or pyarrow.Table
            Table to protect.
        services : sequence of dict
            ``service``, its ``parameters`` and the values to ``vary``, as in ``POST /v1/frontier``.
        measures : dict, optional
            Options of the measures behind the two figures.
        seed : str or int, optional
            Seed from which the seeds of all runs are derived.
        priority, deadline_seconds, webhook
            As in `run`.
        **options
            Further members of the request, such as ``key_fields``, ``risk``, ``utility`` and ``label``.

        Raises
        ------
        Problem
            The service rejected the request, or the job failed.
        """
        members = options | {"measures": measures, "seed": seed, "priority": priority}
        members |= {"deadline_seconds": deadline_seconds, "webhook": webhook}
        return self._report(self._run_job(frontier_call(table, services, members)))

    def attack(
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
        """Attack a release, and return the report with the figures and the verdict.

        Parameters
        ----------
        table : pandas.DataFrame, polars.DataFrame or pyarrow.Table
            Source of the release.
        release : DataFrame or pyarrow.Table, optional
            Release to attack. Default: that of ``job``.
        known, secret : sequence of str
            Fields that an intruder knows, and fields to protect.
        control : DataFrame or pyarrow.Table, optional
            Rows that were not in the source. Default: a tenth of the source, withheld from a sister release,
            if the release is that of a job.
        job : str, optional
            Id of the run whose release is attacked. Default: the run of the last call.
        **asked
            Further members of the request, such as ``attacks``, ``confidence``, ``advice``, ``seed``,
            ``priority``, ``deadline_seconds`` and ``webhook``.

        Raises
        ------
        Problem
            The service rejected the request, or the job failed.
        """
        members = asked | {"known": known, "secret": secret}
        call = attack_call(table, release, control, job or run_of(self.job), members)
        return self._report(self._run_job(call))

    def report(self) -> dict[str, Any]:
        """Return the report of the last call. Raises Problem."""
        return self._report(self.job)

    def manifest(self) -> dict[str, Any]:
        """Return the signed manifest of the last call. Raises Problem."""
        manifest: dict[str, Any] = self._send("GET", path_of(self.job, "/manifest"))
        return manifest

    def jobs(self, *, name: str | None = None, label: str | None = None) -> list[dict[str, Any]]:
        """Return the visible jobs whose name contains ``name``, and whose label is ``label``, newest first.

        Raises Problem.
        """
        page = self._send("GET", "/v1/jobs", params=listing(name, label))
        found: list[dict[str, Any]] = page["jobs"]
        while "next_page_token" in page:
            page = self._send("GET", "/v1/jobs", params=listing(name, label, page))
            found += page["jobs"]
        return found

    def annotate(
        self, *, name: str | None = None, label: str | None = None, notes: str | None = None
    ) -> None:
        """Change the name, the label or the notes of the last call's job; an empty text removes one.

        What is None stays. Raises Problem.
        """
        self.job = self._send("PATCH", path_of(self.job), json=changes(name, label, notes))

    def cancel(self) -> None:
        """Cancel the job of the last call, which another thread may wait for. Raises Problem."""
        self._send("POST", path_of(self.job, "/cancel"))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: connections are of one process, and the key would be among the bytes."""
        raise TypeError(unpicklable(type(self).__name__))

    @contextmanager
    def _uploaded(self, tables: dict[str, pa.Table]) -> Iterator[dict[str, Any]]:
        """Upload tables; yield them as members of a request, and delete the buffers afterwards."""
        buffers: dict[str, str] = {}
        try:
            for role, table in tables.items():
                buffers[role] = self._upload(table)
            yield {role: {"buffer": buffer} for role, buffer in buffers.items()}
        except BaseException:
            self._delete(buffers.values(), ONCE)
            raise
        self._delete(buffers.values(), self._patience)

    def _delete(self, buffers: Iterable[str], patience: Patience) -> None:
        """Delete buffers, which the service also does at their expiry: a failure is no error of the run."""

        def attempt(buffer: str) -> None:
            answer = self._client.delete(f"/v1/buffers/{buffer}")
            if answer.status_code != httpx.codes.NOT_FOUND:  # an attempt without an answer deleted it
                checked(answer)

        with suppress(httpx.TransportError, Problem):
            for buffer in buffers:
                repeated(partial(attempt, buffer), patience)

    def _report(self, job: dict[str, Any]) -> dict[str, Any]:
        report: dict[str, Any] = self._send("GET", path_of(job, "/report"))
        return report

    def _run_job(self, call: Call) -> dict[str, Any]:
        """Submit a job, wait for its end and return it. Raises Problem.

        Another thread may make calls at the same time: the job of this one is a local variable.
        """
        with self._uploaded(call.tables) as sources:
            headers = {"prefer": "respond-async"}
            self.job = job = self._send("POST", call.path, headers=headers, json=call.body(sources))
            self.job = job = self._ended(job["id"])
        if job["state"] != "succeeded":
            raise Problem(job.get("error") or {"detail": f"the job was {job['state']}"})
        return job

    def _upload(self, table: pa.Table) -> str:
        headers = {"content-type": ARROW} | idempotency_key("POST")

        def upload() -> str:
            answer = self._client.post("/v1/buffers", content=arrow_stream(table), headers=headers)
            buffer: str = content_of(answer)["id"]
            return buffer

        return repeated(upload, self._patience)

    def _send(self, method: str, path: str, headers: dict[str, str] | None = None, **request: Any) -> Any:
        """Send a request, repeatedly if needed, and return the content of the answer. Raises Problem."""
        sent = (headers or {}) | idempotency_key(method)
        return repeated(
            lambda: content_of(self._client.request(method, path, headers=sent, **request)),
            self._patience,
        )

    def _ended(self, job_id: str) -> dict[str, Any]:
        """Wait for the end of the job and return it.

        A broken event stream, for example behind a proxy, is resumed. The wait also continues during a
        restart of the service, in which it does not respond or responds that it is unavailable.
        """
        heard = time.monotonic()
        with progress_bar(self._shown) as bar:
            for seconds in pauses():
                for update in self._events(job_id):
                    show(bar, update)
                    heard = time.monotonic()
                try:
                    job: dict[str, Any] = content_of(self._client.get(f"/v1/jobs/{job_id}"))
                except TEMPORARY as error:
                    if is_final(error) or time.monotonic() - heard > self._silence:
                        raise
                    seconds = max(seconds, requested_pause(error))
                else:
                    heard = time.monotonic()
                    if job["state"] not in ("queued", "running"):
                        return job
                time.sleep(spread(seconds))
        raise AssertionError  # polling follows in any case

    def _events(self, job_id: str) -> Iterator[dict[str, Any]]:
        try:
            with self._client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
                if answer.is_error:
                    return
                for line in answer.iter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line.removeprefix("data:"))
        except (httpx.TransportError, ValueError):  # a proxy may end a cut stream in order, within a line
            return

    def _rows(self, job_id: str) -> pa.Table:
        return repeated(lambda: self._read_rows(job_id), self._patience)

    def _read_rows(self, job_id: str) -> pa.Table:
        with self._client.stream("GET", f"/v1/jobs/{job_id}/rows", headers={"accept": ARROW}) as answer:
            if answer.is_error:
                answer.read()
            return whole_table(ByteReader(checked(answer).iter_bytes()))
