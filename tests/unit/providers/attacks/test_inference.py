"""Inference against plain loops, and on releases whose answer is known."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers.attacks.figures import AttackFigures, AttackResult
from providers.attacks.inference import Secret
from providers.attacks.options import AttackOptions
from providers.attacks.suite import attacks_stream
from providers.attacks.tables import AttackTables, MethodUsed
from tests.naive import attacks as naive
from tests.unit.providers.attacks.tables import SEED, attacked, people


def secret_result(figures: AttackFigures, field: str) -> AttackResult:
    found = figures.attacks["inference"]
    assert isinstance(found, dict)
    return found[field]


SECRETS = ("income", "town", "school")


@pytest.mark.parametrize("field", SECRETS)
def test_guesses_of_the_nearest_row_are_those_of_the_twin(field: str) -> None:
    """No two released rows are equally close, because heights are continuous numbers."""
    random = np.random.default_rng(4)
    source, release = people(120, 1), people(300, 2)
    source, release = (
        table.set_column(3, "height", pa.array(random.normal(170, 10, table.num_rows)))
        for table in (source, release)
    )
    found = secret_result(
        attacked(source, release, known=("height", "moves"), secret=(field,), attacks=120), field
    )
    heights = [*source["height"].to_pylist(), *release["height"].to_pylist()]
    ranges = [max(heights) - min(heights), None]
    rows = [[(row["height"], row["moves"]) for row in table.to_pylist()] for table in (source, release)]
    truths, released = source[field].to_pylist(), release[field].to_pylist()
    right = 0
    for query, truth in zip(rows[0], truths, strict=True):
        (closest,) = naive.nearest(query, rows[1], ranges)[0]
        right += naive.is_right(released[closest], truth, 0.05)
    assert found.details["nearest"]["attack"].successes == right
    best = max(sum(naive.is_right(guess, truth, 0.05) for truth in released) for guess in released)
    guesses = [
        sum(naive.is_right(guess, truth, 0.05) for truth in truths)
        for guess in released
        if sum(naive.is_right(guess, truth, 0.05) for truth in released) == best
    ]
    assert found.baseline is not None
    assert found.baseline.successes in guesses


def test_a_copy_discloses_a_secret_and_a_swap_does_not() -> None:
    source, control = people(800, 1), people(400, 2)
    options: dict[str, Any] = {"known": ("age", "height", "town"), "secret": ("income",), "attacks": 300}
    copy = secret_result(attacked(source, source, control, **options), "income")
    assert copy.attack.rate > 0.95
    assert copy.control is not None
    assert copy.risk is not None
    assert copy.control.rate < 0.5
    assert copy.risk.low > 0.9
    swap = MethodUsed("DSWAP", {"swap_fields": ["income"]})
    swapped = secret_result(attacked(source, source, method=swap, **options), "income")
    assert swapped.risk is not None
    assert swapped.risk.low == 0
    assert swapped.baseline is not None
    assert swapped.attack.rate < swapped.baseline.rate + 0.1


def test_a_model_learns_what_holds_for_everybody() -> None:
    """Income follows from age and school; the model finds this in a release of other rows, with no risk."""
    source, release, control = people(600, 1), people(2000, 2), people(600, 3)
    known = ("age", "school", "height", "moves", "town")
    found = secret_result(attacked(source, release, control, known=known, secret=("income",)), "income")
    nearest, model = found.details["nearest"], found.details["model"]
    assert model["attack"].rate > nearest["attack"].rate + 0.1
    assert model["control"].rate == pytest.approx(model["attack"].rate, abs=0.08)
    assert found.baseline is not None
    assert model["attack"].rate > found.baseline.rate + 0.3


@pytest.mark.parametrize("intruder", ["nearest", "model"])
def test_categories_are_learnt(intruder: str) -> None:
    random = np.random.default_rng(2)
    group = random.integers(0, 6, 900)
    table = pa.table(
        {
            "group": [f"g{each}" for each in group],
            "noise": random.normal(size=900),
            "illness": pa.array([f"i{each // 2}" for each in group]).dictionary_encode(),
        }
    )
    options: dict[str, Any] = {"known": ("group", "noise"), "secret": ("illness",), "attacks": 200}
    found = secret_result(attacked(table.slice(0, 400), table.slice(400), **options), "illness")
    assert found.details[intruder]["attack"].rate == 1.0
    assert found.baseline is not None
    assert found.baseline.rate < 0.5


def test_secrets_without_values_or_with_one_value() -> None:
    rows = 60
    table = pa.table(
        {
            "a": np.arange(rows) % 7,
            "absent": pa.nulls(rows, pa.float64()),
            "same": [3.5] * rows,
            "half": pa.array([None if row % 2 else 1.0 for row in range(rows)]),
        }
    )
    figures = attacked(table, table, known=("a",), secret=("same", "half"))
    assert secret_result(figures, "same").attack.rate == 1.0
    assert secret_result(figures, "half").attack.tries == rows
    figures = attacked(table, table, known=("a",), secret=("absent",))
    assert secret_result(figures, "absent").attack.rate == 1.0  # null is guessed for null


def test_the_best_guess_is_null_if_no_number_is_right_as_often() -> None:
    """Four of ten incomes are missing, and no released number is right in as many rows."""
    random = np.random.default_rng(7)
    income = [None if row % 10 < 4 else float(random.integers(1_000, 99_000)) for row in range(400)]
    table = pa.table({"age": random.integers(0, 50, 400), "income": pa.array(income)})
    best = max(sum(naive.is_right(guess, truth, 0.05) for truth in income) for guess in income)
    found = secret_result(attacked(table, table, known=("age",), secret=("income",)), "income")
    assert found.baseline is not None
    assert found.baseline.successes == best == 160


@pytest.mark.parametrize(
    ("unit", "guess", "truth", "right"),
    [
        ("number", 100, 104, True),  # 4 of 104 is less than 5 %
        ("number", 100, 106, False),
        ("number", -100, -104, True),
        ("number", 0, 0, True),
        ("number", 0.001, 0, False),
        ("date", 100, 102, True),  # 5 % of the interquartile range, which is 50 days
        ("date", 100, 103, False),
    ],
)
def test_guesses_within_the_tolerance_are_right(unit: str, guess: float, truth: float, right: bool) -> None:
    values = pa.array(np.arange(0, 101))
    column = values.cast(pa.int32()).cast(pa.date32()) if unit == "date" else values.cast(pa.float64())
    table = pa.table({"x": column})
    tables = AttackTables(
        table, table, None, AttackOptions(), method=None, aligned=True, stream=attacks_stream(SEED)
    )
    secret = Secret(tables, "x")
    assert secret.is_right(np.array([guess], float), np.array([truth], float)).tolist() == [right]


def test_a_field_with_many_categories_and_large_integers_is_attacked() -> None:
    rows = 700
    table = pa.table(
        {
            "code": pa.array([f"c{row % 350}" for row in range(rows)]),
            "big": pa.array([2**60 + row % 5 for row in range(rows)]),
            "income": pa.array([float(row % 350) + 1 for row in range(rows)]),
        }
    )
    figures = attacked(table, table, known=("code",), secret=("income", "big"), attacks=100)
    assert secret_result(figures, "income").attack.rate == 1.0
    assert secret_result(figures, "big").attack.rate == 1.0
