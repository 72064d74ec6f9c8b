"""Number of processes that the kernel has killed on this machine because memory had run out.

The kernel counts them in ``/proc/vmstat`` since Linux 4.13, also those of a control group that has reached
its own limit. It counts a process before it kills it. A worker opens the file before it is confined.
"""

import contextlib
import os

_FIELD = b"\noom_kill "

_PIECE = 1 << 16

_statistics: int | None = None


def open_statistics() -> None:
    """Keep the file open for this process, if the system has it."""
    global _statistics
    if _statistics is None:
        with contextlib.suppress(OSError):
            _statistics = os.open("/proc/vmstat", os.O_RDONLY | os.O_CLOEXEC)


def oom_kills() -> int | None:
    """Return the number since the machine's start; None where it is unknown or the file is not open."""
    if _statistics is None:
        return None
    content = b""
    try:
        while piece := os.pread(_statistics, _PIECE, len(content)):  # the kernel returns a page at a time
            content += piece
    except OSError:
        return None
    _, found, rest = content.partition(_FIELD)
    return int(rest.split(b"\n", 1)[0]) if found else None
