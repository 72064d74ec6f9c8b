"""Buffers: uploaded tables, received in bounded memory, checked by a worker and stored until they expire."""

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

import orjson

from app.callers import Caller
from app.engine.engine import Engine, Failure
from app.errors import Forbidden, NotFound, TooLarge, Unavailable, storage_error
from app.ids import new_id
from app.jobs.failure_errors import error_of
from app.jobs.idempotency import AlreadyMade, Idempotency
from app.jobs.limits import Limits
from app.jobs.reference_reader import ReferenceReader
from app.jobs.requests import DEFAULT_OPTIONS, StoredTable, SubmissionOptions
from app.jobs.stores import Stores
from app.jobs.transactions import JobTransactions
from app.settings import Settings
from app.store.blobs.arrow_stream import TableReader
from app.store.blobs.sealed_files import CHUNK, BlobAccess, SealedWriter
from app.store.sql import buffers, idempotency, usage
from app.store.sql.bindings import buffer_binding
from app.store.sql.models import Buffer
from app.store.sql.replicas import LeaseLost, moment
from app.telemetry.metrics import Metrics
from app.worker.run_ingest import run_ingest
from app.worker.tasks import IngestTask

P = ParamSpec("P")
T = TypeVar("T")


Decode = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]

_ALWAYS_ALLOWED = 2**30
"""Decoded bytes that any table may take, unless a setting allows less."""
_MOST_EXPANSION = 200
"""Largest ratio of decoded to uploaded bytes of a table over a gibibyte."""


@dataclass(frozen=True, slots=True)
class Upload:
    """Declared format of an upload."""

    media_type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the reader for that type."""


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
    ) -> Buffer:
        """Create a buffer: see `Buffers.create`. A media type stands for an upload without options."""
        if isinstance(describe, str):
            upload = Upload(describe)
            return await self._buffers.create(chunks, lambda: upload, gone, submission, self._caller)
        return await self._buffers.create(chunks, describe, gone, submission, self._caller)

    async def get(self, buffer_id: str) -> Buffer:
        """Return the buffer: see `Buffers.get`."""
        return await self._buffers.get(buffer_id, self._caller)

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
        self._reference_reader.find(reference, "source")
        stored = await self._buffers.read(decode(self._reference_reader.chunks(reference)), upload, gone)
        return replace(stored, reference=reference)

    async def discard(self, stored: StoredTable) -> None:
        """Delete a table that was read by reference, unless a job's row names it."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, self._buffers.discard, stored)

    async def check_destination(self, reference: str) -> None:
        """Raise InvalidRequest if no destination may be written to the reference."""
        await self._reference_reader.check_destination(reference)


class Buffers:
    """Creation, lookup and deletion of buffers on behalf of any caller."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        engine: Engine,
        threads: Executor,
        limits: Limits,
        idempotency: Idempotency,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._engine = engine
        self._threads = threads
        self._limits = limits
        self._idempotency = idempotency
        self._metrics = metrics

    async def create(
        self,
        chunks: AsyncIterator[bytes],
        describe: Callable[[], Upload],
        gone: Callable[[], Awaitable[None]] | None,
        submission: SubmissionOptions,
        caller: Caller,
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
            buffer, repeated = await self._create(self._counted(chunks), describe, gone, submission, caller)
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
    ) -> tuple[Buffer, bool]:
        """Return the buffer as `create`, and whether an earlier request has made it."""
        await self._in_thread(self._admit, caller)
        hashed = _HashedUpload(chunks)
        if await self._in_thread(self._is_made, submission, caller):
            return await self._replayed(hashed, describe, submission, caller), True
        stored = await self._read(hashed.chunks() if submission.idempotency_key else chunks, describe, gone)
        try:
            buffer = await self._in_thread(
                self._insert, stored, hashed.identified(submission, describe()), caller
            )
        except BaseException:
            await self._in_thread(self.discard, stored)
            raise
        repeated = buffer.blob != stored.blob
        if repeated:
            await self._in_thread(self.discard, stored)
        return buffer, repeated

    async def _counted(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the chunks unchanged, and count their bytes as they arrive."""
        async for chunk in chunks:
            self._metrics.uploaded.inc(len(chunk))
            yield chunk

    async def _replayed(
        self,
        hashed: "_HashedUpload",
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
        buffer = await self._in_thread(self._made_before, submission, caller)
        if buffer is None:
            raise Unavailable(
                "the buffer that was made under this Idempotency-Key has just expired or been "
                "deleted; send the request again"
            )
        return buffer

    async def read(
        self, chunks: AsyncIterator[bytes], upload: Upload, gone: Callable[[], Awaitable[None]]
    ) -> StoredTable:
        """Read a table into the store, where no row names it yet; `discard` it in the end.

        Raises as `create`, and whatever ``chunks`` raises.
        """
        reading = asyncio.ensure_future(self._read(chunks, lambda: upload))
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

    def discard(self, stored: StoredTable) -> None:
        """Delete a stored table, unless a row names it. Blocking."""
        self._stores.drop([stored.blob])

    async def get(self, buffer_id: str, caller: Caller) -> Buffer:
        """Return the buffer. Raises NotFound, also if it has expired or is not visible to the caller."""
        return await self._in_thread(self._find, buffer_id, caller)

    async def delete(self, buffer_id: str, caller: Caller) -> None:
        """Delete the buffer; jobs that use its table keep it. Raises NotFound, Forbidden."""
        await self._in_thread(self._delete, buffer_id, caller)

    async def _read(
        self,
        chunks: AsyncIterator[bytes],
        describe: Callable[[], Upload],
        gone: Callable[[], Awaitable[None]] | None = None,
    ) -> StoredTable:
        upload, table = self._stores.new_blob(), self._stores.new_blob()
        succeeded = False
        try:
            size = await self._store(chunks, upload)
            description = describe()
            most = min(self._settings.max_table_bytes, max(_ALWAYS_ALLOWED, _MOST_EXPANSION * size))
            task = IngestTask(upload, description.media_type, description.options, table, most)
            stored = await self._ingest(task, gone)
            succeeded = True
        finally:
            await self._in_thread(self._stores.drop, [upload.id] if succeeded else [upload.id, table.id])
        return stored

    async def _store(self, chunks: AsyncIterator[bytes], upload: BlobAccess) -> int:
        """Write the upload to its blob and return its size in bytes."""
        # The upload is deleted as soon as it has been read, so it need not survive a power cut.
        writer = await self._in_thread(SealedWriter, upload, durable=False)
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
                    writing = asyncio.ensure_future(self._in_thread(writer.write, gathered.getvalue()))
                    gathered = io.BytesIO()
            await writing
            await self._in_thread(writer.write, gathered.getvalue())
            await self._in_thread(writer.close)
        except BaseException as error:
            await asyncio.gather(writing, return_exceptions=True)
            writer.discard()
            if isinstance(error, OSError):
                raise storage_error(error) from error
            raise
        return size

    async def _ingest(self, task: IngestTask, gone: Callable[[], Awaitable[None]] | None) -> StoredTable:
        running = self._engine.run(task.upload.id, run_ingest, task)
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
                await self._engine.cancel(task.upload.id)
        outcome = running.result()
        if isinstance(outcome, Failure):
            raise error_of(outcome)
        return StoredTable(
            access=task.table,
            digest=outcome["digest"],
            fields=outcome["fields"],
            rows=outcome["rows"],
            byte_size=outcome["byte_size"],
        )

    def _admit(self, caller: Caller) -> None:
        """Reject a caller at its limit before the upload is read; `_insert` checks the exact size."""
        with self._stores.database.read() as session:
            self._limits.admit_buffer(session, caller.owner, 1, moment(session))

    def _is_made(self, submission: SubmissionOptions, caller: Caller) -> bool:
        with self._stores.database.read() as session:
            return self._idempotency.is_known(session, caller.owner, submission, moment(session))

    def _made_before(self, submission: SubmissionOptions, caller: Caller) -> Buffer | None:
        with self._stores.database.read() as session:
            now = moment(session)
            buffer_id = self._idempotency.resource(session, caller.owner, submission, now)
            # Visible to the caller only: a changed row of the key could name another's buffer.
            return buffers.find(session, buffer_id, now, caller) if buffer_id is not None else None

    def _insert(self, stored: StoredTable, submission: SubmissionOptions, caller: Caller) -> Buffer:
        buffer = Buffer(
            id=new_id(),
            owner=caller.owner,
            project=caller.project,
            digest=stored.digest,
            fields=stored.fields,
            row_count=stored.rows,
            byte_size=stored.byte_size,
            blob=stored.blob,
        )
        buffer.sealed_key = self._stores.blobs.seal_key(stored.access, buffer_binding(buffer))
        try:
            with self._stores.database.write() as session:
                created = buffer.created_at = moment(session)
                buffer.expires_at = created + timedelta(seconds=self._settings.buffer_ttl)
                usage.lock(session, buffer.owner, created)
                if self._idempotency.is_known(session, buffer.owner, submission, created):
                    raise AlreadyMade
                self._limits.admit_buffer(session, buffer.owner, buffer.byte_size, created)
                self._stores.claim_blobs(session, [buffer.blob])
                session.add(buffer)
                self._idempotency.keep(session, buffer.owner, submission, buffer.id, created)
                self._stores.audit.append(session, caller, "buffer.create", buffer.id, created)
        except AlreadyMade:  # by a concurrent request
            known = self._made_before(submission, caller)
            assert known is not None  # unless it was deleted just now
            return known
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

    def _delete(self, buffer_id: str, caller: Caller) -> None:
        buffer = self._find(buffer_id, caller)
        if not caller.may_change(buffer.owner):
            raise Forbidden(
                "the buffer belongs to another member of your project; only its creator may delete it"
            )
        with self._stores.database.write() as session:
            unnamed = buffers.delete(session, buffer_id)
            if unnamed is None:
                raise NotFound(f"there is no buffer '{buffer_id}'; a buffer is deleted at its expiry")
            idempotency.forget(session, [buffer_id])
            self._stores.audit.append(session, caller, "buffer.delete", buffer_id, moment(session))
        self._stores.delete_blobs(unnamed)

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


class _HashedUpload:
    """Chunks of an upload, hashed as they are read, for the fingerprint of the request."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._hash = hashlib.sha256()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the chunks unchanged."""
        async for chunk in self._chunks:
            self._hash.update(chunk)
            yield chunk

    def identified(self, submission: SubmissionOptions, upload: Upload) -> SubmissionOptions:
        """Add the upload's bytes and format to the request fingerprint of the options."""
        if submission.idempotency_key is None:
            return submission
        options = orjson.dumps(dict(upload.options), option=orjson.OPT_SORT_KEYS).decode()
        texts = (submission.request_fingerprint or "", self._hash.hexdigest(), upload.media_type, options)
        return replace(submission, request_fingerprint="\0".join(texts))
