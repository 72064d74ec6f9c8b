"""Discrete-event simulation of a divided job: workers, storage of limited bandwidth, slow and lost workers.

A task alternates between transfers and computation, in `SLICES` slices each, because a worker reads a batch,
works on it and reads the next. Transfers at the same time share the bandwidth of the storage equally, up to
the limit of each worker. Units that take long and units of lost workers are started again by the rules of
`app.jobs.units.repeated_tasks`.
"""

import heapq
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

SLICES = 12
"""Slices of a task's transfers and computation."""


@dataclass(frozen=True, slots=True)
class Task:
    """Demand of one task."""

    seconds: float
    """Processor time on a worker of normal speed."""
    transferred: float
    """Bytes read and written."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Workers and storage, with the assumptions about their faults."""

    workers: int
    worker_bandwidth: float = 500e6
    """Most bytes a second that one worker transfers."""
    storage_bandwidth: float = 2e9
    """Most bytes a second that all workers together transfer."""
    start_seconds: float = 0.3
    """Time to start a task's process."""
    spread: float = 0.05
    """Standard deviation of the logarithm of a task's processor time."""
    slow_share: float = 0.01
    """Share of the task runs that meet a slow worker."""
    slow_factor: float = 5.0
    """Multiple of the processor time that such a run takes."""
    losses_per_hour: float = 0.001
    """Losses of each worker in an hour of work."""
    repeat_factor: float = 3.0
    """Multiple of the median time at which a unit is started a second time (`ROWVEIL_SLOW_UNIT_FACTOR`);
    0: never."""
    repeats: int = 3
    """Times that a unit of a lost worker is started again (`ROWVEIL_UNIT_REPEATS`)."""


LEAST_REPEAT_SECONDS = 2.0
"""Shortest run that is started a second time."""


class JobLost(Exception):
    """A unit lost more workers than it may."""


@dataclass(slots=True)
class _Run:
    """One run of a task on one worker."""

    task: int
    began: float
    slice_seconds: float
    slice_bytes: float
    lost_at: float
    left: int = SLICES
    pending: float = 0.0
    """Bytes left of the current transfer."""
    stopped: bool = False


@dataclass(slots=True)
class _Step:
    """State of the tasks of one step."""

    cluster: Cluster
    tasks: Sequence[Task]
    chance: random.Random
    now: float
    free: int
    waiting: list[int] = field(default_factory=list)
    events: list[tuple[float, int, str, _Run]] = field(default_factory=list)
    transfers: list[_Run] = field(default_factory=list)
    running: dict[int, list[_Run]] = field(default_factory=dict)
    durations: list[float] = field(default_factory=list)
    losses: dict[int, int] = field(default_factory=dict)
    repeated: set[int] = field(default_factory=set)
    number: int = 0

    def run(self) -> float:
        """Run the step. Return the time of its end. Raises JobLost."""
        self.waiting = list(range(len(self.tasks)))[::-1]
        self._start_waiting()
        while len(self.durations) < len(self.tasks):
            at_event = self.events[0][0] if self.events else float("inf")
            rate, first = self._next_transfer()
            at_transfer = self.now + first.pending / rate if first is not None else float("inf")
            at = min(at_event, at_transfer)
            self._transfer(at, rate)
            if first is not None and at_transfer <= at_event:
                self._computes(first)
            else:
                _, _, kind, run = heapq.heappop(self.events)
                getattr(self, kind)(run)
        return self.now

    def _next_transfer(self) -> tuple[float, _Run | None]:
        """Return the present rate of each transfer, and the transfer that ends first."""
        if not self.transfers:
            return 0.0, None
        rate = min(self.cluster.worker_bandwidth, self.cluster.storage_bandwidth / len(self.transfers))
        return rate, min(self.transfers, key=lambda run: run.pending)

    def _transfer(self, until: float, rate: float) -> None:
        moved = (until - self.now) * rate
        for run in self.transfers:
            run.pending -= moved
        self.now = until

    def _at(self, time: float, kind: str, run: _Run) -> None:
        self.number += 1
        heapq.heappush(self.events, (time, self.number, kind, run))

    def _start_waiting(self) -> None:
        while self.free and self.waiting:
            self._begin(self.waiting.pop())

    def _begin(self, number: int) -> None:
        task, cluster = self.tasks[number], self.cluster
        seconds = task.seconds * self.chance.lognormvariate(0.0, cluster.spread)
        if self.chance.random() < cluster.slow_share:
            seconds *= cluster.slow_factor
        rate = cluster.losses_per_hour / 3600
        lost_at = self.now + self.chance.expovariate(rate) if rate else float("inf")
        run = _Run(number, self.now, seconds / SLICES, task.transferred / SLICES, lost_at)
        self.free -= 1
        self.running.setdefault(number, []).append(run)
        self._at(self.now + cluster.start_seconds, "_started", run)
        if self.durations:
            self._watch(run)

    def _started(self, run: _Run) -> None:
        if not run.stopped:
            run.pending = run.slice_bytes
            self.transfers.append(run)

    def _computes(self, run: _Run) -> None:
        self.transfers.remove(run)
        end = self.now + run.slice_seconds
        kind = "_lost" if end > run.lost_at else "_sliced"
        self._at(max(self.now, min(end, run.lost_at)), kind, run)

    def _sliced(self, run: _Run) -> None:
        if run.stopped:
            return
        run.left -= 1
        if run.left:
            self._started(run)
        else:
            self._ended(run)

    def _ended(self, run: _Run) -> None:
        self._stop_all(run.task)
        self.durations.append(self.now - run.began)
        if len(self.durations) == 1:
            for other in [each for runs in self.running.values() for each in runs]:
                self._watch(other)
        self._start_waiting()

    def _stop_all(self, number: int) -> None:
        for run in self.running.pop(number):
            run.stopped = True
            self.free += 1
            if run in self.transfers:
                self.transfers.remove(run)

    def _lost(self, run: _Run) -> None:
        if run.stopped:
            return
        run.stopped = True
        runs = self.running[run.task]
        runs.remove(run)
        self.free += 1  # the next worker that registers takes its place
        count = self.losses[run.task] = self.losses.get(run.task, 0) + 1
        if count > self.cluster.repeats:
            raise JobLost(f"a unit lost {count} workers")
        if not runs:
            self.waiting.append(run.task)
        self._start_waiting()

    def _watch(self, run: _Run) -> None:
        if self.cluster.repeat_factor:
            at = run.began + max(LEAST_REPEAT_SECONDS, self._limit())
            self._at(max(self.now, at), "_slow", run)

    def _limit(self) -> float:
        return self.cluster.repeat_factor * statistics.median(self.durations)

    def _slow(self, run: _Run) -> None:
        """Start the task a second time, if it is slow and a worker is free."""
        if run.stopped or run.task in self.repeated:
            return
        limit = max(LEAST_REPEAT_SECONDS, self._limit())
        if self.now - run.began < limit:
            self._at(run.began + limit, "_slow", run)
        elif self.free and not self.waiting:
            self.repeated.add(run.task)
            self._begin(run.task)
        else:
            self._at(self.now + 1.0, "_slow", run)  # the service looks once a second


def elapsed(cluster: Cluster, steps: Sequence[Sequence[Task]], seed: int) -> float:
    """Simulate a job once and return its seconds.

    Parameters
    ----------
    cluster
    steps
        Tasks of each step; a step begins when the one before has ended.
    seed
        Seed of the faults and of the spread.

    Raises JobLost.
    """
    chance, now = random.Random(seed), 0.0  # noqa: S311 - a simulation, nothing secret
    for tasks in steps:
        now = _Step(cluster, tasks, chance, now, cluster.workers).run()
    return now
