"""Destinations by reference: each is written whole, or not at all, before its job has succeeded."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from app.engine.engine import CANCELLED, NOT_SENT, TIME_LIMIT, Failure
from app.engine.progress import ProgressFile
from app.engine.worker import failure_of
from app.errors import InvalidRequest
from app.jobs.references import References
from app.jobs.tasks import StreamTable, SwapTask, Told
from app.references import Reference, ReferenceFault
from app.settings import Settings
from app.store.folders import write_file
from app.store.models import Job
from app.store.objects import write_object
from app.store.tables import TableReader

_AT_ONCE = 4
_ABORT_SECONDS = 10.0


class _Stopped(Exception):
    """The writing was given up."""


class Sending:
    """Writes destinations where their jobs' references say."""

    def __init__(self, settings: Settings, references: References, stream_table: StreamTable) -> None:
        self._time_limit = settings.job_time_limit
        self._references = references
        self._stream_table = stream_table
        self._threads = ThreadPoolExecutor(_AT_ONCE, "sending")
        self._stops: dict[str, asyncio.Event] = {}

    async def send(self, job: Job, task: SwapTask) -> Failure | None:
        """Write the job's destination to its reference; why that failed, where it did.

        A job that is run again after the service has died writes to the same place again.
        """
        try:
            reference, prefix = self._references.find(str(job.destination_reference), "destination")
        except InvalidRequest as error:  # the settings have changed since it was accepted
            return Failure(NOT_SENT, error.message)
        stop, given_up = asyncio.Event(), threading.Event()
        submitted = self._threads.submit(self._write, job, task, reference, prefix, given_up)
        writing = asyncio.wrap_future(submitted)
        stopping = asyncio.ensure_future(stop.wait())
        self._stops[job.id] = stop
        try:
            either: list[asyncio.Future[Any]] = [writing, stopping]
            await asyncio.wait(either, timeout=self._time_limit, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                given_up.set()
                submitted.cancel()  # where it has not begun
                await asyncio.wait([writing], timeout=_ABORT_SECONDS)
        finally:
            given_up.set()
            stopping.cancel()
            del self._stops[job.id]
        if writing.done() and not writing.cancelled():
            failure = writing.result()
            if failure is None or failure.code != CANCELLED:
                return failure
        if stop.is_set():
            return Failure(CANCELLED, "the job was cancelled")
        return Failure(
            TIME_LIMIT, f"writing the destination took longer than {self._time_limit:g} s, and was stopped"
        )

    def cancel(self, job_id: str) -> None:
        """Give up writing the job's destination; nothing happens where that is not going on."""
        stop = self._stops.get(job_id)
        if stop is not None:
            stop.set()

    def close(self) -> None:
        """Let go of the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _write(
        self, job: Job, task: SwapTask, reference: Reference, prefix: Reference, given_up: threading.Event
    ) -> Failure | None:
        try:
            with ProgressFile(task.progress_path) as progress:
                progress(1.0, "sending")
            media_type = str(job.destination_media_type)
            rows = TableReader(task.destination)
            try:
                chunks = _until(given_up, self._stream_table(media_type, rows.schema, rows))
                if reference.scheme == "s3":
                    write_object(reference, chunks, media_type)
                else:
                    former = [f"{job.id}.{attempt}" for attempt in range(1, job.attempt)]
                    write_file(reference, prefix, chunks, f"{job.id}.{job.attempt}", former)
            finally:
                rows.close()
        except _Stopped:
            return Failure(CANCELLED, "writing the destination was given up")
        except ReferenceFault as fault:
            return Failure(
                NOT_SENT, f"the destination could not be written to its reference: {fault.message}"
            )
        except Exception as error:
            if isinstance(error, Told):
                return Failure(NOT_SENT, f"the destination could not be written: {error.message}")
            return failure_of(error)
        return None


def _until(given_up: threading.Event, chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        if given_up.is_set():
            raise _Stopped
        yield chunk
    if given_up.is_set():
        raise _Stopped
