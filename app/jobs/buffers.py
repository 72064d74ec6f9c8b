"""Uploaded tables: taken in bounded memory, read by a worker, kept until they expire."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from datetime import timedelta
from typing import ParamSpec, TypeVar

import pyarrow as pa

from app.engine.engine import Engine, Failure
from app.errors import NotFound, TooLarge
from app.jobs.failures import error_of
from app.jobs.identity import new_id
from app.jobs.run import run_ingest
from app.jobs.stores import Stores, now
from app.jobs.tasks import IngestTask, ReadTable
from app.settings import Settings
from app.store import buffers, jobs
from app.store.blobs import CHUNK, BlobAccess, SealedWriter
from app.store.models import Buffer
from app.store.tables import read_table

P = ParamSpec("P")
T = TypeVar("T")


class Buffers:
    """The life of buffers."""

    def __init__(
        self, settings: Settings, stores: Stores, engine: Engine, threads: Executor, read: ReadTable
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._engine = engine
        self._threads = threads
        self._read = read

    async def create(self, chunks: AsyncIterator[bytes], media_type: str) -> Buffer:
        """The buffer that the upload makes.

        Raises TooLarge, SourceError (it is not a table of that type), MemoryLimit, TimeLimit.
        """
        upload, table = self._stores.blobs.allocate(), self._stores.blobs.allocate()
        made = False
        try:
            await self._store(chunks, upload)
            buffer = await self._ingest(IngestTask(upload, media_type, table, self._read))
            made = True
        finally:
            await self._in_thread(self._stores.delete_blobs, [upload.id] if made else [upload.id, table.id])
        return buffer

    async def get(self, buffer_id: str) -> Buffer:
        """The buffer. Raises NotFound, also when its time is over."""
        return await self._in_thread(self._find, buffer_id)

    async def table(self, buffer_id: str) -> pa.Table:
        """Its rows. Raises NotFound."""
        buffer = await self.get(buffer_id)
        access = await self._in_thread(self._stores.blobs.access, buffer.blob)
        return await self._in_thread(read_table, access)

    async def delete(self, buffer_id: str) -> None:
        """Remove it. A job that was made from it keeps what it needs. Raises NotFound."""
        await self._in_thread(self._delete, buffer_id)

    async def _store(self, chunks: AsyncIterator[bytes], upload: BlobAccess) -> None:
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
        except BaseException:
            writer.discard()
            raise

    async def _ingest(self, task: IngestTask) -> Buffer:
        running = self._engine.run(task.upload.id, run_ingest, task)
        try:
            outcome = await asyncio.shield(running)
        except asyncio.CancelledError:
            await self._engine.cancel(task.upload.id)
            raise
        if isinstance(outcome, Failure):
            raise error_of(outcome)
        created = now()
        buffer = Buffer(
            id=new_id(),
            digest=outcome["digest"],
            fields=outcome["fields"],
            row_count=outcome["rows"],
            byte_size=outcome["byte_size"],
            blob=task.table.id,
            created_at=created,
            expires_at=created + timedelta(seconds=self._settings.buffer_ttl),
        )
        return await self._in_thread(self._insert, buffer)

    def _insert(self, buffer: Buffer) -> Buffer:
        with self._stores.database.write() as session:
            session.add(buffer)
            jobs.audit(session, "buffer.create", buffer.id, buffer.created_at)
        return buffer

    def _find(self, buffer_id: str) -> Buffer:
        with self._stores.database.read() as session:
            buffer = buffers.find(session, buffer_id, now())
        if buffer is None:
            raise NotFound(f"there is no buffer '{buffer_id}'; a buffer goes at its expiry")
        return buffer

    def _delete(self, buffer_id: str) -> None:
        with self._stores.database.write() as session:
            unnamed = buffers.delete(session, buffer_id)
            if unnamed is None:
                raise NotFound(f"there is no buffer '{buffer_id}'; a buffer goes at its expiry")
            jobs.audit(session, "buffer.delete", buffer_id, now())
        self._stores.delete_blobs(unnamed)

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))
