"""Lock of an embedded database's write transactions, among threads and among API processes.

SQLite has such a lock as well, but waits for it by sleeping, longer each time. Transactions of the service
wait for this one first, and find SQLite's free.
"""

import fcntl
import os
import threading
from pathlib import Path
from types import TracebackType


class WriteLock:
    """Lock that one thread of one process holds. The end of a process releases it."""

    def __init__(self, file: Path | None) -> None:
        """Open nothing yet. ``file``: what processes lock; None if there is only this one."""
        self._file = file
        self._descriptor: int | None = None
        self._threads = threading.Lock()

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock; return whether it was free, if ``blocking`` is false. Raises OSError."""
        if not self._threads.acquire(blocking=blocking):
            return False
        if self._file is None:
            return True
        try:
            fcntl.flock(self._opened(self._file), fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
        except BlockingIOError:
            self._threads.release()
            return False
        except BaseException:
            self._threads.release()
            raise
        return True

    def release(self) -> None:
        """Release the lock, in any thread."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._threads.release()

    def close(self) -> None:
        """Close the file; nobody holds the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _opened(self, file: Path) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        return self._descriptor
