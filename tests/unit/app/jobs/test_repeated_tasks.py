"""Tasks of a step are started again when their worker was lost or when they are slow, and count once."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.engine import CANCELLED, WORKER_DIED, Failure, Outcome
from app.jobs.units.repeated_tasks import LOST, SLOW, RepeatedTasks, RepeatPolicy, Step, Stop
from app.worker.run_units import SECONDS

GONE = Failure(WORKER_DIED, "the worker was killed", lost=True)
CRASHED = Failure(WORKER_DIED, "the worker crashed")


class FakeEngine:
    """An engine whose runs end as the test says."""

    def __init__(self) -> None:
        self.free = 100
        self.now = 0.0
        self.ends: dict[str, asyncio.Future[Outcome]] = {}
        self.since: dict[str, float] = {}
        self.apart: dict[str, str | None] = {}
        self.cancelled: list[str] = []

    def capacity(self, apart_from: str | None = None) -> int:
        return self.free

    def run(
        self, task_id: str, function: Any, task: Any, apart_from: str | None = None, *, owner: str
    ) -> asyncio.Task[Outcome]:
        assert task_id not in self.ends
        assert owner == "ann"
        self.ends[task_id] = asyncio.get_running_loop().create_future()
        self.since[task_id] = self.now
        self.apart[task_id] = apart_from
        return asyncio.ensure_future(self._outcome(task_id))

    async def _outcome(self, task_id: str) -> Outcome:
        return await self.ends[task_id]

    def running_since(self, task_id: str) -> float | None:
        return self.since.get(task_id)

    async def cancel(self, task_id: str) -> None:
        self.cancelled.append(task_id)
        self.end(task_id, Failure(CANCELLED, "cancelled"))

    def end(self, task_id: str, outcome: Outcome) -> None:
        if not self.ends[task_id].done():
            self.ends[task_id].set_result(outcome)


class Bench:
    """Some tasks that run in a fake engine."""

    def __init__(self, tasks: int, policy: RepeatPolicy, whole: int = 0) -> None:
        self.engine = FakeEngine()
        self.repeats: Counter[str] = Counter()
        self.results: list[int] = []
        self.losers: list[int] = []
        self.stop = Stop()

        def record(number: int) -> Callable[[int], Any]:
            return lambda run: (number, run)

        step = Step("unit", lambda task: {}, [record(number) for number in range(tasks)], whole)
        engine: Any = self.engine
        self.tasks = RepeatedTasks(engine, "job", "ann", step, self.stop, policy, self._count)
        self.tasks.on_result = lambda number, result: self.results.append(number)
        self.tasks.on_loser = lambda number, result: self.losers.append(number)
        self.running = asyncio.ensure_future(self.tasks.run())

    def _count(self, reason: str) -> None:
        self.repeats[reason] += 1

    async def end(self, number: int, run: int, outcome: Outcome) -> None:
        """End a run, and let everything happen that follows from it."""
        await self.settle()
        self.engine.end(f"job/unit/{number}/{run}", outcome)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and the durations be compared."""
        self.engine.now += seconds
        self.tasks._start_slow_ones_again()
        await self.settle()

    async def found(self) -> list[dict[str, Any]]:
        """The results of all tasks."""
        found = await self.running
        assert not isinstance(found, Failure)
        return found

    def started(self) -> list[str]:
        return [run.removeprefix("job/unit/") for run in self.engine.ends]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a scenario with a bench whose clock is that of its engine."""

    def run_scenario(
        scenario: Callable[[Bench], Coroutine[Any, Any, None]], tasks: int = 3, whole: int = 0, **policy: Any
    ) -> None:
        async def main() -> None:
            bench = Bench(tasks, RepeatPolicy(**policy), whole)
            monkeypatch.setattr("app.jobs.units.repeated_tasks.time.monotonic", lambda: bench.engine.now)
            await bench.settle()
            await scenario(bench)
            bench.running.cancel()

        asyncio.run(main())

    return run_scenario


def done(seconds: Any = 1.0, name: str = "") -> dict[str, Any]:
    return {"name": name, SECONDS: seconds}


def test_results_come_in_the_order_of_the_tasks(run: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        for number in (2, 0, 1):
            await bench.end(number, 0, done(name=str(number)))
        found = await bench.found()
        assert [result["name"] for result in found] == ["0", "1", "2"]
        assert bench.results == [2, 0, 1]
        assert not bench.repeats

    run(scenario)


def test_a_lost_task_is_started_again_until_its_repeats_are_used_up(run: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        for attempt in range(2):
            await bench.end(1, attempt, GONE)
            assert not bench.running.done()
        assert bench.started() == ["0/0", "1/0", "2/0", "1/1", "1/2"]
        await bench.end(0, 0, GONE)  # each task has repeats of its own
        await bench.end(1, 2, GONE)
        assert await bench.running is GONE
        assert set(bench.engine.cancelled) == {"job/unit/0/1", "job/unit/2/0"}
        assert bench.repeats == {LOST: 3}

    run(scenario, repeats=2)


def test_a_task_that_fails_by_itself_stops_all_at_once(run: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.end(2, 0, CRASHED)
        assert await bench.running is CRASHED
        assert set(bench.engine.cancelled) == {"job/unit/0/0", "job/unit/1/0"}
        assert not bench.repeats

    run(scenario)


def test_without_repeats_a_lost_worker_fails_the_job(run: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.end(2, 0, GONE)
        assert await bench.running is GONE

    run(scenario, repeats=0)


def test_a_slow_task_is_started_a_second_time_and_the_first_result_counts(run: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.end(0, 0, done(2.0))
        await bench.end(1, 0, done(4.0))
        await bench.pass_time(9.0)  # three times the median of 3
        assert bench.started() == ["0/0", "1/0", "2/0"]
        await bench.pass_time(0.1)
        assert bench.started()[3:] == ["2/1"]
        assert bench.engine.apart["job/unit/2/1"] == "job/unit/2/0"
        await bench.pass_time(1000.0)
        assert bench.started()[4:] == []  # once
        await bench.end(2, 1, done(5.0, "second"))
        found = await bench.found()
        assert found[2]["name"] == "second"
        assert bench.engine.cancelled == ["job/unit/2/0"]
        assert (bench.results, bench.losers) == ([0, 1, 2], [2])
        assert bench.repeats == {SLOW: 1}

    run(scenario)


def test_a_task_of_all_rows_is_slow_compared_with_all_others_together(run: Callable[..., None]) -> None:
    """It takes longer than each of them; its own duration makes none of them slow, or quick."""

    async def scenario(bench: Bench) -> None:
        await bench.end(1, 0, done(2.0))
        await bench.pass_time(10.0)  # five times the other; task 2 has not ended
        assert bench.started()[3:] == ["2/1"]
        await bench.end(2, 0, done(4.0))
        await bench.pass_time(8.0)  # 18 s: three times 2 + 4
        assert bench.started()[4:] == []
        await bench.pass_time(0.1)
        assert bench.started()[4:] == ["0/1"]
        await bench.pass_time(1000.0)
        assert bench.started()[5:] == []  # once
        await bench.end(0, 1, done(5.0, "second"))
        found = await bench.found()
        assert [result["name"] for result in found] == ["second", "", ""]
        assert bench.repeats == {SLOW: 2}

    run(scenario, whole=1)


def test_if_both_runs_end_at_once_one_counts(run: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.end(0, 0, done())
        await bench.pass_time(100.0)
        bench.engine.end("job/unit/1/1", done(name="second"))
        bench.engine.end("job/unit/1/0", done(name="first"))
        found = await bench.found()
        assert [result["name"] for result in found] == ["", "first"]
        assert bench.results == [0, 1]

    run(scenario, tasks=2)


def test_only_a_free_worker_starts_a_slow_task_again(run: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.end(0, 0, done())
        bench.engine.free = 0
        await bench.pass_time(100.0)
        assert bench.started() == ["0/0", "1/0"]
        bench.engine.free = 1
        await bench.pass_time(1.0)
        assert bench.started()[2:] == ["1/1"]

    run(scenario, tasks=2)


def test_of_two_runs_one_may_be_lost_without_a_repeat(run: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.end(0, 0, done())
        await bench.pass_time(100.0)
        await bench.end(1, 0, GONE)
        assert bench.started() == ["0/0", "1/0", "1/1"]
        await bench.end(1, 1, GONE)
        assert bench.started()[3:] == ["1/2"]
        await bench.pass_time(100.0)
        assert bench.started()[4:] == []  # it has had its second run
        await bench.end(1, 2, done())
        assert isinstance(await bench.running, list)
        assert bench.repeats == {SLOW: 1, LOST: 1}

    run(scenario, tasks=2)


@pytest.mark.parametrize("seconds", [None, "1", -1.0, float("nan"), float("inf"), True])
def test_a_malformed_duration_makes_no_task_slow(run: Callable[..., None], seconds: Any) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.end(0, 0, done(seconds))
        await bench.pass_time(1e9)
        assert bench.started() == ["0/0", "1/0"]

    run(scenario, tasks=2)


@pytest.mark.parametrize(("factor", "waiting"), [(0, False), (3.0, True)])
def test_a_task_that_waits_for_a_worker_is_not_slow(
    run: Callable[..., None], factor: float, waiting: bool
) -> None:
    """Nor is any without a factor."""

    async def scenario(bench: Bench) -> None:
        if waiting:
            del bench.engine.since["job/unit/1/0"]
        await bench.end(0, 0, done())
        await bench.pass_time(1e9)
        assert bench.started() == ["0/0", "1/0"]

    run(scenario, tasks=2, slow_factor=factor)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["done", "lost", "slow", "crash"])), max_size=40)
)
def test_whatever_happens_each_result_counts_once(events: list[tuple[int, str]]) -> None:
    """And a task is lost at most as often as it may be repeated, and doubled at most once."""

    async def main() -> None:
        bench = Bench(4, RepeatPolicy(repeats=2))
        await bench.settle()
        for place, event in events:
            left = [run for run, end in bench.engine.ends.items() if not end.done()]
            if not left:
                break
            chosen = left[place % len(left)]
            match event:
                case "slow":
                    bench.engine.since = dict.fromkeys(bench.engine.since, time.monotonic() - 1e6)
                    bench.tasks._start_slow_ones_again()
                case "done":
                    bench.engine.end(chosen, done())
                case "lost":
                    bench.engine.end(chosen, GONE)
                case _:
                    bench.engine.end(chosen, CRASHED)
            await bench.settle()
        assert len(bench.results) == len(set(bench.results))
        runs = Counter(run.split("/")[0] for run in bench.started())
        assert all(number <= 1 + 2 + 1 for number in runs.values())
        if bench.running.done():
            found = await bench.running
            assert isinstance(found, Failure) or sorted(bench.results) == [0, 1, 2, 3]
            assert all(end.done() for end in bench.engine.ends.values())
        bench.running.cancel()

    asyncio.run(main())
