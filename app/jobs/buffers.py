"""Tables that come as files: taken in bounded memory, read by a worker; an upload is kept for its time."""

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
from app.jobs.failures import error_of
from app.jobs.idempotency import Idempotency, MadeBefore
from app.jobs.identity import new_id
from app.jobs.ingest import run_ingest
from app.jobs.limits import Limits
from app.jobs.stores import Stores
from app.jobs.tables import StoredTable
from app.jobs.tasks import IngestTask, OpenTable
from app.jobs.terms import Terms
from app.settings import Settings
from app.store import buffers, callers, idempotency
from app.store.blobs import CHUNK, BlobAccess, SealedWriter
from app.store.models import Buffer
from app.store.replicas import LeaseLost, moment
from app.telemetry.metrics import Metrics

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
        self,
        settings: Settings,
        stores: Stores,
        engine: Engine,
        threads: Executor,
        open_table: OpenTable,
        limits: Limits,
        idempotency: Idempotency,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._engine = engine
        self._threads = threads
        self._open_table = open_table
        self._limits = limits
        self._idempotency = idempotency
        self._metrics = metrics

    async def create(
        self,
        chunks: AsyncIterator[bytes],
        described: Callable[[], Upload],
        gone: Callable[[], Awaitable[None]] | None,
        terms: Terms,
        caller: Caller,
    ) -> Buffer:
        """The buffer that the upload makes; the one made before where the idempotency key says so.

        Parameters
        ----------
        chunks : the bytes of the table's file
        described : what they are, asked when all have come
        gone : returns when nobody waits for the buffer any more
        terms : whose it is, and under which key it is made

        Raises
        ------
        TooLarge, SourceError (it is not a table of that type), MemoryLimit, TimeLimit, StorageFull,
        LimitReached, IdempotencyKeyReused
        """
        await self._in_thread(self._admit, caller)
        hashed = _Hashed(chunks)
        if await self._in_thread(self._is_made, terms, caller):
            return await self._made_again(hashed, described, terms, caller)
        stored = await self._read(hashed.chunks() if terms.idempotency_key else chunks, described, gone)
        try:
            buffer = await self._in_thread(self._insert, stored, hashed.terms(terms, described()), caller)
        except BaseException:
            await self._in_thread(self.let_go, stored)
            raise
        if buffer.blob != stored.blob:
            await self._in_thread(self.let_go, stored)
        return buffer

    async def _made_again(
        self, hashed: "_Hashed", described: Callable[[], Upload], terms: Terms, caller: Caller
    ) -> Buffer:
        """What was made under the key, if this is the upload that made it."""
        size = 0
        async for chunk in hashed.chunks():
            size += len(chunk)
            self._refuse_too_large(size)
        terms = hashed.terms(terms, described())
        made_before = await self._in_thread(self._made_before, terms, caller)
        if made_before is None:
            raise Unavailable("the buffer that was made under this Idempotency-Key has gone this moment")
        return made_before

    async def read(
        self, chunks: AsyncIterator[bytes], upload: Upload, gone: Callable[[], Awaitable[None]]
    ) -> StoredTable:
        """The table that the chunks make, under no name yet: pass it on, and then let it go.

        Raises as `create`, and what the chunks raise.
        """
        reading = asyncio.ensure_future(self._read(chunks, lambda: upload))
        left = asyncio.ensure_future(gone())
        try:
            await asyncio.wait([reading, left], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise Unavailable("the caller has gone, and the table with it")
        finally:
            left.cancel()
            if not reading.done():
                reading.cancel()
                await asyncio.wait([reading])
        return reading.result()

    def let_go(self, stored: StoredTable) -> None:
        """Delete what was read, unless a job's row names it by now. Blocking."""
        self._stores.drop([stored.blob])

    async def get(self, buffer_id: str, caller: Caller) -> Buffer:
        """The buffer. Raises NotFound, also when its time is over, or it is another's."""
        return await self._in_thread(self._find, buffer_id, caller)

    async def delete(self, buffer_id: str, caller: Caller) -> None:
        """Remove it. A job that was made from it keeps what it needs. Raises NotFound, Forbidden."""
        await self._in_thread(self._delete, buffer_id, caller)

    async def _read(
        self,
        chunks: AsyncIterator[bytes],
        described: Callable[[], Upload],
        gone: Callable[[], Awaitable[None]] | None = None,
    ) -> StoredTable:
        upload, table = self._stores.new_blob(), self._stores.new_blob()
        made = False
        try:
            size = await self._store(chunks, upload)
            said = described()
            most = min(self._settings.max_table_bytes, max(_ALWAYS_ALLOWED, _MOST_SWELLING * size))
            task = IngestTask(upload, self._open_table, said.media_type, said.options, table, most)
            stored = await self._ingest(task, gone)
            made = True
        finally:
            await self._in_thread(self._stores.drop, [upload.id] if made else [upload.id, table.id])
        return stored

    async def _store(self, chunks: AsyncIterator[bytes], upload: BlobAccess) -> int:
        """Write the upload, and say how many bytes it is."""
        # it goes as soon as it has been read
        writer = await self._in_thread(SealedWriter, upload, lasting=False)
        writing = asyncio.ensure_future(asyncio.sleep(0, 0))
        size = 0
        try:
            gathered = io.BytesIO()
            async for chunk in chunks:
                gathered.write(chunk)
                size += len(chunk)
                self._refuse_too_large(size)
                if gathered.tell() >= CHUNK:
                    await writing  # one piece is sealed while the next one comes
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
                raise Unavailable("the caller has gone, and the upload with it")
        finally:
            if left is not None:
                left.cancel()
            if not running.done():
                await self._engine.cancel(task.upload.id)
        outcome = running.result()
        if isinstance(outcome, Failure):
            raise error_of(outcome)
        return StoredTable(
            blob=task.table.id,
            digest=outcome["digest"],
            fields=outcome["fields"],
            rows=outcome["rows"],
            byte_size=outcome["byte_size"],
        )

    def _admit(self, caller: Caller) -> None:
        """Refuse what cannot be kept before any of it is read; it is looked at again when it is."""
        with self._stores.database.read() as session:
            self._limits.admit_buffer(session, caller.owner, 1, moment(session))

    def _is_made(self, terms: Terms, caller: Caller) -> bool:
        with self._stores.database.read() as session:
            return self._idempotency.is_known(session, caller.owner, terms, moment(session))

    def _made_before(self, terms: Terms, caller: Caller) -> Buffer | None:
        with self._stores.database.read() as session:
            now = moment(session)
            buffer_id = self._idempotency.resource(session, caller.owner, terms, now)
            return buffers.find(session, buffer_id, now) if buffer_id is not None else None

    def _insert(self, stored: StoredTable, terms: Terms, caller: Caller) -> Buffer:
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
        try:
            with self._stores.database.write() as session:
                created = buffer.created_at = moment(session)
                buffer.expires_at = created + timedelta(seconds=self._settings.buffer_ttl)
                callers.lock(session, buffer.owner, created)
                if self._idempotency.is_known(session, buffer.owner, terms, created):
                    raise MadeBefore
                self._limits.admit_buffer(session, buffer.owner, buffer.byte_size, created)
                self._stores.begin_to_name(session, [buffer.blob])
                session.add(buffer)
                self._idempotency.keep(session, buffer.owner, terms, buffer.id, created)
                self._stores.audit.append(session, caller, "buffer.create", buffer.id, created)
        except MadeBefore:  # by a call at the same time
            known = self._made_before(terms, caller)
            assert known is not None  # unless it was deleted within the moment
            return known
        except LeaseLost as error:
            raise Unavailable(str(error)) from None
        self._stores.named([buffer.blob])
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
            idempotency.forget(session, [buffer_id])
            self._stores.audit.append(session, caller, "buffer.delete", buffer_id, moment(session))
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


class _Hashed:
    """The bytes of an upload as they pass by, for the fingerprint of its request."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._hash = hashlib.sha256()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The same bytes."""
        async for chunk in self._chunks:
            self._hash.update(chunk)
            yield chunk

    def terms(self, terms: Terms, said: Upload) -> Terms:
        """The terms with the fingerprint of what came: the call, the table's bytes and what they are."""
        if terms.idempotency_key is None:
            return terms
        parts = (terms.request_fingerprint or "", self._hash.hexdigest(), said.media_type)
        options = orjson.dumps(dict(said.options), option=orjson.OPT_SORT_KEYS).decode()
        return replace(terms, request_fingerprint="\0".join((*parts, options)))
