"""Python client for DataFrames: ``Rowveil(url, key).cdswap(frame, swap_fields=["income"], ...)``.

A pandas or polars DataFrame, or an Arrow table, is uploaded as a buffer and returned in the same type, with a
progress bar on a terminal. This is a thin convenience layer over HTTP; for everything else use the client
that `make clients` generates.
"""

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Self, TypeVar

import httpx
import pyarrow as pa
from tqdm.auto import tqdm

__all__ = ["Problem", "Rowveil"]

T = TypeVar("T")
"""Type of the table, in and out."""

_ARROW = "application/vnd.apache.arrow.stream"
_BAR = "{desc:<28.28} {percentage:3.0f}%|{bar}| {elapsed}"
_LINES = 24
"""Lines assumed for one progress bar: tqdm would show none on a terminal that reports 0 lines."""
_LOOK_AGAIN_SECONDS = (0.1, 0.5, 2.0)
_AWAY = (502, 503, 504)  # of the service, or of a proxy that cannot reach it


class Problem(Exception):
    """Error response of the service: a problem document (RFC 9457)."""

    def __init__(self, document: dict[str, Any]) -> None:
        """``document``: the problem document; for the error page of a proxy, only its status."""
        super().__init__(document)
        self.status: int = document.get("status", 0)
        self.code: str = document.get("code", "")
        self.detail: str = document.get("detail", "")
        self.errors: list[dict[str, str]] = document.get("errors", [])
        """Errors with location: ``pointer`` and ``message``."""

    def __str__(self) -> str:
        return self.detail


class Rowveil:
    """Connection to a service with an API key. Use it as a context manager, or call `close`."""

    def __init__(
        self, url: str, key: str | None = None, *, progress: bool | None = None, timeout: float = 60.0
    ) -> None:
        """``key``: an API key. ``progress``: show a bar; by default in terminals and notebooks.

        ``timeout``: seconds of silence before a request fails. A job may run for as long as it takes.
        """
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._client = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        self._silence = timeout
        self._shown = _is_interactive() if progress is None else progress
        self.job: dict[str, Any] = {}
        """Job of the last call, from its acceptance on: id, outcome, events and digests."""

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

    def run(
        self,
        service: str,
        table: T,
        *,
        seed: str | int | None = None,
        report: str = "summary",
        measures: dict[str, Any] | None = None,
        candidates: int | dict[str, Any] | None = None,
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
        report, measures, candidates
            As in the request of the service.
        **parameters
            Parameters of the service.

        Raises
        ------
        Problem
            The service rejected the request, or the job failed.
        """
        asked = {"seed": seed, "report": report, "measures": measures, "candidates": candidates}
        arrow, back = _as_arrow(table)
        buffer = self._upload(arrow)
        try:
            call: dict[str, Any] = {"source": {"buffer": buffer}, "parameters": parameters}
            call |= {name: value for name, value in asked.items() if value is not None}
            headers = {"prefer": "respond-async"}
            answer = self._client.post(f"/v1/services/{service}", json=call, headers=headers)
            self.job = _checked(answer).json()
            self.job = self._ended(self.job["id"])
        finally:
            with suppress(httpx.TransportError):  # the service also deletes it at its expiry
                self._client.delete(f"/v1/buffers/{buffer}")
        if self.job["state"] != "succeeded":
            raise Problem(self.job.get("error") or {"detail": f"the job was {self.job['state']}"})
        return back(self._rows(self.job["id"]))

    def report(self) -> dict[str, Any]:
        """Return the report of the last call. Raises Problem."""
        report: dict[str, Any] = _checked(self._client.get(f"/v1/jobs/{self.job['id']}/report")).json()
        return report

    def manifest(self) -> dict[str, Any]:
        """Return the signed manifest of the last call. Raises Problem."""
        manifest: dict[str, Any] = _checked(self._client.get(f"/v1/jobs/{self.job['id']}/manifest")).json()
        return manifest

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _upload(self, table: pa.Table) -> str:
        headers = {"content-type": _ARROW}
        answer = self._client.post("/v1/buffers", content=_arrow_stream(table), headers=headers)
        buffer: str = _checked(answer).json()["id"]
        return buffer

    def _ended(self, job_id: str) -> dict[str, Any]:
        """Wait for the end of the job and return it.

        A broken event stream, for example behind a proxy, is resumed. The wait also continues during a
        restart of the service, in which it does not respond or responds that it is unavailable.
        """
        heard = time.monotonic()
        columns = _columns() if self._shown else None
        with tqdm(
            total=1.0, bar_format=_BAR, disable=not self._shown, leave=False, ncols=columns, nrows=_LINES
        ) as bar:
            for seconds in self._waits():
                for update in self._events(job_id):
                    bar.n = update["progress"]["fraction"]
                    bar.set_description_str(update["progress"]["stage"])
                    heard = time.monotonic()
                try:
                    job: dict[str, Any] = _checked(self._client.get(f"/v1/jobs/{job_id}")).json()
                except (httpx.TransportError, Problem) as error:
                    refused = isinstance(error, Problem) and error.status not in _AWAY
                    if refused or time.monotonic() - heard > self._silence:
                        raise
                else:
                    heard = time.monotonic()
                    if job["state"] not in ("queued", "running"):
                        return job
                time.sleep(seconds)
        raise AssertionError  # polling follows in any case

    @staticmethod
    def _waits() -> Iterator[float]:
        yield from _LOOK_AGAIN_SECONDS
        while True:
            yield _LOOK_AGAIN_SECONDS[-1]

    def _events(self, job_id: str) -> Iterator[dict[str, Any]]:
        try:
            with self._client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
                if answer.is_error:
                    return
                for line in answer.iter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line.removeprefix("data:"))
        except httpx.TransportError:
            return

    def _rows(self, job_id: str) -> pa.Table:
        with self._client.stream("GET", f"/v1/jobs/{job_id}/rows", headers={"accept": _ARROW}) as answer:
            if answer.is_error:
                answer.read()
            # Arrow takes a short read for the end of the file: the buffer completes each read.
            with io.BufferedReader(_Reading(_checked(answer).iter_bytes())) as content:
                return pa.ipc.open_stream(content).read_all()


def _checked(answer: httpx.Response) -> httpx.Response:
    """Return the response. Raises Problem."""
    if not answer.is_error:
        return answer
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict) or "detail" not in document:  # of a proxy
        document = {"status": answer.status_code, "detail": f"{answer.status_code} {answer.reason_phrase}"}
    raise Problem(document)


def _as_arrow(table: T) -> tuple[pa.Table, Callable[[pa.Table], T]]:
    """Return the Arrow table, and a function that converts back to the input's type. Raises TypeError."""
    given: Any = table
    if isinstance(given, pa.Table):
        return given, lambda released: released
    library = type(given).__module__.partition(".")[0]
    if library == "pandas" and hasattr(given, "columns"):
        return pa.Table.from_pandas(given, preserve_index=False), _as_pandas
    if library == "polars" and hasattr(given, "to_arrow") and hasattr(given, "columns"):
        import polars

        return given.to_arrow(), lambda released: polars.from_arrow(released)  # type: ignore[return-value]
    raise TypeError(
        f"a table is a pandas or polars DataFrame, or a pyarrow Table; this is {type(given).__qualname__}"
    )


def _as_pandas(released: pa.Table) -> Any:
    """Convert to a DataFrame. Integers with nulls become pandas' nullable integers, not rounded floats."""
    import pandas

    frame = released.to_pandas()
    for name, values in zip(released.column_names, released.columns, strict=True):
        if pa.types.is_integer(values.type) and values.null_count:
            sign = "" if pa.types.is_signed_integer(values.type) else "U"
            exact = pandas.api.types.pandas_dtype(f"{sign}Int{values.type.bit_width}")
            frame[name] = values.to_pandas(types_mapper=lambda _, exact=exact: exact)
    return frame


def _arrow_stream(table: pa.Table) -> Iterator[bytes]:
    """Encode the table as an Arrow stream, one batch at a time."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=65_536):
            writer.write_batch(batch)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


class _Reading(io.RawIOBase):
    """File that reads the bytes of a response as they arrive."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._left = b""

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer, at most to the rest of a chunk."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = piece
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _is_interactive() -> bool:
    """Return whether this is a notebook or has a terminal; a process may have no standard error."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel") or (sys.stderr is not None and sys.stderr.isatty())


def _columns() -> int | None:
    """Return the width for tqdm: None asks the terminal, 79 replaces a reported width of 0."""
    try:
        return None if os.get_terminal_size(sys.stderr.fileno()).columns else 79
    except (AttributeError, OSError):  # of a notebook, or of a file
        return None
