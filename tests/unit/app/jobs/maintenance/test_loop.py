"""Sweeps of the maintenance loop: failures are counted, and the lag grows until one is complete."""

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.errors import Unavailable
from app.file_threads import ServiceThreads
from app.jobs.maintenance.loop import MaintenanceLoop
from app.jobs.maintenance.retention import Retention
from app.jobs.maintenance.sweep import Sweeper
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.sql.deployment import FolderMark
from app.telemetry.metrics import Metrics

LONG_AGO = 5000.0


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    opened = Stores.open(Settings(home=tmp_path))
    yield opened
    opened.close()


def swept(stores: Stores, settings: Settings, metrics: Metrics) -> tuple[float, float]:
    """Sweep once, long after the last sweep; return the number of failures and the lag in seconds."""
    with ThreadPoolExecutor(1) as threads:
        loop = MaintenanceLoop(
            settings,
            stores,
            Retention(settings, stores, metrics),
            ServiceThreads(threads, threads, threads),
            metrics,
        )
        loop._swept_at -= LONG_AGO
        asyncio.run(loop.sweep())
    metrics.refresh()
    values = [
        metrics.registry.get_sample_value(f"rowveil_sweep_{name}")
        for name in ("failures_total", "lag_seconds")
    ]
    assert values[0] is not None
    assert values[1] is not None
    return values[0], values[1]


def test_a_sweep_that_fails_is_counted_and_the_lag_remains(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings, metrics = Settings(home=tmp_path), Metrics()
    failures, lag = swept(stores, settings, metrics)
    assert failures == 0
    assert lag < LONG_AGO

    def away(sweeper: Sweeper) -> bool:
        raise Unavailable("the database is away")

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(Sweeper, "run", away)
        failures, lag = swept(stores, settings, metrics)
    assert failures == 1
    assert lag >= LONG_AGO
    assert "sweeping failed: Unavailable" in caplog.text

    FolderMark(tmp_path).replace("0" * 32)
    failures, lag = swept(stores, settings, metrics)
    assert failures == 2
    assert lag >= LONG_AGO
