"""Deletions of files apart from the threads of every other call.

A folder that does not respond would hold each thread that deletes a file there, also the thread of a call
whose work is done, such as a cancellation.
"""

import logging
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from app.file_threads import HANGING_SECONDS

_log = logging.getLogger("rowveil.storage")

_THREADS = 2
_CLOSING_SECONDS = 5.0

_Call = tuple[Callable[..., None], tuple[Any, ...], Event]


class Deletions:
    """Calls functions that delete files: at once until `start`, in threads of its own until `close`."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._held = False
        """Whether nothing has been deleted since a call was left to its thread."""

    def start(self) -> None:
        """Start the threads."""
        for number in range(_THREADS):
            thread = Thread(target=self._serve, name=f"rowveil-deletions_{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def run(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function; return at its end, or earlier if the folder does not respond. Blocking."""
        done = self.begin(function, *arguments)
        if not self._held and not done.wait(HANGING_SECONDS):
            self._held = True
            _log.warning("the storage of the tables does not respond; files are deleted when it does")

    def begin(self, function: Callable[..., None], *arguments: Any) -> Event:
        """Call a function; return an event that is set at its end. Not blocking after `start`."""
        done = Event()
        if self._threads:
            self._calls.put((function, arguments, done))
        else:
            function(*arguments)
            done.set()
        return done

    def close(self) -> None:
        """End the threads after the calls that were begun, and wait for that a short time. Blocking."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._calls.put(None)
        for thread in threads:
            thread.join(_CLOSING_SECONDS / _THREADS)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            function, arguments, done = call
            try:
                function(*arguments)
            except Exception as error:  # the next sweep deletes what remains
                _log.error("files were not deleted: %s", type(error).__qualname__)
            self._held = False
            done.set()
