"""Threads of an event loop: results and errors come back, calls run at once, and what is submitted ends."""

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from app.loop_threads import LoopThreads


def in_loop(most: int, use: Callable[[LoopThreads, asyncio.AbstractEventLoop], Any]) -> Any:
    async def run() -> Any:
        threads = LoopThreads(most, "test")
        try:
            return await use(threads, asyncio.get_running_loop())
        finally:
            await asyncio.to_thread(threads.shutdown)

    return asyncio.run(run())


def test_results_and_errors_come_back() -> None:
    async def use(threads: LoopThreads, loop: asyncio.AbstractEventLoop) -> list[Any]:
        calls = [loop.run_in_executor(threads, divmod, 7, divisor) for divisor in (2, 0, 3)]
        return await asyncio.gather(*calls, return_exceptions=True)

    first, error, last = in_loop(1, use)
    assert (first, last) == ((3, 1), (2, 1))
    assert isinstance(error, ZeroDivisionError)


@pytest.mark.parametrize("most", [1, 3])
def test_as_many_calls_run_at_once_as_there_are_threads(most: int) -> None:
    async def use(threads: LoopThreads, loop: asyncio.AbstractEventLoop) -> set[str]:
        together = threading.Barrier(most)

        def name() -> str:
            together.wait(60)
            return threading.current_thread().name

        return set(await asyncio.gather(*(loop.run_in_executor(threads, name) for _ in range(3 * most))))

    assert in_loop(most, use) == {f"test_{number}" for number in range(most)}


def test_a_thread_is_started_only_when_all_are_busy() -> None:
    async def use(threads: LoopThreads, loop: asyncio.AbstractEventLoop) -> set[str]:
        return {
            await loop.run_in_executor(threads, lambda: threading.current_thread().name) for _ in range(5)
        }

    assert in_loop(4, use) == {"test_0"}


def test_a_cancelled_call_that_has_not_begun_does_not_run() -> None:
    async def use(threads: LoopThreads, loop: asyncio.AbstractEventLoop) -> list[str]:
        done: list[str] = []
        held = threading.Event()
        first = loop.run_in_executor(threads, held.wait, 60)
        second = loop.run_in_executor(threads, done.append, "second")
        third = loop.run_in_executor(threads, done.append, "third")
        second.cancel()
        held.set()
        await asyncio.gather(first, third)
        return done

    assert in_loop(1, use) == ["third"]


def test_submitted_calls_end_before_the_shutdown_and_later_ones_are_refused() -> None:
    done: list[int] = []

    async def use(threads: LoopThreads, loop: asyncio.AbstractEventLoop) -> None:
        for number in range(20):
            loop.run_in_executor(threads, done.append, number)
        await asyncio.to_thread(threads.shutdown)
        with pytest.raises(RuntimeError, match="shut down"):
            threads.submit(done.append, 20)

    in_loop(2, use)
    assert sorted(done) == list(range(20))


def test_a_thread_holds_nothing_of_a_call_that_has_ended() -> None:
    class Large:
        pass

    async def use(threads: LoopThreads, loop: asyncio.AbstractEventLoop) -> bool:
        large = Large()
        alive = weakref.ref(large)
        await loop.run_in_executor(threads, id, large)
        del large
        await loop.run_in_executor(threads, len, ())
        return alive() is None

    assert in_loop(1, use)
