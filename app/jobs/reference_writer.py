"""Write destination tables to object storage or a share, atomically, before their jobs succeed."""

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from app.engine.engine import CANCELLED, NOT_SENT, TIME_LIMIT, Failure, Progress
from app.engine.progress_file import write_progress
from app.engine.worker_process import failure_of
from app.errors import InvalidRequest
from app.file_threads import ThreadsByPlace
from app.formats import stream_chunks
from app.formats.errors import FormatError
from app.jobs.reference_reader import THREADS, ReferenceReader
from app.jobs.requests import csv_style_of
from app.references import Reference, ReferenceFault
from app.settings import Settings
from app.store.blobs.arrow_stream import TableReader
from app.store.reference_files import write_file
from app.store.sql.models import Job
from app.worker.tasks import SwapTask
from providers.errors import ProviderError

_ABORT_SECONDS = 10.0
"""Time that a cancelled write gets to remove its file or object."""

_ANSWER_SECONDS = 130.0
"""Time that a cancelled write to a bucket gets for the answer to its last request: the object may be there,
and is then a release. The S3 client waits for 60 seconds, and repeats a request for as long."""

_PERHAPS_RELEASED = (
    "may have written the destination, which is then a release that the ledger does not list; look at it"
)

_log = logging.getLogger("rowveil.jobs")


class _Cancelled(Exception):
    """The write was cancelled."""


class _Stop:
    """Request to stop a write."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.hurried = asyncio.Event()
        """Set if the service stops, or has lost the job."""
        self.ends_job = False
        """Whether the job ends. Otherwise it runs again, and finds what this run may have written."""


class ReferenceWriter:
    """Writes destinations to their jobs' references."""

    stream_table = staticmethod(stream_chunks)
    """Encoder of a table as chunks of a file; tests replace it to hold a write up."""

    def __init__(self, settings: Settings, reference_reader: ReferenceReader) -> None:
        self._time_limit = settings.job_time_limit
        self._reference_reader = reference_reader
        self._threads = ThreadsByPlace(THREADS, "sending")
        self._stops: dict[str, _Stop] = {}

    async def write(self, job: Job, task: SwapTask) -> Failure | None:
        """Write the job's destination to its reference. Return the failure, if any.

        A job that is run again after a crash of the service may find its own file: a file with the same
        bytes is left as it is.
        """
        try:
            reference, prefix = self._reference_reader.find_destination(
                str(job.destination_reference), job.project, _overwrites(job)
            )
        except InvalidRequest as error:  # the settings have changed since the job was accepted
            return Failure(NOT_SENT, error.message)
        stop, cancelled = _Stop(), threading.Event()
        threads = self._threads.of(prefix)
        submitted = threads.submit(self._write, job, task, reference, prefix, cancelled)
        writing = asyncio.wrap_future(submitted)
        stopping = asyncio.ensure_future(stop.requested.wait())
        self._stops[job.id] = stop
        try:
            futures: list[asyncio.Future[Any]] = [writing, stopping]
            await asyncio.wait(futures, timeout=self._time_limit, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                cancelled.set()
                submitted.cancel()  # takes effect only before the write has begun
                await _end_of(writing, stop, _ANSWER_SECONDS if reference.scheme == "s3" else _ABORT_SECONDS)
        finally:
            cancelled.set()
            stopping.cancel()
            del self._stops[job.id]
        if writing.done() and not writing.cancelled():
            failure = writing.result()
            if failure is None or failure.code != CANCELLED:
                return failure
        if stop.requested.is_set():
            if not writing.done() and stop.ends_job:
                _log.error(
                    "job %s was cancelled, and the storage has not answered: it %s", job.id, _PERHAPS_RELEASED
                )
            return Failure(CANCELLED, "the job was cancelled")
        late = "" if writing.done() else f"; the storage has not answered: it {_PERHAPS_RELEASED}"
        return Failure(
            TIME_LIMIT,
            f"writing the destination took longer than {self._time_limit:g} s, and was stopped{late}",
        )

    def cancel(self, job_id: str, hurry: bool = False) -> None:
        """Cancel the write of the job's destination, if there is one, and the job itself unless ``hurry``.

        ``hurry``: the service stops, or has lost the job, which runs again.
        """
        stop = self._stops.get(job_id)
        if stop is not None:
            stop.requested.set()
            if hurry:
                stop.hurried.set()
            else:
                stop.ends_job = True

    def close(self) -> None:
        """Release the threads without waiting for writes in progress."""
        self._threads.close()

    def _write(
        self, job: Job, task: SwapTask, reference: Reference, prefix: Reference, cancelled: threading.Event
    ) -> Failure | None:
        proceed = partial(_check_cancelled, cancelled)
        try:
            write_progress(Path(task.progress_path), Progress(1.0, "sending", os.getpid()))
            media_type = str(job.destination_media_type)
            rows = TableReader(task.destination)
            try:
                style = csv_style_of(job.destination_options)
                chunks = _until(cancelled, self.stream_table(media_type, rows.schema, rows, style))
                if reference.scheme == "s3":
                    from app.store.reference_s3 import write_object  # imported late: the S3 client

                    draft = f"{job.id}.{job.attempt}"
                    write_object(reference, chunks, media_type, draft, _overwrites(job), proceed)
                else:
                    former = [f"{job.id}.{attempt}" for attempt in range(1, job.attempt)]
                    draft = f"{job.id}.{job.attempt}"
                    write_file(reference, prefix, chunks, draft, former, _overwrites(job), proceed)
            finally:
                rows.close()
        except _Cancelled:
            return Failure(CANCELLED, "writing the destination was stopped, because the job was cancelled")
        except ReferenceFault as fault:
            return Failure(
                NOT_SENT, f"the destination could not be written to its reference: {fault.message}"
            )
        except (FormatError, ProviderError) as error:
            return Failure(NOT_SENT, f"the destination could not be written: {error.message}")
        except Exception as error:
            return failure_of(error)
        return None


def _overwrites(job: Job) -> bool:
    return bool((job.destination_options or {}).get("overwrite"))


def warn_of_earlier_writes(job: Job, attempts: int) -> None:
    """Log that an earlier attempt of a job that has ended without success may have written its destination.

    A service that is killed after the write and before its record leaves a file or an object, which the next
    attempt would find. ``attempts``: number of those that began and recorded no end.
    """
    if attempts > 0 and job.destination_reference is not None:
        _log.error("job %s has ended without a release, but an earlier attempt %s", job.id, _PERHAPS_RELEASED)


async def _end_of(writing: asyncio.Future[Any], stop: _Stop, seconds: float) -> None:
    """Wait for the end of a cancelled write, for a shorter time if its stop is hurried."""
    hurrying = asyncio.ensure_future(stop.hurried.wait())
    await asyncio.wait([writing, hurrying], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if hurrying.done():
        await asyncio.wait([writing], timeout=_ABORT_SECONDS)
    hurrying.cancel()


def _check_cancelled(cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise _Cancelled


def _until(cancelled: threading.Event, chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        _check_cancelled(cancelled)
        yield chunk
    _check_cancelled(cancelled)
