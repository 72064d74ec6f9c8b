"""Progress of a task, shared through a small file that worker and service have open.

A killed worker leaves the file as it was: there is no lock to keep and no pipe to break. Progress is one
record with a checksum, so a reader does not take a record that is half written.

If the service dies first, the worker leaves a note in the file that it was alive, and that the kernel has
killed no process for lack of memory since the task began. So the task did not take the service's memory.
"""

import contextlib
import mmap
import os
import struct
import zlib
from pathlib import Path
from types import TracebackType
from typing import Self

from app.engine.engine import Progress
from app.engine.oom_kills import oom_kills
from app.engine.stop_request import check_stop

PROGRESS_BYTES = 128
"""Bytes of a progress file."""

_RECORD = struct.Struct("=dq100p")
"""Fraction, process id and stage."""

_CHECKSUM = struct.Struct("=L")
"""CRC-32 of the record, after it. 0 is the checksum of a file without progress, and of earlier versions."""

_READS = 4
"""Reads of a record that is being written. To write one takes less time than to read it."""

_NOTE = struct.Struct("=q")

_NOTE_AT = 120
"""Offset of the note: 1 if the worker has outlived the service, else 0."""

_EMPTY = bytes(PROGRESS_BYTES)

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


def read_progress_bytes(path: Path) -> bytes:
    """Read a progress file, and one byte more if it is longer: its worker may have given it any length.

    Raises OSError.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return os.read(handle, PROGRESS_BYTES + 1)
    finally:
        os.close(handle)


def read_progress(path: Path) -> Progress | None:
    """Read the worker's last progress; None if the file does not exist, cannot be read or is incomplete.

    A file of another length than a progress file's is incomplete.
    """
    for _ in range(_READS):
        try:
            data = read_progress_bytes(path)
        except OSError:  # such as ESTALE of a network share
            return None
        if (progress := parse_progress(data)) is not None:
            return progress
    return None


def parse_progress(data: bytes) -> Progress | None:
    """Return the progress in the content of a progress file; None if it is incomplete."""
    if len(data) != PROGRESS_BYTES:
        return None
    (checksum,) = _CHECKSUM.unpack_from(data, _RECORD.size)
    if checksum not in (0, zlib.crc32(data[: _RECORD.size])):
        return None
    fraction, pid, stage = _RECORD.unpack_from(data)
    return Progress(min(1.0, max(0.0, fraction)), stage.decode(errors="ignore"), pid)


def _packed(progress: Progress) -> bytes:
    """Return the record with its checksum."""
    record = _RECORD.pack(progress.fraction, progress.pid, progress.stage.encode())
    return record + _CHECKSUM.pack(zlib.crc32(record))


def write_progress(path: Path, progress: Progress) -> None:
    """Write progress that is not the worker's own; nothing happens if the task has ended. Blocking.

    The file is not mapped to memory: access to the map of a file that a worker truncates ends the process.
    """
    with contextlib.suppress(OSError), path.open("r+b") as file:
        file.write(_packed(progress))


def has_outlived_service(path: Path) -> bool:
    """Whether the worker noted that the service died before it; False if there is no such file. Blocking."""
    try:
        data = read_progress_bytes(path)
    except OSError:
        return False
    return len(data) == PROGRESS_BYTES and _NOTE.unpack_from(data, _NOTE_AT) == (1,)


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
            if create and os.fstat(handle).st_size < PROGRESS_BYTES:
                os.ftruncate(handle, PROGRESS_BYTES)
            self._map = mmap.mmap(handle, PROGRESS_BYTES)
        finally:
            os.close(handle)
        self._pid = os.getpid()
        before = parse_progress(self._map[:]) or Progress()
        self._write(Progress(before.fraction, before.stage, self._pid))
        _NOTE.pack_into(self._map, _NOTE_AT, 0)  # of a worker whose task another one repeats
        self._oom_kills = oom_kills()

    def __call__(self, fraction: float, stage: str) -> None:
        """Write the fraction done, 0 to 1, and the current stage. Raises TaskStopped, in a worker."""
        check_stop()
        self._write(Progress(fraction, stage, self._pid))

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

    def _write(self, progress: Progress) -> None:
        """Replace the record by one copy: ``pack_into`` would clear it first, and a reader would see 0."""
        packed = _packed(progress)
        self._map[: len(packed)] = packed

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
