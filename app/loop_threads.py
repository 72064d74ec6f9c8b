"""Threads for blocking calls of one event loop, with a short way there and back.

`concurrent.futures.ThreadPoolExecutor` makes two futures of each call and chains them, with a lock, a
condition and a semaphore; that took about as long as the statements of a small transaction.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

_Call = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class LoopThreads(Executor):
    """Executor for `run_in_executor` of the event loop that creates it; no other thread submits calls."""

    def __init__(self, most: int, name: str) -> None:
        """Start up to ``most`` threads, each when it is first needed."""
        self._loop = asyncio.get_running_loop()
        self._most = most
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._unsettled = 0
        self._closed = False

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call the function in a thread; return an asyncio future, which `run_in_executor` passes on."""
        if self._closed:
            raise RuntimeError("the threads have been shut down")
        result: asyncio.Future[Any] = self._loop.create_future()
        self._unsettled += 1
        if len(self._threads) < min(self._unsettled, self._most):
            name = f"{self._name}_{len(self._threads)}"
            # A daemon, as nobody shuts down the threads of a service that fails to start.
            thread = Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._calls.put((result, function, arguments, named))
        return result

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end after the calls that were submitted; ``cancel_futures`` has no effect."""
        self._closed = True
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            result, function, arguments, named = call
            value = error = None
            if not result.cancelled():
                try:
                    value = function(*arguments, **named)
                except BaseException as raised:
                    error = raised
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits
                self._loop.call_soon_threadsafe(self._settle, result, value, error)
            del call, result, function, arguments, named, value, error  # not held until the next call

    def _settle(self, result: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._unsettled -= 1
        if result.cancelled():
            return
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)


async def run_to_its_end(threads: Executor, function: Callable[[], T]) -> T:
    """Run a function in a thread; wait for its end even if this call is cancelled.

    Otherwise a file could be closed while a thread writes to it.
    """
    running = asyncio.get_running_loop().run_in_executor(threads, function)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
