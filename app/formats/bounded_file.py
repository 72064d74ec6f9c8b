"""Seekable file with bounded reads, the input of all formats: bytes in memory or a binary file."""

import io
import threading
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Batches: TypeAlias = "tuple[pa.Schema, Iterator[pa.RecordBatch]]"
"""Table that is read batch by batch: its schema, and an iterator of its rows."""


class BoundedFile:
    """File for Arrow that never reads more bytes than it has.

    For a length stated by a damaged file, Arrow would otherwise allocate a buffer of that length first.
    """

    def __init__(self, data: bytes | BinaryIO) -> None:
        self._file: BinaryIO = io.BytesIO(data) if isinstance(data, bytes) else data
        self._size = self._file.seek(0, io.SEEK_END)
        self._at = self._file.seek(0)
        self._lock = threading.Lock()  # another thread reads a CSV ahead
        self.closed = False

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._size

    def readable(self) -> bool:
        """True."""
        return True

    def writable(self) -> bool:
        """False."""
        return False

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Return the current position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        with self._lock:
            self._at = self._file.seek(max(0, base + offset))
        return self._at

    def read(self, count: int | None = -1) -> bytes:
        """Read up to `count` bytes; nothing once it is closed."""
        with self._lock:
            if self.closed:
                return b""
            left = max(0, self._size - self._at)
            data = self._file.read(left if count is None or count < 0 else min(count, left))
            self._at += len(data)
            return data

    def read_buffer(self, count: int) -> npt.NDArray[np.uint8]:
        """Read up to ``count`` bytes like `read`.

        Arrow prefers this method, and keeps the memory as the memory of a batch.

        numpy requests huge pages for large memory, whose first use costs a fifth of that of a bytes object's.
        """
        with self._lock:
            if self.closed:
                return np.empty(0, np.uint8)
            data = np.empty(max(0, min(count, self._size - self._at)), np.uint8)
            filled = 0
            while filled < len(data) and (got := self._file.readinto(data.data[filled:])):  # type: ignore[attr-defined]
                filled += got
            self._at += filled
            return data[:filled]

    def close(self) -> None:
        """Stop reads. The underlying file stays open, because it belongs to the caller."""
        with self._lock:
            self.closed = True
