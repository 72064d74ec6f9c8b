"""Tables put aside while a job runs: parts of what does not fit its memory, sealed, in one nameless file.

The file has no name from the start, so that it goes with the process, however that ends. What is
in it is sealed by AES-256-GCM under a key that is drawn for it, lives in this process alone, and
is nowhere kept: nobody reads the file but the job that wrote it.

A record is some rows of one part as an Arrow IPC stream of their own; where records lie, and in
which order, this process remembers, so that one that was changed or moved does not open.
"""

import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.store.seal import SealBroken

_LEAST_RECORD = 2**15


class SealedScratch:
    """The file of one job."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by `close`
        self._cipher = AESGCM(secrets.token_bytes(32))
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

    def write(self, plain: pa.Buffer) -> tuple[int, int, int]:
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

    def read(self, record: tuple[int, int, int]) -> bytes:
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


class SealedSpool:
    """Tables in parts; each part comes back in the order in which its rows were added."""

    def __init__(self, scratch: SealedScratch, parts: int, memory: int) -> None:
        self._scratch = scratch
        self._record_bytes = max(_LEAST_RECORD, memory // parts)
        self._waiting: list[list[pa.Table]] = [[] for _ in range(parts)]
        self._bytes = [0] * parts
        self._rows = [0] * parts
        self._records: list[list[tuple[int, int, int]]] = [[] for _ in range(parts)]

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

    def _write(self, part: int) -> None:
        tables = pa.concat_tables(self._waiting[part])
        self._waiting[part].clear()
        self._bytes[part] = 0
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, tables.schema) as writer:
            writer.write_table(tables)
        del tables
        self._records[part].append(self._scratch.write(sink.getvalue()))
