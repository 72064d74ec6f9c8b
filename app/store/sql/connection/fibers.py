"""Functions of the event loop that wait like blocking code: greenlets, during which the loop can go on."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from threading import get_ident
from typing import Any, TypeVar

import greenlet  # type: ignore[import-untyped]

T = TypeVar("T")


class Fiber(greenlet.greenlet):  # type: ignore[misc]
    """A function that runs in the event loop and may wait for a future as if it blocked."""

    def wait(self, future: "asyncio.Future[T]") -> T:
        """Leave the event loop to others until the future is done; return its result or raise its error."""
        future.add_done_callback(lambda _: self.switch())
        self.leave()
        return future.result()

    def leave(self) -> Any:
        """Leave the event loop to others until it calls `switch`; return the value that it gives."""
        return self.parent.switch()


def current_fiber() -> Fiber | None:
    """Return the fiber that the caller runs in; None if it runs in none."""
    running = greenlet.getcurrent()
    return running if isinstance(running, Fiber) else None


class Fibers:
    """Functions that wait for one database, in one event loop."""

    def __init__(self) -> None:
        """Belong to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    def run(self, function: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
        """Start a function in the event loop; return the future of its result.

        It may block only by using this database, and must not hold a lock meanwhile. Like a function in a
        thread, it runs to its end even if nobody waits for it.
        """
        result: asyncio.Future[T] = self._loop.create_future()

        def call() -> None:
            try:
                value = function(*arguments)
            except greenlet.GreenletExit:  # the event loop has been closed
                raise
            except BaseException as error:
                if not result.cancelled():
                    result.set_exception(error)
            else:
                if not result.cancelled():
                    result.set_result(value)

        fiber = Fiber(call)
        fiber.gr_context = copy_context()  # so that its log lines have the request's id
        fiber.switch()
        return result

    @property
    def running(self) -> Fiber | None:
        """Fiber that the caller runs in; None in a thread, and in the event loop outside of `run`."""
        return current_fiber() if get_ident() == self._thread else None
