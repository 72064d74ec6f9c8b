"""Progress callbacks, sub-ranges of a progress, and time-sliced loops."""

import time
from collections.abc import Callable
from typing import Protocol

_SECONDS = 0.2  # approximate time between two reports


def in_slices(total: int, work: Callable[[int, int], None], report: Callable[[float], None]) -> None:
    """Call ``work(first, last)`` for consecutive slices, and report the share done several times a second.

    The size of a slice follows the time that the previous one took, so results must not depend on it.
    """
    done, size = 0, 64
    while done < total:
        started = time.perf_counter()
        work(done, min(done + size, total))
        done = min(done + size, total)
        report(done / total)
        factor = _SECONDS / max(time.perf_counter() - started, 1e-6)
        size = max(1, int(size * min(16.0, max(0.25, factor))))


class Progress(Protocol):
    """Callback for the progress of a run; may be called from the provider's thread at any moment."""

    def __call__(self, fraction: float, stage: str) -> None:
        """Report that `fraction` (0 to 1) of the run is done, and the name of its current stage."""


def no_progress(fraction: float, stage: str) -> None:
    """Ignore the progress."""


def sub_progress(progress: Progress, start: float, end: float, step: str = "") -> Progress:
    """Return a callback that maps a step's own progress from 0 to 1 to the range from `start` to `end`.

    The reported fraction never decreases, also where the step goes over the rows again. ``step`` is written
    before the name of each stage.
    """
    farthest = 0.0

    def report(fraction: float, stage: str) -> None:
        nonlocal farthest
        farthest = max(farthest, min(1.0, fraction))
        progress(start + (end - start) * farthest, f"{step}: {stage}" if step else stage)

    return report
