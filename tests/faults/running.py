"""An event loop in a thread, so that a test stays a plain function with a time limit at every wait."""

import asyncio
import os
import select
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 90.0
"""Seconds after which a test gives up; on a busy machine the first compile takes a good part."""


class Loop:
    """A running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T], patience: float = PATIENCE) -> T:
        """Run the coroutine and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(patience)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Let it run meanwhile."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @property
    def running(self) -> bool:
        """Whether it has not been stopped."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def wait_until_gone(pid: int, patience: float = PATIENCE) -> None:
    """Return when the process is no more."""
    assert ends_within(pid, patience), f"process {pid} is still there"


def ends_within(pid: int, seconds: float) -> bool:
    """Wait for the end of a process; return whether it came in time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(handle)


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])
