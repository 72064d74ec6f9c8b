"""Limit of this process's private writable memory (RLIMIT_DATA, Linux).

It counts mapped private memory, used or not, and no files. So unlike the address space it measures what a job
has allocated.
"""

import ctypes
import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc

_KEPT_PART = 64
"""Part of the limit that the C library may keep in free memory, twice."""

_MOST_KEPT = 1 << 25
"""Bytes that the C library keeps at most by itself (twice), once pieces of that size have been freed."""


def limit_memory(extra: int) -> None:
    """Limit the memory to its current size plus ``extra`` bytes. Elsewhere the setting only affects plans."""
    own = private_bytes()
    if own is not None:
        _keep_little(extra // _KEPT_PART)
        _set_limit(own + extra)


def renew_limit(extra: int, most: int) -> None:
    """Raise the limit to the current size plus ``extra`` bytes, after a task.

    The first uses of libraries have added memory that stays, such as the stacks of threads. Without this
    every later task would lack it. ``most``: bytes that the limit is not raised above.
    """
    own = private_bytes()
    if own is not None:
        limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
        _set_limit(max(limit, min(own + extra, most)))


def _keep_little(size: int) -> None:
    """Let the C library return pieces of ``size`` bytes to the system as soon as they are free.

    By default the library keeps up to 64 MiB, and takes large pieces from memory that it cannot return. The
    next task would lack this memory.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it
    if set_option is not None and size < _MOST_KEPT:
        set_option(_M_MMAP_THRESHOLD, size)
        set_option(_M_TRIM_THRESHOLD, 2 * size)


def private_bytes() -> int | None:
    """Return the present size of the limited memory in bytes; None where the system does not limit it."""
    try:
        with _STATUS.open() as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    except (OSError, StopIteration):
        return None


def lift_limit() -> int:
    """Allow as much memory as the system does, and return the limit so far."""
    limit, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    return limit


def restore_limit(limit: int, growth: int) -> None:
    """Set a limit that was lifted again, raised by ``growth`` bytes if that is positive."""
    if limit != resource.RLIM_INFINITY:
        _set_limit(limit + max(0, growth))


def _set_limit(limit: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
