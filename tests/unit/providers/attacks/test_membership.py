"""Membership against plain loops, and on releases whose answer is known."""

import numpy as np
import pyarrow as pa
import pytest

from providers.attacks.membership import CLAIMED, Claim, area_under_curve
from tests.naive import attacks as naive
from tests.unit.providers.attacks.tables import attacked, people, result_of


@pytest.mark.parametrize("values", [3, 10, 1000])
def test_the_rule_claims_as_many_as_the_twin(values: int) -> None:
    """Few different distances: many rows are at the limit, which are claimed with a probability."""
    random = np.random.default_rng(values)
    others, members = random.integers(0, values, 200) / 8, random.integers(0, values // 2 + 1, 5000) / 8
    claim = Claim(others)
    expected = naive.claims(members.tolist(), others.tolist(), CLAIMED)
    claimed = claim.of(members, random.random(5000)).sum()
    assert claimed == pytest.approx(expected, abs=5 * np.sqrt(5000 * 0.25))
    wrongly = claim.of(np.repeat(others, 100), random.random(20_000)).mean()
    assert wrongly == pytest.approx(CLAIMED, abs=0.01)


def test_area_under_the_curve() -> None:
    random = np.random.default_rng(1)
    members, others = random.integers(0, 9, 70) / 4, random.integers(2, 12, 90) / 4
    pairs = [(mine < other) + (mine == other) / 2 for mine in members for other in others]
    assert area_under_curve(members, others) == pytest.approx(np.mean(pairs))


def test_rows_of_a_copy_are_members_and_rows_of_another_table_are_not() -> None:
    source, control, other = people(400, 1), people(300, 2), people(400, 3)
    copy = result_of(attacked(source, source, control), "membership")
    assert copy.attack.rate == 1.0
    assert copy.risk is not None
    assert copy.risk.low > 0.95
    assert copy.note is not None
    none = result_of(attacked(source, other, control), "membership")
    assert none.risk is not None
    assert none.risk.low == 0
    assert none.attack.rate < 0.15
    assert none.details["area_under_curve"] == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("first", ["far", "near"])
def test_kinds_of_rows_in_turn_do_not_decide_the_limit(first: str) -> None:
    """Control rows of two kinds in turn, one of them near each other: a claimed share is about one in twenty.

    Every other row would be of one kind: nearly all or none of the other kind would be claimed.
    """
    random = np.random.default_rng(5)

    def table() -> pa.Table:
        far = np.arange(400) % 2 == (first == "near")
        spread = np.where(far, random.normal(0, 1, 400), random.normal(0, 0.01, 400))
        return pa.table({"kind": np.where(far, "far", "near"), "x": spread, "y": random.integers(0, 20, 400)})

    found = result_of(attacked(table(), table(), table()), "membership")
    assert found.control is not None
    assert found.control.tries == 200
    assert found.control.rate == pytest.approx(CLAIMED, abs=0.05)
    assert found.attack.rate == pytest.approx(CLAIMED, abs=0.05)


def test_control_rows_are_needed() -> None:
    table = people(100)
    assert "control rows" in attacked(table, table).left_out["membership"]
    assert "40 control rows" in attacked(table, table, people(39)).left_out["membership"]
    lists = pa.table({"tags": [["a"]] * 100})
    assert "no field" in attacked(lists, lists, lists).left_out["membership"]
