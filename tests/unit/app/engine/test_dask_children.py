"""End of the child processes of one Dask worker."""

import asyncio
from typing import cast

from distributed import Worker

from app.engine.dask_children import Children
from app.engine.worker_process import WorkerSetup


class SlowEngine:
    """Engine whose end takes until it is allowed."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.closed = 0

    async def close(self) -> None:
        await self.may_end.wait()
        self.closed += 1


def test_a_removal_does_not_interrupt_the_end_of_orphans() -> None:
    """It cancelled the watch, and the child processes stayed for ever."""

    async def closed() -> int:
        engine = SlowEngine()
        children = Children("rowveil-1", WorkerSetup(threads=1, memory_bytes=1 << 28), 1.0, patience=0.0)
        children.engine = engine  # type: ignore[assignment]
        children._watching = asyncio.create_task(children._stop_when_silent())
        while not children.orphaned:
            await asyncio.sleep(0)
        removal = asyncio.create_task(children.teardown(cast(Worker, None)))
        await asyncio.sleep(0)
        engine.may_end.set()
        await removal
        return engine.closed

    assert asyncio.run(closed()) == 1
