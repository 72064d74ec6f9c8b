"""What a format is read from: bytes in memory, or a binary file that can seek."""

import io
import threading
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

Batches = tuple[pa.Schema, Iterator[pa.RecordBatch]]
"""A table that is read batch by batch: its schema, and its rows, once."""


class Bounded:
    """A file as Arrow reads it: nobody can ask it for more than there is.

    A length that a damaged file states is taken for a read of so many bytes, and the buffer for
    them would be made first.
    """

    def __init__(self, data: bytes | BinaryIO) -> None:
        self._file: BinaryIO = io.BytesIO(data) if isinstance(data, bytes) else data
        self._size = self._file.seek(0, io.SEEK_END)
        self._at = self._file.seek(0)
        self._lock = threading.Lock()  # a CSV is read ahead by another thread
        self.closed = False

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self._size

    def readable(self) -> bool:
        """Always."""
        return True

    def writable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """The place."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        with self._lock:
            self._at = self._file.seek(max(0, base + offset))
        return self._at

    def read(self, count: int | None = -1) -> bytes:
        """So many bytes, or what is left; nothing once it is closed."""
        with self._lock:
            if self.closed:
                return b""
            left = max(0, self._size - self._at)
            data = self._file.read(left if count is None or count < 0 else min(count, left))
            self._at += len(data)
            return data

    def close(self) -> None:
        """Let nobody read on; the file stays open, for it is another's."""
        with self._lock:
            self.closed = True
