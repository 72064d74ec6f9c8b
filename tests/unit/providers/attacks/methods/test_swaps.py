"""Re-identification and linkage by rule on swaps: against plain twins, and where the answer is known."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers.attacks.composition.intruder_groups import groups_by_field, rate_of
from providers.attacks.figures import AttackResult
from providers.attacks.methods import linkage, reidentification
from providers.attacks.methods.groups import MovedFields, checked_params, joint_codes, moved_fields
from providers.attacks.methods.linkage import choose_row, link, weights
from providers.attacks.methods.moving_chances import OUTSIDE
from providers.attacks.methods.reidentification import commonest_values, guess_values
from providers.attacks.options import AttackOptions, check_known_rows
from providers.attacks.suite import MethodUsed
from providers.attacks.tables import AttackTables
from providers.errors import ParameterError
from providers.measures.shared.finding import NotApplicable
from tests.naive import method_attacks as naive
from tests.unit.providers.attacks.methods.tables import released
from tests.unit.providers.attacks.tables import attacked, people

RUNS: list[tuple[str, dict[str, Any]]] = [
    ("DSWAP", {"swap_fields": ["income", "town"]}),
    ("DSWAP", {"swap_fields": ["income"], "rate": 0.3}),
    ("CDSWAP", {"swap_fields": ["income", "height"], "control_field": "school", "locked": True}),
    ("DDSWAP", {"swap_fields": ["income", "town"], "control_field": "age", "block_size": 6}),
    ("DDSWAP", {"swap_fields": ["town"], "control_field": "age", "block_size": 6, "nulls": "keep"}),
    ("MEWS", {"swap_fields": ["income", "height"], "bins": 4}),
    ("MEDS", {"swap_fields": ["income", "height"], "k": 4}),
    ("MEDS", {"swap_fields": ["weight"], "k": 4, "others": "univariate", "nulls": "keep"}),
]


@pytest.mark.parametrize(("service", "parameters"), RUNS)
def test_groups_of_the_release_are_those_of_the_run(service: str, parameters: dict[str, Any]) -> None:
    """Each group shows exactly the values that it had; and values move within groups alone."""
    source = people(150)
    if parameters["swap_fields"] == ["weight"]:  # numbers without ties, which bins may cut elsewhere
        random = np.random.default_rng(6)
        weight = pa.array([None if row % 50 == 9 else random.normal() for row in range(150)])
        source = pa.table({"weight": weight, "size": random.normal(size=150), "name": source["moves"]})
    tables = released(service, source, parameters)
    for moved in moved_fields(tables):
        true, shown = joint_codes(tables, moved.fields, ["source", "release"])
        assert (shown[moved.group == OUTSIDE] == true[moved.group == OUTSIDE]).all()
        for number in np.unique(moved.group[moved.group != OUTSIDE]):
            rows = moved.group == number
            assert sorted(shown[rows]) == sorted(true[rows])
            assert rows.sum() > 1
    names = [name for moved in moved_fields(tables) for name in moved.fields]
    assert set(parameters["swap_fields"]) <= set(names)
    assert len(names) == len(set(names))


def test_guesses_are_the_likeliest_values_of_all_permutations() -> None:
    """Groups have up to six rows; a row in no group keeps its value."""
    random = np.random.default_rng(4)
    group = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, OUTSIDE])
    true = random.integers(0, 5, len(group))
    shown = true.copy()
    for rows in ([0, 1], [2, 3], [4, 9], [5, 8], [6, 7]):
        shown[rows] = true[rows[::-1]]
    shown[[10, 11, 12]] = true[[12, 10, 11]]
    codes = np.where(np.isin(np.arange(len(group)), [0, 4, 6, 10]), true, -1)
    targets = np.flatnonzero(codes == -1)
    guesses = guess_values(shown, codes, group, 1.0, targets)
    for index, row in enumerate(targets.tolist()):
        members = [each for each in range(len(group)) if group[each] == group[row]]
        if group[row] == OUTSIDE:
            assert guesses.values[index] == shown[row]
            continue
        known = {place: int(codes[each]) for place, each in enumerate(members) if codes[each] != -1}
        chance = naive.posterior([int(shown[each]) for each in members], known, 1.0)
        assert chance is not None
        by_value: dict[int, float] = {}
        for place, share in enumerate(chance[members.index(row)]):
            value = int(shown[members[place]])
            by_value[value] = by_value.get(value, 0.0) + share
        assert guesses.chance[row] == pytest.approx(max(by_value.values()))
        assert by_value[int(guesses.values[index])] == pytest.approx(max(by_value.values()))
    assert guesses.exact == len(targets)


def test_the_commonest_value_of_the_group() -> None:
    shown, group = np.array([1, 1, 2, 5, 5, 3]), np.array([0, 0, 0, 1, 1, OUTSIDE])
    found = commonest_values(shown, group, np.arange(6), np.zeros(6, np.bool_))
    assert found.tolist() == [1, 1, 1, 5, 5, 1]  # of all rows, for one in no group
    found = commonest_values(shown, group, np.arange(6), np.arange(6) == 5)
    assert found.tolist() == [1, 1, 1, 5, 5, 3]  # which shows no value


def test_a_value_that_its_row_kept_is_no_guess() -> None:
    """Half of the rows are alone in their class and keep their values: only these rows disclose them."""
    town = [f"alone {row}" if row < 200 else f"town {row % 20}" for row in range(400)]
    source = pa.table({"town": town, "income": np.arange(400)})
    parameters = {"swap_fields": ["income"], "control_field": "town"}
    rates = {}
    for policy in ("keep", "suppress"):
        chosen = parameters | {"suppression": {"policy": policy}}
        tables = released("CDSWAP", source, chosen, secret=("income",))
        found = one(reidentification.ATTACK.run(tables), "income")
        assert found.baseline is not None
        rates[policy] = found.attack.rate, found.baseline.rate
    assert rates["keep"][0] > 0.5
    assert rates["suppress"][0] < 0.2
    assert found.details["certain"] == found.details["certain_and_right"]
    assert max(guessed for _, guessed in rates.values()) < 0.1


def test_a_missing_value_that_takes_no_part_is_no_disclosure() -> None:
    income = pa.array([None if row % 2 else row for row in range(400)])
    tables = released("DSWAP", pa.table({"income": income}), {"swap_fields": ["income"], "nulls": "keep"})
    found = one(reidentification.ATTACK.run(tables), "income")
    assert found.baseline is not None
    assert found.baseline.rate == pytest.approx(0.5, abs=0.1)
    assert found.attack.rate < found.baseline.rate + 0.05


def one(result: AttackResult | dict[str, AttackResult], name: str = "") -> AttackResult:
    found = result[name] if isinstance(result, dict) else result
    assert isinstance(found, AttackResult)
    return found


def test_blocks_of_four_are_opened_by_known_rows() -> None:
    """Distinct values in blocks of four: a known row fixes its block; half of the rows give most others."""
    source = pa.table({"age": np.arange(400), "income": np.arange(400) * 3})
    parameters = {"swap_fields": ["income"], "control_field": "age", "block_size": 4}
    rates = {}
    for share in (0.02, 0.5):
        tables = released("DDSWAP", source, parameters, known_share=share, known=("age",), secret=("income",))
        found = one(reidentification.ATTACK.run(tables), "income")
        rates[share] = found.attack.rate
        assert found.baseline is not None
        assert found.baseline.rate == pytest.approx(0.25, abs=0.08)
        assert found.details["certain"] == found.details["certain_and_right"]
        assert found.control is None
    assert rates[0.02] == pytest.approx(1 / 3, abs=0.1)
    assert rates[0.5] > 0.9


def test_rows_that_are_named_open_their_own_blocks() -> None:
    """Three known rows of a block of four give the fourth, and nothing of other blocks."""
    source = pa.table({"age": np.arange(400), "income": np.arange(400) * 3})
    parameters = {"swap_fields": ["income"], "control_field": "age", "block_size": 4}
    named = tuple(row for row in range(200) if row % 4 != 1)
    tables = released("DDSWAP", source, parameters, known_rows=named, known=("age",), secret=("income",))
    found = one(reidentification.ATTACK.run(tables), "income")
    assert found.details["known_rows"] == len(named)
    assert found.attack.tries == 250
    assert found.details["certain"] == found.details["certain_and_right"] >= 50
    assert found.attack.successes == pytest.approx(50 + 200 / 3, abs=25)


def test_rows_that_a_sister_release_withheld_are_not_known() -> None:
    source = pa.table({"age": np.arange(400), "income": np.arange(400) * 3})
    parameters = {"swap_fields": ["income"], "control_field": "age", "block_size": 4}
    tables = released("DDSWAP", source, parameters, known_rows=tuple(range(100)))
    kept = np.arange(1000, 1400)
    kept[5:7] = [17, 99]
    sister = AttackTables(
        source, tables.release, None, tables.options, method=tables.method, aligned=True,
        stream=tables.stream, kept=kept,
    )  # fmt: skip
    assert sister.named_rows is not None
    assert np.flatnonzero(sister.named_rows).tolist() == [5, 6]
    other = AttackTables(
        source, tables.release, None, tables.options, method=tables.method, aligned=True,
        stream=tables.stream, kept=np.arange(1000, 1400),
    )  # fmt: skip
    with pytest.raises(NotApplicable, match="without any of the rows"):
        reidentification.ATTACK.run(other)


@pytest.mark.parametrize(("rows", "message"), [((400,), "0 to 399"), ((3, 3), "row 3 is named twice")])
def test_rows_that_are_named_wrongly(rows: tuple[int, ...], message: str) -> None:
    source = pa.table({"age": np.arange(400), "income": np.arange(400) * 3})
    with pytest.raises(ParameterError, match=message) as raised:
        check_known_rows(AttackOptions(known_rows=rows), source.num_rows)
    assert raised.value.pointer == f"/known_rows/{len(rows) - 1}"


BY_RISK = {"risk": {"key_fields": ["school"], "k": 0}}


@pytest.mark.parametrize(
    ("service", "extra"),
    [("DSWAP", {}), ("MEWS", {"bins": 3} | BY_RISK), ("MEDS", {"k": 200} | BY_RISK)],
)
def test_at_a_low_rate_most_rows_keep_their_values(service: str, extra: dict[str, Any]) -> None:
    parameters = {"swap_fields": ["income"], "rate": 0.1, **extra}
    tables = released(service, people(600), parameters, secret=("income",))
    found = one(reidentification.ATTACK.run(tables), "income")
    assert found.attack.rate == pytest.approx(0.9, abs=0.05)
    assert found.details["rate"] == pytest.approx(0.1, abs=1e-3)  # with partners of rows selected alone
    params = checked_params(tables)
    assert rate_of(params, groups_by_field(tables.release, params), "income", tables.release) == 0.1


@pytest.mark.parametrize(
    "extra", [{"rate": 1.0}, {"rate": 0.4}, {"rate": 0.3, "risk": {"key_fields": ["school"]}}]
)
def test_linkage_equals_its_twin(extra: dict[str, Any]) -> None:
    parameters = {"swap_fields": ["income", "town"], "control_field": "age", "block_size": 5, **extra}
    tables = released("DDSWAP", people(60), parameters)
    fixed = joint_codes(tables, ["school", "moves"], ["source", "release"])
    moved = []
    for each in moved_fields(tables):
        true, shown = joint_codes(tables, each.fields, ["source", "release"])
        moved.append((each, each.moving, each.one_of_each_unit, true, shown))
    for target in range(60):
        found = link(target, (fixed[0], fixed[1]), moved, 60)
        expected = naive.link_weights(
            (fixed[1].tolist(), int(fixed[0][target])),
            [
                (shown.tolist(), int(true[target]), each.group.tolist(), moving.tolist())
                for each, moving, _, true, shown in moved
            ],
            60,
        )
        assert found / found.max() == pytest.approx(np.array(expected) / max(expected))


def test_partners_of_units_of_any_size_are_units() -> None:
    """Four persons of 5, 1, 1 and 2 rows exchange their values in pairs: counted over the three pairings."""
    person = np.repeat([0, 1, 2, 3], [5, 1, 1, 2])
    values = np.array([7, 7, 8, 9])  # of each person in the release
    moved = MovedFields(("x",), np.zeros(9, np.int64), 1.0, units=person, one_value=True)
    for true in (7, 8, 9):
        found = weights(values[person], true, moved.group, moved.moving, moved.one_of_each_unit)
        pairings = [{0: 1, 1: 0, 2: 3, 3: 2}, {0: 2, 2: 0, 1: 3, 3: 1}, {0: 3, 3: 0, 1: 2, 2: 1}]
        chances = [np.mean([values[each[one]] == true for each in pairings]) for one in range(4)]
        assert found == pytest.approx(np.array(chances)[person])


def test_ties_are_chosen_evenly() -> None:
    weight = np.array([0.5, 1.0, 1.0, 0.0])
    assert [choose_row(weight, chance) for chance in (0.0, 0.49, 0.5, 0.99)] == [1, 1, 2, 2]
    assert choose_row(np.zeros(4), 0.99) == 3


def test_the_rule_finds_a_row_that_its_values_hide() -> None:
    """Distinct values in bins of k: the row that shows the values is wrong, one of k - 1 others right."""
    random = np.random.default_rng(8)
    source = pa.table(
        {"x": random.normal(size=400), "y": random.normal(size=400), "note": random.integers(0, 5, 400)}
    )
    parameters = {"swap_fields": ["x", "y"], "k": 4}
    found = one(linkage.ATTACK.run(released("MEDS", source, parameters, known=("x", "y"))))
    assert found.attack.rate == pytest.approx(1 / 3, abs=0.08)
    assert found.details["without_the_rule"] == 0
    assert found.details["median_candidates"] == 3
    assert found.baseline is not None
    assert found.baseline.rate < 0.02
    helped = one(linkage.ATTACK.run(released("MEDS", source, parameters, known=("x", "y", "note"))))
    assert helped.attack.rate > 0.6


def test_linkage_needs_a_known_field_that_moved() -> None:
    tables = released("DSWAP", people(50), {"swap_fields": ["income"]}, known=("age",))
    with pytest.raises(NotApplicable, match="no known field was swapped"):
        linkage.ATTACK.run(tables)


def test_rows_of_unknown_origin_are_left_out() -> None:
    """Dropped rows leave no way to judge, and the reason is in the report."""
    source = people(80)
    release = source.slice(0, 70)
    figures = attacked(
        source, release, source.slice(0, 5),
        method=MethodUsed("DSWAP", {"swap_fields": ["income"]}), aligned=False, known=("income",),
    )  # fmt: skip
    assert "row by row" in figures.left_out["reidentification"]
    assert "row by row" in figures.left_out["rule_linkage"]


@pytest.mark.parametrize("service", ["DSWAP", "CDSWAP", "DDSWAP", "MEWS", "MEDS"])
def test_the_suite_runs_them_on_a_sister_release(service: str) -> None:
    every: dict[str, dict[str, Any]] = {
        "DSWAP": {"swap_fields": ["income"]},
        "CDSWAP": {"swap_fields": ["income"], "control_field": "school"},
        "DDSWAP": {"swap_fields": ["income"], "control_field": "age", "block_size": 5},
        "MEWS": {"swap_fields": ["income", "height"], "bins": 5},
        "MEDS": {"swap_fields": ["income", "height"], "k": 5},
    }
    source = people(200)
    figures = attacked(
        source,
        source,
        method=MethodUsed(service, every[service]),
        known=("income", "age"),
        secret=("height",),
    )
    assert figures.control == "sister"
    assert {"reidentification", "rule_linkage"} <= set(figures.attacks), figures.left_out
