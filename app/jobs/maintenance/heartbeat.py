"""Renew this replica's lease, take over jobs of dead replicas, and poll for changes of others."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from app.jobs.dispatcher import Dispatcher
from app.jobs.stores import Stores
from app.jobs.watchers import Watchers
from app.store.sql import jobs

_log = logging.getLogger("rowveil.jobs")

_RENEWALS = 4
"""Number of renewals within the time of one lease."""

_POLL_SECONDS = 0.5


class Heartbeat:
    """Two asyncio tasks: one renews the lease, the other polls a shared database."""

    def __init__(self, stores: Stores, watchers: Watchers, dispatcher: Dispatcher) -> None:
        self._stores = stores
        self._watchers = watchers
        self._dispatcher = dispatcher
        self._loop = asyncio.get_running_loop()
        # A separate thread: renewing the lease must not wait for reads of large buffers.
        self._thread = ThreadPoolExecutor(1, "rowveil-lease")
        self._tasks: list[asyncio.Task[None]] = []
        self._patient_until = self._loop.time() + stores.lease.seconds

    async def start(self) -> None:
        """Take over jobs without any lease, and start both tasks."""
        await self._dispatcher.take_over_stalled(end_leases=False)
        interval = self._stores.lease.seconds / _RENEWALS
        self._tasks.append(asyncio.create_task(self._repeat(self._renew_lease, interval)))
        if self._stores.database.shared:
            self._tasks.append(asyncio.create_task(self._repeat(self._poll, _POLL_SECONDS)))

    async def stop(self) -> None:
        """Stop both tasks and release the lease, so that others can take over at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._in_thread(self._stores.lease.release)
        except Exception as error:  # it will expire
            _log.error("the lease was not released: %s", type(error).__qualname__)
        await asyncio.to_thread(self._thread.shutdown)

    async def _repeat(self, step: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            try:
                await step()
            except Exception as error:
                _log.error("%s failed: %s", step.__name__.strip("_"), type(error).__qualname__)
            await asyncio.sleep(seconds)

    async def _renew_lease(self) -> None:
        lease = self._stores.lease
        try:
            holds = await self._in_thread(lease.renew)
        except Exception:
            # Other replicas may have lost the database too: they get the length of a lease to return.
            self._patient_until = self._loop.time() + lease.seconds
            raise
        if not holds:
            _log.error("the lease of replica %s expired: it stops its jobs and restarts", lease.replica)
            await self._dispatcher.drop_all()
            await self._in_thread(lease.acquire)
            self._dispatcher.wake()
        await self._dispatcher.take_over_stalled(end_leases=self._loop.time() >= self._patient_until)

    async def _poll(self) -> None:
        """Read cancel requests for jobs here, queued jobs, and changes of watched jobs; act on them."""
        to_cancel, queued, states = await self._in_thread(self._read_changes)
        for job_id in to_cancel:
            self._dispatcher.cancel_soon(job_id)
        if queued:
            self._dispatcher.wake()
        self._watchers.compare(states)

    def _read_changes(self) -> tuple[list[str], bool, dict[str, tuple[int, bool]]]:
        with self._stores.database.read() as session:
            return (
                list(jobs.to_cancel(session, self._stores.lease.replica)),
                jobs.any_queued(session),
                jobs.claims_and_ends(session, self._watchers.watched()),
            )

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        return await self._loop.run_in_executor(self._thread, function)
