"""Keep this replica's lease, take over jobs of dead replicas, and poll for changes of others."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from app.jobs.dispatcher import Dispatcher
from app.jobs.maintenance.lease import LeaseRenewal
from app.jobs.stores import Stores
from app.jobs.watchers import Watchers
from app.processes.api_process import ApiProcess
from app.settings import Settings
from app.store.sql import jobs
from app.telemetry.metrics import Metrics

_log = logging.getLogger("rowveil.jobs")

_LOOKS = 4
"""Number of looks for dead replicas within the time of one lease."""

_POLL_SECONDS = 0.5


class Heartbeat:
    """A thread that renews the lease, and two asyncio tasks: for dead replicas, and for changes of others."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        watchers: Watchers,
        dispatcher: Dispatcher,
        metrics: Metrics,
        process: ApiProcess,
    ) -> None:
        self._metrics = metrics
        self._stores = stores
        self._watchers = watchers
        self._dispatcher = dispatcher
        self._loop = asyncio.get_running_loop()
        # A separate thread: polling must not wait for reads of large buffers.
        self._thread = ThreadPoolExecutor(1, "rowveil-poll")
        self._renewal = LeaseRenewal(
            stores.lease, settings, stores.database, self._on_lost, self._on_failed_renewal
        )
        self._lost = self._started = False
        self._lost_now = asyncio.Event()
        self._has_others = stores.database.shared or not process.alone
        self._poll_at_once = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._patient_until = self._loop.time() + stores.lease.seconds
        self._clock_offset = time.time() - self._loop.time()

    async def start(self) -> None:
        """Renew the lease from now on, take over jobs without any lease, and start both tasks.

        May be repeated if it fails.
        """
        if not self._started:
            self._renewal.start()
            self._started = True
        await self._dispatcher.take_over_stalled(end_leases=False)
        interval = self._stores.lease.seconds / _LOOKS
        self._tasks.append(
            asyncio.create_task(self._repeat(self._look_after_leases, interval, self._lost_now))
        )
        if self._has_others:
            self._tasks.append(
                asyncio.create_task(self._repeat(self._poll, _POLL_SECONDS, self._poll_at_once))
            )

    def poll_now(self) -> None:
        """Look now for changes of other processes."""
        self._poll_at_once.set()

    async def stop(self) -> None:
        """Stop both tasks and the renewal, and release the lease, so that others can take over at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._started:
            await asyncio.to_thread(self._renewal.stop)
        try:
            await self._in_thread(self._stores.lease.release)
        except Exception as error:  # it will expire
            _log.error("the lease was not released: %s", type(error).__qualname__)
        await asyncio.to_thread(self._thread.shutdown)

    async def _repeat(
        self, step: Callable[[], Awaitable[None]], seconds: float, at_once: asyncio.Event
    ) -> None:
        """Repeat a step every ``seconds`` seconds, and when the event is set."""
        while True:
            at_once.clear()
            try:
                await step()
            except Exception as error:
                _log.error("%s failed: %s", step.__name__.strip("_"), type(error).__qualname__)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await at_once.wait()

    def _on_lost(self) -> None:
        self._metrics.leases_lost.inc()
        self._lost = True
        self._loop.call_soon_threadsafe(self._lost_now.set)

    def _on_failed_renewal(self) -> None:
        self._metrics.renewal_failures.inc()
        # Other replicas may have lost the database too: they get the length of a lease to return.
        self._patient_until = self._loop.time() + self._stores.lease.seconds

    async def _look_after_leases(self) -> None:
        """Start again if the lease was lost, and take over the jobs of replicas whose lease expired."""
        lease = self._stores.lease
        if self._lost:
            _log.error("the lease of replica %s expired: it stops its jobs and restarts", lease.replica)
            await self._dispatcher.drop_all()
            await self._in_thread(lease.acquire)
            self._lost = False
            self._renewal.resume()
            self._dispatcher.wake()
        now = None
        if not self._stores.database.shared:  # else a server's clock measures the leases
            now = self._read_clock()
        patient = self._loop.time() < self._patient_until
        await self._dispatcher.take_over_stalled(not patient, now)
        if not patient:
            await self._dispatcher.take_unrunnable()

    def _read_clock(self) -> datetime:
        """Return the time of this machine's clock, by which leases have expired.

        After a jump other processes get the length of a lease to renew theirs. A jump after this call has
        no effect on the time that it has returned; the next call notices it.
        """
        now = time.time()
        offset = now - self._loop.time()
        if abs(offset - self._clock_offset) > self._stores.lease.seconds / _LOOKS:
            _log.warning("the clock of this machine jumped by %.1f s", offset - self._clock_offset)
            self._clock_offset = offset
            self._patient_until = self._loop.time() + self._stores.lease.seconds
        return datetime.fromtimestamp(now, UTC)

    async def _poll(self) -> None:
        """Read cancel requests for jobs here, queued jobs, and changes of watched jobs; act on them."""
        to_cancel, queued, states = await self._in_thread(self._read_changes)
        for job_id in to_cancel:
            self._dispatcher.cancel_soon(job_id)
        if queued:
            self._dispatcher.wake()
        self._watchers.compare(states)

    def _read_changes(self) -> tuple[list[str], bool, dict[str, tuple[int, bool]]]:
        watched = self._watchers.watched()
        if not watched and not jobs.any_news(self._stores.database, self._stores.lease.replica):
            return [], False, {}
        with self._stores.database.read() as session:
            return (
                list(jobs.to_cancel(session, self._stores.lease.replica)),
                jobs.any_queued(session),
                jobs.claims_and_ends(session, watched),
            )

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        return await self._loop.run_in_executor(self._thread, function)
