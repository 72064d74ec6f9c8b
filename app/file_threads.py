"""Threads for calls that open files of the shared folder, separate from the threads of all other calls.

A folder or share that does not respond holds the thread that reads it until it responds again. It holds only
these threads: calls that need no file continue, and further calls that need a file are refused.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from app.errors import Unavailable
from app.loop_threads import LoopThreads

HANGING_SECONDS = 5.0
"""Time without the end of any call after which threads that are all in use count as held."""

_MOST_WAITING = 1000
_CLOSING_SECONDS = 5.0


class FileThreads(LoopThreads):
    """Executor that refuses calls while the storage holds all of its threads."""

    def __init__(self, most: int, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Start up to ``most`` threads, each when it is first needed."""
        super().__init__(most, name)
        self._clock = clock
        self._progress_at = clock()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call the function in a thread: see `LoopThreads.submit`. Raises Unavailable."""
        if self._unsettled < self._most:
            self._progress_at = self._clock()  # the call begins at once
        elif self._clock() - self._progress_at > HANGING_SECONDS:
            raise Unavailable(
                "the storage of the tables, or the database, does not respond; try again later, and if it "
                "lasts, let the operator check the shared folder (ROWVEIL_SHARED_FOLDER) or the bucket, and "
                "the database"
            )
        elif self._unsettled >= self._most + _MOST_WAITING:
            raise Unavailable("too many calls wait for stored tables; try again later")
        return super().submit(function, *arguments, **named)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end; wait for them only for a short time, because a file may hold one for ever."""
        super().shutdown(wait=False)
        deadline = time.monotonic() + _CLOSING_SECONDS
        for thread in self._threads if wait else ():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _settle(self, result: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._progress_at = self._clock()
        super()._settle(result, value, error)


class ThreadsByPlace:
    """Executors by the place of their files: one that does not respond holds the threads of its own calls."""

    def __init__(self, most: int, name: str) -> None:
        """Start up to ``most`` threads for each place, when they are first needed."""
        self._most = most
        self._name = name
        self._executors: dict[Hashable, ThreadPoolExecutor] = {}

    def of(self, place: Hashable) -> ThreadPoolExecutor:
        """Return the executor of a place. Called in the event loop."""
        if place not in self._executors:
            self._executors[place] = ThreadPoolExecutor(self._most, self._name)
        return self._executors[place]

    def close(self) -> None:
        """Release the threads without waiting for calls in progress."""
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class ServiceThreads:
    """Executors of one service, separate by the resource for which their calls may wait."""

    database: Executor
    """For calls that open no file, which go on while the storage does not respond."""
    files: Executor
    """For calls of requests that open files: they are refused while the storage holds these threads."""
    background: Executor
    """For the loops of the service itself that open files, each of which makes one call at a time."""
