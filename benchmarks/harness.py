"""Interleaved timing of contenders, A B C A B C ..., reported as ratios to the first.

The speed of a machine drifts; interleaved runs drift together, so that ratios are stable where single
times are not.
"""

import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

Work = Callable[[], object]

BUSY = 3
"""Number of busy processes next to the measured ones, on a machine of two cores."""


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep as many processes computing while the block runs."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of each round of one contender."""

    name: str
    seconds: list[float]

    @property
    def median(self) -> float:
        """Median of the rounds, the value to quote."""
        return statistics.median(self.seconds)

    def ratio_to(self, other: "Timing") -> float:
        """Return the median ratio of this contender's time to the other's, over their common rounds."""
        pairs = zip(self.seconds, other.seconds, strict=False)
        return statistics.median(mine / theirs for mine, theirs in pairs)


def in_turn(
    contenders: Mapping[str, Work], rounds: int = 5, long_seconds: float = 4.0, memory: int = 0
) -> dict[str, Timing]:
    """Run every contender once to warm up, then `rounds` interleaved rounds.

    A contender that takes over `long_seconds` in its warm-up runs only twice more. ``memory``: bytes that are
    touched before each run, for contenders that need much of it. The host of a virtual machine reclaims
    memory that was idle for some seconds, and returning it takes ten times as long as clearing it: without
    the touch, the first contender after a pause would pay for all.
    """
    turns: dict[str, int] = {}
    for name, work in contenders.items():
        turns[name] = rounds if _seconds(work, memory) < long_seconds else min(2, rounds)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds):
        for name, work in contenders.items():
            if turn < turns[name]:
                seconds[name].append(_seconds(work, memory))
    return {name: Timing(name, taken) for name, taken in seconds.items()}


def _seconds(work: Work, memory: int) -> float:
    gc.collect()
    np.ones(memory // 8)
    started = time.perf_counter()
    result = work()
    taken = time.perf_counter() - started
    del result
    return taken


def table(header: list[str], lines: list[list[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    widths = [max(len(line[column]) for line in [header, *lines]) for column in range(len(header))]

    def row(cells: list[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([row(header), row(["-" * width for width in widths]), *(row(line) for line in lines)])
