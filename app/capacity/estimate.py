"""Time, memory and scratch space of a job on a number of workers, from measured costs."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from app.capacity.costs import EACH, ROW_BYTES, SECTION, SINGLETONS, ServiceCosts, StepCosts
from app.capacity.simulation import Cluster, JobLost, Task, elapsed
from providers.tables.digest import CHUNK_ROWS

RUNS = 20
"""Simulated runs of which the median and the range are shown."""


@dataclass(frozen=True, slots=True)
class JobSize:
    """Size of a job."""

    rows: int
    row_bytes: float
    """Mean bytes of a row in memory, all fields."""
    memory_bytes: int
    """Memory budget with which the job runs in memory."""
    can_cut: bool = True
    """Whether the parameters permit a run out of core, or in units."""
    long: bool = False
    """Whether the job is divided although it fits in memory, because it takes long."""

    @property
    def total_bytes(self) -> float:
        """Bytes of the table in memory."""
        return self.rows * self.row_bytes

    @property
    def reference_rows(self) -> float:
        """Number of rows of `ROW_BYTES` bytes that have as many bytes together."""
        return self.total_bytes / ROW_BYTES


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated time of a job on a number of workers."""

    workers: int
    way: str
    """Way in which the job runs: ``in memory``, ``out of core`` or ``divided``."""
    units: int
    """Number of units; 1 if the job is not divided."""
    seconds: float
    """Median of the simulated runs."""
    low: float
    """5 % quantile."""
    high: float
    """95 % quantile."""
    failed: float
    """Share of the runs in which a unit lost more workers than it may."""
    read_bytes: float
    written_bytes: float
    scratch_bytes: float


class NotPossible(Exception):
    """The job fits no worker, and the service cannot run it out of core; the message names a remedy."""


def estimate(costs: ServiceCosts, size: JobSize, cluster: Cluster, memory: int, units: int) -> Estimate:
    """Return the estimate of a job.

    Parameters
    ----------
    costs
        Costs of the service.
    size
        Size of the job.
    cluster
        Workers and storage.
    memory
        Bytes that a job may take on a worker (`ROWVEIL_WORKER_MEMORY_BYTES`).
    units
        Most units of a job (`ROWVEIL_UNITS_PER_JOB`).

    Raises NotPossible.
    """
    if costs.divided and units > 1 and (size.long or (size.can_cut and size.memory_bytes > memory)):
        fits = size.memory_bytes <= memory * units
        steps = costs.divided if fits or not costs.divided_out_of_core else costs.divided_out_of_core
        return _simulated("divided", steps, size, cluster, units)
    if size.memory_bytes <= memory:
        return _simulated("in memory", [costs.in_memory], size, cluster, 1)
    if costs.out_of_core is not None and size.can_cut:
        return _simulated("out of core", [costs.out_of_core], size, cluster, 1)
    raise NotPossible(
        f"the job runs in memory only, and needs a budget of about {size.memory_bytes} bytes on one worker; "
        f"a worker may take {memory}: raise ROWVEIL_WORKER_MEMORY_BYTES, or cut the table into parts"
    )


def best(costs: ServiceCosts, size: JobSize, cluster: Cluster, memory: int) -> Estimate:
    """Return the quickest estimate: one unit a worker, or a power of two, at most two units a worker.

    Parameters are those of `estimate`. Raises NotPossible.
    """
    powers = {
        2**power for power in range(cluster.workers.bit_length() + 1) if 2**power <= 2 * cluster.workers
    }
    numbers = sorted(powers | {cluster.workers}) if cluster.workers > 1 else [1]
    found = []
    for units in numbers:
        try:
            found.append(estimate(costs, size, cluster, memory, units))
        except NotPossible as error:
            refusal = error
    if not found:
        raise refusal
    return min(found, key=lambda each: each.seconds)


def _simulated(way: str, steps: Sequence[StepCosts], size: JobSize, cluster: Cluster, units: int) -> Estimate:
    tasks = _in_order(steps, size, units)
    times = []
    for seed in range(RUNS):
        try:
            times.append(elapsed(cluster, tasks, seed))
        except JobLost:
            continue
    if not times:
        raise NotPossible(
            "in no simulated run did the job survive its lost workers; use more repeats or units"
        )
    times.sort()
    totals = {name: _total(steps, name, size, units) for name in ("read", "written", "scratch")}
    return Estimate(
        cluster.workers,
        way,
        units,
        statistics.median(times),
        times[int(0.05 * (len(times) - 1))],
        times[round(0.95 * (len(times) - 1))],
        1 - len(times) / RUNS,
        totals["read"],
        totals["written"],
        totals["scratch"],
    )


def _in_order(steps: Sequence[StepCosts], size: JobSize, units: int) -> list[list[Task]]:
    """Return the tasks that run at the same time, after those before them have ended."""
    found: list[list[Task]] = []
    joins = False
    for step in steps:
        own = _tasks(step, size, units)
        if joins:
            found[-1] += own
        else:
            found.append(own)
        joins = step.name == SINGLETONS
    return found


def _rows_of_a_task(step: StepCosts, size: JobSize, units: int) -> tuple[int, float]:
    """Return the number of tasks of the step, and the rows of each; no section is smaller than a chunk."""
    count = units if step.tasks == EACH else 1
    if step.name == SECTION:
        count = max(1, min(count, math.ceil(size.rows / CHUNK_ROWS)))
    return count, size.reference_rows / count


def _tasks(step: StepCosts, size: JobSize, units: int) -> list[Task]:
    count, rows = _rows_of_a_task(step, size, units)
    moved = step.read.at(size.reference_rows, rows) + step.written.at(size.reference_rows, rows)
    return [Task(step.seconds.at(size.reference_rows, rows), moved)] * count


def _total(steps: Sequence[StepCosts], name: str, size: JobSize, units: int) -> float:
    total = 0.0
    for step in steps:
        count, rows = _rows_of_a_task(step, size, units)
        total += count * getattr(step, name).at(size.reference_rows, rows)
    return total
