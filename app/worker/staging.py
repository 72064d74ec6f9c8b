"""Files of tasks on a machine that shares no folder with the service: fetched before a task, sent after it.

The parent of the worker processes moves the files: the service itself, or the process of a Dask worker. A
worker process sees sealed files of its machine only. It has neither network nor credentials, so it can reach
no object, not even the objects of its own task.

A blob that a task reads is fetched into a folder of this parent process, under the lock of which no other
process deletes it. The copy stays for a minute after its last use, and so does a blob that was written here:
the next task probably reads it. A blob that a task has written, or a part of one, and the spool of a unit are
sent after the task and before its outcome is returned. So a recorded job has its tables in the bucket.
"""

import contextlib
import errno
import fcntl
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from app.engine.engine import BLOB_MISSING, CANCELLED, STORAGE_AWAY, STORAGE_FULL, Failure, Outcome
from app.engine.progress_file import make_progress_file
from app.engine.worker_process import failure_of
from app.errors import NO_ROOM
from app.settings import Settings
from app.store.blobs.bucket import Bucket, Stopped
from app.store.blobs.folder_removal import remove_folder
from app.store.blobs.reading import part_access, parts_of
from app.store.blobs.sealed_files import BlobAccess, drafts_and_parts_of
from app.worker.run_units import PART, SPOOL
from app.worker.tasks import (
    PIECE_SPOOL,
    PREPARED_SPOOL,
    WRITTEN,
    AlignTask,
    FinishTask,
    GatherTask,
    PieceTask,
    PrepareTask,
    SectionTask,
    SwapTask,
    UnitTask,
)

_log = logging.getLogger("rowveil.engine")

_KEPT_SECONDS = 60.0
"""Time for which a copy stays after its last use."""

_FOLDER = re.compile(r"staged-[0-9a-f]{16}")

_SPOOL = re.compile(rf"(?:[0-9]+|{PREPARED_SPOOL}|{PIECE_SPOOL}[0-9]+)-[0-9]+-[0-9a-f]{{32}}\.[0-9]+")

_LOCK = "lock"

_STEPS = (PrepareTask, PieceTask, UnitTask, GatherTask, AlignTask, SectionTask, FinishTask)
"""Tasks of a divided job after its first one."""

_GONE = Failure(
    BLOB_MISSING,
    "a table of the job was deleted before the job began",
    trace=("an object of the task is not in the bucket",),
)

_FULL = Failure(
    STORAGE_FULL,
    "the work folder of the worker's machine (ROWVEIL_SHARED_FOLDER) is full; give it more space, or try "
    "again later",
)

_STOPPED = Failure(CANCELLED, "the job was cancelled")


@dataclass(frozen=True, slots=True)
class StagingSetup:
    """Bucket and work folder of the machines that run tasks; it can be sent to another machine."""

    bucket: Bucket
    folder: str
    """Work folder. Workers may write to its folder ``blobs``."""
    remote: bool
    """Whether tasks run on other machines than the service's, and units of a job on several ones."""

    @property
    def writable(self) -> tuple[str, ...]:
        """Folders that the files of tasks are in, of a machine that is not the service's."""
        return (str(Path(self.folder) / "blobs"),)

    def on_this_machine(self) -> Self:
        """Return the set-up with the work folder of this machine's settings."""
        return replace(self, folder=str(Settings().shared_folder.resolve()))

    def open(self) -> "Staging":
        """Make the folder of this process, and delete those of dead processes. Blocking."""
        return Staging(self)


@dataclass(slots=True)
class _Copy:
    """Blob on this machine."""

    path: Path
    fetched: "Future[None]" = field(default_factory=Future)
    users: int = 0
    used_at: float = 0.0

    def delete(self) -> None:
        """Delete the blob and its parts here."""
        for path in (self.path, *drafts_and_parts_of(self.path)):
            path.unlink(missing_ok=True)


class Staging:
    """Files of the tasks that run in children of this process. Its methods block, in any thread."""

    def __init__(self, setup: StagingSetup) -> None:
        self._bucket = setup.bucket
        self._remote = setup.remote
        self._guard = threading.Lock()
        self._copies: dict[str, _Copy] = {}
        self._tasks: dict[int, tuple[Path, list[str]]] = {}
        """Own folder and copies of each staged task, by the identity of the task."""
        self._timer: threading.Timer | None = None
        root = Path(setup.folder) / "blobs"
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _delete_dead(root)
        self._folder = root / f"staged-{secrets.token_hex(8)}"
        self._folder.mkdir(mode=0o700)
        self._lock = os.open(self._folder / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def fetch(self, task: Any, stopped: Callable[[], bool]) -> Any:
        """Return the task with its blobs on this machine, or the Failure that there is none.

        A task that was returned must be given to `release` afterwards.
        """
        taken: list[str] = []
        own = self._folder / f"task-{secrets.token_hex(8)}"
        try:
            own.mkdir(mode=0o700)
            staged = _changed(task, partial(self._take, own, taken, stopped))
            if self._remote:
                staged = _moved_to(own, staged)
                self._make_files(staged, stopped)
        except BaseException as error:
            self._give_back(taken)
            remove_folder(own)
            return _failure(error)
        with self._guard:
            self._tasks[id(staged)] = own, taken
        return staged

    def send(self, task: Any, outcome: Outcome, stopped: Callable[[], bool]) -> Outcome:
        """Send the files of a staged task; return its outcome, or the Failure of the transfer."""
        if isinstance(outcome, Failure):
            return outcome
        try:
            for access in _written(task):
                with contextlib.suppress(FileNotFoundError):  # the table came back with the result
                    self._bucket.send(Path(access.path), access.key, stopped)
                    if not isinstance(task, FinishTask):  # its parts are on other machines
                        self._keep(access)
            if isinstance(task, SectionTask):
                part = part_access(task.job.destination, str(outcome.get(PART)))
                self._bucket.send(Path(part.path), part.key, stopped)
            if isinstance(task, PrepareTask | PieceTask | UnitTask) and self._remote:
                self._send_spool(task, outcome, stopped)
        except BaseException as error:
            return _failure(error)
        return outcome

    def release(self, task: Any) -> None:
        """Give back the copies of a staged task, and delete its other files."""
        with self._guard:
            own, taken = self._tasks.pop(id(task))
        self._give_back(taken)
        remove_folder(own)

    def close(self) -> None:
        """Delete all copies."""
        with self._guard:
            if self._timer is not None:
                self._timer.cancel()
        remove_folder(self._folder)
        os.close(self._lock)

    def _take(
        self, own: Path, taken: list[str], stopped: Callable[[], bool], access: BlobAccess, new: bool
    ) -> BlobAccess:
        """Return access to a blob on this machine: to a copy, or to a file that the task makes."""
        if access.bucket is None:
            return access
        if new:
            return replace(access, path=str(own / access.id), bucket=None)
        copy = self._copy(access, stopped)
        taken.append(access.id)
        return replace(access, path=str(copy.path), bucket=None)

    def _copy(self, access: BlobAccess, stopped: Callable[[], bool]) -> _Copy:
        """Return the copy of a blob with one more user; it is fetched once for all tasks that want it."""
        while True:
            with self._guard:
                copy = self._copies.get(access.id)
                first = copy is None
                if copy is None:
                    copy = self._copies[access.id] = _Copy(
                        self._folder / f"{access.id}.{secrets.token_hex(4)}"
                    )
                copy.users += 1
            if first:
                self._fetch(access, copy, stopped)
            try:
                copy.fetched.result()
            except Stopped:
                if first or stopped():
                    raise
                continue  # the task that fetched it was cancelled, and this one was not
            return copy

    def _fetch(self, access: BlobAccess, copy: _Copy, stopped: Callable[[], bool]) -> None:
        try:
            try:
                self._fetch_with_parts(access, copy, stopped)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self._delete_unused(0.0)
                self._fetch_with_parts(access, copy, stopped)
        except BaseException as error:
            with self._guard:
                del self._copies[access.id]  # the next task tries again
            copy.delete()
            copy.fetched.set_exception(error)
        else:
            copy.fetched.set_result(None)

    def _fetch_with_parts(self, access: BlobAccess, copy: _Copy, stopped: Callable[[], bool]) -> None:
        self._bucket.fetch(access.key, copy.path, stopped)
        here = replace(access, path=str(copy.path), bucket=None)
        for part in parts_of(here):
            path = Path(part_access(here, part.token).path)
            self._bucket.fetch(part_access(access, part.token).key, path, stopped)

    def _keep(self, access: BlobAccess) -> None:
        """Keep a blob that was sent as a copy: the next task probably reads it."""
        copy = _Copy(self._folder / f"{access.id}.{secrets.token_hex(4)}", used_at=time.monotonic())
        copy.fetched.set_result(None)
        with self._guard:
            if access.id not in self._copies:
                Path(access.path).rename(copy.path)
                self._copies[access.id] = copy

    def _give_back(self, blob_ids: list[str]) -> None:
        with self._guard:
            for blob_id in blob_ids:
                if (copy := self._copies.get(blob_id)) is not None:
                    copy.users -= 1
                    copy.used_at = time.monotonic()
            if self._timer is None:
                self._timer = threading.Timer(_KEPT_SECONDS, self._tidy)
                self._timer.daemon = True
                self._timer.start()

    def _tidy(self) -> None:
        with self._guard:
            self._timer = None
        self._delete_unused(_KEPT_SECONDS)
        if self._copies:
            self._give_back([])

    def _delete_unused(self, seconds: float) -> None:
        """Delete the copies that no task uses, and none has used for some seconds."""
        with self._guard:
            before = time.monotonic() - seconds
            unused = [key for key, copy in self._copies.items() if not copy.users and copy.used_at <= before]
            for key in unused:
                self._copies.pop(key).delete()

    def _make_files(self, task: Any, stopped: Callable[[], bool]) -> None:
        """Make the files that a task finds in a shared folder."""
        job = task.job if isinstance(task, _STEPS) else task
        if hasattr(job, "progress_path"):
            make_progress_file(Path(job.progress_path))
        if not isinstance(task, _STEPS):
            return
        task.job.spool_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in () if isinstance(task, PrepareTask | FinishTask) else task.spools:
            if not _SPOOL.fullmatch(name):
                raise ValueError("a worker named a spool that is none")
            self._bucket.fetch(spool_key(task.job, name), task.job.spool_folder / name, stopped)

    def _send_spool(
        self, task: PrepareTask | PieceTask | UnitTask, outcome: dict[str, Any], stopped: Callable[[], bool]
    ) -> None:
        """Send the spool that a task has written. Its name comes from the worker, so it is checked."""
        name = str(outcome.get(SPOOL))
        if not re.fullmatch(rf"{re.escape(task.spool_prefix)}[0-9a-f]{{32}}", name):
            raise ValueError("the worker named a spool that is not its own")
        for path in task.job.spool_folder.glob(f"{name}.*"):
            if _SPOOL.fullmatch(path.name):
                self._bucket.send(path, spool_key(task.job, path.name), stopped)


def spool_key(job: SwapTask, name: str) -> str:
    """Return the key of a spool's object."""
    return f"scratch/{job.spool_folder.name}/{name}"


def _changed(value: Any, change: Callable[[BlobAccess, bool], BlobAccess], new: bool = False) -> Any:
    """Return a task with other accesses; ``change`` gets each one, and whether the task writes its blob."""
    if isinstance(value, BlobAccess):
        return change(value, new)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes = {}
    for each in fields(value):
        found = getattr(value, each.name)
        other = _changed(found, change, WRITTEN in each.metadata)
        if other is not found:
            changes[each.name] = other
    return replace(value, **changes) if changes else value


def _moved_to(folder: Path, task: Any) -> Any:
    """Return a task whose progress and scratch files are in a folder of this machine."""
    if isinstance(task, _STEPS):
        return replace(task, job=_moved_to(folder, task.job))
    changes = {}
    if hasattr(task, "progress_path"):
        changes["progress_path"] = str(folder / Path(task.progress_path).name)
    if hasattr(task, "scratch_folder"):
        changes["scratch_folder"] = str(folder / "scratch")
    return replace(task, **changes) if changes else task


def _accesses(value: Any, new: bool = False) -> Iterator[tuple[BlobAccess, bool]]:
    """Yield each access of a task, and whether the task writes its blob."""
    if isinstance(value, BlobAccess):
        yield value, new
    elif not isinstance(value, type) and is_dataclass(value):
        for each in fields(value):
            yield from _accesses(getattr(value, each.name), WRITTEN in each.metadata)


def _written(task: Any) -> list[BlobAccess]:
    return [access for access, new in _accesses(task) if access.id and new]


def _failure(error: BaseException) -> Failure:
    """Return the failure of a transfer; anything but an error is raised."""
    if isinstance(error, Stopped):
        return _STOPPED
    if isinstance(error, FileNotFoundError):
        return _GONE
    if isinstance(error, OSError):
        if error.errno in NO_ROOM:
            return _FULL
        _log.error("a table could not be moved: %s", error.strerror)
        return Failure(
            STORAGE_AWAY,
            "a table could not be read from or written to the object storage, which did not respond or "
            "refused; repeat the call, and if that fails too, let the operator read the service's log",
        )
    if isinstance(error, Exception):
        return failure_of(error)
    raise error


def _delete_dead(root: Path) -> None:
    """Delete the folders of processes that have ended."""
    for folder in root.glob("staged-*"):
        if not _FOLDER.fullmatch(folder.name):
            continue
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENOENT and _is_old(folder):  # its process died before it made the lock
                remove_folder(folder)
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(folder)
        except OSError:  # its process lives
            continue
        finally:
            os.close(lock)


def _is_old(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - folder.stat().st_mtime > _KEPT_SECONDS
    return False
