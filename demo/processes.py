"""What a process of this machine takes, as Linux tells it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Rise:
    """Bytes by which a process's resident memory rose above what it was, at its highest."""

    bytes: int = 0


def status_bytes(pid: int, name: str) -> int:
    """A figure of the process's status, such as ``VmRSS`` (resident now) or ``VmHWM`` (at its highest)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def children(pid: int) -> list[int]:
    """The processes that it has started and that are there."""
    found = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return sorted({int(child) for part in found for child in part})


@contextmanager
def watched(pid: int) -> Iterator[Rise]:
    """Watch the process's memory for as long as the block lasts; the rise is known after it."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the high-water mark starts anew
    before = status_bytes(pid, "VmRSS")
    rise = Rise()
    yield rise
    rise.bytes = max(0, status_bytes(pid, "VmHWM") - before)
