"""Samples of short states that a scrape would miss: lag of the event loop, and full pools.

A request waits for a full pool, the scrape too. Therefore the samples are counted here, and the next scrape
that succeeds shows them.
"""

import asyncio

from app.engine.engine import Engine
from app.store.sql.db import Database
from app.telemetry.metrics import Metrics

INTERVAL_SECONDS = 0.5
"""Seconds between two samples."""


class LoadSampler:
    """Timer of the event loop that records its own delay and the full pools."""

    def __init__(self, database: Database, engine: Engine, metrics: Metrics, processes: int = 1) -> None:
        """Keep the arguments; ``processes`` is the number of API processes, whose counters add up."""
        self._database = database
        self._engine = engine
        self._metrics = metrics
        self._processes = processes
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Take the first sample after one interval."""
        due = self._loop.time() + INTERVAL_SECONDS
        self._timer = self._loop.call_at(due, self._sample, due)

    def stop(self) -> None:
        """Take no further sample."""
        if self._timer is not None:
            self._timer.cancel()

    def _sample(self, due: float) -> None:
        late = max(0.0, self._loop.time() - due)
        self._metrics.loop_lag.observe(late)
        in_use, limit = self._database.connections()
        full = self._metrics.pool_full
        seconds = (INTERVAL_SECONDS + late) / self._processes
        if 0 < limit <= in_use:
            full.labels("connections").inc(seconds)
        if self._engine.ready() and self._engine.capacity() == 0:
            full.labels("workers").inc(seconds)
        if self._metrics.shared:
            self._metrics.refresh()
        self.start()
