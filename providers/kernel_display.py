"""Progress of compiling as a bar in a terminal, as lines of text, or as records for another program."""

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import Protocol, Self

_BAR = "  {percentage:3.0f}%|{bar:16}| {n_fmt}/{total_fmt} kernels {elapsed}{postfix}"
_LINES = 24
"""Number of lines given to tqdm: some terminals report 0 lines, for which tqdm would draw nothing."""
_RECORD_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class CompilationProgress:
    """Record of the progress: one line of JSON."""

    compiled: int
    kernels: int
    """Number of kernels, compiled or not."""
    running: list[tuple[str, float]]
    """Kernels that are being compiled, and for how many seconds."""

    @classmethod
    def parse(cls, line: bytes) -> Self | None:
        """Return the record of a line; None if the line is no record."""
        try:
            found = json.loads(line)
            running = [(str(name), float(seconds)) for name, seconds in found["running"]]
            return cls(int(found["compiled"]), int(found["kernels"]), running)
        except (ValueError, TypeError, KeyError):
            return None


class Shown(Protocol):
    """A way to show progress."""

    def update(self, compiled: int, running: list[tuple[str, float]]) -> None:
        """Show how many kernels are compiled, and the present kernel of each process with its seconds."""

    def finish_service(self, service: str, seconds: float) -> None:
        """Show that a service's kernels are there."""

    def close(self) -> None:
        """Show nothing more."""


class Bar:
    """Bar in a terminal, on standard error."""

    def __init__(self, total: int, compiled: int) -> None:
        from tqdm import tqdm  # the service imports this module, and rarely draws

        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 79  # 0 where it does not say its size
        self._bar = tqdm(
            total=total, initial=compiled, bar_format=_BAR, leave=False, ncols=columns, nrows=_LINES
        )

    def update(self, compiled: int, running: list[tuple[str, float]]) -> None:
        """Draw the bar, with the longest running kernels first."""
        self._bar.n = compiled
        longest = sorted(running, key=lambda kernel: -kernel[1])
        self._bar.set_postfix_str(", ".join(f"{name} {seconds:.0f} s" for name, seconds in longest))

    def finish_service(self, service: str, seconds: float) -> None:
        """Show nothing: the bar has moved."""

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


class Lines:
    """Lines on standard output: one for each service, and one for each tenth of the kernels."""

    def __init__(self, total: int, compiled: int) -> None:
        self._total = total
        self._compiled = compiled
        self._started = time.monotonic()

    def update(self, compiled: int, running: list[tuple[str, float]]) -> None:
        """Print a line where another tenth is complete."""
        if compiled * 10 // self._total > self._compiled * 10 // self._total:
            seconds = time.monotonic() - self._started
            print(f"  {compiled} of {self._total} kernels, {seconds:.0f} s", flush=True)
        self._compiled = max(self._compiled, compiled)

    def finish_service(self, service: str, seconds: float) -> None:
        """Print the service's line."""
        print(f"  {service}: {seconds:.0f} s", flush=True)

    def close(self) -> None:
        """Print nothing more."""


class Records:
    """Records on standard output, for another program: at each kernel, and otherwise twice a second."""

    def __init__(self, total: int, compiled: int) -> None:
        self._total = total
        self._compiled = -1
        self._printed = 0.0
        self.update(compiled, [])

    def update(self, compiled: int, running: list[tuple[str, float]]) -> None:
        """Print a record."""
        now = time.monotonic()
        if compiled != self._compiled or now - self._printed >= _RECORD_SECONDS:
            self._compiled, self._printed = compiled, now
            print(json.dumps(asdict(CompilationProgress(compiled, self._total, running))), flush=True)

    def finish_service(self, service: str, seconds: float) -> None:
        """Print nothing: the last record has its kernels."""

    def close(self) -> None:
        """Print nothing more."""
