"""Rounding and linear programming on LOCALITY: optimality against all relations, and known answers."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from providers.attacks.figures import AttackResult
from providers.attacks.methods import linear_programming, rounding
from providers.attacks.methods.linear_programming import interpolate, localities, recover_segment
from providers.attacks.methods.segments import RedrawnValues, segments_of, unit_of
from providers.attacks.options import AttackOptions
from providers.attacks.suite import MethodUsed, attacks_stream
from providers.attacks.tables import AttackTables
from providers.tables.numbers import nearest_floats
from tests.naive import method_attacks as naive
from tests.unit.providers.attacks.methods.tables import released
from tests.unit.providers.attacks.tables import SEED, attacked

Values = st.lists(st.integers(-50, 50), min_size=2, max_size=9)


@given(Values)
def test_the_chosen_localities_imply_all(values: list[int]) -> None:
    """No point in the given order that satisfies the chosen ones breaks any other."""
    published = np.unique(np.array(values, float))
    chosen = localities(published)
    every = naive.kept_relations(published.tolist())
    assert {(i, j, k, int(sign)) for i, j, k, sign in chosen} <= set(every)
    count = len(published)
    rows = []
    for i, j, k, sign in chosen:
        row = np.zeros(count)
        row[[i, j, k]] = -sign * np.array([1.0, -2.0, 1.0])
        rows.append(row)
    rows += [np.eye(count)[i] - np.eye(count)[i + 1] for i in range(count - 1)]
    for i, j, k, sign_ in every:
        target = np.zeros(count)
        target[[i, j, k]] = sign_ * np.array([1.0, -2.0, 1.0])
        worst = linprog(target, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), bounds=[(-1, 1)] * count)
        assert worst.fun > -1e-7


@given(st.integers(0, 10_000))
def test_recovery_is_the_nearest_feasible_point(seed: int) -> None:
    """The sum of differences equals that of a programme with every relation of three values."""
    random = np.random.default_rng(seed)
    true = random.integers(0, 60, 7).astype(float)
    published = float(random.integers(2, 6)) * true - 9  # exact, so that ties stay ties
    known = random.random(7) < 0.15
    known[0] = True
    found, way = recover_segment(published, true, known, True)
    assert way == "solved"
    assert found[known] == pytest.approx(true[known], abs=1e-7)
    values, variable = np.unique(published, return_inverse=True)
    target = interpolate(values, published[known], true[known])
    count = len(values)
    rows = [np.eye(count)[i] - np.eye(count)[i + 1] for i in range(count - 1)]
    for i, j, k, sign in naive.kept_relations(values.tolist()):
        row = np.zeros(count)
        row[[i, j, k]] = -sign * np.array([1.0, -2.0, 1.0])
        rows.append(row)
    for row in rows:
        assert row @ found[np.unique(variable, return_index=True)[1]] <= 1e-6
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * count
    for index in np.flatnonzero(known):
        bounds[variable[index]] = (true[index], true[index])
    identity = np.eye(count)
    constraints = np.block(
        [[np.array(rows), np.zeros((len(rows), count))], [identity, -identity], [-identity, -identity]]
    )
    best = linprog(
        np.concatenate([np.zeros(count), np.ones(count)]),
        A_ub=constraints, b_ub=np.concatenate([np.zeros(len(rows)), target, -target]),
        bounds=bounds + [(0, None)] * count,
    )  # fmt: skip
    distinct = found[np.unique(variable, return_index=True)[1]]
    assert np.abs(distinct - target).sum() == pytest.approx(best.fun, abs=1e-6)


def test_interpolation_between_known_values() -> None:
    published = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    assert interpolate(published, np.array([1.0, 3.0]), np.array([10.0, 20.0])).tolist() == [
        9,
        10,
        15,
        20,
        21,
    ]
    assert interpolate(published, np.zeros(0), np.zeros(0)).tolist() == published.tolist()


def test_known_values_that_contradict_the_order_leave_the_interpolation() -> None:
    published, true = np.array([1.0, 2.0, 3.0]), np.array([9.0, 5.0, 1.0])
    found, way = recover_segment(published, true, np.array([True, False, True]), False)
    assert way == "interpolated"
    assert found.tolist() == [9.0, 5.0, 1.0]


@pytest.mark.parametrize(
    ("rows", "size", "lengths"), [(50, 20, [20, 20, 10]), (49, 20, [20, 29]), (5, 20, [5]), (0, 20, [])]
)
def test_segments(rows: int, size: int, lengths: list[int]) -> None:
    assert [part.stop - part.start for part in segments_of(rows, size)] == lengths


def ages(rows: int = 2000, seed: int = 4) -> pa.Table:
    random = np.random.default_rng(seed)
    born = [datetime.date(2000, 1, 1) + datetime.timedelta(int(day)) for day in random.integers(0, 99, rows)]
    return pa.table(
        {
            "age": pa.array([None if row == 7 else int(random.integers(18, 90)) for row in range(rows)]),
            "born": pa.array(born),
            "weight": random.normal(70, 10, rows),
        }
    )


def run(attack: Any, parameters: dict[str, Any], **options: Any) -> dict[str, AttackResult]:
    found = attack.ATTACK.run(released("LOCALITY", ages(), parameters, **options))
    assert isinstance(found, dict)
    return found


def test_known_values_give_back_the_others() -> None:
    """Rounding finds some whole numbers and dates, known values many more; near is enough for a float."""
    parameters = {"fields": ["age", "born", "weight"], "sigma": 1.0, "segment_size": 40}
    rounded, solved = run(rounding, parameters), run(linear_programming, parameters, known_share=0.2)
    assert rounded.keys() == solved.keys() == {"age", "born", "weight"}
    for name in ("age", "born"):
        base = rounded[name].baseline
        assert base is not None
        assert rounded[name].attack.low > base.high
        assert solved[name].attack.low > 2 * rounded[name].attack.high
        assert solved[name].details["exact"]
    assert not solved["weight"].details["exact"]
    assert solved["weight"].attack.successes == solved["weight"].details["within_tolerance"]
    assert solved["age"].details["known_rows"] == 400
    assert solved["age"].details["segments"]["solved"] == 50


def test_the_baseline_guesses_from_known_values() -> None:
    """Nine of ten rows have one value: the attack with known rows is compared with that guess."""
    hours = np.where(np.arange(1000) % 10 > 0, 40, np.random.default_rng(1).integers(1, 80, 1000))
    tables = released("LOCALITY", pa.table({"hours": hours}), {"fields": ["hours"]})
    found = linear_programming.ATTACK.run(tables)
    assert isinstance(found, dict)
    assert found["hours"].baseline is not None
    assert found["hours"].baseline.rate == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("scale", [1, 4, 0, -2])
def test_each_value_of_a_type_is_the_nearest_to_itself(scale: int) -> None:
    """Three tenths are not three times the float64 of a tenth."""
    kind = pa.decimal128(12, scale) if scale else pa.int64()
    values = [Decimal(number).scaleb(-scale) for number in range(-2_000, 9_000)]
    numbers = nearest_floats(pa.array(values, pa.decimal128(20, 4)))
    found = RedrawnValues("x", numbers, numbers, unit_of(kind), 0.0, False)
    assert found.rounded(numbers).tolist() == numbers.tolist()
    assert found.rounded(numbers + 0.4 * unit_of(kind)).tolist() == numbers.tolist()


def test_decimals_that_are_published_are_found() -> None:
    """A release that changed nothing discloses every value, whatever its type."""
    wage = pa.array([Decimal(cents).scaleb(-1) for cents in range(300)], pa.decimal128(8, 1))
    source = pa.table({"wage": wage})
    tables = AttackTables(
        source, pa.table({"wage": nearest_floats(wage)}), None, AttackOptions(),
        method=MethodUsed("LOCALITY", {"fields": ["wage"]}), aligned=True, stream=attacks_stream(SEED),
    )  # fmt: skip
    for attack in (rounding, linear_programming):
        found = attack.ATTACK.run(tables)
        assert isinstance(found, dict)
        assert found["wage"].details["exact"]
        assert found["wage"].attack.rate == 1.0


def test_the_suite_runs_them() -> None:
    figures = attacked(ages(300), ages(300), method=MethodUsed("LOCALITY", {"fields": ["age"]}))
    assert {"rounding", "linear_programming"} <= set(figures.attacks), figures.left_out
