"""Tables that a worker writes to the store, received in bounded memory or copied; no row names them yet."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

from app.callers import Caller
from app.engine.engine import Failure, TaskFunction
from app.errors import AppError, TooLarge, Unavailable, storage_error
from app.file_threads import ServiceThreads
from app.jobs.failure_errors import request_error, rows_gone
from app.jobs.fairness.turns import Turns
from app.jobs.requests import StoredTable
from app.jobs.stores import Stores
from app.jobs.tables.uploads import DeclaredLength, Upload, UploadSpace
from app.loop_threads import run_to_its_end
from app.settings import Settings
from app.store.blobs.sealed_files import CHUNK, BlobAccess, BlobMissing, SealedWriter, reserve_draft
from app.store.sql.bindings import blob_of_buffer
from app.store.sql.models import Buffer
from app.worker.run_copy import CopyTask, run_copy
from app.worker.run_ingest import run_ingest
from app.worker.tasks import IngestTask

P = ParamSpec("P")
T = TypeVar("T")

_ALWAYS_ALLOWED = 2**30
"""Decoded bytes that any table may take, unless a setting allows less."""
_RESERVING_SECONDS = 60.0
"""Time for which an upload waits until others have reserved their disk space."""
_MOST_EXPANSION = 200
"""Largest ratio of decoded to uploaded bytes of a table over a gibibyte."""


class TableWrites:
    """Receives and copies tables, by tasks in the turns of their callers."""

    def __init__(self, settings: Settings, stores: Stores, turns: Turns, threads: ServiceThreads) -> None:
        self._settings = settings
        self._stores = stores
        self._turns = turns
        self._threads = threads
        self._reserving = asyncio.Lock()

    async def receive(
        self,
        chunks: AsyncIterator[bytes],
        describe: Callable[[], Upload],
        caller: Caller,
        gone: Callable[[], Awaitable[None]] | None,
        declared: DeclaredLength,
    ) -> StoredTable:
        """Store an upload as a table that no row names yet; `discard` it in the end.

        Parameters
        ----------
        chunks
            Bytes of the table's file.
        describe
            Returns the format of the upload; called when all bytes have arrived.
        caller
            Caller on whose turn the worker runs.
        gone
            Returns when the caller no longer waits for the table.
        declared
            Length of the upload, as far as it is known. Disk space is reserved for it before it is read.

        Raises
        ------
        TooLarge
        SourceError
            The upload is not a table of that format.
        MemoryLimit
        TimeLimit
        StorageFull
        Unavailable
            The caller disconnected; also raises all that ``chunks`` raises.
        """
        upload, table = self._stores.new_upload(), self._stores.new_blob()
        succeeded = False
        try:
            async with self._one_at_a_time():  # of two uploads that do not fit together, one is taken
                space = await self._in_file_thread(self._reserve, upload, table, declared.size)
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

    async def receive_while_awaited(
        self,
        chunks: AsyncIterator[bytes],
        upload: Upload,
        caller: Caller,
        gone: Callable[[], Awaitable[None]],
        declared: DeclaredLength,
    ) -> StoredTable:
        """Receive a table until its caller no longer waits, when ``gone`` returns; see `receive`."""
        reading = asyncio.ensure_future(self.receive(chunks, lambda: upload, caller, None, declared))
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
        source: Buffer,
        drop: Sequence[str],
        types: Mapping[str, str],
        null_tokens: Sequence[str],
        caller: Caller,
    ) -> StoredTable:
        """Store a copy of the buffer's table without some fields, with other types or with more nulls.

        Raises
        ------
        NotFound
            The table was deleted.
        SourceError
            A value does not fit its new type.
        MemoryLimit
        TimeLimit
        StorageFull
        """
        table = self._stores.new_blob()
        try:
            async with self._one_at_a_time():
                draft = await self._in_file_thread(self._reserve_copy, table, source.byte_size)
            access = await self._in_file_thread(self._open_source, source)
            most = self._settings.max_table_bytes
            form = self._stores.lease.digest_form
            task = CopyTask(access, table, tuple(drop), dict(types), tuple(null_tokens), most, draft, form)
            return await self._write(run_copy, task, caller, None, rows_gone())
        except BaseException:
            await self._in_thread(self._stores.drop, [table.id])
            raise

    def discard(self, stored: StoredTable) -> None:
        """Delete a stored table, unless a row names it. Blocking."""
        self._stores.drop([stored.blob])

    def refuse_too_large(self, size: int) -> None:
        """Raise TooLarge if no upload may have this size in bytes."""
        if size > self._settings.max_buffer_bytes:
            raise TooLarge(
                f"a buffer holds at most {self._settings.max_buffer_bytes} bytes "
                "(ROWVEIL_MAX_BUFFER_BYTES); upload the table in parts"
            )

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
                self.refuse_too_large(size)
                if gathered.tell() >= CHUNK:
                    await writing  # one chunk is sealed while the next one arrives
                    if max(size, declared.size) > space.reserved:
                        async with self._one_at_a_time():
                            await self._in_file_thread(space.extend, size, declared.size)
                    writing = asyncio.ensure_future(self._in_file_thread(writer.write, gathered.getvalue()))
                    gathered = io.BytesIO()
            await writing
            await self._in_file_thread(writer.write, gathered.getvalue())
            await self._in_file_thread(writer.close)
        except BaseException as error:
            await asyncio.gather(writing, return_exceptions=True)
            await self._in_thread(self._stores.deletions.run, writer.discard)
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

    def _reserve_copy(self, table: BlobAccess, size: int) -> str:
        try:
            return reserve_draft(table, size)
        except OSError as error:
            raise storage_error(error) from error

    def _open_source(self, source: Buffer) -> BlobAccess:
        try:
            return self._stores.open_blob(blob_of_buffer(source))
        except BlobMissing:
            raise rows_gone() from None

    @asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        """Reserve space in one call at a time. Raises Unavailable if the one before does not end."""
        try:
            async with asyncio.timeout(_RESERVING_SECONDS):
                await self._reserving.acquire()
        except TimeoutError:
            raise Unavailable("another upload still reserves its disk space; try again later") from None
        try:
            yield
        finally:
            self._reserving.release()

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that opens no file in a thread."""
        return await run_to_its_end(self._threads.database, lambda: function(*args, **kwargs))

    async def _in_file_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that opens or writes files in a thread. Raises Unavailable."""
        return await run_to_its_end(self._threads.files, lambda: function(*args, **kwargs))
