"""Estimates from costs: the way a job runs, what it reads and writes, and which number of units is best."""

import pytest

from app.capacity.costs import (
    EACH,
    ONE,
    SECTION,
    SINGLETONS,
    Costs,
    Line,
    ServiceCosts,
    StepCosts,
    dumped,
    measured_costs,
    parsed,
)
from app.capacity.estimate import JobSize, NotPossible, best, estimate
from app.capacity.simulation import Cluster
from providers import PROVIDERS
from providers.tables.digest import CHUNK_ROWS

NOTHING = Line(0.0, 0.0, 0.0)
CALM = Cluster(4, 1e30, 1e30, start_seconds=0.0, spread=0.0, slow_share=0.0, losses_per_hour=0.0)


def costs(name: str, tasks: str, of_job: float, of_task: float) -> StepCosts:
    """Seconds by rows, a byte read for each row of the job, two written and one left for each of the task."""
    return StepCosts(
        name, tasks, Line(0.0, of_job, of_task), Line(0.0, 1.0, 0.0), Line(0.0, 0.0, 2.0), Line(0.0, 0.0, 1.0)
    )


SERVICE = ServiceCosts(
    costs("whole", ONE, 0.0, 1.0),
    costs("whole", ONE, 0.0, 4.0),
    (costs("divide", ONE, 0.0, 0.0), costs("unit", EACH, 0.1, 2.0), costs("gather", ONE, 0.0, 0.5)),
    (costs("divide", ONE, 0.0, 0.0), costs("unit", EACH, 0.1, 5.0), costs("gather", ONE, 0.0, 0.5)),
)


def size(memory: int = 1000, row_bytes: float = 32.0, *, can_cut: bool = True, long: bool = False) -> JobSize:
    return JobSize(100, row_bytes, memory, can_cut, long)


@pytest.mark.parametrize(
    ("given", "units", "way", "seconds"),
    [
        (size(), 8, "in memory", 100.0),
        (size(5000), 1, "out of core", 400.0),
        (size(4000), 4, "divided", 10 + 50 + 50),
        (size(4001), 4, "divided", 10 + 125 + 50),  # the units do not fit
        (size(8000), 8, "divided", 2 * (10 + 25) + 50),  # eight units on four workers
        (size(long=True), 4, "divided", 10 + 50 + 50),
        (size(row_bytes=64.0), 1, "in memory", 200.0),
    ],
)
def test_a_job_runs_as_the_service_would_run_it(given: JobSize, units: int, way: str, seconds: float) -> None:
    found = estimate(SERVICE, given, CALM, 1000, units)
    assert (found.way, found.units) == (way, units if way == "divided" else 1)
    assert found.seconds == found.low == found.high == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("rows", "units", "seconds"), [(CHUNK_ROWS, 4, 1.0), (CHUNK_ROWS + 1, 4, 0.5), (10 * CHUNK_ROWS, 4, 0.25)]
)
def test_no_section_is_smaller_than_a_chunk_of_the_digest(rows: int, units: int, seconds: float) -> None:
    service = ServiceCosts(SERVICE.in_memory, None, (costs(SECTION, EACH, 0.0, 1.0),), ())
    found = estimate(service, JobSize(rows, 32.0, 1000, long=True), CALM, 1000, units)
    assert found.seconds == pytest.approx(rows * seconds)


@pytest.mark.parametrize(("of_all", "seconds"), [(0.2, 45.0), (0.7, 70.0)])
def test_singletons_are_found_while_the_pieces_run(of_all: float, seconds: float) -> None:
    """Four pieces of 25 rows each, and one task of all 100 rows, on four workers."""
    steps = (costs(SINGLETONS, ONE, 0.0, of_all), costs("piece", EACH, 0.0, 1.0))
    given = ServiceCosts(SERVICE.in_memory, None, steps, ())
    assert estimate(given, size(long=True), CALM, 1000, 4).seconds == pytest.approx(seconds)


def test_bytes_count_for_each_task() -> None:
    """Division, four units and assembly read 100 bytes each, and write 2 a row of their own."""
    found = estimate(SERVICE, size(4000), CALM, 1000, 4)
    assert (found.read_bytes, found.written_bytes, found.scratch_bytes) == pytest.approx((600, 600, 300))


@pytest.mark.parametrize("given", [size(1001, can_cut=False), size(10**6, can_cut=False)])
def test_a_job_that_cannot_run_says_what_helps(given: JobSize) -> None:
    for units in (1, 8):
        with pytest.raises(NotPossible, match=f"{given.memory_bytes} bytes.*ROWVEIL_WORKER_MEMORY_BYTES"):
            estimate(SERVICE, given, CALM, 1000, units)
    with pytest.raises(NotPossible):
        best(SERVICE, given, CALM, 1000)


def test_the_best_number_of_units_is_the_quickest() -> None:
    """Four units on four workers: with eight, all rows are read four times more."""
    found = best(SERVICE, size(4000), CALM, 1000)
    assert found.units == 4
    assert found.seconds == pytest.approx(110.0)
    assert best(SERVICE, size(8000), CALM, 1000).units == 8  # smaller units fit in memory


def test_a_job_that_dividing_slows_down_stays_whole() -> None:
    slow = ServiceCosts(SERVICE.in_memory, SERVICE.out_of_core, (costs("unit", EACH, 9.0, 9.0),), ())
    assert best(slow, size(4000), CALM, 1000).way == "out of core"


def test_a_document_of_costs_is_read_back() -> None:
    given = Costs("a day, a machine", {"X": SERVICE, "Y": ServiceCosts(SERVICE.in_memory, None, (), ())})
    assert parsed(dumped(given)) == given


def test_every_service_has_measured_costs() -> None:
    """A service that is divided has the costs of its steps, and one that runs out of core those of that."""
    found = measured_costs().services
    assert set(found) == set(PROVIDERS)
    for identifier, provider in PROVIDERS.items():
        service = found[identifier]
        assert (service.out_of_core is not None) == (provider.scaling.swap is not None), identifier
        assert bool(service.divided) == (provider.scaling.sharing is not None), identifier
        assert service.in_memory.seconds.at(1e6, 1e6) > 0
