"""The attacks on PABIDOT: against plain twins, and on rotations whose answer is known."""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from providers.attacks.figures import AttackResult, Successes, successes
from providers.attacks.methods import enumeration, ica, known_io, naive_rotation
from providers.attacks.methods.ica import match_components
from providers.attacks.methods.known_io import least_squares
from providers.attacks.methods.rotation import (
    NEAR,
    known_indices,
    r_squared,
    rotated_rows,
    successes_in_rows,
)
from providers.attacks.suite import MethodUsed
from providers.measures.shared.finding import NotApplicable
from tests.naive import method_attacks as naive
from tests.unit.providers.attacks.methods.tables import released
from tests.unit.providers.attacks.tables import attacked


def numbers(rows: int = 800) -> pa.Table:
    """Skewed, correlated numbers, whose components are independent enough to be found."""
    random = np.random.default_rng(9)
    base = random.exponential(size=(rows, 4))
    return pa.table(
        {
            "a": base[:, 0],
            "b": base[:, 1] + 0.3 * base[:, 0],
            "c": base[:, 2] ** 2,
            "sampling_weight": base[:, 3],
            "label": random.integers(0, 3, rows).astype(str),
        }
    )


def run(attack: Any, sigma: float, **options: Any) -> AttackResult | dict[str, AttackResult]:
    found: AttackResult | dict[str, AttackResult] = attack.ATTACK.run(
        released("PABIDOT", numbers(), {"sigma": sigma}, **options)
    )
    return found


def test_known_rows_undo_a_rotation_without_noise() -> None:
    """Exactly, all fields together, a weight among them, and although the rows were shuffled."""
    found = run(known_io, 0.0)
    assert isinstance(found, dict)
    assert list(found) == ["10 % of the rows", "20 rows"]
    for result in found.values():
        assert result.attack.rate == 1
        assert result.baseline is not None
        assert result.baseline.rate < 0.5
        assert result.details["r_squared"] == pytest.approx(1)
        assert set(result.details["r_squared_by_field"]) == {"a", "b", "c", "sampling_weight"}


def test_named_rows_are_those_of_the_source_whatever_their_order_in_the_release() -> None:
    named = tuple(range(0, 800, 40))
    found = run(known_io, 0.0, known_rows=named)
    assert isinstance(found, dict)
    assert list(found) == ["named rows"]
    assert found["named rows"].details["known_rows"] == len(named)
    assert found["named rows"].attack.rate == 1
    tables = released("PABIDOT", numbers(), {"sigma": 0.0}, known_rows=named)
    rotated = rotated_rows(tables)
    assert sorted(rotated.rows[known_indices(tables, rotated, 5)]) == list(named)


def test_more_noise_recovers_less_and_known_rows_more_than_a_naive_guess() -> None:
    rates: dict[tuple[str, float], float] = {}
    for sigma in (0.3, 2.0):
        for name, attack in (("naive", naive_rotation), ("ica", ica), ("enumeration", enumeration)):
            found = run(attack, sigma)
            assert isinstance(found, AttackResult)
            rates[name, sigma] = found.attack.rate
        by_rows = run(known_io, sigma)
        assert isinstance(by_rows, dict)
        rates["known", sigma] = by_rows["10 % of the rows"].attack.rate
        assert by_rows["10 % of the rows"].details["known_rows"] == 80
    for name in ("known", "ica", "enumeration"):
        assert rates[name, 0.3] > rates[name, 2.0], rates
        assert rates[name, 0.3] > rates["naive", 0.3], rates


def test_least_squares_solves_the_normal_equations() -> None:
    random = np.random.default_rng(3)
    released_rows, truth = random.normal(size=(40, 3)), random.normal(size=(12, 3))
    known = np.arange(0, 36, 3)
    design = np.column_stack([released_rows, np.ones(40)])
    chosen = design[known]
    expected = design @ np.linalg.solve(chosen.T @ chosen, chosen.T @ truth)
    assert least_squares(released_rows, known, truth) == pytest.approx(expected, abs=1e-9)


def test_components_are_matched_as_well_as_by_any_order() -> None:
    """The sum of correlations is the largest of all 24 orders; signs are those of the known rows."""
    random = np.random.default_rng(6)
    truth = random.normal(size=(60, 4))
    components = truth[:, [2, 0, 3, 1]] * [1, -1, 2, -3] + random.normal(size=(60, 4))
    known = np.arange(0, 60, 2)
    guesses = match_components(components, known, truth[known])

    def agreement(columns: npt.NDArray[Any]) -> float:
        return float(
            sum(abs(np.corrcoef(columns[known, field], truth[known, field])[0, 1]) for field in range(4))
        )

    best = max(agreement(components[:, list(order)]) for order in itertools.permutations(range(4)))
    assert agreement(guesses) == pytest.approx(best)
    for field in range(4):
        assert np.corrcoef(guesses[known, field], truth[known, field])[0, 1] > 0
        assert guesses[:, field].std(ddof=1) == pytest.approx(1)


def test_r_squared() -> None:
    random = np.random.default_rng(2)
    truth, guesses = random.normal(size=(30, 2)), random.normal(size=(30, 2))
    expected = [naive.r_squared(guesses[:, field].tolist(), truth[:, field].tolist()) for field in range(2)]
    assert r_squared(guesses, truth) == pytest.approx(expected)


def test_success_is_a_count_of_near_values() -> None:
    """The naive guess, counted by hand: published and true z-scores at most a quarter apart."""
    tables = released("PABIDOT", numbers(), {"sigma": 0.3, "shuffle": False}, attacks=800)
    found = naive_rotation.ATTACK.run(tables)
    assert isinstance(found, AttackResult)
    count = 0
    for name in ("a", "b", "c", "sampling_weight"):
        true, shown = (table[name].to_numpy() for table in (tables.source, tables.release))
        count += int((np.abs(shown - true) <= NEAR * true.std(ddof=1)).sum())
    assert (found.attack.successes, found.attack.tries) == (count, 3200)


def test_the_values_of_a_row_are_recovered_together() -> None:
    """The interval of 20 rows that are all right or all wrong is that of 20, and not of 80, attempts."""
    right = np.repeat(np.arange(20) < 6, 4).reshape(20, 4)
    found = successes_in_rows(right, 0.95)
    rows = successes(6, 20, 0.95)
    assert (found.successes, found.tries, found.rate) == (24, 80, 0.3)
    assert found.low == pytest.approx(rows.low, abs=0.01)
    assert found.high == pytest.approx(rows.high, abs=0.01)
    everything = successes_in_rows(np.ones((20, 4), np.bool_), 0.95)
    assert everything.low == successes(20, 20, 0.95).low


def test_the_interval_of_recovered_values_covers_the_share_of_all_rows() -> None:
    """Fields with a common cause: samples of rows cover it in 95 of 100 cases; single values would not."""
    random = np.random.default_rng(6)
    common = random.normal(size=(4000, 1))
    right = common + 0.4 * random.normal(size=(4000, 5)) < -0.4
    samples = [right[random.choice(4000, 100, replace=False)] for _ in range(300)]

    def covered(intervals: list[Successes]) -> float:
        return float(np.mean([each.low <= right.mean() <= each.high for each in intervals]))

    assert covered([successes_in_rows(sample, 0.95) for sample in samples]) >= 0.93
    assert covered([successes(int(sample.sum()), sample.size, 0.95) for sample in samples]) < 0.8


def test_rows_in_an_unknown_order_are_left_out() -> None:
    source = numbers(100)
    figures = attacked(source, source, source.slice(0, 5), method=MethodUsed("PABIDOT", {}), aligned=False)
    for name in ("naive_guess", "ica", "known_io", "enumeration"):
        assert "row by row" in figures.left_out[name]


def test_the_suite_runs_them_on_a_sister_release_whose_rows_are_shuffled() -> None:
    figures = attacked(numbers(300), numbers(300), method=MethodUsed("PABIDOT", {"sigma": 0.3}))
    assert {"naive_guess", "ica", "known_io", "enumeration"} <= set(figures.attacks), figures.left_out
    known = figures.attacks["known_io"]
    assert isinstance(known, dict)
    assert known["10 % of the rows"].details["r_squared"] > 0.8


def test_too_few_rows() -> None:
    with pytest.raises(NotApplicable, match="10 rows"):
        known_io.ATTACK.run(released("PABIDOT", numbers(9), {}))
