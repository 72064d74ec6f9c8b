"""Resident memory of a service and of its workers over time."""

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import table

LOOK_SECONDS = 0.5
WARM_UP = 0.3
"""Fraction of the time in which caches fill, connections open and workers see their first large table."""
WINDOW = 0.2
"""Fraction of the time at either end for a median, so that a large table in flight is not growth."""
GROWTH = 0.1
SLACK = 32 * 2**20
"""Allowed growth of a flat curve in bytes, in addition to a fraction of the beginning."""

_MB = 10**6


@dataclass
class Resident:
    """Samples: second, bytes of the service's own process, bytes of all its children."""

    samples: list[tuple[float, int, int]] = field(default_factory=list)

    @property
    def flat(self) -> bool:
        """Return whether neither has grown between the warm-up and the end."""
        return bool(self.samples) and all(
            end <= begin * (1 + GROWTH) + SLACK for begin, _, end in (self._thirds(which) for which in (1, 2))
        )

    def report(self) -> str:
        """Return the samples as Markdown."""
        lines = []
        for name, which in (("service", 1), ("workers together", 2)):
            figures = [f"{each / _MB:.0f}" for each in self._thirds(which)]
            lines.append([name, *figures, f"{self._slope(which) / _MB:+.2f}"])
        header = ["resident, MB", "after the warm-up", "middle", "end", "MB a minute"]
        allowed = f"at most {GROWTH:.0%} and {SLACK / 2**20:.0f} MiB more at the end"
        return f"{table(header, lines)}\n\nMemory flat ({allowed}): {'yes' if self.flat else 'NO'}."

    def _warm(self) -> list[tuple[float, int, int]]:
        first, last = self.samples[0][0], self.samples[-1][0]
        return [sample for sample in self.samples if sample[0] >= first + WARM_UP * (last - first)]

    def _thirds(self, which: int) -> tuple[float, float, float]:
        warm = [sample[which] for sample in self._warm()]
        size = max(1, int(len(warm) * WINDOW / (1 - WARM_UP)))
        middle = (len(warm) - size) // 2
        begin, mid, end = warm[:size], warm[middle : middle + size], warm[-size:]
        return statistics.median(begin), statistics.median(mid), statistics.median(end)

    def _slope(self, which: int) -> float:
        warm = self._warm()
        if len(warm) < 2:
            return 0.0
        found = statistics.linear_regression([at for at, *_ in warm], [each[which] for each in warm])
        return 60 * found.slope


def resident_bytes(process: int) -> int:
    """Return the resident bytes of one process; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def descendants(process: int) -> list[int]:
    """Return all descendants of a process."""
    found = []
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


@contextmanager
def watched(process: int, resident: Resident) -> Iterator[None]:
    """Sample during the block."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            children = sum(map(resident_bytes, descendants(process)))
            resident.samples.append((time.monotonic(), resident_bytes(process), children))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
