"""Tables put aside while a job runs: parts of what does not fit its memory, sealed, in one file.

The file has no name from the start, so that it goes with the process, however that ends. What is
in it is sealed by AES-256-GCM under a key that is drawn for it, lives in this process alone, and
is nowhere kept: nobody reads the file but the job that wrote it.

What a unit of a job puts aside for other processes of the job is a `Shelf`: a file of a random name in the
job's own folder, with a key of its own as well, which travels with the unit's result alone. The folder
goes when the job ends; the next start of the service clears away what a dead one has left.

A record is some rows of one part as an Arrow IPC stream of their own; where records lie, and in
which order, this process remembers, so that one that was changed or moved does not open.
"""

import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.store.seal import SealBroken

_LEAST_RECORD = 2**15

Record = tuple[int, int, int]
"""Number, place and length."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """What one process put aside for others: where it lies, and what opens it."""

    path: str
    key: bytes = field(repr=False)
    records: tuple[tuple[Record, ...], ...] = field(repr=False)
    """Those of each part, in order."""
    rows: tuple[int, ...]
    """Rows of each part."""


class SealedFile:
    """Records sealed under one key, each with a number of its own."""

    def __init__(self, file: BinaryIO, key: bytes) -> None:
        self._file = file
        self._key = key
        self._cipher = AESGCM(key)
        self._records = 0
        self._end = 0

    def spool(self, parts: int, memory: int) -> "SealedSpool":
        """Room for so many parts, of which at most about ``memory`` bytes wait to be written."""
        return SealedSpool(self, parts, memory)

    def close(self) -> None:
        """Let go of the file, and with it of all that is in it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, plain: pa.Buffer) -> Record:
        """Seal one record; its number, place and length."""
        sealed = memoryview(
            self._cipher.encrypt(self._records.to_bytes(12, "big"), memoryview(plain).cast("B"), None)
        )
        record = self._records, self._end, len(sealed)
        written = 0
        while written < len(sealed):
            written += os.pwrite(self._file.fileno(), sealed[written:], self._end + written)
        self._records += 1
        self._end += len(sealed)
        return record

    def read(self, record: Record) -> bytes:
        """The record's plain bytes. Raises SealBroken."""
        number, place, length = record
        sealed = bytearray(length)
        got = 0
        while got < length:
            count = os.preadv(self._file.fileno(), [memoryview(sealed)[got:]], place + got)
            if not count:
                break
            got += count
        try:
            return self._cipher.decrypt(number.to_bytes(12, "big"), sealed, None)
        except InvalidTag as error:
            raise SealBroken("what a job had put aside was changed") from error


class SealedScratch(SealedFile):
    """The nameless file of one process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by `close`
        super().__init__(cast(BinaryIO, file), secrets.token_bytes(32))


class ShelfWriter(SealedFile):
    """The file of one run of a unit, however often that is run."""

    def __init__(self, folder: Path) -> None:
        """Raises FileNotFoundError where the job, and its folder with it, is no more."""
        self._path = folder / secrets.token_hex(16)
        handle = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        super().__init__(os.fdopen(handle, "r+b", buffering=0), secrets.token_bytes(32))

    def shelf(self, spool: "SealedSpool") -> Shelf:
        """What others need to read the spool, all of which is written now."""
        return Shelf(str(self._path), self._key, spool.written(), spool.row_counts())


class ShelfReader(SealedFile):
    """A shelf, read by another process than the one that put it up."""

    def __init__(self, shelf: Shelf) -> None:
        super().__init__(Path(shelf.path).open("rb", buffering=0), shelf.key)  # noqa: SIM115 - `close` does
        self._shelf = shelf

    def parts(self) -> "SealedSpool":
        """The parts as they were written."""
        spool = SealedSpool(self, len(self._shelf.rows), 0)
        spool.hold(self._shelf.records, self._shelf.rows)
        return spool


class SealedSpool:
    """Tables in parts; each part comes back in the order in which its rows were added."""

    def __init__(self, scratch: SealedFile, parts: int, memory: int) -> None:
        self._scratch = scratch
        self._record_bytes = max(_LEAST_RECORD, memory // parts)
        self._waiting: list[list[pa.Table]] = [[] for _ in range(parts)]
        self._bytes = [0] * parts
        self._rows = [0] * parts
        self._records: list[list[Record]] = [[] for _ in range(parts)]

    @property
    def parts(self) -> int:
        """How many there are."""
        return len(self._rows)

    def add(self, part: int, table: pa.Table) -> None:
        """Rows for the end of a part. The table should own its memory: it is kept for a while."""
        if not table.num_rows:
            return
        self._waiting[part].append(table)
        self._rows[part] += table.num_rows
        self._bytes[part] += table.nbytes
        if self._bytes[part] >= self._record_bytes:
            self._write(part)

    def rows(self, part: int) -> int:
        """Rows of the part so far."""
        return self._rows[part]

    def read(self, part: int) -> Iterator[pa.Table]:
        """The part's rows, piece by piece. Raises SealBroken."""
        for record in self._records[part]:
            with pa.ipc.open_stream(self._scratch.read(record)) as stream:
                yield stream.read_all()
        yield from self._waiting[part]

    def clear(self, part: int) -> None:
        """Forget the part."""
        self._waiting[part].clear()
        self._records[part].clear()
        self._bytes[part] = self._rows[part] = 0

    def written(self) -> tuple[tuple[Record, ...], ...]:
        """The records of each part, nothing waiting any more."""
        for part, waiting in enumerate(self._waiting):
            if waiting:
                self._write(part)
        return tuple(tuple(records) for records in self._records)

    def row_counts(self) -> tuple[int, ...]:
        """Rows of each part."""
        return tuple(self._rows)

    def hold(self, records: Sequence[Sequence[Record]], rows: Sequence[int]) -> None:
        """Take over what lies in the file already."""
        self._records = [list(of_part) for of_part in records]
        self._rows = list(rows)

    def _write(self, part: int) -> None:
        tables = pa.concat_tables(self._waiting[part])
        self._waiting[part].clear()
        self._bytes[part] = 0
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, tables.schema) as writer:
            writer.write_table(tables)
        del tables
        self._records[part].append(self._scratch.write(sink.getvalue()))
