"""Threads for stored tables: a storage that does not respond is reported."""

import asyncio
import threading

import pytest

from app.errors import Unavailable
from app.file_threads import HANGING_SECONDS, FileThreads


def test_calls_are_refused_while_the_storage_holds_all_threads() -> None:
    """A call that waits for a moment is not refused, and after the end of a call none is."""
    seconds = [0.0]
    released = threading.Event()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        threads = FileThreads(2, "test", lambda: seconds[0])
        held = [loop.run_in_executor(threads, released.wait) for _ in range(2)]
        seconds[0] = HANGING_SECONDS
        waiting = loop.run_in_executor(threads, divmod, 7, 2)
        seconds[0] = HANGING_SECONDS + 1
        with pytest.raises(Unavailable, match="ROWVEIL_SHARED_FOLDER"):
            loop.run_in_executor(threads, divmod, 7, 2)
        released.set()
        assert await asyncio.gather(*held, waiting) == [True, True, (3, 1)]
        assert await loop.run_in_executor(threads, divmod, 9, 2) == (4, 1)
        await asyncio.to_thread(threads.shutdown)

    asyncio.run(run())
