"""Memory of local processes, read from Linux's /proc."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Rise:
    """Peak increase of a process's resident memory in bytes."""

    bytes: int = 0


def status_bytes(pid: int, name: str) -> int:
    """Return a value of the process's status, such as ``VmRSS`` (resident now) or ``VmHWM`` (peak)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def children(pid: int) -> list[int]:
    """Return the running child processes."""
    found = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return sorted({int(child) for part in found for child in part})


@contextmanager
def watched(pid: int) -> Iterator[Rise]:
    """Watch the process's memory during the block; the increase is known after it."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the high-water mark
    before = status_bytes(pid, "VmRSS")
    rise = Rise()
    yield rise
    rise.bytes = max(0, status_bytes(pid, "VmHWM") - before)
