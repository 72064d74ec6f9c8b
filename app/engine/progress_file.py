"""Progress of a task, shared through a small file that worker and service have open.

A killed worker leaves the file as it was: there is no lock to keep and no pipe to break. A torn read returns
at worst a half-written stage name, until the next read.

If the service dies first, the worker leaves a note in the file that it was alive, and that the kernel has
killed no process for lack of memory since the task began. So the task did not take the service's memory.
"""

import contextlib
import mmap
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from app.engine.engine import Progress
from app.engine.oom_kills import oom_kills
from app.engine.stop_request import check_stop

_SIZE = 128

_FRACTION = struct.Struct("=d")

_PID = struct.Struct("=q")

_STAGE = struct.Struct("=104p")

_NOTE = struct.Struct("=q")

_NOTE_AT = 120
"""Offset of the note: 1 if the worker has outlived the service, else 0."""

_EMPTY = bytes(_SIZE)

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


def make_progress_file(path: Path) -> None:
    """Create the empty file, before the worker gets its path."""
    try:
        handle = os.open(path, _NEW, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, _NEW, 0o600)
    try:
        os.write(handle, _EMPTY)
    finally:
        os.close(handle)


def read_progress(path: Path) -> Progress | None:
    """Read the worker's last progress; None if the file does not exist, cannot be read or is incomplete."""
    try:
        data = path.read_bytes()
    except OSError:  # such as ESTALE of a network share
        return None
    return parse_progress(data)


def parse_progress(data: bytes) -> Progress | None:
    """Return the progress in the content of a progress file; None if it is incomplete."""
    if len(data) != _SIZE:
        return None
    (fraction,) = _FRACTION.unpack_from(data, 0)
    (pid,) = _PID.unpack_from(data, 8)
    (stage,) = _STAGE.unpack_from(data, 16)
    return Progress(min(1.0, max(0.0, fraction)), stage.decode(errors="ignore"), pid)


def write_progress(path: Path, progress: Progress) -> None:
    """Write progress that came from another machine; nothing happens if the task has ended. Blocking."""
    with contextlib.suppress(OSError), path.open("r+b") as file:
        file.write(
            _FRACTION.pack(progress.fraction) + _PID.pack(progress.pid) + _STAGE.pack(progress.stage.encode())
        )


def has_outlived_service(path: Path) -> bool:
    """Whether the worker noted that the service died before it; False if there is no such file. Blocking."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return len(data) == _SIZE and _NOTE.unpack_from(data, _NOTE_AT) == (1,)


_current: "ProgressFile | None" = None
"""File of the task that this process runs."""


def note_end_of_service() -> None:
    """Note in the file of the running task, if there is one, that this process outlives the service."""
    if _current is not None:
        _current.note_end_of_service()


class ProgressFile:
    """The worker's side of the file: a callable that providers get as ``progress``."""

    def __init__(self, path: str, create: bool = False) -> None:
        """Open the file.

        ``create``: create it if it is gone. A sweep may delete the file of a job whose row is not committed
        yet.
        """
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
        try:
            if create and os.fstat(handle).st_size < _SIZE:
                os.ftruncate(handle, _SIZE)
            self._map = mmap.mmap(handle, _SIZE)
        finally:
            os.close(handle)
        _PID.pack_into(self._map, 8, os.getpid())
        _NOTE.pack_into(self._map, _NOTE_AT, 0)  # of a worker whose task another one repeats
        self._oom_kills = oom_kills()

    def __call__(self, fraction: float, stage: str) -> None:
        """Write the fraction done, 0 to 1, and the current stage. Raises TaskStopped, in a worker."""
        check_stop()
        _FRACTION.pack_into(self._map, 0, fraction)
        _STAGE.pack_into(self._map, 16, stage.encode())

    def note_end_of_service(self) -> None:
        """Note that this process outlives the service, unless memory ran out or nobody knows whether it did.

        Callable from another thread than the task's.
        """
        kills = oom_kills()
        if kills is None or kills != self._oom_kills:
            return
        with contextlib.suppress(ValueError, OSError):  # the task has just ended; the folder is away
            _NOTE.pack_into(self._map, _NOTE_AT, 1)
            self._map.flush()

    def __enter__(self) -> Self:
        global _current
        _current = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _current
        _current = None
        self._map.close()
