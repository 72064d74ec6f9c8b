"""Health checks of the database, the storage and the workers, as `/readyz` reports them."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from app.engine.engine import Engine
from app.jobs.stores import Stores
from app.loop_threads import LoopThreads
from app.store.sql import jobs

_log = logging.getLogger("rowveil.jobs")

_CHECK_SECONDS = 5.0

_LOG_SECONDS = 5.0
"""Time after which the same problem is logged again."""

LEAST_FREE_BYTES = 16 * 2**20
"""Free bytes of the shared folder's file system below which it counts as full."""


class StorageUnready(Exception):
    """The shared folder cannot take a new table."""


class DatabaseUnready(Exception):
    """The file of the database is damaged."""


class HealthCheck:
    """Checks each dependency without changing anything, because anyone may request the checks."""

    def __init__(self, stores: Stores, engine: Engine) -> None:
        self._stores = stores
        self._engine = engine
        self._threads: dict[str, LoopThreads] = {}
        self._running: dict[str, asyncio.Future[None]] = {}
        self._reported: dict[str, tuple[str, float]] = {}
        """Last logged problem of each dependency, and its time."""

    async def run(self) -> dict[str, str]:
        """Map each dependency to ``ok``, or to the problem that it has."""
        checks = {"database": self._read_database, "storage": self._check_storage}
        results = {}
        for name, check in checks.items():
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    await asyncio.shield(self._started(name, check))
                results[name] = "ok"
            except Exception as error:
                explained = isinstance(error, DatabaseUnready | StorageUnready)
                reason = error if explained else type(error).__qualname__
                self._log_problem(name, str(reason))
                results[name] = "not available"
        results["workers"] = "ok" if self._engine.ready() else "starting"
        return results

    def _log_problem(self, name: str, reason: str) -> None:
        """Log why a dependency is not available, the same reason every few seconds: starts look often."""
        reported, now = self._reported.get(name), time.monotonic()
        if reported is None or reported[0] != reason or now - reported[1] >= _LOG_SECONDS:
            self._reported[name] = reason, now
            _log.error("%s is not available: %s", name, reason)

    def _started(self, name: str, check: Callable[[], None]) -> asyncio.Future[None]:
        """Start a check in a thread of its own, unless the last one has not ended; return its future.

        A folder that does not respond holds this thread, and none that anything else needs.
        """
        running = self._running.get(name)
        if running is None or running.done():
            threads = self._threads.get(name)
            if threads is None:
                threads = self._threads[name] = LoopThreads(1, f"health-{name}")
            running = asyncio.get_running_loop().run_in_executor(threads, check)
            running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            self._running[name] = running
        return running

    def _read_database(self) -> None:
        if self._stores.database.is_damaged:  # other pages than those that this query reads
            raise DatabaseUnready("a transaction has found that the file of the database is damaged")
        with self._stores.database.read() as session:
            jobs.newest_state(session)

    def _check_storage(self) -> None:
        self._stores.sweeper.check_folder()
        check_room(self._stores.blobs.folder)  # of a bucket, where tables are sealed before they are sent
        for folder in (self._stores.progress_folder, self._stores.scratch_folder):
            _check_access(folder)  # without a progress file no job is claimed


def check_room(folder: Path) -> None:
    """Raise StorageUnready unless the operating system lets this process create files in the folder.

    Nothing is written. The folder may be missing as long as its parent allows to create it.
    """
    status = os.statvfs(_check_access(folder))
    if status.f_bavail * status.f_frsize < LEAST_FREE_BYTES:
        raise StorageUnready(f"the shared folder has less than {LEAST_FREE_BYTES} free bytes")
    if status.f_files and not status.f_favail:  # 0 of 0: the file system does not count them
        raise StorageUnready("the shared folder has no free inode")


def _check_access(folder: Path) -> Path:
    """Return the folder, or its parent if it is missing. Raises StorageUnready: no file can be made in it."""
    existing = folder if folder.exists() else folder.parent
    if not os.access(existing, os.W_OK | os.X_OK):  # also if the file system is mounted read-only
        raise StorageUnready(f"this user may not write to the shared folder: {existing}")
    return existing
