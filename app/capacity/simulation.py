"""Discrete-event simulation of a divided job: workers, storage of limited bandwidth, slow and lost workers.

A task alternates between transfers and computation, in `SLICES` slices each, because a worker reads a batch,
works on it and reads the next. Transfers at the same time share the bandwidth of the storage equally, up to
the limit of each worker. Units that take long and units of lost workers are started again by the rules of
`app.jobs.units.repeated_tasks`.
"""

import heapq
import random
from bisect import insort
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
    transfers: bool = False
    stopped: bool = False


@dataclass(slots=True)
class _Step:
    """State of the tasks of one step.

    Transfers at the same time have the same rate. ``moved`` counts the bytes of a transfer that never ends.
    So a transfer of b bytes that begins at count m ends at count m + b, however many other transfers begin
    and end.
    """

    cluster: Cluster
    tasks: Sequence[Task]
    chance: random.Random
    now: float
    free: int
    waiting: list[int] = field(default_factory=list)
    events: list[tuple[float, int, str, _Run]] = field(default_factory=list)
    moved: float = 0.0
    transfers: int = 0
    ends: list[tuple[float, int, _Run]] = field(default_factory=list)
    """Transfers by the count at which they end; stopped ones stay until they come first."""
    late: list[_Run] = field(default_factory=list)
    """Slow runs that wait for a free worker to start their task a second time."""
    running: dict[int, list[_Run]] = field(default_factory=dict)
    durations: list[float] = field(default_factory=list)
    """Seconds of the tasks that have ended, in order."""
    losses: dict[int, int] = field(default_factory=dict)
    repeated: set[int] = field(default_factory=set)
    number: int = 0

    def run(self) -> float:
        """Run the step. Return the time of its end. Raises JobLost."""
        self.waiting = list(range(len(self.tasks)))[::-1]
        self._start_waiting()
        while len(self.durations) < len(self.tasks):
            rate = self._rate()
            at_event = self.events[0][0] if self.events else float("inf")
            at_transfer = (
                self.now + (self.ends[0][0] - self.moved) / rate if self._transferring() else float("inf")
            )
            at = min(at_event, at_transfer)
            self.moved += (at - self.now) * rate
            self.now = at
            if at_transfer <= at_event:
                self._computes(heapq.heappop(self.ends)[2])
            else:
                _, _, kind, run = heapq.heappop(self.events)
                getattr(self, kind)(run)
        return self.now

    def _rate(self) -> float:
        """Return the bytes a second of each transfer."""
        return min(self.cluster.worker_bandwidth, self.cluster.storage_bandwidth / max(1, self.transfers))

    def _transferring(self) -> bool:
        """Return whether a transfer runs, and remove stopped ones from the front of ``ends``."""
        while self.ends and self.ends[0][2].stopped:
            heapq.heappop(self.ends)
        return bool(self.ends)

    def _at(self, time: float, kind: str, run: _Run) -> None:
        self.number += 1
        heapq.heappush(self.events, (time, self.number, kind, run))

    def _start_waiting(self) -> None:
        while self.free and self.waiting:
            self._begin(self.waiting.pop())
        late, self.late = self.late, []
        for run in late:
            self._slow(run)

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
            run.transfers = True
            self.transfers += 1
            self.number += 1
            heapq.heappush(self.ends, (self.moved + run.slice_bytes, self.number, run))

    def _computes(self, run: _Run) -> None:
        self._leave_transfers(run)
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
        insort(self.durations, self.now - run.began)
        if len(self.durations) == 1:
            for other in [each for runs in self.running.values() for each in runs]:
                self._watch(other)
        self._start_waiting()

    def _stop_all(self, number: int) -> None:
        for run in self.running.pop(number):
            run.stopped = True
            self.free += 1
            self._leave_transfers(run)

    def _leave_transfers(self, run: _Run) -> None:
        self.transfers -= run.transfers
        run.transfers = False

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
        last = len(self.durations) - 1
        return self.cluster.repeat_factor * (self.durations[last // 2] + self.durations[(last + 1) // 2]) / 2

    def _slow(self, run: _Run) -> None:
        """Start the task a second time, if it is slow and a worker is free."""
        if run.stopped or run.task in self.repeated:
            return
        late = run.began + max(LEAST_REPEAT_SECONDS, self._limit())
        if self.now < late:
            self._at(late, "_slow", run)
        elif self.free and not self.waiting:
            self.repeated.add(run.task)
            self._begin(run.task)
        else:
            self.late.append(run)


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
