"""Order of a queue whose jobs are placed by `turn_after`, and tasks of requests that wait for them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.callers import Caller
from app.engine.engine import CANCELLED, Failure
from app.errors import AppError, TimeLimit, Unavailable
from app.jobs.fairness.turns import Turns, turn_after
from app.jobs.requests import Priority

NOW = datetime(2026, 11, 23, tzinfo=UTC)


class Queue:
    """A queue and one worker, without a database."""

    def __init__(self, weight: float = 4.0) -> None:
        self.weight = weight
        self.count = 0
        self.clock = NOW
        self.queued: list[tuple[datetime, int, str, Priority]] = []
        self.running: tuple[datetime, int, str, Priority] | None = None

    def submit(self, owner: str, priority: Priority = "normal", count: int = 1) -> None:
        for _ in range(count):
            active = [*self.queued, *([self.running] if self.running else [])]
            own = [job[0] for job in active if job[2:] == (owner, priority)]
            self.queued.append(
                (turn_after(priority, self.weight, self.clock, own), self.count, owner, priority)
            )
            self.count += 1

    def start(self) -> str:
        """End the running job, and start the first one; return its owner."""
        self.running = min(self.queued)
        self.queued.remove(self.running)
        self.clock = max(self.clock, self.running[0])
        return self.running[2]

    def owners(self, count: int) -> str:
        return "".join(self.start() for _ in range(count))


def test_a_newcomer_goes_after_one_job_of_a_backlog() -> None:
    queue = Queue()
    queue.submit("a", count=1000)
    queue.start()
    for _ in range(50):
        queue.submit("b")
        assert "b" in queue.owners(2)


def test_a_caller_that_waits_for_each_job_gets_every_second_start() -> None:
    """Neither the short queue nor the long one gets more than its share."""
    queue = Queue()
    queue.submit("a", count=500)
    queue.submit("b")
    order = ""
    while len(order) < 400:
        order += queue.start()
        if order[-1] == "b":
            queue.submit("b")
    assert 190 <= order.count("b") <= 210


@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_priorities_share_the_starts_by_weight(weight: float) -> None:
    queue = Queue(weight)
    for owner, priority in (("h", "high"), ("n", "normal"), ("l", "low")):
        queue.submit(owner, priority, 1000)  # type: ignore[arg-type]
    started = Counter(queue.owners(630))
    shares = {owner: started[owner] / 630 for owner in "hnl"}
    total = weight + 1 + 1 / weight
    assert shares == pytest.approx({"h": weight / total, "n": 1 / total, "l": 1 / weight / total}, abs=0.01)


def test_no_job_waits_forever() -> None:
    """However many jobs of high priority come, from however many callers."""
    queue = Queue()
    queue.submit("l", "low")
    for number in range(400):
        for owner in "abc":
            queue.submit(owner, "high", 2)
        if queue.start() == "l":
            assert number < 100
            break
    else:
        raise AssertionError("the job of low priority never started")


def test_owners_of_backlogs_take_turns() -> None:
    queue = Queue()
    for owner in "abc":
        queue.submit(owner, count=40)
    order = queue.owners(120)
    for round_of in range(0, 117, 3):
        assert sorted(order[round_of + 2 : round_of + 5]) == ["a", "b", "c"]


def test_work_of_the_past_does_not_count() -> None:
    """A caller that had all workers while nobody else came is not behind those who come now."""
    queue = Queue()
    queue.submit("a", count=500)
    queue.owners(500)
    queue.submit("a")
    queue.submit("b", count=20)
    assert "a" in queue.owners(3)


def test_a_job_alone_of_low_priority_is_overtaken() -> None:
    queue = Queue()
    queue.submit("a", "low")
    queue.submit("b", "normal")
    queue.submit("c", "high")
    assert queue.owners(3) == "cba"


class Engine:
    """An engine whose tasks end when they are cancelled, and not before."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Future[Any]] = {}

    def run(self, task_id: str, function: Any, task: Any, owner: str) -> asyncio.Future[Any]:
        self.running[task_id] = asyncio.get_running_loop().create_future()
        return self.running[task_id]

    async def cancel(self, task_id: str) -> None:
        self.running.pop(task_id).set_result(Failure(CANCELLED, "the task was cancelled"))


class Limits:
    """No limits."""

    @contextmanager
    def task_of(self, owner: str) -> Iterator[None]:
        yield

    def admit_task(self, session: None, owner: str) -> SimpleNamespace:
        return SimpleNamespace(own_turn=None, clock=NOW)


class Database:
    @contextmanager
    def read(self) -> Iterator[None]:
        yield


def error_of_a_long_task(give_workers: Callable[[Turns], None]) -> AppError:
    """Return the error of a request that waits too long; ``give_workers`` is called when its task waits."""
    engine = Engine()

    async def run() -> AppError:
        with ThreadPoolExecutor(1) as threads:
            turns = Turns(*cast(Any, (engine, Database(), Limits(), threads, 4.0)))
            turns.on_wait = lambda: give_workers(turns)
            with pytest.raises(AppError) as caught:
                await turns.result(lambda task: {}, None, Caller("a"), 0.1)
            assert not engine.running  # no worker goes on with it
            assert turns.waiting() == []
            return caught.value

    return asyncio.run(run())


def test_a_request_learns_whether_a_worker_began() -> None:
    """A repetition may find a free worker; it does not shorten the work."""
    late = error_of_a_long_task(lambda turns: turns.start(turns.waiting()[0]))
    assert type(late) is TimeLimit
    assert late.headers() == {}  # clients repeat by themselves what has a Retry-After
    assert "0.1 seconds, the longest time that a request waits (ROWVEIL_MAX_WAIT_SECONDS)" in late.message
    busy = error_of_a_long_task(lambda turns: None)
    assert type(busy) is Unavailable
    assert busy.message == "no worker became free in time; try again"


def test_tasks_that_wait_start_when_turns_end() -> None:
    """Nothing is claimed any more when the service stops, so that nothing starts them otherwise."""
    assert type(error_of_a_long_task(Turns.release)) is TimeLimit
