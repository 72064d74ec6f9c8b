"""A process whose standard error, or both outputs, are a terminal, and what is drawn there."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SIZES = {"usual": (24, 80), "narrow": (24, 44), "of no size": (0, 0)}
"""Lines and columns. As in a container, or over a serial line, a terminal may not say how large it is."""

_BAR = re.compile(r"^(.{28}) ([ \d]{3})%\|([^|]*)\| ?(\d\d:\d\d)?$")


@dataclass(frozen=True, slots=True)
class Shown:
    """One state of the bar."""

    stage: str
    percent: int
    filled: int
    """Cells of the bar that are full."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Output and exit code of a process that has ended."""

    code: int
    stdout: bytes
    """Empty where that was the terminal too."""
    drawn: str
    """All that came to the terminal."""

    @property
    def bars(self) -> list[Shown]:
        """The states of the bar, one after the other."""
        found = (_BAR.match(text) for text in self.drawn.split("\r"))
        return [
            Shown(bar[1].strip(), int(bar[2]), bar[3].count("\N{FULL BLOCK}"))
            for bar in found
            if bar is not None
        ]

    @property
    def widest(self) -> int:
        """Columns of the widest state, or line."""
        return max(len(text) for text in re.split(r"[\r\n]", self.drawn))


def in_terminal(
    arguments: list[str],
    size: tuple[int, int],
    *,
    stdout_too: bool = False,
    pass_fds: Sequence[int] = (),
    **variables: str,
) -> Ended:
    """Run Python with these arguments, its standard error a terminal of this size."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    with os.fdopen(ours, "rb", buffering=0) as terminal, tempfile.TemporaryFile() as output:
        with subprocess.Popen(
            [sys.executable, *arguments],
            env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"} | variables,
            stdin=subprocess.DEVNULL,
            stdout=theirs if stdout_too else output,
            stderr=theirs,
            pass_fds=pass_fds,
        ) as process:
            os.close(theirs)
            drawn = bytearray()
            try:
                while piece := terminal.read(65_536):
                    drawn += piece
            except OSError:  # what Linux says when nobody has the other end any more
                pass
        output.seek(0)
        return Ended(process.returncode, output.read(), drawn.decode())
