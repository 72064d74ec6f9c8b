"""Lines through measured figures: exact where the figures are a line, and never a negative cost."""

import pytest

from app.capacity.costs import EACH, ONE, Line
from benchmarks.scale.fit import line, steps
from benchmarks.scale.tasks import Figures, Measured


def test_a_line_is_found_again() -> None:
    points = [
        (float(job), job / units, 3 + 2e-3 * job + 5e-2 * job / units)
        for job in (1000, 4000)
        for units in (2, 4, 8)
    ]
    found = line(points)
    assert (found.fixed, found.of_job, found.of_task) == pytest.approx((3, 2e-3, 5e-2))
    assert found.at(1e6, 1e5) == pytest.approx(3 + 2000 + 5000)


def test_a_step_of_one_task_has_costs_of_its_own_rows() -> None:
    found = line([(10.0, 10.0, 25.0), (20.0, 20.0, 45.0)])
    assert (found.fixed, found.of_job, found.of_task) == pytest.approx((5.0, 0.0, 2.0))


def test_no_cost_is_negative() -> None:
    """A measured time that falls with the rows is noise."""
    found = line([(10.0, 10.0, 3.0), (20.0, 20.0, 2.0)])
    assert min(found.fixed, found.of_job, found.of_task) >= 0
    assert found.at(20, 20) == pytest.approx(2.3, abs=0.4)


def test_what_is_never_used_costs_nothing() -> None:
    assert line([(10.0, 10.0, 0.0), (20.0, 20.0, 0.0)]) == Line(0.0, 0.0, 0.0)


def test_unequal_tasks_count_by_their_mean() -> None:
    """Units that read from the beginning of the table to the end of their own rows."""

    def job(rows: int, units: int) -> Measured:
        tasks = [Figures(0.0, 1.0, 1.0, 8 * rows * (unit + 1) // units, 0, 0) for unit in range(units)]
        return Measured(rows, units, {"unit": tasks}, 1.0, "digest")

    (unit,) = steps([job(rows, units) for rows in (1000, 4000) for units in (2, 4, 8)])
    for rows, units in ((4000, 4), (80_000, 2)):
        assert unit.read.at(rows, rows / units) == pytest.approx(8 * rows * (units + 1) / 2 / units)


def test_pieces_count_as_if_there_were_as_many_as_units() -> None:
    """A job of two units has five pieces here, and one of eight has seven."""

    def job(rows: int, units: int, pieces: int) -> Measured:
        piece = Figures(0.0, 1.0, 5e-3 * rows / pieces, 0, 0, 0)
        return Measured(rows, units, {"piece": [piece] * pieces}, 1.0, "digest")

    (piece,) = steps([job(rows, *counts) for rows in (1000, 4000) for counts in ((2, 5), (8, 7))])
    for units in (2, 4, 64):
        assert units * piece.seconds.at(8000, 8000 / units) == pytest.approx(40)


def test_steps_of_divided_jobs() -> None:
    """Units write what stays in scratch space until the assembly has read it."""

    def job(rows: int, units: int) -> Measured:
        divided = Figures(0.0, 1.0, 1e-3 * rows, 8 * rows, 0, 0)
        unit = Figures(1.0, 2.0, 2e-3 * rows / units, 8 * rows, 16 * rows // units, 0)
        return Measured(rows, units, {"divide": [divided], "unit": [unit] * units}, 2.0, "digest")

    divide, unit = steps([job(rows, units) for rows in (1000, 4000) for units in (2, 4)])
    assert (divide.name, divide.tasks, unit.name, unit.tasks) == ("divide", ONE, "unit", EACH)
    assert divide.seconds.at(8000, 8000) == pytest.approx(8.0)
    assert unit.seconds.at(8000, 1000) == pytest.approx(2.0)
    assert unit.read.at(8000, 1000) == pytest.approx(64_000)
    assert unit.scratch == unit.written
    assert divide.scratch == Line(0.0, 0.0, 0.0)
