"""Simulated jobs whose end is known exactly, and the rules for slow and lost workers."""

import pytest

from app.capacity.simulation import SLICES, Cluster, JobLost, Task, elapsed

CALM = {"start_seconds": 0.0, "spread": 0.0, "slow_share": 0.0, "losses_per_hour": 0.0}
"""Workers of the same speed that never fail."""


def cluster(workers: int, **changes: float) -> Cluster:
    return Cluster(workers, **(CALM | changes))  # type: ignore[arg-type]  # `repeats` is a whole number


@pytest.mark.parametrize(
    ("workers", "expected"), [(1, 60.0), (2, 30.0), (3, 20.0), (4, 20.0), (6, 10.0), (9, 10.0)]
)
def test_tasks_fill_the_workers_in_turns(workers: int, expected: float) -> None:
    assert elapsed(cluster(workers), [[Task(10.0, 0.0)] * 6], 1) == pytest.approx(expected)


def test_steps_follow_each_other_and_each_process_starts() -> None:
    steps = [[Task(1.0, 0.0)], [Task(4.0, 0.0)] * 4, [Task(2.0, 0.0)]]
    assert elapsed(cluster(4, start_seconds=0.5), steps, 1) == pytest.approx(1 + 4 + 2 + 3 * 0.5)


def test_a_worker_transfers_at_its_own_limit() -> None:
    """One worker alone: the storage would give more."""
    assert elapsed(cluster(1, worker_bandwidth=100.0), [[Task(3.0, 1000.0)]], 1) == pytest.approx(13.0)


def test_workers_share_the_storage() -> None:
    """Eight transfers of 1000 bytes at 400 bytes a second take 20 s, whatever each worker could do."""
    steps = [[Task(0.0, 1000.0)] * 8]
    shared = cluster(8, worker_bandwidth=400.0, storage_bandwidth=400.0)
    assert elapsed(shared, steps, 1) == pytest.approx(20.0)
    assert elapsed(cluster(8, worker_bandwidth=50.0, storage_bandwidth=400.0), steps, 1) == pytest.approx(
        20.0
    )


def test_transfers_of_some_overlap_with_the_computation_of_others() -> None:
    """Two tasks that start apart need hardly longer together than one: each has the storage in turn."""
    shared = cluster(2, worker_bandwidth=100.0, storage_bandwidth=100.0, spread=0.3)
    alone, both = (elapsed(shared, [[Task(10.0, 1000.0)] * tasks], 5) for tasks in (1, 2))
    assert both < 1.5 * alone
    assert both >= 20.0  # 2000 bytes at 100 bytes a second


def test_a_seed_gives_the_same_run() -> None:
    steps = [[Task(5.0, 100.0)] * 20]
    restless = Cluster(4, slow_share=0.2, losses_per_hour=10.0)
    assert elapsed(restless, steps, 3) == elapsed(restless, steps, 3) != elapsed(restless, steps, 4)


def test_a_slow_run_is_overtaken_by_its_second_run() -> None:
    """A run takes a hundred times as long; after three medians another one starts, and ends first."""
    steps = [[Task(10.0, 0.0)] * 8]
    slow = {"slow_share": 0.15, "slow_factor": 100.0}
    unrepeated, repeated = cluster(8, repeat_factor=0.0, **slow), cluster(8, **slow)
    slowed = [seed for seed in range(20) if elapsed(unrepeated, steps, seed) > 999.0]
    assert len(slowed) > 5
    found = sorted(elapsed(repeated, steps, seed) for seed in slowed)
    assert found[len(found) // 2] == pytest.approx(40.0)  # of some, the second run is slow as well


def test_no_slow_run_is_repeated_while_all_workers_are_busy() -> None:
    slow = cluster(1, slow_share=1.0, slow_factor=2.0)
    assert elapsed(slow, [[Task(10.0, 0.0)] * 3], 1) == pytest.approx(60.0)


def test_a_lost_unit_starts_again() -> None:
    """With one loss in a minute, runs of 60 s are lost often; each loss costs what was done."""
    lossy = cluster(1, losses_per_hour=60.0, repeats=10**6)
    times = [elapsed(lossy, [[Task(60.0, 0.0)]], seed) for seed in range(200)]
    # A run of t seconds under losses at rate r takes (exp(rt) - 1) / r seconds in the mean.
    assert sum(times) / len(times) == pytest.approx(60 * (2.718281828 - 1), rel=0.2)
    assert min(times) == pytest.approx(60.0)


def test_a_job_that_loses_too_many_workers_is_lost() -> None:
    with pytest.raises(JobLost, match="a unit lost 1 workers"):
        elapsed(cluster(2, losses_per_hour=1e6, repeats=0), [[Task(60.0, 0.0)]], 1)


def test_slices_add_up() -> None:
    assert elapsed(cluster(1, worker_bandwidth=1.0), [[Task(SLICES / 3, SLICES / 7)]], 1) == pytest.approx(
        SLICES / 3 + SLICES / 7
    )


def test_a_unit_is_looked_at_once_at_the_time_it_becomes_late() -> None:
    """Its beginning and the limit may add up to a time that is too early by rounding."""
    steps = [[Task(1000.0, 0.0)], [Task(70.0, 0.0)] * 8]
    assert min(elapsed(Cluster(4, slow_share=0.3), steps, seed) for seed in range(40)) > 900.0
