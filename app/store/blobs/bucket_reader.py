"""Positioned reads of an object, as of a file: in pieces, of which the next one is fetched in advance."""

import errno
from concurrent.futures import Future, ThreadPoolExecutor

from app.store.blobs.bucket import Bucket

_PIECE = 4 << 20
"""Bytes of a request of a reader that reads one piece after another."""


class ObjectReader:
    """Reads bytes of one object.

    A read that begins where the one before ended gets 4 MiB, and the next 4 MiB are fetched meanwhile. Any
    other read fetches only the requested bytes. At most two pieces are in memory.
    """

    def __init__(self, bucket: Bucket, key: str) -> None:
        """Raises FileNotFoundError, BucketUnusable."""
        size = bucket.size(key)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, f"{bucket} has no object {key}")
        self.size = size
        """Bytes of the object."""
        self._bucket = bucket
        self._key = key
        self._start = 0
        self._piece = memoryview(b"")
        self._next = -1
        """Position after the last read; -1: there was none."""
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: tuple[int, Future[bytes]] | None = None
        """Position of the piece that is being fetched in advance."""

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill the target from a position; return the bytes read, fewer at the end of the object.

        Raises FileNotFoundError (it was deleted), BucketUnusable.
        """
        filled = 0
        while filled < len(target) and position + filled < self.size:
            filled += self._read_some(target[filled:], position + filled)
        return filled

    def close(self) -> None:
        """Wait for a piece that is being fetched, and drop it."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
            self._thread = None

    def _read_some(self, target: memoryview, position: int) -> int:
        if not self._start <= position < self._start + len(self._piece):
            self._load(position, len(target))
        offset = position - self._start
        count = min(len(target), len(self._piece) - offset)
        target[:count] = self._piece[offset : offset + count]
        self._next = position + count
        return count

    def _load(self, position: int, wanted: int) -> None:
        """Get the piece that begins at the position."""
        sequential = position == self._next
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == position:
            piece = ahead[1].result()
        else:
            length = min(self.size - position, max(wanted, _PIECE) if sequential else wanted)
            piece = self._bucket.read(self._key, position, length)
        if not piece:
            raise FileNotFoundError(errno.ENOENT, "the object has become shorter")
        self._start, self._piece = position, memoryview(piece)
        after = position + len(piece)
        if sequential and after < self.size:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "rowveil-ahead")
            length = min(self.size - after, _PIECE)
            self._ahead = after, self._thread.submit(self._bucket.read, self._key, after, length)
