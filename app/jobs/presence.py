"""Keeps this replica's lease, takes up what dead replicas have left, and looks what others have done."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from app.jobs.changes import Changes
from app.jobs.dispatch import Dispatcher
from app.jobs.stores import Stores
from app.store import jobs

_log = logging.getLogger("rowveil.jobs")

_RENEWALS = 4
"""In the time of one lease."""
_LOOK_SECONDS = 0.5


class Presence:
    """Two asyncio tasks beside the dispatcher."""

    def __init__(self, stores: Stores, changes: Changes, dispatcher: Dispatcher) -> None:
        self._stores = stores
        self._changes = changes
        self._dispatcher = dispatcher
        self._loop = asyncio.get_running_loop()
        # A thread of its own: the lease must not wait for whoever reads a large buffer.
        self._thread = ThreadPoolExecutor(1, "rowveil-lease")
        self._tasks: list[asyncio.Task[None]] = []
        self._patient_until = self._loop.time() + stores.lease.seconds

    async def start(self) -> None:
        """Begin, with what nobody's lease covers."""
        await self._dispatcher.take_up_stalled(end_leases=False)
        self._tasks.append(asyncio.create_task(self._again_and_again(self._keep_the_lease, self._between)))
        if self._stores.database.shared:
            looking = self._again_and_again(self._look_around, _LOOK_SECONDS)
            self._tasks.append(asyncio.create_task(looking))

    async def stop(self) -> None:
        """Renew no more, and let others have what is left."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._in_thread(self._stores.lease.end)
        except Exception as error:  # it runs out by itself
            _log.error("the lease was not ended: %s", type(error).__qualname__)
        await asyncio.to_thread(self._thread.shutdown)

    @property
    def _between(self) -> float:
        return self._stores.lease.seconds / _RENEWALS

    async def _again_and_again(self, step: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            try:
                await step()
            except Exception as error:
                _log.error("%s failed: %s", step.__name__.strip("_"), type(error).__qualname__)
            await asyncio.sleep(seconds)

    async def _keep_the_lease(self) -> None:
        lease = self._stores.lease
        try:
            holds = await self._in_thread(lease.renew)
        except Exception:
            # The others were away from the database too: they get the time to come back.
            self._patient_until = self._loop.time() + lease.seconds
            raise
        if not holds:
            _log.error("replica %s was taken for dead: it stops its jobs and begins anew", lease.replica)
            await self._dispatcher.drop_all()
            await self._in_thread(lease.begin)
            self._dispatcher.wake()
        await self._dispatcher.take_up_stalled(end_leases=self._loop.time() >= self._patient_until)

    async def _look_around(self) -> None:
        """See what must be stopped here, what may be claimed, and what has changed for those who wait."""
        to_cancel, queued, standing = await self._in_thread(self._look)
        for job_id in to_cancel:
            self._dispatcher.cancel_soon(job_id)
        if queued:
            self._dispatcher.wake()
        self._changes.see(standing)

    def _look(self) -> tuple[list[str], bool, dict[str, tuple[int, bool]]]:
        with self._stores.database.read() as session:
            return (
                list(jobs.to_cancel(session, self._stores.lease.replica)),
                jobs.any_queued(session),
                jobs.standing(session, self._changes.watched()),
            )

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        return await self._loop.run_in_executor(self._thread, function)
