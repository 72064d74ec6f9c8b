"""Buffers: uploaded tables, received in bounded memory, checked by a worker and stored until they expire."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import ParamSpec, TypeVar

from app.callers import READ, Caller
from app.errors import ScopeMissing
from app.file_threads import ServiceThreads
from app.jobs.reference_reader import ReferenceReader
from app.jobs.requests import DEFAULT_OPTIONS, UNANNOTATED, Annotations, StoredTable, SubmissionOptions
from app.jobs.tables.buffer_rows import BufferRows
from app.jobs.tables.table_writes import TableWrites
from app.jobs.tables.uploads import DeclaredLength, HashedUpload, Upload, checked_start
from app.jobs.transactions import JobTransactions
from app.loop_threads import run_to_its_end
from app.store.blobs.arrow_stream import TableReader
from app.store.sql.models import Buffer
from app.telemetry.metrics import Metrics
from app.worker.run_copy import check_copied_fields

P = ParamSpec("P")
T = TypeVar("T")


Decode = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]


class BufferService:
    """Buffers and tables by reference, as one caller uses them: `JobService.buffers`."""

    def __init__(
        self,
        buffers: "Buffers",
        writes: TableWrites,
        reference_reader: ReferenceReader,
        transactions: JobTransactions,
        threads: ServiceThreads,
        caller: Caller,
    ) -> None:
        self._buffers = buffers
        self._writes = writes
        self._reference_reader = reference_reader
        self._transactions = transactions
        self._threads = threads
        self._caller = caller

    async def create(
        self,
        chunks: AsyncIterator[bytes],
        describe: str | Callable[[], Upload],
        gone: Callable[[], Awaitable[None]] | None = None,
        submission: SubmissionOptions = DEFAULT_OPTIONS,
        declared: int = 0,
    ) -> Buffer:
        """Create a buffer: see `Buffers.create`. A media type stands for an upload without options."""
        if isinstance(describe, str):
            upload = Upload(describe)
            return await self._buffers.create(
                chunks, lambda: upload, gone, submission, self._caller, declared
            )
        return await self._buffers.create(chunks, describe, gone, submission, self._caller, declared)

    async def get(self, buffer_id: str) -> Buffer:
        """Return the buffer: see `Buffers.get`."""
        return await self._buffers.get(buffer_id, self._caller)

    async def copy(
        self,
        buffer_id: str,
        drop: Sequence[str],
        types: Mapping[str, str],
        null_tokens: Sequence[str],
        annotations: Annotations = UNANNOTATED,
        submission: SubmissionOptions = DEFAULT_OPTIONS,
    ) -> Buffer:
        """Copy the buffer: see `Buffers.copy`."""
        return await self._buffers.copy(
            buffer_id, drop, types, null_tokens, annotations, submission, self._caller
        )

    async def annotate(self, buffer_id: str, changes: Mapping[str, str | None]) -> Buffer:
        """Change the buffer's name, label or notes: see `Buffers.annotate`."""
        return await self._buffers.annotate(buffer_id, changes, self._caller)

    async def open(self, buffer: Buffer) -> TableReader:
        """Open the buffer's table, to be read in bounded memory; the caller closes it. Raises NotFound."""
        loop, opened = asyncio.get_running_loop(), self._transactions.open_buffer
        return await loop.run_in_executor(self._threads.files, opened, self._caller, buffer)

    async def delete(self, buffer_id: str) -> None:
        """Delete the buffer: see `Buffers.delete`."""
        await self._buffers.delete(buffer_id, self._caller)

    async def read_reference(
        self, reference: str, upload: Upload, decode: Decode, gone: Callable[[], Awaitable[None]]
    ) -> StoredTable:
        """Read a table by reference into the store, where no row names it yet; `discard` it in the end.

        Parameters
        ----------
        reference
            ``s3://bucket/key`` or ``file:///path``.
        upload
            Format of the table.
        decode
            Transforms the bytes, for example by decompressing them.
        gone
            Returns when the caller no longer waits for the table.

        Raises
        ------
        InvalidRequest
            The reference may not be read, or does not exist.
        ReferenceUnavailable
            The storage does not respond; and as `create`.
        """
        self._reference_reader.find(reference, "source", self._caller.project)
        declared = DeclaredLength()
        chunks = decode(self._reference_reader.chunks(reference, self._caller.project, declared.set))
        chunks = checked_start(chunks, lambda: upload)
        stored = await self._writes.receive_while_awaited(chunks, upload, self._caller, gone, declared)
        return replace(stored, reference=reference)

    async def discard(self, stored: StoredTable) -> None:
        """Delete a table that was read by reference, unless a job's row names it."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads.database, self._writes.discard, stored)

    async def check_destination(self, reference: str, overwrite: bool) -> None:
        """Raise InvalidRequest if no destination may be written to the reference."""
        await self._reference_reader.check_destination(reference, self._caller.project, overwrite)


class Buffers:
    """Creation, lookup and deletion of buffers on behalf of any caller."""

    def __init__(
        self, writes: TableWrites, rows: BufferRows, threads: ServiceThreads, metrics: Metrics
    ) -> None:
        self._writes = writes
        self._rows = rows
        self._threads = threads
        self._metrics = metrics

    async def create(
        self,
        chunks: AsyncIterator[bytes],
        describe: Callable[[], Upload],
        gone: Callable[[], Awaitable[None]] | None,
        submission: SubmissionOptions,
        caller: Caller,
        declared: int = 0,
    ) -> Buffer:
        """Create a buffer from an upload; return the earlier buffer if its idempotency key was used before.

        Parameters
        ----------
        chunks
            Bytes of the table's file.
        describe
            Returns the format of the upload; called when all bytes have arrived.
        gone
            Returns when the caller no longer waits for the buffer.
        submission
            Idempotency key of the request.
        caller
            Owner of the buffer.
        declared
            Declared length of the upload in bytes; 0 if it is unknown. Disk space for the upload and for its
            table is reserved before it is read. Without a length it is reserved in steps as bytes arrive.

        Raises
        ------
        TooLarge
        SourceError
            The upload is not a table of that format.
        MemoryLimit
        TimeLimit
        StorageFull
        LimitReached
        IdempotencyKeyReused
        """
        uploads = self._metrics.uploads
        try:
            buffer, repeated = await self._create(
                self._counted(chunks), describe, gone, submission, caller, declared
            )
        except BaseException:
            uploads.labels("failed").inc()
            raise
        uploads.labels("repeated" if repeated else "stored").inc()
        return buffer

    async def _create(
        self,
        chunks: AsyncIterator[bytes],
        describe: Callable[[], Upload],
        gone: Callable[[], Awaitable[None]] | None,
        submission: SubmissionOptions,
        caller: Caller,
        declared: int,
    ) -> tuple[Buffer, bool]:
        """Return the buffer as `create`, and whether an earlier request has made it."""
        made = await self._in_thread(self._rows.admit, submission, caller)
        hashed = HashedUpload(chunks)
        if made:
            return await self._replayed(hashed, describe, submission, caller), True
        received = hashed.chunks() if submission.idempotency_key else chunks
        with self._rows.receiving(caller, declared):
            stored = await self._writes.receive(received, describe, caller, gone, DeclaredLength(declared))
        upload = describe()
        identified = hashed.identified(submission, upload)
        buffer = await self._kept(stored, upload.annotations.columns(), identified, caller)
        return buffer, buffer.blob != stored.blob

    async def _kept(
        self,
        stored: StoredTable,
        annotations: Mapping[str, str | None],
        submission: SubmissionOptions,
        caller: Caller,
        copied: str | None = None,
    ) -> Buffer:
        """Return the new buffer of a stored table, or the buffer of an earlier equal request.

        The table is discarded unless a new buffer has it. ``copied`` is the id of the buffer that was copied.
        """
        kept = False
        try:
            buffer = await self._in_thread(self._rows.insert, stored, annotations, submission, caller, copied)
            kept = buffer.blob == stored.blob
        finally:
            if not kept:
                await self._in_thread(self._writes.discard, stored)
        return buffer

    async def _counted(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the chunks unchanged, and count their bytes as they arrive."""
        async for chunk in chunks:
            self._metrics.uploaded.inc(len(chunk))
            yield chunk

    async def _replayed(
        self,
        hashed: HashedUpload,
        describe: Callable[[], Upload],
        submission: SubmissionOptions,
        caller: Caller,
    ) -> Buffer:
        """Return the buffer made under the key, if this upload equals the upload that made it."""
        size = 0
        async for chunk in hashed.chunks():
            size += len(chunk)
            self._writes.refuse_too_large(size)
        submission = hashed.identified(submission, describe())
        return await self._in_thread(self._rows.made_by_earlier_request, submission, caller)

    async def copy(
        self,
        buffer_id: str,
        drop: Sequence[str],
        types: Mapping[str, str],
        null_tokens: Sequence[str],
        annotations: Annotations,
        submission: SubmissionOptions,
        caller: Caller,
    ) -> Buffer:
        """Create a buffer from another one, without some fields, with other types or with more nulls.

        A name or label that is not given is taken from the other buffer. If the idempotency key was used
        before, the earlier copy is returned, also if the other buffer is gone.

        Raises
        ------
        NotFound
        ScopeMissing
            The buffer belongs to another caller, and this one may not read it.
        InvalidRequest
            A field is unknown, or none would remain.
        SourceError
            A value does not fit its new type.
        StorageFull
        LimitReached
        IdempotencyKeyReused
        """
        if await self._in_thread(self._rows.admit, submission, caller):
            return await self._in_thread(self._rows.made_by_earlier_request, submission, caller)
        source = await self._in_thread(self._rows.find, buffer_id, caller)
        if source.owner != caller.owner and READ not in caller.scopes:  # the copy would be the caller's own
            raise ScopeMissing(READ, "the buffer belongs to another caller")
        check_copied_fields([field["name"] for field in source.fields], drop, types)
        stored = await self._writes.copy(source, drop, types, null_tokens, caller)
        return await self._kept(stored, annotations.columns(source), submission, caller, source.id)

    async def get(self, buffer_id: str, caller: Caller) -> Buffer:
        """Return the buffer. Raises NotFound, also if it has expired or is not visible to the caller."""
        return await self._in_thread(self._rows.find, buffer_id, caller)

    async def annotate(self, buffer_id: str, changes: Mapping[str, str | None], caller: Caller) -> Buffer:
        """Set the name, the label or the notes of the buffer, and return it. Raises NotFound."""
        await self._in_thread(self._rows.annotate, buffer_id, changes, caller)
        return await self.get(buffer_id, caller)

    async def delete(self, buffer_id: str, caller: Caller) -> None:
        """Delete the buffer; jobs that use its table keep it. Raises NotFound."""
        await self._in_thread(self._rows.delete, buffer_id, caller)

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that opens no file in a thread."""
        return await run_to_its_end(self._threads.database, lambda: function(*args, **kwargs))
