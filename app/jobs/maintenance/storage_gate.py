"""Pause of claims after a fault of the storage: a share that is not mounted, or a full disk.

Without it, a replica would claim each queued job in turn, and fail all of them within seconds.
"""

import asyncio
import logging
from collections.abc import Callable

from app.errors import StorageFull
from app.jobs.stores import Stores
from app.store.blobs.bucket import BucketUnusable
from app.store.blobs.sealed_files import BlobMissing
from app.store.sql.deployment import StorageMismatch, StorageUnusable

_log = logging.getLogger("rowveil.jobs")

_PAUSE_SECONDS = 2.0


class StorageGate:
    """Gate that lets jobs be claimed.

    After a fault it is closed for a while, and then until the storage works again.

    Its methods block; they are called from any thread.
    """

    def __init__(self, stores: Stores, wake: Callable[[], None]) -> None:
        """Keep the arguments. ``wake`` is called in the event loop when jobs may be claimed again."""
        self._stores = stores
        self._wake = wake
        self._event_loop = asyncio.get_running_loop()
        self._paused = False
        self.failed = False
        """Whether there was a fault, and the storage has not been found to work since."""

    def is_open(self) -> bool:
        """Whether jobs may be claimed now."""
        if self._paused:
            return False
        cause: str | Exception | None = self._lack()
        if cause is None and not self.failed:
            return True
        if cause := cause or self._fault():
            _log.error("no job is claimed: %s", cause)
            self.close()
            return False
        self.failed = False
        return True

    def close(self) -> None:
        """Let no job be claimed for a while."""
        self.failed = self._paused = True
        self._event_loop.call_soon_threadsafe(self._event_loop.call_later, _PAUSE_SECONDS, self._look_again)

    def explains(self, error: Exception) -> bool:
        """Whether the files of a job cannot be opened because the storage does not work."""
        if isinstance(error, BucketUnusable):  # requests have been repeated for long
            return True
        return isinstance(error, OSError | BlobMissing) and self._fault() is not None

    def _lack(self) -> str | None:
        """Return why the result of another job would not fit on the disk of the database; None: it would."""
        try:
            self._stores.database.check_space()
        except StorageFull as error:
            return error.message
        return None

    def _fault(self) -> Exception | None:
        try:
            self._stores.check_storage()
        except (StorageMismatch, StorageUnusable) as error:
            return error
        return None

    def _look_again(self) -> None:
        self._paused = False
        self._wake()
