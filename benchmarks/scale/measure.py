"""Measured costs of all services, their scaling on this machine, and predictions for more workers."""

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from app.capacity.costs import Costs, Line, ServiceCosts, StepCosts, measured_costs
from app.capacity.estimate import JobSize, NotPossible, best, estimate
from app.capacity.simulation import Cluster
from app.store.blobs.column_reader import BlobTable
from app.store.blobs.sealed_files import BlobStore
from app.worker.memory import memory_budget
from benchmarks.harness import table
from benchmarks.scale.fit import step, steps
from benchmarks.scale.source import StoredSource, numbers, survey
from benchmarks.scale.tasks import CASES, PLENTY, Measured, Workers, checked, store
from providers import PROVIDERS
from providers.tables.digest import CHUNK_ROWS

WARM_ROWS = 100_000
"""Rows of the run that loads a worker's kernels before anything is measured."""

WARM_DIVIDED_ROWS = CHUNK_ROWS + WARM_ROWS
"""The same of a divided run, whose destination has two sections."""

ROUNDS = 3
"""Rounds in which the runs on one worker and on two are measured in turn."""

SIZES = (2_000_000, 8_000_000)
"""Rows of the tables on which costs are measured; of a divided job there are two sections or more."""

SMALLER = {
    "MEDS": (2_000_000, 4_000_000),
    "RWN": (4_000_000, 8_000_000),
    "LOCALITY": (2_000_000, 4_000_000),
    "RSWAP": (250_000, 1_000_000),
}
"""The same of services that take longer."""

UNITS = (2, 8)

WORKERS = (4, 16, 64, 256)
ROWS = (10**9, 10**10)
WORKER_MEMORY = 2 * 10**9
"""Memory of a worker in the predictions."""

_SCALED_UNITS = 2
"""Units of the jobs whose scaling is measured: one for each worker, since every unit looks at all rows."""

FITS, _CUT = 0.6, 0.1
"""Memory budgets as shares of what a run in memory needs: units fit, and they do not."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Workers, and tables of several sizes in their store."""

    workers: Workers
    blobs: BlobStore
    sources: dict[tuple[bool, int], StoredSource] = field(default_factory=dict)

    def source(self, service: str, rows: int) -> StoredSource:
        """Return the service's table of this many rows."""
        households = service == "RSWAP"
        if (households, rows) not in self.sources:
            self.sources[households, rows] = (survey if households else numbers)(self.blobs, rows)
        return self.sources[households, rows]

    def needed(self, service: str, rows: int) -> int:
        """Return the memory budget with which a table of this many rows runs in memory."""
        small = self.source(service, WARM_ROWS)
        table = BlobTable(small.access, small.rows)
        return memory_budget(PROVIDERS[service], table, checked(service, small.schema, rows), rows)

    def run(self, service: str, rows: int, memory: int, units: int) -> Measured:
        """Run a job once."""
        return self.workers.run(service, self.source(service, rows), memory, units)

    def run_together(self, service: str, rows: int, memory: int) -> float:
        """Run a whole job on each worker, all at the same time; return their seconds."""
        return self.workers.run_together(service, self.source(service, rows), memory)

    def warm(self, service: str, share: float, units: int) -> None:
        """Let each worker load the kernels of runs that get this share of the memory of a run in memory."""
        rows = WARM_ROWS if units == 1 else WARM_DIVIDED_ROWS
        memory = max(_LEAST_MEMORY, int(share * self.needed(service, rows)))
        if units == 1:
            self.run_together(service, rows, memory)
        else:
            self.run(service, rows, memory, units)


@contextmanager
def bench(workers: int) -> Iterator[Bench]:
    """Yield a bench with this many workers."""
    with store() as (folder, blobs):
        running = Workers(workers, folder, blobs)
        try:
            yield Bench(running, blobs)
        finally:
            running.close()


_LEAST_MEMORY = 2 * 10**6
"""Smallest memory budget of a run that only loads kernels."""


def costs_of(on: Bench, service: str) -> ServiceCosts:
    """Measure the costs of one service."""
    scaling = PROVIDERS[service].scaling
    sizes = SMALLER.get(service, SIZES)
    on.warm(service, 2.0, 1)
    # All that it writes, apart from the rows, are seals of the destination.
    in_memory = replace(
        step("whole", [on.run(service, rows, PLENTY, 1) for rows in sizes]), scratch=Line(0.0, 0.0, 0.0)
    )
    out_of_core = None
    if scaling.swap is not None:
        on.warm(service, _CUT, 1)
        runs = [on.run(service, rows, int(_CUT * on.needed(service, rows)), 1) for rows in sizes]
        out_of_core = step("whole", runs)
    if scaling.sharing is None:
        return ServiceCosts(in_memory, out_of_core, (), ())
    return ServiceCosts(in_memory, out_of_core, _divided(on, service, FITS), _divided(on, service, _CUT))


def _divided(on: Bench, service: str, share: float) -> tuple[StepCosts, ...]:
    sizes = SMALLER.get(service, SIZES)
    on.warm(service, share, UNITS[0])
    budgets = {rows: int(share * on.needed(service, rows)) for rows in sizes}
    return steps(
        [on.run(service, rows, memory, units) for rows, memory in budgets.items() for units in UNITS]
    )


def measure_costs(before: Costs, services: Sequence[str] = tuple(CASES)) -> Iterator[Costs]:
    """Measure the costs of services on one worker of one thread; yield all costs after each of them."""
    found = dict(before.services)
    with bench(1) as on:
        for service in services:
            found[service] = costs_of(on, service)
            print(f"  measured {service}", flush=True)
            yield Costs(f"{datetime.now(UTC).date()}, one thread of {_processor()}", found)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.processor() or platform.machine()


def scaling(
    rows: int,
    costs: Costs,
    services: Sequence[str] = tuple(CASES),
    rounds: int = ROUNDS,
    share: float = FITS,
) -> str:
    """Run jobs on one worker and on two, and return times, speed-up and the model's times as Markdown.

    The first run is not divided. All have the same memory, this share of what a run in memory takes. The
    times are medians of the rounds; the speed-up is that of each round, its median and its range. As its
    baseline, whole jobs at the same time on both workers show how much more two cores do than one: they share
    caches, memory, disk and the host.
    """
    lines = []
    with bench(1) as one, bench(2) as two:
        for service in services:
            if PROVIDERS[service].scaling.sharing is not None:
                lines.append(
                    [service, *_scaling_of(one, two, service, rows, costs.services[service], rounds, share)]
                )
                print("  ", *lines[-1], flush=True)
    header = [
        "service",
        "1 worker, whole",
        "1 worker, units",
        "2 workers",
        "speed-up",
        "two jobs at once",
        "model",
        "moved / least",
    ]
    return table(header, lines)


def _scaling_of(
    one: Bench, two: Bench, service: str, rows: int, costs: ServiceCosts, rounds: int, share: float
) -> list[str]:
    cut = PROVIDERS[service].scaling.swap is not None
    needed = one.needed(service, rows)
    memory = int(share * needed) if cut else PLENTY
    contenders = ((one, 1), (one, _SCALED_UNITS), (two, _SCALED_UNITS))
    for on, units in contenders:
        on.warm(service, share if cut else 2.0, units)
    two.warm(service, share if cut else 2.0, 1)
    jobs: list[list[Measured]] = []
    baselines = []
    for _ in range(rounds):
        jobs.append([on.run(service, rows, memory, units) for on, units in contenders])
        baselines.append(2 * jobs[-1][0].seconds / two.run_together(service, rows, memory))
    if len({job.digest for of_round in jobs for job in of_round}) != 1:
        raise RuntimeError(f"{service}: the destinations of {rows} rows differ")
    stored = one.source(service, rows).stored_bytes
    size = JobSize(rows, stored / rows, needed, long=not cut)
    models = [
        estimate(costs, size, _quiet(workers), memory, units).seconds
        for workers, units in ((1, 1), (1, _SCALED_UNITS), (2, _SCALED_UNITS))
    ]
    seconds = [[job.seconds for job in of_round] for of_round in jobs]
    ups = sorted(min(whole, divided) / shared for whole, divided, shared in seconds)
    return [
        *(f"{median(of_contender):.1f} s" for of_contender in zip(*seconds, strict=True)),
        f"{median(ups):.2f} ({ups[0]:.2f} to {ups[-1]:.2f})",
        f"{median(baselines):.2f} ({min(baselines):.2f} to {max(baselines):.2f})",
        ", ".join(f"{seconds:.1f}" for seconds in models),
        f"{_moved(jobs[0][2]) / (2 * stored):.1f}",
    ]


def _moved(job: Measured) -> int:
    return sum(task.read + task.written for tasks in job.steps.values() for task in tasks)


def growth(rows: int, memory: int, services: Sequence[str] = tuple(CASES)) -> str:
    """Run jobs out of core on tables of ``rows`` and of a tenth of it; return times and bytes as Markdown.

    The smaller table has a tenth of the memory, so that both run out of core.
    """
    lines = []
    for service in services:
        if PROVIDERS[service].scaling.swap is None:
            continue
        with bench(1) as on:  # a store for each service: the largest tables take gigabytes
            on.warm(service, _CUT, 1)
            small = on.run(
                service, rows // 10, min(memory // 10, int(FITS * on.needed(service, rows // 10))), 1
            )
            large = on.run(service, rows, min(memory, int(FITS * on.needed(service, rows))), 1)
            least = 2 * on.source(service, rows).stored_bytes
        (figures,) = large.steps["whole"]
        lines.append(
            [
                service,
                f"{small.seconds:.1f} s",
                f"{large.seconds:.1f} s",
                f"{large.seconds / small.seconds:.1f}",
                f"{figures.processor:.1f} s",
                f"{figures.peak / 1e6:,.0f} MB",
                f"{figures.read / 1e6:,.0f} MB",
                f"{figures.written / 1e6:,.0f} MB",
                f"{_moved(large) / least:.1f}",
            ]
        )
        print("  ", *lines[-1], flush=True)
    header = ["service", f"{rows // 10:.0e} rows", f"{rows:.0e} rows", "ratio", "processor", "peak", "read"]
    return table([*header, "written", "moved / least"], lines)


def _quiet(workers: int) -> Cluster:
    """Return workers that neither differ nor fail, with files in the memory of their machine."""
    memory = 3e9
    return Cluster(
        workers, memory, memory, start_seconds=0.0, spread=0.0, slow_share=0.0, losses_per_hour=0.0
    )


def prediction(costs: Costs, services: Sequence[str] = tuple(CASES)) -> str:
    """Return the model's times for many workers and rows as Markdown."""
    lines = []
    with bench(1) as on:
        for service in services:
            small = on.source(service, WARM_ROWS)
            for rows in ROWS:
                size = JobSize(rows, small.stored_bytes / WARM_ROWS, on.needed(service, rows))
                cells = [_predicted(costs.services[service], size, Cluster(workers)) for workers in WORKERS]
                lines.append([service, f"{rows:.0e}", *cells])
    return table(["service", "rows", *(f"{workers} workers" for workers in WORKERS)], lines)


def limits(costs: Costs, services: Sequence[str] = tuple(CASES)) -> str:
    """Return the model's times of 16 workers, with faster storage and without its costs, as Markdown."""
    today = Cluster(16)
    fast = replace(today, storage_bandwidth=10 * today.storage_bandwidth)
    instant = replace(today, storage_bandwidth=_INSTANT, worker_bandwidth=_INSTANT)
    lines = []
    with bench(1) as on:
        for service in services:
            if not costs.services[service].divided:
                continue
            small = on.source(service, WARM_ROWS)
            size = JobSize(ROWS[0], small.stored_bytes / WARM_ROWS, on.needed(service, ROWS[0]))
            predicted = (_predicted(costs.services[service], size, each) for each in (today, fast, instant))
            lines.append([service, *predicted])
    return table(["service", "storage of 2 GB/s", "of 20 GB/s", "without limit"], lines)


_INSTANT = 1e15
"""Bytes a second of a storage that costs no time."""


def sections(rows: int, large: int, memory: int) -> Iterator[str]:
    """Yield the measured scaling, the runs out of core, and the model's times, as Markdown."""
    costs = measured_costs()
    yield f"### Scaling, {rows:,} rows\n\n{scaling(rows, costs)}\n"
    yield f"### Out of core, {large:,} rows within at most {memory:,} bytes\n\n{growth(large, memory)}\n"
    yield f"### Model: more workers\n\n{prediction(costs)}\n"
    yield f"### Model: what limits {ROWS[0]:.0e} rows on 16 workers\n\n{limits(costs)}\n"


def _predicted(costs: ServiceCosts, size: JobSize, cluster: Cluster) -> str:
    try:
        found = best(costs, size, cluster, WORKER_MEMORY)
    except NotPossible:
        return "-"
    return f"{found.seconds:,.0f} s ({found.low:,.0f} to {found.high:,.0f}), {found.units}"
