"""Uploaded tables: taken in bounded memory, read by a worker, kept until they expire."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from app.engine.engine import Engine, Failure
from app.errors import NotFound, TooLarge, Unavailable, storage_error
from app.jobs.failures import error_of
from app.jobs.identity import new_id
from app.jobs.ingest import run_ingest
from app.jobs.stores import Stores
from app.jobs.tasks import IngestTask, OpenTable
from app.settings import Settings
from app.store import buffers, jobs
from app.store.blobs import CHUNK, BlobAccess, SealedWriter
from app.store.models import Buffer
from app.store.replicas import LeaseLost, moment

P = ParamSpec("P")
T = TypeVar("T")


_ALWAYS_ALLOWED = 2**30
_MOST_SWELLING = 200
"""A table of over a gibibyte may take at most so many times the bytes that it came as."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What an upload is said to be."""

    media_type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else the reader of that type is to be told."""


class Buffers:
    """The life of buffers."""

    def __init__(
        self, settings: Settings, stores: Stores, engine: Engine, threads: Executor, open_table: OpenTable
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._engine = engine
        self._threads = threads
        self._open_table = open_table

    async def create(
        self,
        chunks: AsyncIterator[bytes],
        described: Callable[[], Upload],
        gone: Callable[[], Awaitable[None]] | None = None,
    ) -> Buffer:
        """The buffer that the upload makes.

        Parameters
        ----------
        chunks : the bytes of the table's file
        described : what they are, asked when all have come
        gone : returns when nobody waits for the buffer any more

        Raises
        ------
        TooLarge, SourceError (it is not a table of that type), MemoryLimit, TimeLimit, StorageFull
        """
        upload, table = self._stores.new_blob(), self._stores.new_blob()
        made = False
        try:
            size = await self._store(chunks, upload)
            said = described()
            most = min(self._settings.max_table_bytes, max(_ALWAYS_ALLOWED, _MOST_SWELLING * size))
            task = IngestTask(upload, self._open_table, said.media_type, said.options, table, most)
            buffer = await self._ingest(task, gone)
            made = True
        finally:
            await self._in_thread(self._stores.drop, [upload.id] if made else [upload.id, table.id])
        return buffer

    async def get(self, buffer_id: str) -> Buffer:
        """The buffer. Raises NotFound, also when its time is over."""
        return await self._in_thread(self._find, buffer_id)

    async def delete(self, buffer_id: str) -> None:
        """Remove it. A job that was made from it keeps what it needs. Raises NotFound."""
        await self._in_thread(self._delete, buffer_id)

    async def _store(self, chunks: AsyncIterator[bytes], upload: BlobAccess) -> int:
        """Write the upload, and say how many bytes it is."""
        writer = await self._in_thread(SealedWriter, upload)
        try:
            gathered = io.BytesIO()
            async for chunk in chunks:
                gathered.write(chunk)
                if writer.plain_bytes + gathered.tell() > self._settings.max_buffer_bytes:
                    raise TooLarge(
                        f"a buffer holds at most {self._settings.max_buffer_bytes} bytes "
                        "(ROWVEIL_MAX_BUFFER_BYTES); upload the table in parts"
                    )
                if gathered.tell() >= CHUNK:
                    await self._in_thread(writer.write, gathered.getvalue())
                    gathered = io.BytesIO()
            await self._in_thread(writer.write, gathered.getvalue())
            await self._in_thread(writer.close)
        except OSError as error:
            writer.discard()
            raise storage_error(error) from error
        except BaseException:
            writer.discard()
            raise
        return writer.plain_bytes

    async def _ingest(self, task: IngestTask, gone: Callable[[], Awaitable[None]] | None) -> Buffer:
        running = self._engine.run(task.upload.id, run_ingest, task)
        left = asyncio.ensure_future(gone()) if gone is not None else None
        try:
            await asyncio.wait(
                [running] if left is None else [running, left], return_when=asyncio.FIRST_COMPLETED
            )
            if not running.done():
                raise Unavailable("the caller has gone, and the upload with it")
        finally:
            if left is not None:
                left.cancel()
            if not running.done():
                await self._engine.cancel(task.upload.id)
        outcome = running.result()
        if isinstance(outcome, Failure):
            raise error_of(outcome)
        buffer = Buffer(
            id=new_id(),
            digest=outcome["digest"],
            fields=outcome["fields"],
            row_count=outcome["rows"],
            byte_size=outcome["byte_size"],
            blob=task.table.id,
        )
        return await self._in_thread(self._insert, buffer)

    def _insert(self, buffer: Buffer) -> Buffer:
        try:
            with self._stores.database.write() as session:
                self._stores.begin_to_name(session, [buffer.blob])
                buffer.created_at = moment(session)
                buffer.expires_at = buffer.created_at + timedelta(seconds=self._settings.buffer_ttl)
                session.add(buffer)
                jobs.audit(session, "buffer.create", buffer.id, buffer.created_at)
        except LeaseLost as error:
            raise Unavailable(str(error)) from None
        self._stores.named([buffer.blob])
        return buffer

    def _find(self, buffer_id: str) -> Buffer:
        with self._stores.database.read() as session:
            buffer = buffers.find(session, buffer_id, moment(session))
        if buffer is None:
            raise NotFound(f"there is no buffer '{buffer_id}'; a buffer goes at its expiry")
        return buffer

    def _delete(self, buffer_id: str) -> None:
        with self._stores.database.write() as session:
            unnamed = buffers.delete(session, buffer_id)
            if unnamed is None:
                raise NotFound(f"there is no buffer '{buffer_id}'; a buffer goes at its expiry")
            jobs.audit(session, "buffer.delete", buffer_id, moment(session))
        self._stores.delete_blobs(unnamed)

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns; a caller that is cancelled meanwhile still waits for its end.

        Else a file might be closed under a thread that writes to it.
        """
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise
