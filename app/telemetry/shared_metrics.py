"""Metrics of all API processes of a service, from the folder in which they count."""

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest, multiprocess
from prometheus_client.registry import Collector

from app.telemetry.metrics_folder import metrics_folder

_EARLIEST = "process_start_time_seconds"
"""Metric for which the service shows the least value of its processes, not the sum."""


def text_of_all(folder: Path) -> bytes:
    """Return the metrics of all processes in the Prometheus text format."""
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
    registry.register(_ProcessTotals(folder))
    return generate_latest(registry)


def forget_process(pid: int) -> None:
    """Remove the gauges of an ended process; its counters stay."""
    multiprocess.mark_process_dead(pid, str(metrics_folder()))  # type: ignore[no-untyped-call]


class _ProcessTotals(Collector):
    """Memory, processor time and open files of all API processes together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        totals: dict[str, Metric] = {}
        for pid in self._processes():
            for metric in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                if metric.name in totals:
                    _add(totals[metric.name], metric)
                else:
                    totals[metric.name] = metric
        yield from totals.values()

    def _processes(self) -> list[int]:
        """Return the API processes that run."""
        found = {int(file.stem.rpartition("_")[2]) for file in self._folder.glob("counter_*.db")}
        return sorted(pid for pid in found if Path(f"/proc/{pid}").exists())


def _add(total: Metric, metric: Metric) -> None:
    combined = min if metric.name == _EARLIEST else sum
    values = [mine.value for mine in total.samples], [other.value for other in metric.samples]
    total.samples = [
        sample._replace(value=combined(pair)) for sample, *pair in zip(total.samples, *values, strict=True)
    ]
