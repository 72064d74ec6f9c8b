"""Disk space of open files: reserved before the bytes exist, and freed before the file ends.

The file system is the only ledger that all replicas and workers of a shared folder have in common. It counts
each promised byte once, written or not, and an unnamed file gives its bytes back however its process ends.
"""

import ctypes
import errno
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h: the file does not appear longer
_PUNCH_HOLE = 2  # FALLOC_FL_PUNCH_HOLE, only together with it

_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS)

SPARE_BYTES = 64 << 20
"""Bytes that a reservation leaves free, for the database and for files whose size could not be declared.

Deletions on a full disk need them: SQLite's log grows to 32 MB before its pages are copied into the file,
which may become as much longer. Where the disk has fewer free bytes, no job, buffer or key is accepted.
"""

LEAST_SPARE_BYTES = SPARE_BYTES // 2
"""Free bytes below which also reads of rows are refused, since each adds a line to the audit log."""

_LEAST_BYTES = 1 << 20
"""Smaller files are not worth two calls of the system."""


def reserve(handle: int, size: int, start: int = 0) -> None:
    """Allocate blocks for the bytes ``start`` to ``size`` of an open file, whose length does not change.

    Where the file system cannot allocate in advance, only the free space is checked.

    Raises OSError: ENOSPC if there is too little space; the file then keeps only the blocks of its content.
    """
    if size - start < _LEAST_BYTES:
        return
    status = os.fstatvfs(handle)
    if status.f_bavail * status.f_frsize < size - start + SPARE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    number = _allocate(handle, _KEEP_SIZE, start, size - start)
    if number and number not in _UNSUPPORTED:
        os.truncate(handle, os.fstat(handle).st_size)  # some blocks may be allocated
        raise OSError(number, os.strerror(number))
    status = os.fstatvfs(handle)
    if status.f_bavail * status.f_frsize < SPARE_BYTES:  # another process has reserved at the same time
        os.truncate(handle, os.fstat(handle).st_size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def free(handle: int, start: int, size: int) -> None:
    """Free the blocks of bytes that nobody reads again; they are zeros from now on.

    Where the file system cannot do that, the file keeps them until it ends.
    """
    if size:
        _allocate(handle, _PUNCH_HOLE | _KEEP_SIZE, start, size)


def _allocate(handle: int, mode: int, start: int, size: int) -> int:
    """Call `fallocate`. Return 0, or the number of its error."""
    allocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)  # Linux only
    if allocate is None:
        return errno.ENOSYS
    failed = allocate(handle, mode, ctypes.c_int64(start), ctypes.c_int64(size))
    return ctypes.get_errno() if failed else 0


class Reservation:
    """Disk space for a file that is written later, held by an unnamed file."""

    def __init__(self, folder: Path, size: int) -> None:
        """Reserve ``size`` bytes on the file system of ``folder``. Raises OSError: ENOSPC."""
        self.size = size
        self._file: BinaryIO | None = None
        if size < _LEAST_BYTES:
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by `release`
        self._file = cast(BinaryIO, file)
        try:
            reserve(file.fileno(), size)
        except BaseException:
            file.close()
            raise

    def release(self) -> None:
        """Free the space. Idempotent."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
