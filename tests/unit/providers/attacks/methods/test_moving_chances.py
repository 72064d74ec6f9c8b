"""Attacks on swaps that select rows by risk: chances against runs and a twin, and what they open."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers.attacks.methods import linkage, matchings, reidentification
from providers.attacks.methods.groups import REPAIRED, RISK_MOVED, moved_fields
from providers.attacks.methods.matchings import beliefs
from providers.attacks.methods.moving_chances import OUTSIDE, MovingChances, with_partners
from tests.naive import method_attacks as naive
from tests.naive.agreement import swap
from tests.unit.providers.attacks.methods.tables import released
from tests.unit.providers.attacks.methods.test_matchings import matrix

RUNS = 200
BY_KEY = {"rate": 0.12, "risk": {"key_fields": ["key"], "k": 3}}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("CDSWAP", {"control_field": "class"}),
    ("DSWAP", {"household": "house"}),
    ("DSWAP", {"unit_id": "house"}),
]


def survey(rows: int = 240) -> pa.Table:
    """Distinct values, classes of eight rows, households of two, and keys that occur once or often."""
    random = np.random.default_rng(5)
    shares = [0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.02, 0.01, 0.01, 0.01]
    return pa.table(
        {
            "class": np.arange(rows) // 8,
            "house": np.arange(rows) // 2,
            "key": random.choice(10, rows, p=shares),
            "value": np.arange(rows),
        }
    )


@pytest.mark.parametrize(("service", "parameters"), CASES)
def test_rows_move_as_often_as_an_intruder_computes(service: str, parameters: dict[str, Any]) -> None:
    """Over many seeds each row moves with its chance, and rows at risk always do."""
    source, given = survey(), {"swap_fields": ["value"], **BY_KEY, **parameters}
    (moved,) = moved_fields(released(service, source, given))
    moving = moved.moving
    counted = np.zeros(source.num_rows)
    for seed in range(RUNS):
        result = swap(service, source, given, seed.to_bytes(32, "big"))
        counted += result.table["value"].to_numpy() != source["value"].to_numpy()
    error = np.sqrt(np.maximum(moving * (1 - moving), 1e-3) / RUNS)
    assert np.abs(counted / RUNS - moving).max() / error.max() < 4.5
    assert moving.min() < 0.1
    assert (counted[moving == 1.0] == RUNS).all()
    assert np.count_nonzero(moving == 1.0) >= 4
    assert moved.rate == pytest.approx(moving.mean())


def test_rows_in_no_group_do_not_move() -> None:
    chances = MovingChances(np.array([1.0, 0.5, 0.0, 0.5]), np.array([1.0, 1.0, 0.0, 0.0]))
    assert with_partners(chances, np.full(4, OUTSIDE)).tolist() == [0, 0, 0, 0]
    # The second row is selected with chance 1/2; if it is not, the certain row takes it for its risk.
    assert with_partners(chances, np.array([0, 0, 0, OUTSIDE])).tolist() == [1, 1, 0, 0]


def cases(rows: int, count: int) -> list[MovingChances]:
    random = np.random.default_rng(rows)
    drawn = [MovingChances(np.ones(rows), np.zeros(rows))]
    for _ in range(count):
        selected = np.where(random.random(rows) < 0.3, 1.0, random.random(rows) * 0.6)
        drawn.append(MovingChances(selected, random.integers(0, 3, rows) / 2))
    return drawn


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 6])
def test_small_groups_equal_all_permutations(rows: int) -> None:
    random = np.random.default_rng(rows)
    for chances in cases(rows, 4):
        law = naive.selected_distribution(chances.selected.tolist(), chances.risk.tolist())
        assert sum(law.values()) == pytest.approx(1)
        moves = [sum(share for each, share in law.items() if each[row] != row) for row in range(rows)]
        assert with_partners(chances, np.zeros(rows, np.int64)) == pytest.approx(moves, abs=1e-12)
        sources = list(law)[random.choice(len(law), p=list(law.values()))]
        true = random.integers(0, 4, rows)
        shown = true[list(sources)]
        codes = np.where(np.arange(rows) % 3 == 0, true, -1)
        known = {row: int(true[row]) for row in range(0, rows, 3)}
        expected = naive.posterior(shown.tolist(), known, law)
        assert expected is not None
        found = beliefs(shown, codes, chances)
        assert found.exact
        assert matrix(found, rows) == pytest.approx(np.array(expected), abs=1e-12)


def test_propagation_is_near_the_exact_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without known rows the chances are within 0.06 on average, and with known rows they stay finite."""
    differences = []
    for seed, chances in enumerate(cases(8, 8)):
        random = np.random.default_rng(seed)
        true = np.arange(8)
        codes = np.where(random.random(8) < 0.2, true, -1)
        listed = matrix(beliefs(true, np.full(8, -1), chances), 8)
        with monkeypatch.context() as patched:
            patched.setattr(matchings, "_MOST_SELECTED", 0)
            found = beliefs(true, np.full(8, -1), chances)
            assert not found.exact
            assert np.diag(matrix(found, 8)) == pytest.approx(np.diag(listed), abs=0.2)
            differences.append(np.abs(matrix(found, 8) - listed).mean())
            assert np.isfinite(matrix(beliefs(true, codes, chances), 8)).all()
    assert np.mean(differences) < 0.06


def test_two_rows_at_risk_in_a_large_class_open_each_other() -> None:
    """Each shows another row's value for certain, most likely that of the other one at risk."""
    rows = 400
    source = pa.table(
        {
            "class": np.arange(rows) // 40,
            "key": np.where(np.arange(rows) % 40 < 2, 1000 + np.arange(rows), 0),  # two uniques a class
            "value": np.arange(rows),
        }
    )
    parameters = {
        "swap_fields": ["value"],
        "control_field": "class",
        "rate": 0.06,
        "risk": {"key_fields": ["key"]},
    }
    tables = released("CDSWAP", source, parameters, secret=("value",), known=("class",), known_share=0.01)
    (moved,) = moved_fields(tables)
    true, shown = source["value"].to_numpy(), tables.release["value"].to_numpy()
    targets = np.flatnonzero(np.arange(rows) % 40 < 2)
    none = np.full(rows, -1)
    by_rate = reidentification.guess_values(shown, none, moved.group, 0.06, targets)
    by_risk = reidentification.guess_values(shown, none, moved.group, 0.06, targets, moved.chances)
    assert (by_rate.values == true[targets]).sum() == 0  # each shows another row's value
    assert (by_risk.values == true[targets]).sum() >= 10  # of 20; others were exchanged with a drawn row
    found = reidentification.ATTACK.run(tables)
    assert isinstance(found, dict)
    assert found["value"].details["selection_by_risk"] is True
    assert found["value"].details["rate"] == pytest.approx(moved.moving.mean())


def test_what_an_attack_does_not_use_is_in_its_note() -> None:
    """Key fields that moved hide the risks, and a repair has excluded exchanges."""
    source = survey()
    moved_key = {"swap_fields": ["value", "key"], "locked": True, **BY_KEY}
    repaired = {"swap_fields": ["value"], "checks": ["value >= house"], "on_broken": "repair"}
    for parameters, sentence in ((moved_key, RISK_MOVED), (repaired, REPAIRED)):
        tables = released("DSWAP", source, parameters, known=("value", "class"), secret=("value",))
        for attack in (reidentification.ATTACK, linkage.ATTACK):
            found = attack.run(tables)
            results = list(found.values()) if isinstance(found, dict) else [found]
            assert all(sentence in str(result.note) for result in results)
    plain = released("DSWAP", source, {"swap_fields": ["value"]}, known=("value", "class"))
    linked = linkage.ATTACK.run(plain)
    assert not isinstance(linked, dict)
    assert linked.note is not None
    assert REPAIRED not in linked.note
