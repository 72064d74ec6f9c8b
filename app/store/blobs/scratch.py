"""Sealed scratch files for tables that exceed a job's memory budget while it runs.

The file of a process never has a name, so that it disappears with the process, however that ends. Its content
is sealed by AES-256-GCM under a random key that exists only in this process: nothing but the job that wrote
the file can read it.

A unit stores rows for other processes of its job in files of the job's folder, one for each group of ranges
that the same sections read. Each has a random name and a separate key, which is sent only with the unit's
result (`SharedSpool`). The folder is deleted when the job ends. If the service dies before, its next start
deletes the folder.

A record holds rows of one partition as an Arrow IPC stream. The process keeps position and order of the
records, so that a record that was changed or moved does not open. The disk space of a partition that nobody
reads again is freed: a job that cuts its table level by level does not store all levels at once.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

import numpy as np
import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.engine.stop_request import check_stop
from app.store.blobs.disk_space import free, reserve
from app.store.blobs.sealed_files import TAG_BYTES
from app.store.crypto.sealing import SealBroken
from providers.tables.columns import is_text
from providers.tables.joining import in_one_chunk

_LEAST_RECORD = 2**15

_LARGE = 2**18
"""Least bytes of a table that is serialised twice: to count its bytes, and into memory that is used again."""

_MOST_RECORD = 2**22
"""Approximate bytes of the longest record: larger tables are written as several."""

Record = tuple[int, int, int]
"""Number, offset in the file and length in bytes."""


@dataclass(frozen=True, slots=True)
class SharedSpool:
    """Name and key of a file with some parts of a spool, written by one process and read by others."""

    name: str
    key: bytes = field(repr=False)
    parts: int
    """Parts of the whole spool."""
    records: dict[int, tuple[Record, ...]] = field(repr=False)
    """Records of each part in this file that has rows, in order."""
    rows: dict[int, int] = field(repr=False)
    """Number of rows of each of these parts."""


class _ReusedMemory:
    """Memory for one record after the other: to get new pages takes longer than to fill them."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def of(self, size: int) -> memoryview:
        """Return writable memory of a size in bytes, until the next call."""
        if len(self._bytes) < size:
            self._bytes = np.empty(size + size // 8, np.uint8)
        return self._bytes.data[:size]


class _RecordMemory:
    """Memory for the records of all files of a thread: a task may have a file for each unit of its job."""

    _of_thread = threading.local()

    def __init__(self) -> None:
        self.plain, self.sealed = _ReusedMemory(), _ReusedMemory()

    @classmethod
    def current(cls) -> _RecordMemory:
        """Return this thread's memory, which is freed with the last file that has used it."""
        reference: Callable[[], _RecordMemory | None] = getattr(cls._of_thread, "memory", lambda: None)
        memory = reference()
        if memory is None:
            memory = cls()
            cls._of_thread.memory = weakref.ref(memory)
        return memory


class SealedFile:
    """File of numbered records, sealed under one key."""

    def __init__(self, file: BinaryIO | None, key: bytes) -> None:
        """Take a file over; None: a subclass makes it when something is first written."""
        self._file = file
        self._key = key
        self._cipher = AESGCM(key)
        self._memory = _RecordMemory.current()
        self._records = 0
        self._end = 0

    def spool(self, parts: int, memory: int) -> SealedSpool:
        """Create a spool of ``parts`` partitions that buffers about ``memory`` bytes before writing."""
        return SealedSpool(lambda part: self, parts, memory)

    @property
    def key(self) -> bytes:
        """Key of the records."""
        return self._key

    def _handle(self) -> int:
        """Return the handle of the file."""
        assert self._file is not None
        return self._file.fileno()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, table: pa.Table) -> Record:
        """Seal and append a table. Return its number, offset and length. Raises TaskStopped."""
        check_stop()
        self._memory = _RecordMemory.current()
        plain = self._stream(table)
        sealed = self._memory.sealed.of(len(plain) + TAG_BYTES)
        self._cipher.encrypt_into(self._records.to_bytes(12, "big"), plain, None, sealed)
        record = self._records, self._end, len(sealed)
        written = 0
        while written < len(sealed):
            written += os.pwrite(self._handle(), sealed[written:], self._end + written)
        self._records += 1
        self._end += len(sealed)
        return record

    def _stream(self, table: pa.Table) -> memoryview:
        """Return the bytes of a table as an Arrow IPC stream, until the next call."""
        if table.nbytes < _LARGE:
            sink = pa.BufferOutputStream()
            _write_stream(table, sink)
            return memoryview(sink.getvalue()).cast("B")
        counted = pa.MockOutputStream()
        _write_stream(table, counted)
        stream = self._memory.plain.of(counted.size())
        with pa.FixedSizeBufferWriter(pa.py_buffer(stream)) as memory:
            _write_stream(table, memory)
        return stream

    def read(self, record: Record) -> pa.Table:
        """Read and decrypt a table. Raises SealBroken, TaskStopped."""
        check_stop()
        number, offset, length = record
        self._memory = _RecordMemory.current()
        sealed = self._memory.sealed.of(length)
        got = 0
        while got < length:
            count = os.preadv(self._handle(), [sealed[got:]], offset + got)
            if not count:
                break
            got += count
        stream = pa.allocate_buffer(length - TAG_BYTES)
        try:
            if got != length:
                raise InvalidTag
            plain = memoryview(stream).cast("B")
            self._cipher.decrypt_into(number.to_bytes(12, "big"), sealed, None, plain)
        except InvalidTag as error:
            raise SealBroken("a job's scratch file was changed") from error
        with pa.ipc.open_stream(stream) as reader:
            return reader.read_all()

    def free(self, records: Sequence[Record]) -> None:
        """Free the disk space of records that will not be read again."""
        if not records:
            return
        start = end = 0
        for _, offset, length in records:
            if offset != end:
                free(self._handle(), start, end - start)
                start = offset
            end = offset + length
        free(self._handle(), start, end - start)


class SealedScratch(SealedFile):
    """Unnamed scratch file of one process, made when something is first written: most jobs need none."""

    def __init__(self, folder: Path) -> None:
        super().__init__(None, secrets.token_bytes(32))
        self._folder = folder

    def _handle(self) -> int:
        if self._file is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - closed by `close`
            self._file = cast(BinaryIO, file)
        return super()._handle()

    def reserve(self, size: int) -> None:
        """Reserve ``size`` bytes of disk space for the time of the file. Raises OSError: ENOSPC."""
        reserve(self._handle(), size)


class SpoolWriter:
    """Files in which one run of a unit stores rows for other processes."""

    def __init__(
        self,
        folder: Path,
        prefix: str = "",
        files: int = 1,
        file_of_part: Callable[[int], int] = lambda part: 0,
    ) -> None:
        """Create the files. The name of each is the prefix, random digits, a point, and the file's number.

        Parameters
        ----------
        folder
            Folder of the job.
        prefix
            Beginning of the names.
        files
            Number of files.
        file_of_part
            Number of the file for each part of a spool.

        Raises FileNotFoundError if the job has ended and its folder is deleted.
        """
        self.name = f"{prefix}{secrets.token_hex(16)}"
        """Name of the files, up to the point."""
        self._file_of_part = file_of_part
        self._paths = [folder / f"{self.name}.{number}" for number in range(files)]
        self._files: list[SealedFile] = []
        try:
            for path in self._paths:
                handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
                file = os.fdopen(handle, "r+b", buffering=0)
                self._files.append(SealedFile(file, secrets.token_bytes(32)))
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def spool(self, parts: int, memory: int) -> SealedSpool:
        """Create a spool of ``parts`` partitions that buffers about ``memory`` bytes before writing."""
        return SealedSpool(lambda part: self._files[self._file_of_part(part)], parts, memory)

    def shared(self, spool: SealedSpool) -> list[SharedSpool]:
        """Write all buffered rows, and return for each file the data that other processes need to read it."""
        records, rows = spool.written(), spool.row_counts()
        shared = [
            SharedSpool(path.name, file.key, spool.parts, {}, {})
            for path, file in zip(self._paths, self._files, strict=True)
        ]
        for part, count in enumerate(rows):
            if count:
                of_file = shared[self._file_of_part(part)]
                of_file.records[part], of_file.rows[part] = records[part], count
        return shared

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files, and delete them if the run has failed: nobody will read them."""
        for file in self._files:
            file.close()
        if kind is not None:
            for path in self._paths[: len(self._files)]:
                path.unlink(missing_ok=True)


class _SharedFile(SealedFile):
    """File that another process has written."""

    def free(self, records: Sequence[Record]) -> None:
        """Leave the file as it is: another process may read it, or this task when it is repeated."""


class SpoolReader:
    """Reader of some files of a spool that another process has written."""

    def __init__(self, folder: Path, shared: Sequence[SharedSpool]) -> None:
        """``folder``: the job's folder on this machine; ``shared``: one or more files of one spool.

        Raises FileNotFoundError.
        """
        self._shared = shared
        self._files: list[_SharedFile] = []
        try:
            for each in shared:
                file = (folder / Path(each.name).name).open("rb", buffering=0)
                self._files.append(_SharedFile(cast(BinaryIO, file), each.key))
        except BaseException:
            self.close()
            raise

    def parts(self) -> SealedSpool:
        """Return the spool; parts in other files have no rows."""
        file_of_part = {part: file for each, file in self._pairs() for part in each.records}
        spool = SealedSpool(lambda part: file_of_part[part], self._shared[0].parts, 0)
        for each in self._shared:
            for part, records in each.records.items():
                spool.hold(part, records, each.rows[part])
        return spool

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _pairs(self) -> Iterator[tuple[SharedSpool, _SharedFile]]:
        return zip(self._shared, self._files, strict=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SealedSpool:
    """Rows scattered into partitions; each partition is read in the order in which its rows were added."""

    def __init__(self, file_of: Callable[[int], SealedFile], parts: int, memory: int) -> None:
        """``file_of``: the file of each partition that has rows."""
        self._file_of = file_of
        self._record_bytes = max(_LEAST_RECORD, memory // parts)
        self._waiting: list[list[pa.Table]] = [[] for _ in range(parts)]
        self._bytes = [0] * parts
        self._rows = [0] * parts
        self._records: list[list[Record]] = [[] for _ in range(parts)]

    @property
    def parts(self) -> int:
        """Number of partitions."""
        return len(self._rows)

    def add(self, part: int, table: pa.Table) -> None:
        """Append rows to a partition. The table should own its memory, since it is buffered for a while."""
        if not table.num_rows:
            return
        self._waiting[part].append(table)
        self._rows[part] += table.num_rows
        self._bytes[part] += table.nbytes
        if self._bytes[part] >= self._record_bytes:
            self._write(part)

    def rows(self, part: int) -> int:
        """Return the number of rows of the partition so far."""
        return self._rows[part]

    def read(self, part: int) -> Iterator[pa.Table]:
        """Yield the partition's rows as several tables. Raises SealBroken."""
        for record in self._records[part]:
            yield self._file_of(part).read(record)
        if self._waiting[part]:  # as one table: they may be many of few rows each
            yield pa.concat_tables(self._waiting[part])

    def clear(self, part: int) -> None:
        """Drop the partition's rows and free their disk space."""
        if self._records[part]:
            self._file_of(part).free(self._records[part])
        self._waiting[part].clear()
        self._records[part].clear()
        self._bytes[part] = self._rows[part] = 0

    def written(self) -> tuple[tuple[Record, ...], ...]:
        """Write all buffered rows. Return the records of each partition."""
        for part, waiting in enumerate(self._waiting):
            if waiting:
                self._write(part)
        return tuple(tuple(records) for records in self._records)

    def row_counts(self) -> tuple[int, ...]:
        """Return the number of rows of each partition."""
        return tuple(self._rows)

    def hold(self, part: int, records: Sequence[Record], rows: int) -> None:
        """Take over records of a partition that are in its file already."""
        self._records[part] = list(records)
        self._rows[part] = rows

    def _write(self, part: int) -> None:
        table = pa.concat_tables(self._waiting[part])
        self._waiting[part].clear()
        self._bytes[part] = 0
        rows = table.num_rows // -(-table.nbytes // _MOST_RECORD) + 1
        for first in range(0, table.num_rows, rows):
            self._records[part].append(self._file_of(part).write(_in_one_batch(table.slice(first, rows))))


def _in_one_batch(table: pa.Table) -> pa.Table:
    """Return the table in one batch, if Arrow can join its columns: tiny batches take longest to read."""
    if all(column.num_chunks < 2 or _is_plain(column.type) for column in table.columns):
        return in_one_chunk(table)
    return table


def _is_plain(kind: pa.DataType) -> bool:
    """Whether values of the type have no dictionary and no parts."""
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or is_text(kind)


def _write_stream(table: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
