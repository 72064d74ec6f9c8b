"""Uploaded tables: taken in bounded memory, read by a worker, kept until they expire."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from app.callers import Caller
from app.engine.engine import Engine, Failure
from app.errors import Forbidden, NotFound, StorageFull, TooLarge, Unavailable
from app.jobs.failures import error_of
from app.jobs.identity import new_id
from app.jobs.ingest import NO_ROOM, run_ingest
from app.jobs.stores import Stores, now
from app.jobs.tasks import IngestTask, OpenTable
from app.settings import Settings
from app.store import buffers
from app.store.blobs import CHUNK, BlobAccess, SealedWriter
from app.store.models import Buffer

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
        gone: Callable[[], Awaitable[None]] | None,
        caller: Caller,
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
        upload, table = self._stores.blobs.allocate(), self._stores.blobs.allocate()
        made = False
        try:
            size = await self._store(chunks, upload)
            said = described()
            most = min(self._settings.max_table_bytes, max(_ALWAYS_ALLOWED, _MOST_SWELLING * size))
            task = IngestTask(upload, self._open_table, said.media_type, said.options, table, most)
            buffer = await self._ingest(task, gone, caller)
            made = True
        finally:
            await self._in_thread(self._stores.delete_blobs, [upload.id] if made else [upload.id, table.id])
        return buffer

    async def get(self, buffer_id: str, caller: Caller) -> Buffer:
        """The buffer. Raises NotFound, also when its time is over, or it is another's."""
        return await self._in_thread(self._find, buffer_id, caller)

    async def delete(self, buffer_id: str, caller: Caller) -> None:
        """Remove it. A job that was made from it keeps what it needs. Raises NotFound, Forbidden."""
        await self._in_thread(self._delete, buffer_id, caller)

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
            if error.errno not in NO_ROOM:
                raise
            raise StorageFull("the storage is full; delete buffers and jobs, or try again later") from None
        except BaseException:
            writer.discard()
            raise
        return writer.plain_bytes

    async def _ingest(
        self, task: IngestTask, gone: Callable[[], Awaitable[None]] | None, caller: Caller
    ) -> Buffer:
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
        created = now()
        buffer = Buffer(
            id=new_id(),
            owner=caller.owner,
            project=caller.project,
            digest=outcome["digest"],
            fields=outcome["fields"],
            row_count=outcome["rows"],
            byte_size=outcome["byte_size"],
            blob=task.table.id,
            created_at=created,
            expires_at=created + timedelta(seconds=self._settings.buffer_ttl),
        )
        return await self._in_thread(self._insert, buffer, caller)

    def _insert(self, buffer: Buffer, caller: Caller) -> Buffer:
        with self._stores.database.write() as session:
            session.add(buffer)
            self._stores.audit.append(session, caller, "buffer.create", buffer.id, buffer.created_at)
        return buffer

    def _find(self, buffer_id: str, caller: Caller) -> Buffer:
        with self._stores.database.read() as session:
            buffer = buffers.find(session, buffer_id, now(), caller)
        if buffer is None:
            raise NotFound(f"there is no buffer '{buffer_id}'; a buffer goes at its expiry")
        return buffer

    def _delete(self, buffer_id: str, caller: Caller) -> None:
        buffer = self._find(buffer_id, caller)
        if not caller.may_change(buffer.owner):
            raise Forbidden("the buffer is of your project, but another's: only who made it may delete it")
        with self._stores.database.write() as session:
            unnamed = buffers.delete(session, buffer_id)
            if unnamed is None:
                raise NotFound(f"there is no buffer '{buffer_id}'; a buffer goes at its expiry")
            self._stores.audit.append(session, caller, "buffer.delete", buffer_id, now())
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
