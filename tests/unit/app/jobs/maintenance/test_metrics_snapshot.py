"""Measurement of the storage for `/metrics`: how often it is repeated."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from app.jobs.maintenance import metrics_snapshot
from app.jobs.maintenance.metrics_snapshot import MetricsSnapshot
from app.settings import Settings


@pytest.mark.parametrize(
    ("seconds", "scrapes"),
    [(0.001, 40), (0.7, 8), (30.0, 2)],
    ids=["small", "100,000 files", "slow folder"],
)
def test_a_slow_storage_is_measured_less_often(
    seconds: float, scrapes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measuring takes about a hundredth of the time, and is repeated every 5 minutes at the latest."""
    clock = 0.0
    measured = 0

    def measure() -> tuple[int, int]:
        nonlocal clock, measured
        clock += seconds
        measured += 1
        return measured, 0

    monkeypatch.setattr(metrics_snapshot, "time", SimpleNamespace(monotonic=lambda: clock))
    blobs = SimpleNamespace(measure=measure, measure_trash=lambda: (0, 0))
    stores: Any = MagicMock(blobs=blobs)
    metrics = MagicMock()
    snapshot = MetricsSnapshot(Settings(), stores, MagicMock(), metrics, None, MagicMock())
    for scrape in range(40):
        clock = max(clock, scrape * 15.0)
        snapshot._measure_storage()
    assert measured == scrapes
    metrics.blobs.set.assert_called_with(measured)
