"""Buffers: uploaded tables, received in bounded memory, checked by a worker and stored until they expire."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ParamSpec, TypeVar

from app.callers import Caller
from app.engine.engine import Failure, TaskFunction
from app.errors import AppError, Forbidden, NotFound, TooLarge, Unavailable, storage_error
from app.ids import new_id
from app.jobs.failure_errors import request_error
from app.jobs.fairness.limits import Limits
from app.jobs.fairness.turns import Turns
from app.jobs.idempotency import Idempotency
from app.jobs.reference_reader import ReferenceReader
from app.jobs.requests import DEFAULT_OPTIONS, UNANNOTATED, Annotations, StoredTable, SubmissionOptions
from app.jobs.stores import Stores
from app.jobs.tables.uploads import DeclaredLength, HashedUpload, Upload, UploadSpace
from app.jobs.transactions import JobTransactions
from app.settings import Settings
from app.store.blobs.arrow_stream import TableReader
from app.store.blobs.sealed_files import (
    CHUNK,
    BlobAccess,
    BlobMissing,
    SealedWriter,
    reserve_draft,
)
from app.store.sql import buffers, idempotency, usage
from app.store.sql.audit.trail import Entry
from app.store.sql.bindings import blob_of_buffer, buffer_binding
from app.store.sql.db import Transaction
from app.store.sql.jobs import annotate
from app.store.sql.models import Buffer
from app.store.sql.replicas import LeaseLost, moment
from app.telemetry.metrics import Metrics
from app.worker.run_copy import CopyTask, check_copied_fields, run_copy
from app.worker.run_ingest import run_ingest
from app.worker.tasks import IngestTask

P = ParamSpec("P")
T = TypeVar("T")


Decode = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]

_ALWAYS_ALLOWED = 2**30
"""Decoded bytes that any table may take, unless a setting allows less."""
_MOST_EXPANSION = 200
"""Largest ratio of decoded to uploaded bytes of a table over a gibibyte."""


class BufferService:
    """Buffers and tables by reference, as one caller uses them: `JobService.buffers`."""

    def __init__(
        self,
        buffers: "Buffers",
        reference_reader: ReferenceReader,
        transactions: JobTransactions,
        threads: Executor,
        caller: Caller,
    ) -> None:
        self._buffers = buffers
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
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._transactions.open_buffer, self._caller, buffer)

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
        stored = await self._buffers.read(chunks, upload, self._caller, gone, declared)
        return replace(stored, reference=reference)

    async def discard(self, stored: StoredTable) -> None:
        """Delete a table that was read by reference, unless a job's row names it."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, self._buffers.discard, stored)

    async def check_destination(self, reference: str, overwrite: bool) -> None:
        """Raise InvalidRequest if no destination may be written to the reference."""
        await self._reference_reader.check_destination(reference, self._caller.project, overwrite)


class Buffers:
    """Creation, lookup and deletion of buffers on behalf of any caller."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        turns: Turns,
        threads: Executor,
        limits: Limits,
        idempotency: Idempotency,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._turns = turns
        self._threads = threads
        self._limits = limits
        self._idempotency = idempotency
        self._metrics = metrics
        self._reserving = asyncio.Lock()

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
        made = await self._in_thread(self._admit, submission, caller)
        hashed = HashedUpload(chunks)
        if made:
            return await self._replayed(hashed, describe, submission, caller), True
        received = hashed.chunks() if submission.idempotency_key else chunks
        stored = await self._read(received, describe, caller, gone, DeclaredLength(declared))
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
        """Return the new buffer of a stored table, or that of an equal request that was earlier.

        The table is discarded unless a new buffer has it. ``copied`` is the id of the buffer that was copied.
        """
        kept = False
        try:
            buffer = await self._in_thread(self._insert, stored, annotations, submission, caller, copied)
            kept = buffer.blob == stored.blob
        finally:
            if not kept:
                await self._in_thread(self.discard, stored)
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
        """Return the buffer made under the key, if this upload equals the one that made it."""
        size = 0
        async for chunk in hashed.chunks():
            size += len(chunk)
            self._refuse_too_large(size)
        submission = hashed.identified(submission, describe())
        return await self._in_thread(self._made_by_earlier_request, submission, caller)

    async def read(
        self,
        chunks: AsyncIterator[bytes],
        upload: Upload,
        caller: Caller,
        gone: Callable[[], Awaitable[None]],
        declared: DeclaredLength,
    ) -> StoredTable:
        """Read a table into the store, where no row names it yet; `discard` it in the end.

        Raises as `create`, and whatever ``chunks`` raises.
        """
        reading = asyncio.ensure_future(self._read(chunks, lambda: upload, caller, None, declared))
        left = asyncio.ensure_future(gone())
        try:
            await asyncio.wait([reading, left], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise Unavailable("the caller disconnected; the table was discarded")
        finally:
            left.cancel()
            if not reading.done():
                reading.cancel()
                await asyncio.wait([reading])
        return reading.result()

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

        Name and label that are not given are those of the other one. If the idempotency key was used before,
        the earlier copy is returned, also if the other buffer is gone.

        Raises
        ------
        NotFound
        InvalidRequest
            A field is unknown, or none would remain.
        SourceError
            A value does not fit its new type.
        StorageFull
        LimitReached
        IdempotencyKeyReused
        """
        if await self._in_thread(self._admit, submission, caller):
            return await self._in_thread(self._made_by_earlier_request, submission, caller)
        source = await self._in_thread(self._find, buffer_id, caller)
        check_copied_fields([field["name"] for field in source.fields], drop, types)
        table = self._stores.new_blob()
        try:
            async with self._reserving:
                draft = await self._in_thread(self._reserve_copy, table, source.byte_size)
            access = await self._in_thread(self._open_source, source)
            most = self._settings.max_table_bytes
            form = self._stores.lease.digest_form
            task = CopyTask(access, table, tuple(drop), dict(types), tuple(null_tokens), most, draft, form)
            stored = await self._write(run_copy, task, caller, None, _rows_gone())
        except BaseException:
            await self._in_thread(self._stores.drop, [table.id])
            raise
        return await self._kept(stored, annotations.columns(source), submission, caller, source.id)

    def _reserve_copy(self, table: BlobAccess, size: int) -> str:
        try:
            return reserve_draft(table, size)
        except OSError as error:
            raise storage_error(error) from error

    def _open_source(self, source: Buffer) -> BlobAccess:
        try:
            return self._stores.open_blob(blob_of_buffer(source))
        except BlobMissing:
            raise _rows_gone() from None

    def discard(self, stored: StoredTable) -> None:
        """Delete a stored table, unless a row names it. Blocking."""
        self._stores.drop([stored.blob])

    async def get(self, buffer_id: str, caller: Caller) -> Buffer:
        """Return the buffer. Raises NotFound, also if it has expired or is not visible to the caller."""
        return await self._in_thread(self._find, buffer_id, caller)

    async def annotate(self, buffer_id: str, changes: Mapping[str, str | None], caller: Caller) -> Buffer:
        """Set the name, the label or the notes of the buffer, and return it. Raises NotFound, Forbidden."""
        await self._in_thread(self._annotate, buffer_id, changes, caller)
        return await self.get(buffer_id, caller)

    async def delete(self, buffer_id: str, caller: Caller) -> None:
        """Delete the buffer; jobs that use its table keep it. Raises NotFound, Forbidden."""
        await self._in_thread(self._delete, buffer_id, caller)

    async def _read(
        self,
        chunks: AsyncIterator[bytes],
        describe: Callable[[], Upload],
        caller: Caller,
        gone: Callable[[], Awaitable[None]] | None,
        declared: DeclaredLength,
    ) -> StoredTable:
        upload, table = self._stores.new_upload(), self._stores.new_blob()
        succeeded = False
        try:
            async with self._reserving:  # of two uploads that do not fit together, one is taken
                space = await self._in_thread(self._reserve, upload, table, declared.size)
            size = await self._store(chunks, space, declared)
            description = describe()
            most = min(self._settings.max_table_bytes, max(_ALWAYS_ALLOWED, _MOST_EXPANSION * size))
            task = IngestTask(
                upload,
                description.media_type,
                description.options,
                table,
                most,
                space.table_draft,
                self._stores.lease.digest_form,
            )
            stored = await self._write(run_ingest, task, caller, gone)
            succeeded = True
        finally:
            await self._in_thread(self._stores.drop, [upload.id] if succeeded else [upload.id, table.id])
        return stored

    def _reserve(self, upload: BlobAccess, table: BlobAccess, size: int) -> UploadSpace:
        """Reserve disk space for an upload of this size and for its table. Raises StorageFull."""
        try:
            draft = reserve_draft(table, size)
            # The upload is deleted as soon as it has been read, so it need not survive a power cut.
            return UploadSpace(SealedWriter(upload, durable=False, expected=size), draft, size)
        except OSError as error:
            raise storage_error(error) from error

    async def _store(self, chunks: AsyncIterator[bytes], space: UploadSpace, declared: DeclaredLength) -> int:
        """Write the upload to its blob and return its size in bytes."""
        writer = space.writer
        writing = asyncio.ensure_future(asyncio.sleep(0, 0))
        size = 0
        try:
            gathered = io.BytesIO()
            async for chunk in chunks:
                gathered.write(chunk)
                size += len(chunk)
                self._refuse_too_large(size)
                if gathered.tell() >= CHUNK:
                    await writing  # one chunk is sealed while the next one arrives
                    if max(size, declared.size) > space.reserved:
                        async with self._reserving:
                            await self._in_thread(space.extend, size, declared.size)
                    writing = asyncio.ensure_future(self._in_thread(writer.write, gathered.getvalue()))
                    gathered = io.BytesIO()
            await writing
            await self._in_thread(writer.write, gathered.getvalue())
            await self._in_thread(writer.close)
        except BaseException as error:
            await asyncio.gather(writing, return_exceptions=True)
            await self._in_thread(writer.discard)
            if isinstance(error, OSError):
                raise storage_error(error) from error
            raise
        return size

    async def _write(
        self,
        function: TaskFunction,
        task: IngestTask | CopyTask,
        caller: Caller,
        gone: Callable[[], Awaitable[None]] | None,
        missing: AppError | None = None,
    ) -> StoredTable:
        """Run the task that writes a table; return the table. The task is known by the table's blob.

        ``missing``: error to raise if the table that the task reads was deleted.
        """
        running = self._turns.run(task.table.id, function, task, caller)
        left = asyncio.ensure_future(gone()) if gone is not None else None
        try:
            await asyncio.wait(
                [running] if left is None else [running, left], return_when=asyncio.FIRST_COMPLETED
            )
            if not running.done():
                raise Unavailable("the caller disconnected; the upload was discarded")
        finally:
            if left is not None:
                left.cancel()
            if not running.done():
                await self._turns.cancel(task.table.id)
        outcome = running.result()
        if isinstance(outcome, Failure):
            raise request_error(outcome, missing)
        return StoredTable(
            access=task.table,
            digest=outcome["digest"],
            fields=outcome["fields"],
            rows=outcome["rows"],
            byte_size=outcome["byte_size"],
        )

    def _admit(self, submission: SubmissionOptions, caller: Caller) -> bool:
        """Reject a caller at its limit, and return whether its key has a buffer; `_insert` checks both."""
        with self._stores.database.read() as session:
            now = moment(session)
            self._limits.admit_buffer(session, caller.owner, 1, now)
            return self._buffer_of_key(session, submission, caller, now) is not None

    def _made_by_earlier_request(self, submission: SubmissionOptions, caller: Caller) -> Buffer:
        """Return the buffer made under the key. Raises IdempotencyKeyReused, Unavailable."""
        with self._stores.database.read() as session:
            buffer = self._made_under_key(session, submission, caller, moment(session))
        if buffer is None:
            raise Unavailable(
                "the buffer that was made under this Idempotency-Key has just expired or been "
                "deleted; send the request again"
            )
        return buffer

    def _made_under_key(
        self, session: Transaction, submission: SubmissionOptions, caller: Caller, now: datetime
    ) -> Buffer | None:
        """Return the buffer that an equal request has made. Raises IdempotencyKeyReused."""
        buffer = self._buffer_of_key(session, submission, caller, now)
        if buffer is not None:
            self._idempotency.resource(session, caller.owner, submission, now)
        return buffer

    def _buffer_of_key(
        self, session: Transaction, submission: SubmissionOptions, caller: Caller, now: datetime
    ) -> Buffer | None:
        """Return the buffer made under the key by any request; None also if it has expired."""
        buffer_id = self._idempotency.resource_of_any_request(session, caller.owner, submission, now)
        # Visible to the caller only: a changed row of the key could name another's buffer.
        return buffers.find(session, buffer_id, now, caller) if buffer_id is not None else None

    def _insert(
        self,
        stored: StoredTable,
        annotations: Mapping[str, str | None],
        submission: SubmissionOptions,
        caller: Caller,
        copied: str | None,
    ) -> Buffer:
        buffer = Buffer(
            id=new_id(),
            owner=caller.owner,
            project=caller.project,
            digest=stored.digest,
            fields=stored.fields,
            row_count=stored.rows,
            byte_size=stored.byte_size,
            blob=stored.blob,
            **annotations,
        )
        buffer.sealed_key = self._stores.blobs.seal_key(stored.access, buffer_binding(buffer))
        try:
            with self._stores.database.write() as session:
                created = buffer.created_at = moment(session)
                buffer.expires_at = created + timedelta(seconds=self._settings.buffer_ttl)
                usage.lock(session, buffer.owner, created)
                known = self._made_under_key(session, submission, caller, created)
                if known is not None:  # a concurrent request made it
                    return known
                self._limits.admit_buffer(session, buffer.owner, buffer.byte_size, created)
                self._stores.claim_blobs(session, [buffer.blob])
                session.add(buffer)
                self._idempotency.keep(session, buffer.owner, submission, buffer.id, created)
                lines = [Entry(caller, "buffer.create", buffer.id, copied)]
                if copied is not None:  # rows of the other buffer, which the caller can read now
                    lines.insert(0, Entry(caller, "buffer.read", copied))
                self._stores.audit.append_all(session, lines, created)
        except LeaseLost as error:
            raise Unavailable(str(error)) from None
        self._stores.mark_named([buffer.blob])
        return buffer

    def _refuse_too_large(self, size: int) -> None:
        if size > self._settings.max_buffer_bytes:
            raise TooLarge(
                f"a buffer holds at most {self._settings.max_buffer_bytes} bytes "
                "(ROWVEIL_MAX_BUFFER_BYTES); upload the table in parts"
            )

    def _find(self, buffer_id: str, caller: Caller) -> Buffer:
        with self._stores.database.read() as session:
            buffer = buffers.find(session, buffer_id, moment(session), caller)
        if buffer is None:
            raise NotFound(f"there is no buffer '{buffer_id}'; a buffer is deleted at its expiry")
        return buffer

    def _annotate(self, buffer_id: str, changes: Mapping[str, str | None], caller: Caller) -> None:
        """Change the columns; the line in the audit log has none of the texts."""
        self._find_to_change(buffer_id, caller)
        with self._stores.database.write() as session:
            if not annotate(session, Buffer, buffer_id, changes):
                raise NotFound(f"there is no buffer '{buffer_id}'; a buffer is deleted at its expiry")
            self._stores.audit.append(session, caller, "buffer.annotate", buffer_id, moment(session))
        self._stores.database.truncate_log()  # it has the texts that were replaced

    def _find_to_change(self, buffer_id: str, caller: Caller) -> None:
        if not caller.may_change(self._find(buffer_id, caller).owner):
            raise Forbidden(
                "the buffer belongs to another member of your project; only its creator may change or "
                "delete it"
            )

    def _delete(self, buffer_id: str, caller: Caller) -> None:
        self._find_to_change(buffer_id, caller)
        with self._stores.database.write() as session:
            unnamed = buffers.delete(session, buffer_id)
            if unnamed is None:
                raise NotFound(f"there is no buffer '{buffer_id}'; a buffer is deleted at its expiry")
            idempotency.forget(session, [buffer_id])
            self._stores.audit.append(session, caller, "buffer.delete", buffer_id, moment(session))
        self._stores.delete_blobs(unnamed)
        self._stores.database.truncate_log()

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread; wait for its end even if this call is cancelled.

        Otherwise a file could be closed while a thread writes to it.
        """
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise


def _rows_gone() -> NotFound:
    return NotFound("the rows were deleted or have expired just now")
