"""Progress of a task, shared through a small file that worker and service have open.

A killed worker leaves the file as it was: there is no lock to keep and no pipe to break. A torn read returns
at worst a half-written stage name, until the next read.
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
    """Create the empty file, before the worker gets its path."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(_EMPTY)


def read_progress(path: Path) -> Progress | None:
    """Read the worker's last progress; None if the file does not exist or is incomplete."""
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
    """The worker's side of the file: a callable that providers get as ``progress``."""

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)
        _PID.pack_into(self._map, 8, os.getpid())

    def __call__(self, fraction: float, stage: str) -> None:
        """Write the fraction done, 0 to 1, and the current stage."""
        _FRACTION.pack_into(self._map, 0, fraction)
        _STAGE.pack_into(self._map, 16, stage.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._map.close()
