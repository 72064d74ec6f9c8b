"""Limit of this process's private writable memory (RLIMIT_DATA, Linux).

It counts mapped private memory, used or not, and no files. So unlike the address space it measures what a job
has allocated.
"""

import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")


def limit_memory(extra: int) -> None:
    """Limit the memory to its current size plus ``extra`` bytes. Elsewhere the setting only affects plans."""
    own = private_bytes()
    if own is not None:
        _set_limit(own + extra)


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
