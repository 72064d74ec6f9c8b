"""Background loop of the maintenance: purge expired data, anchor the audit log, sweep the folder."""

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from app.file_threads import ServiceThreads
from app.jobs.maintenance.audit_anchors import AuditAnchors
from app.jobs.maintenance.retention import Retention
from app.jobs.stores import Stores
from app.settings import Settings
from app.telemetry.metrics import Metrics

T = TypeVar("T")

_log = logging.getLogger("rowveil.jobs")

_PURGES_PER_SWEEP = 10


class MaintenanceLoop:
    """An asyncio task that repeats the maintenance every `Settings.purge_interval` seconds."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        retention: Retention,
        threads: ServiceThreads,
        metrics: Metrics,
    ) -> None:
        """Keep the arguments; `start` begins. ``stores`` have been swept just now."""
        self._settings = settings
        self._stores = stores
        self._retention = retention
        self._threads = threads
        self._metrics = metrics
        self._anchors = AuditAnchors(settings, stores, threads, metrics)
        self._task: asyncio.Task[None] | None = None
        self._swept_at = time.monotonic()
        metrics.follow(metrics.sweep_lag, lambda: time.monotonic() - self._swept_at)

    def start(self) -> None:
        """Start the loop; the first purge runs at once."""
        self._task = asyncio.create_task(self._repeat())

    async def stop(self) -> None:
        """Stop the loop. A purge that is running in its thread ends after its current batch."""
        self._retention.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def purge(self) -> None:
        """Delete everything that has expired."""
        await self._in_thread(self._retention.run)

    async def sweep(self) -> None:
        """Sweep the shared folder; a failure is counted and logged, and the next sweep tries again."""
        started = time.monotonic()
        try:
            swept = await self._in_thread(self._stores.sweep)
        except Exception as error:
            _log.error("sweeping failed: %s", type(error).__qualname__)
            swept = False
        if swept:
            self._swept_at = started
        else:
            self._metrics.sweep_failures.inc()

    async def anchor_audit(self, within: float | None = None) -> None:
        """Add a checkpoint of the audit log, and publish it: see `AuditAnchors.run`."""
        await self._anchors.run(within)

    async def _repeat(self) -> None:
        for turn in count(1):
            try:
                await self.purge()
                await self.anchor_audit()
                if turn % _PURGES_PER_SWEEP == 0:
                    await self.sweep()
            except Exception as error:
                _log.error("purging failed: %s", type(error).__qualname__)
            await asyncio.sleep(self._settings.purge_interval)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads.background, function)
