"""Reads of progress files in threads of their own, each for a limited time.

The files are in the shared folder, perhaps on a network share that does not respond. Such a read blocks its
thread for any time. It must block neither the event loop nor threads that do other work.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.engine.engine import Progress
from app.engine.progress_file import read_progress

_THREADS = 2

_PATIENCE_SECONDS = 1.0
"""Time in which a folder that responds has returned 128 bytes."""

_MOST_KNOWN = 1024
"""Number of files whose last progress is kept."""


class ProgressReader:
    """Reads progress files for one event loop."""

    def __init__(
        self,
        patience: float = _PATIENCE_SECONDS,
        read: Callable[[Path], Progress | None] = read_progress,
    ) -> None:
        """Make the threads.

        Parameters
        ----------
        patience
            Seconds after which a caller gets the progress as it was last read.
        read
            Blocking function that reads the progress of a file.
        """
        self._read = read
        self._patience = patience
        self._threads = ThreadPoolExecutor(_THREADS, "rowveil-progress")
        self._reading: dict[Path, asyncio.Future[Progress | None]] = {}
        self._known: dict[Path, Progress] = {}

    async def read(self, path: Path) -> Progress | None:
        """Read the worker's last progress; None if the file does not exist, cannot be read or is incomplete.

        While the folder does not respond, the result is the progress as it was last read, or None.
        All callers that wait for one file share one read.
        """
        reading = self._reading.get(path)
        if reading is None:
            loop = asyncio.get_running_loop()
            reading = loop.run_in_executor(self._threads, self._read, path)
            self._reading[path] = reading
            reading.add_done_callback(lambda done: self._ended(path, done))
        await asyncio.wait([reading], timeout=self._patience)
        return reading.result() if reading.done() else self._known.get(path)

    def close(self) -> None:
        """Release the threads without waiting for reads in progress."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ended(self, path: Path, reading: "asyncio.Future[Progress | None]") -> None:
        del self._reading[path]
        self._known.pop(path, None)
        found = None if reading.cancelled() or reading.exception() else reading.result()
        if found is not None:
            self._known[path] = found
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]
