"""How far a task is, told through a small file that both sides have open.

A killed worker leaves the file as it was: there is no lock to hold and no pipe to break. A torn
read gives at worst a stage's name half-written, until the next one.
"""

import mmap
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from app.engine.engine import Progress

_SIZE = 128
_FRACTION = struct.Struct("=d")
_PID = struct.Struct("=q")
_STAGE = struct.Struct("=112p")
_EMPTY = bytes(_SIZE)


def make_progress_file(path: Path) -> None:
    """Make the file, empty, before the worker is told of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(_EMPTY)


def read_progress(path: Path) -> Progress | None:
    """What the worker last wrote; None where there is no file, or not yet all of it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) != _SIZE:
        return None
    (fraction,) = _FRACTION.unpack_from(data, 0)
    (pid,) = _PID.unpack_from(data, 8)
    (stage,) = _STAGE.unpack_from(data, 16)
    return Progress(min(1.0, max(0.0, fraction)), stage.decode(errors="ignore"), pid)


class ProgressFile:
    """The worker's side: called as a provider's ``progress``."""

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)
        _PID.pack_into(self._map, 8, os.getpid())

    def __call__(self, fraction: float, stage: str) -> None:
        """Tell the fraction done, 0 to 1, and what is being done."""
        _FRACTION.pack_into(self._map, 0, fraction)
        _STAGE.pack_into(self._map, 16, stage.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._map.close()
