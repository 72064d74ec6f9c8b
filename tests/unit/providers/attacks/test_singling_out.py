"""Singling out against a plain twin on rows, and the control of another size against a simulation."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers.attacks.options import AttackOptions
from providers.attacks.singling_out import (
    Cells,
    Predicate,
    combinations,
    guessed_combinations,
    guessed_values,
    isolated_in,
    rare_values,
)
from providers.attacks.suite import attacks_stream
from providers.attacks.tables import AttackTables, MethodUsed
from tests.naive import attacks as naive
from tests.unit.providers.attacks.tables import SEED, attacked, people, result_of


def tables_of(source: pa.Table, release: pa.Table, control: pa.Table | None = None) -> AttackTables:
    return AttackTables(
        source, release, control, AttackOptions(attacks=60),
        method=None, aligned=True, stream=attacks_stream(SEED),
    )  # fmt: skip


def with_values(tables: AttackTables, predicate: Predicate) -> list[tuple[str, str, object]]:
    """The predicate with values in place of codes and of numbers less an offset."""
    conditions: list[tuple[str, str, object]] = []
    for field, operator, value in predicate:
        if operator == "is":
            row = int(np.flatnonzero(tables.codes(field, "release") == int(value))[0])
            conditions.append((field, operator, tables.release.column(field)[row].as_py()))
        else:
            conditions.append((field, operator, value + tables.columns[field].offset))
    return conditions


SOURCE, CONTROL = people(300, 1), people(400, 2)


@pytest.mark.parametrize("kind", ["values", "combinations", "guesses", "guessed combinations"])
def test_counts_are_those_of_the_twin(kind: str) -> None:
    """The release is the source with some fields reversed, so that some predicates miss it."""
    release = SOURCE.set_column(0, "age", SOURCE["age"].take(pa.array(range(299, -1, -1))))
    tables = tables_of(SOURCE, release)
    cells = Cells.of(tables, "release")
    predicates = {
        "values": lambda: rare_values(cells),
        "combinations": lambda: combinations(tables, cells, 3),
        "guesses": lambda: guessed_values(tables, cells, 60),
        "guessed combinations": lambda: guessed_combinations(tables, cells, 3, 60),
    }[kind]()
    assert len(predicates) >= 40
    sides = [(Cells.of(tables, "source"), SOURCE.to_pylist()), (cells, release.to_pylist())]
    outcomes = set()
    for predicate in predicates:
        conditions = with_values(tables, predicate)
        counted = [side.count(predicate) for side, _ in sides]
        assert counted == [sum(naive.fulfils(row, conditions) for row in rows) for _, rows in sides]
        if kind in ("values", "combinations"):
            assert counted[1] == 1
        outcomes.add(counted[0] == 1)
    assert kind == "values" or outcomes == {True, False}


def test_a_value_that_one_person_has_stays_in_a_swap() -> None:
    """Every swap of one field at a time keeps all values; on control rows few predicates match one row."""
    source = people(600)
    fields = ["age", "height", "income"]
    figures = attacked(source, source, method=MethodUsed("DSWAP", {"swap_fields": fields}), attacks=200)
    one = result_of(figures, "singling_out_univariate")
    assert one.attack.successes == one.attack.tries == 200
    assert one.control is not None
    assert one.control.rate < 0.5
    assert one.note is not None
    several = result_of(figures, "singling_out_multivariate")
    assert several.attack.rate < 0.6 < one.attack.rate
    copy = result_of(attacked(source, source, attacks=200), "singling_out_multivariate")
    assert copy.attack.rate == 1
    assert copy.baseline is not None
    assert copy.baseline.rate < 0.6


def dealt(table: pa.Table, random: np.random.Generator) -> pa.Table:
    """Each field in a random order of its own: no row of the table has a link to a row of the source."""
    orders = {name: pa.array(random.permutation(table.num_rows)) for name in table.column_names}
    return pa.table({name: table[name].take(order) for name, order in orders.items()})


@pytest.mark.parametrize("rows", [200, 1500, 6000])
def test_values_dealt_at_random_have_no_risk(rows: int) -> None:
    """The baseline is the success of the attack where no two fields and no two rows are linked.

    A predicate that matches one of n rows often matches one source row by chance: 20 to 37 % of them.
    """
    attack, baseline, tries = 0, 0, 0
    for seed in range(8):
        random = np.random.default_rng(seed)
        source = dealt(people(rows, seed), random)
        options: dict[str, Any] = {"attacks": 200, "seed": bytes([seed] * 32)}
        found = result_of(attacked(source, dealt(source, random), **options), "singling_out_multivariate")
        assert found.baseline is not None
        attack, tries = attack + found.attack.successes, tries + found.attack.tries
        baseline += round(found.baseline.rate * found.attack.tries)
    assert tries > 300
    spread = (2 * attack * (1 - attack / tries)) ** 0.5
    assert abs(attack - baseline) <= 4 * spread
    assert attack / tries > 0.15


def test_each_field_is_dealt_on_its_own() -> None:
    pairs = [row // 2 for row in range(200)]
    table = pa.table({"age": pairs, "height": pairs, "town": [f"t{pair}" for pair in pairs]})
    tables = tables_of(table, table)
    cells = Cells.of(tables, "release")
    first, again = (cells.dealt(tables.stream, f"dealt {deal}") for deal in (0, 1))
    for name, codes in first.codes.items():
        assert np.array_equal(np.sort(codes), np.sort(cells.codes[name]))
        assert not np.array_equal(codes, again.codes[name])
    assert np.mean(first.numbers["age"] == first.numbers["height"]) < 0.2
    together = set(zip(cells.codes["age"].tolist(), cells.numbers["age"].tolist(), strict=True))
    assert set(zip(first.codes["age"].tolist(), first.numbers["age"].tolist(), strict=True)) == together


def test_a_table_of_equal_rows_singles_nobody_out() -> None:
    table = pa.table({"a": [1] * 20, "b": ["x"] * 20})
    figures = attacked(table, table)
    assert "exactly one released row" in figures.left_out["singling_out_univariate"]
    assert "exactly one released row" in figures.left_out["singling_out_multivariate"]


@pytest.mark.parametrize(("shape", "weight"), [(0.5, 4e-4), (2.0, 2e-4), (50.0, 1e-3)])
def test_fewer_control_rows_predict_the_success_on_more(shape: float, weight: float) -> None:
    """Weights of 4,000 predicates are gamma distributed; 400 rows predict 4,000 rows to within .05."""
    random = np.random.default_rng(5)
    weights = random.gamma(shape, weight / shape, 4000)
    few, many = (random.poisson(rows * weights) for rows in (400, 4000))
    assert isolated_in(few, 400, 4000) == pytest.approx(float(np.mean(many == 1)), abs=0.05)
    assert abs(np.mean(few == 1) - np.mean(many == 1)) > 0.05  # the share in 400 rows itself is no estimate


def test_predicates_that_match_no_control_row_have_an_uncertain_control() -> None:
    assert isolated_in(np.zeros(50, np.int64), 10, 100) == 0.0
    source, control = people(500, 1), people(500, 2)
    options: dict[str, Any] = {"attacks": 200}
    whole = result_of(attacked(source, source, control, **options), "singling_out_univariate").control
    part = result_of(
        attacked(source, source, control.slice(0, 50), **options), "singling_out_univariate"
    ).control
    assert whole is not None
    assert part is not None
    assert part.high - part.low > 1.5 * (whole.high - whole.low)
    assert part.low <= whole.rate <= part.high


def test_more_control_rows_than_source_rows_are_drawn() -> None:
    source, control = people(100, 1), people(900, 2)
    found = result_of(attacked(source, source, control), "singling_out_multivariate")
    assert found.details["control_rows"] == 100
