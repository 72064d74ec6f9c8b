"""Order of a queue whose jobs are placed by `turn_after`."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from app.jobs.fairness.turns import turn_after
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
