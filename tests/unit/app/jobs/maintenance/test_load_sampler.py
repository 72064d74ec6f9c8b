"""Samples of the event loop and of pools, which a scrape would miss or wait for."""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from app.engine.engine import Engine
from app.jobs.maintenance.load_sampler import INTERVAL_SECONDS, LoadSampler
from app.settings import Settings
from app.store.sql.db import Database
from app.telemetry.metrics import Metrics

BLOCKED_SECONDS = 2 * INTERVAL_SECONDS
SAMPLES = 2


def sampled(
    database: Database,
    capacity: int = 1,
    ready: bool = True,
    busy: Callable[[], None] = lambda: None,
    processes: int = 1,
) -> Callable[..., float]:
    """Take some samples, during which ``busy`` runs in the event loop; return a function that reads them."""
    metrics = Metrics()
    engine = cast(Engine, SimpleNamespace(ready=lambda: ready, capacity=lambda: capacity))

    def value(name: str, **labels: str) -> float:
        found = metrics.registry.get_sample_value(name, labels)
        assert found is not None
        return found

    async def sample() -> None:
        sampler = LoadSampler(database, engine, metrics, processes)
        sampler.start()
        await asyncio.sleep(0)
        busy()
        while value("rowveil_event_loop_lag_seconds_count") < SAMPLES:
            await asyncio.sleep(0.01)
        sampler.stop()

    asyncio.run(sample())
    return value


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(Settings(home=tmp_path))


def test_a_blocked_event_loop_is_recorded_with_its_delay(database: Database) -> None:
    value = sampled(database, busy=lambda: time.sleep(BLOCKED_SECONDS))
    assert value("rowveil_event_loop_lag_seconds_sum") >= BLOCKED_SECONDS - INTERVAL_SECONDS
    late = value("rowveil_event_loop_lag_seconds_count") - value(
        "rowveil_event_loop_lag_seconds_bucket", le="0.25"
    )
    assert late >= 1


def test_a_full_pool_of_connections_is_recorded(database: Database) -> None:
    """One connection less than all is not full."""
    limit = database.connections()[1]
    with ExitStack() as held:
        for _ in range(limit - 1):
            held.enter_context(database.engine.connect())
        value = sampled(database)
        assert value("rowveil_pool_full_seconds_total", pool="connections") == 0
        held.enter_context(database.engine.connect())
        assert database.connections() == (limit, limit)
        value = sampled(database)
        assert value("rowveil_pool_full_seconds_total", pool="connections") >= SAMPLES * INTERVAL_SECONDS
        assert value("rowveil_pool_full_seconds_total", pool="workers") == 0
    assert database.connections() == (0, limit)
    database.close()


@pytest.mark.parametrize(
    ("capacity", "ready", "full"), [(0, True, True), (1, True, False), (0, False, False)]
)
def test_busy_workers_are_recorded_but_none_that_start(
    database: Database, capacity: int, ready: bool, full: bool
) -> None:
    value = sampled(database, capacity, ready)
    assert (value("rowveil_pool_full_seconds_total", pool="workers") > 0) is full
    assert value("rowveil_pool_full_seconds_total", pool="connections") == 0


def test_api_processes_count_the_mean(database: Database) -> None:
    """The counters of all processes add up: pools that are full all the time grow by a second each second."""
    for processes in (1, 4):
        value = sampled(database, 0, True, processes=processes)
        passed = value("rowveil_event_loop_lag_seconds_count") * INTERVAL_SECONDS
        passed += value("rowveil_event_loop_lag_seconds_sum")  # a busy machine takes its samples later
        full = value("rowveil_pool_full_seconds_total", pool="workers")
        assert passed >= SAMPLES * INTERVAL_SECONDS
        assert full == pytest.approx(passed / processes)
