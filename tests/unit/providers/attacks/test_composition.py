"""Attacks on several releases: equal to their twins, exact where a method is undone, reasons elsewhere."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers import PROVIDERS
from providers.attacks.composition import hypothetical
from providers.attacks.composition.compose import ReleasedTable, compose
from providers.attacks.composition.exclusion import GroupValues, exclusion
from providers.attacks.composition.guesses import Intersection, least_squares, majority, mean_of
from providers.attacks.composition.hypothetical import Composition, compose_hypothetical
from providers.attacks.figures import AttackResult
from providers.attacks.tables import MethodUsed
from providers.randomness.chacha20 import Stream
from tests.naive import composition as naive
from tests.unit.providers.attacks.tables import attacked

STREAM = Stream(bytes(range(32)), "attacks", 1)

VALUES = st.integers(0, 4)


def people(rows: int = 400) -> pa.Table:
    """Towns, ages and a number that has one owner."""
    chance = np.random.default_rng(5)
    return pa.table(
        {
            "town": pa.array([f"town {number}" for number in chance.integers(0, 40, rows)]),
            "age": chance.integers(18, 90, rows),
            "income": np.round(chance.lognormal(10, 0.5, rows), 2),
            "owner": np.arange(rows),
        }
    )


def composed(
    service: str,
    parameters: dict[str, Any],
    secret: Sequence[str],
    table: pa.Table | None = None,
    releases: int = 20,
    **options: Any,
) -> Composition:
    """Attack hypothetical releases of a table."""
    source = people() if table is None else table
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), source.schema)
    return compose_hypothetical(source, provider, params, releases, secret, STREAM, **options)


def rates(result: AttackResult) -> dict[str, float]:
    """Success rate of each attack on all releases."""
    return {name: figures["rate"] for name, figures in result.details["attacks"].items()}


# --------------------------------------------------------------------------------- equal to the twins


@given(
    st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=6), st.lists(VALUES, min_size=3)
)
def test_majority_equals_its_twin(shown: list[list[int]], truth: list[int]) -> None:
    found = majority(np.array(shown), np.array(truth[:3]))
    expected = [float(naive.majority([one[row] for one in shown], truth[row])) for row in range(3)]
    assert found == pytest.approx(expected)


@given(st.data())
def test_exclusion_equals_bayes_rule_in_fractions(data: st.DataObject) -> None:
    codes = data.draw(st.lists(VALUES, min_size=2, max_size=9))
    group_of = data.draw(st.lists(st.integers(0, 2), min_size=len(codes), max_size=len(codes)))
    rate = data.draw(st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(3, 10)]))
    releases = data.draw(st.integers(1, 5))
    shown = [data.draw(st.lists(VALUES, min_size=len(codes), max_size=len(codes))) for _ in range(releases)]
    truth = data.draw(st.lists(VALUES, min_size=len(codes), max_size=len(codes)))
    order = np.argsort(group_of, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(group_of, minlength=3))))
    values = GroupValues(np.array(group_of), order, starts, np.array(codes), float(rate))
    found = exclusion(np.array(shown), np.array(truth), values, [releases])[releases]
    for row, group in enumerate(group_of):
        members = [code for code, other in zip(codes, group_of, strict=True) if other == group]
        expected = naive.exclusion([one[row] for one in shown], truth[row], members, rate)
        assert found[row] == pytest.approx(float(expected))


@given(st.data())
def test_exclusion_after_several_numbers_of_releases(data: st.DataObject) -> None:
    """The guess after n releases is that of a call with the first n releases only."""
    group_of, codes, truth = (np.array(data.draw(st.lists(VALUES, min_size=8, max_size=8))) for _ in range(3))
    shown = np.array(data.draw(st.lists(st.lists(VALUES, min_size=8, max_size=8), min_size=4, max_size=4)))
    order = np.argsort(group_of, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(group_of))))
    values = GroupValues(group_of, order, starts, codes, 1.0)
    found = exclusion(shown, truth, values, [1, 2, 4])
    assert list(found) == [1, 2, 4]
    for step, right in found.items():
        assert right.tolist() == exclusion(shown[:step], truth, values, [step])[step].tolist()


def test_a_row_without_a_group_shows_its_own_value() -> None:
    none = np.array([-1, -1])
    empty = np.zeros(0, np.int64)
    values = GroupValues(none, empty, np.array([0]), np.array([3, 4]), 1.0)
    found = exclusion(np.array([[3, 4]]), np.array([3, 3]), values, [1])[1]
    assert found.tolist() == [1, 0]


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=8), min_size=1, max_size=4),
    st.integers(0, 2),
    st.integers(0, 2),
)
def test_intersection_equals_its_twin(releases: list[list[tuple[int, int]]], known: int, own: int) -> None:
    values = {0, 1, 2}  # 3 is not a value of the source
    found = Intersection(len(values))
    for release in releases:
        combination = np.array([one for one, _ in release], np.int64)
        value = np.array([one if one in values else -1 for _, one in release], np.int64)
        found.add(combination, value)
    expected = naive.intersection(releases, known, own, values)
    assert found.guess(np.array([known]), np.array([own])) == pytest.approx([float(expected)])


def test_means_skip_missing_numbers() -> None:
    shown = np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]])
    assert mean_of(shown)[:2].tolist() == [2, 5]
    assert np.isnan(mean_of(shown)[2])


def test_least_squares_needs_more_known_rows_than_fields() -> None:
    shown = np.random.default_rng(1).normal(size=(6, 2))
    truth = shown @ np.array([2.0, -1.0]) + 3
    known = np.array([True, True, True, True, False, False])
    assert least_squares(shown, known, truth, shown[4:]) == pytest.approx(truth[4:])
    known[2:] = False
    assert np.isnan(least_squares(shown, known, truth, shown[4:])).all()


# --------------------------------------------------------------------------- what each method loses


def test_twenty_releases_of_a_partial_swap_are_undone_exactly() -> None:
    found = composed("DSWAP", {"swap_fields": ["owner"], "rate": 0.3}, ["owner"]).attacks["owner"]
    assert found.attack.rate == 1
    assert found.details["by"] == "majority"
    assert found.details["one_release"]["rate"] == pytest.approx(0.7, abs=0.07)
    assert found.details["gain_over_one_release"]["value"] == 1
    assert found.baseline is not None
    assert found.baseline.rate == pytest.approx(1 / 400)
    curve = found.details["curve"]
    assert list(curve) == ["1", "2", "3", "5", "10", "20"]
    assert curve["1"] < curve["5"] < curve["20"]
    assert found.control is None
    assert found.risk is None


def test_a_whole_swap_of_small_blocks_is_undone_by_exclusion() -> None:
    parameters = {"swap_fields": ["owner"], "control_field": "age", "block_size": 5}
    found = composed("DDSWAP", parameters, ["owner"]).attacks["owner"]
    assert found.details["by"] == "exclusion"
    assert found.details["attacks"]["exclusion"]["curve"]["1"] == pytest.approx(0.25, abs=0.01)
    assert found.attack.rate > 0.97


def test_a_whole_swap_of_the_table_keeps_its_values_hidden() -> None:
    found = composed("DSWAP", {"swap_fields": ["owner"]}, ["owner"]).attacks["owner"]
    assert rates(found)["exclusion"] < 0.02
    assert rates(found)["majority"] < 0.02


@pytest.mark.parametrize(
    ("service", "parameters"),
    [
        ("CDSWAP", {"swap_fields": ["owner"], "control_field": "pair"}),
        ("MEDS", {"swap_fields": ["owner", "age"], "k": 2}),
        ("MEWS", {"swap_fields": ["owner"], "width": 2.0}),
    ],
)
def test_groups_of_two_are_undone_by_a_single_release(service: str, parameters: dict[str, Any]) -> None:
    table = people(200).append_column("pair", pa.array(np.arange(200) // 2))
    found = composed(service, parameters, ["owner"], table, releases=1).attacks["owner"]
    assert rates(found)["exclusion"] == 1


def test_bins_leave_out_rows_without_a_number() -> None:
    table = people(58)
    owner = pa.array([None if row % 7 == 0 else row for row in range(58)])
    table = table.set_column(3, "owner", owner)
    parameters = {"swap_fields": ["owner"], "width": 2.0, "nulls": "keep", "singletons": "keep"}
    found = composed("MEWS", parameters, ["owner"], table, releases=2).attacks["owner"]
    assert rates(found)["majority"] <= rates(found)["exclusion"] == 1


def test_the_most_frequent_value_undoes_rwn_at_a_low_q() -> None:
    found = composed(
        "RWN", {"k": 5, "q": 0.5, "perturb_fields": ["owner"], "distance_fields": ["age"]}, ["owner"]
    )
    assert rates(found.attacks["owner"])["majority"] > 0.9
    assert "exclusion" not in rates(found.attacks["owner"])


def test_the_mean_approaches_the_source_of_locality() -> None:
    found = composed("LOCALITY", {"fields": ["age"], "segment_size": 20}, ["age"]).attacks["age"]
    mean = found.details["attacks"]["mean"]
    assert mean["r_squared"]["1"] < mean["r_squared"]["5"] < mean["r_squared"]["20"]
    assert mean["tolerance"] == pytest.approx(0.05 * np.std(people()["age"].to_numpy()))


def test_known_people_undo_the_mean_of_pabidot() -> None:
    chance = np.random.default_rng(2)
    table = pa.table({name: chance.normal(size=2000) for name in ("a", "b", "c")})
    parameters = {"fields": ["a", "b", "c"], "shuffle": False, "sigma": 1.0}
    found = composed("PABIDOT", parameters, ["a"], table, attacks=300).attacks["a"]
    squares = found.details["attacks"]["least_squares"]
    assert found.details["by"] == "least_squares"
    assert squares["r_squared"]["1"] + 0.1 < squares["r_squared"]["20"]
    assert squares["r_squared"]["20"] > 0.9


# ------------------------------------------------------------------------------ intersection, alignment


def test_candidates_of_one_combination_intersect_without_an_order_of_rows() -> None:
    source = pa.table({"town": ["a", "a", "a", "b"], "illness": ["x", "y", "z", "x"]})
    first = pa.table({"town": ["b", "a", "a"], "illness": ["x", "y", "x"]})
    second = pa.table({"town": ["a", "a", "b"], "illness": ["z", "x", "x"]})
    releases = [ReleasedTable(table, aligned=False) for table in (first, second)]
    results, left_out = compose(source, releases, ["illness"], STREAM, known=["town"])
    found = results["illness"]
    assert not left_out
    assert list(rates(found)) == ["intersection"]
    # All of town a are taken for x, which is the only illness in both releases; one of them and b's have it.
    assert found.attack.rate == pytest.approx(2 / 4)
    assert found.details["attacks"]["intersection"]["curve"]["1"] == pytest.approx((0.5 + 0.5 + 0 + 1) / 4)


def test_shuffled_releases_without_known_fields_are_left_out_with_the_reason() -> None:
    table = people().select(["age", "income"])
    found = composed("PABIDOT", {"fields": ["age", "income"]}, ["age"], table, releases=2)
    assert not found.attacks
    assert "shuffled" in found.left_out["age"]


def test_fields_that_are_missing_or_not_comparable_are_left_out() -> None:
    source = people(20).append_column("list", pa.array([[1]] * 20))
    releases = [ReleasedTable(source.drop_columns(["age"]))]
    results, left_out = compose(source, releases, ["age", "list", "none", "town"], STREAM)
    assert list(results) == ["town"]
    assert left_out["none"] == "the source has no such field"
    assert left_out["age"] == "the release has no such field"
    assert "type list" in left_out["list"]


def test_numbers_whose_squares_overflow_have_no_mean_to_be_near() -> None:
    """A tolerance without a limit would make every guess right, and a share of no variance is no number."""
    source = pa.table({"x": [1e308, -1e308, 1.0, 2.0, 3.0]})
    results, _ = compose(source, [ReleasedTable(source)] * 2, ["x"], STREAM)
    assert rates(results["x"]) == {"majority": 1.0}
    fewer = source.slice(2)
    results, _ = compose(fewer, [ReleasedTable(fewer)] * 2, ["x"], STREAM)
    assert rates(results["x"]) == {"majority": 1.0, "mean": 1.0}


def test_a_table_without_rows_is_left_out() -> None:
    empty = people(0)
    assert compose(empty, [ReleasedTable(empty)], ["age"], STREAM) == ({}, {"age": "the source has no rows"})


# --------------------------------------------------------------------------------------- hypothetical


def test_no_secret_means_all_fields_that_a_release_changes() -> None:
    found = composed("DSWAP", {"swap_fields": ["owner", "income"]}, [], releases=2)
    assert sorted(found.attacks) == ["income", "owner"]


def test_the_suite_reports_the_strongest_attack_by_field() -> None:
    source = people()
    method = MethodUsed("DSWAP", {"swap_fields": ["income", "age"], "rate": 0.3})
    figures = attacked(source, source, source.slice(0, 9), method=method, secret=["income"], releases=10)
    found = figures.attacks["composition"]
    assert isinstance(found, dict)
    assert list(found) == ["income"]
    assert found["income"].details["releases"] == 10
    assert found["income"].attack.rate > 0.99
    assert "composition_rows" not in figures.sampled


@pytest.mark.parametrize(
    ("method", "options", "reason"),
    [
        (MethodUsed("DSWAP", {"swap_fields": ["income"]}), {}, "'releases'"),
        (None, {"releases": 5}, "not known which service"),
        (
            MethodUsed("PABIDOT", {"fields": ["age", "income", "owner"]}),
            {"releases": 2, "secret": ["age"]},
            "shuffled",
        ),
        (MethodUsed("DSWAP", {"swap_fields": ["none"]}), {"releases": 2}, "DSWAP cannot run again"),
    ],
)
def test_the_suite_leaves_composition_out_with_the_reason(
    method: MethodUsed | None, options: dict[str, Any], reason: str
) -> None:
    source = people(60).drop_columns(["town"])
    figures = attacked(source, source, source.slice(0, 9), method=method, **options)
    assert "composition" not in figures.attacks
    assert reason in figures.left_out["composition"]


def test_the_same_stream_gives_the_same_figures_and_progress_reaches_the_end() -> None:
    seen: list[float] = []
    parameters = {"swap_fields": ["owner"], "rate": 0.5}
    one = composed(
        "DSWAP", parameters, ["owner"], progress=lambda share, stage: seen.append(share), releases=3
    )
    assert one == composed("DSWAP", parameters, ["owner"], releases=3)
    assert seen[-1] == 1
    assert seen == sorted(seen)


def test_a_large_table_is_sampled_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypothetical, "_MOST_ROWS", 1000)
    found = composed("DSWAP", {"swap_fields": ["owner"], "rate": 0.3}, ["owner"], attacks=50)
    assert found.sampled_rows == 50
    assert found.attacks["owner"].attack.tries == 50
    assert composed("DSWAP", {"swap_fields": ["owner"]}, ["owner"], releases=2).sampled_rows is None
