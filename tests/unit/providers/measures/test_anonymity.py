"""k-anonymity, l-diversity and t-closeness: published examples, plain twins, and what is no class."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from providers.errors import ParameterError
from providers.measures.assessment import Assessment, MeasureOptions, Release, assess, check_options
from providers.measures.risk.k_anonymity import k_anonymity
from providers.measures.risk.l_diversity import l_diversity
from providers.measures.risk.t_closeness import t_closeness
from providers.randomness.chacha20 import Stream
from tests.naive import anonymity as naive

KEYS = ["k_anonymity", "l_diversity", "t_closeness"]


def measured(source: pa.Table, destination: pa.Table | None = None, **options: Any) -> Assessment:
    chosen = MeasureOptions.model_validate({"only": KEYS} | options)
    destination = source if destination is None else destination
    check_options(chosen, source.schema, destination.schema)
    return assess(Release(source, destination, aligned=False), chosen, Stream(bytes(32), "measures", 1))


def value(assessment: Assessment, key: str, when: str = "after") -> Any:
    return assessment.measures[key]["value"][when]


SALARIES = pa.table(
    {
        "zip": ["476**"] * 3 + ["4790*"] * 3 + ["476** "] * 3,
        "salary": [3, 4, 5, 6, 11, 8, 7, 9, 10],
        "disease": [
            "gastric ulcer", "gastritis", "stomach cancer", "gastritis", "flu", "bronchitis", "bronchitis",
            "pneumonia", "stomach cancer",
        ],
    }
)  # fmt: skip
"""Table 3 of Li, Li and Venkatasubramanian 2007, in its three classes, salaries in thousands."""


def test_the_example_of_the_paper_of_t_closeness() -> None:
    """The class {3k, 4k, 5k} has distance .375, and {6k, 8k, 11k} .167."""
    found = measured(SALARIES, key_fields=["zip"], sensitive_fields=["salary", "disease"])
    assert value(found, "k_anonymity")["k"] == 3
    assert value(found, "l_diversity") == pytest.approx({"distinct": 3, "entropy": 3, "homogeneous": 0})
    salary = value(found, "t_closeness", "by_field")["salary"]["after"]
    assert salary["t"] == pytest.approx(0.375)
    third = naive.ordered_distance([7, 9, 10], SALARIES["salary"].to_pylist())
    assert salary["mean"] == pytest.approx((0.375 + 1 / 6 + third) / 3)
    # each of the three values of a class has 1/3 there, and 2/9 or 1/9 in the table
    disease = value(found, "t_closeness", "by_field")["disease"]["after"]
    assert disease["t"] == pytest.approx(1 - 5 / 9)


def test_an_earth_mover_does_no_less_work() -> None:
    """Both distances are the optimum of the transport problem that defines them."""
    random = np.random.default_rng(3)
    for levels in (2, 5):
        table = np.concatenate([np.arange(levels), random.integers(0, levels, 9)])
        group = table[:4]
        p, q = (np.bincount(each, minlength=levels) / len(each) for each in (group, table))
        ranks = np.arange(levels)
        distances = np.abs(ranks[:, None] - ranks) / (levels - 1)
        limits = np.zeros((2 * levels, levels, levels))
        for i in range(levels):
            limits[i, i, :], limits[levels + i, :, i] = 1, 1
        for ordered, ground in ((True, distances), (False, (distances > 0).astype(float))):
            best = linprog(
                ground.ravel(), A_eq=limits.reshape(2 * levels, -1), b_eq=np.concatenate([p, q])
            ).fun
            plain = (naive.ordered_distance if ordered else naive.equal_distance)(list(group), list(table))
            assert plain == pytest.approx(best, abs=1e-9)
            classes = np.array([0] * 4 + [1] * (len(table) - 4))
            both = t_closeness(classes, table, ordered)
            assert both["t"] >= best - 1e-9
            assert both["t"] == pytest.approx(
                max(best, naive.t_closeness(list(classes), list(table), ordered)["t"]), abs=1e-9
            )


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=40),
    st.integers(1, 6),
)
@settings(max_examples=150, deadline=None)
def test_the_plain_twins_agree(rows: list[tuple[int, int]], threshold: int) -> None:
    keys, values = [key for key, _ in rows], [number for _, number in rows]
    classes = np.unique(keys, return_inverse=True)[1]
    codes = np.unique(values, return_inverse=True)[1]
    k, small, shares = naive.k_anonymity(keys, threshold)
    found = k_anonymity(np.bincount(classes), threshold)
    assert (found["k"], found["small"]) == (k, pytest.approx(small))
    assert list(found["by_size"].values()) == pytest.approx(shares)
    assert l_diversity(classes, codes) == pytest.approx(naive.l_diversity(keys, values))
    for ordered in (True, False):
        expected = naive.t_closeness(keys, values, ordered)
        assert t_closeness(classes, codes, ordered) == pytest.approx(expected, abs=1e-12)


def test_large_classes_fall_into_their_intervals() -> None:
    sizes = np.array([1, 2, 4, 9, 19, 49, 99, 100, 1000])
    found = k_anonymity(sizes, 5)
    assert list(found["by_size"]) == ["1", "2", "3-4", "5-9", "10-19", "20-49", "50-99", "100+"]
    keys = np.repeat(np.arange(len(sizes)), sizes).tolist()
    assert list(found["by_size"].values()) == pytest.approx(naive.k_anonymity(keys, 5)[2])
    assert found["small"] == pytest.approx(7 / 1283)


def test_a_null_in_a_key_field_is_a_value_of_its_own() -> None:
    """Two suppressed keys form a class of two; rounding merges null and NaN."""
    table = pa.table({"age": pa.array([None, None, 31.0, 33.0]), "income": [1, 2, 3, 4]})
    assert value(measured(table, key_fields=["age"]), "k_anonymity")["by_size"]["2"] == 0.5
    rounded = measured(table, key_fields=["age"], rounding={"age": 10})
    assert value(rounded, "k_anonymity")["k"] == 2


def test_a_missing_sensitive_value_is_diverse_but_has_no_rank() -> None:
    """It counts as a category; a number that is missing leaves the distributions."""
    table = pa.table(
        {"key": ["a", "a", "b", "b", "c"], "income": [1.0, None, 2.0, float("nan"), None],
         "illness": ["flu", None, "flu", "flu", None]}
    )  # fmt: skip
    found = measured(table, key_fields=["key"], sensitive_fields=["income", "illness"])
    diversity = value(found, "l_diversity", "by_field")
    assert diversity["illness"]["after"]["homogeneous"] == pytest.approx(3 / 5)
    assert diversity["income"]["after"]["homogeneous"] == pytest.approx(1 / 5)
    closeness = value(found, "t_closeness", "by_field")
    # one number each in a and b, none in c: each is half of the mass away from the table
    assert closeness["income"]["after"] == pytest.approx({"t": 0.5, "mean": 0.5})
    # c has only nulls, which are 2 of 5
    assert closeness["illness"]["after"]["t"] == pytest.approx(3 / 5)


def test_both_tables_are_measured_by_their_own_rows() -> None:
    """A dropped row is in no class of the release; the source's figures stand next to the release's."""
    source = pa.table({"key": ["a", "a", "b"], "income": [1, 2, 3]})
    found = measured(source, source.slice(0, 2), key_fields=["key"], sensitive_fields=["income"])
    assert (value(found, "k_anonymity", "before")["k"], value(found, "k_anonymity")["k"]) == (1, 2)
    assert value(found, "l_diversity", "before")["distinct"] == 1
    assert value(found, "l_diversity")["distinct"] == 2
    assert value(found, "t_closeness", "before")["t"] > value(found, "t_closeness")["t"] == 0


def test_one_row_and_no_row() -> None:
    table = pa.table({"key": ["a"], "income": [1]})
    options = {"key_fields": ["key"], "sensitive_fields": ["income"]}
    found = measured(table, **options)
    assert value(found, "k_anonymity")["by_size"]["1"] == 1
    assert value(found, "l_diversity") == {"distinct": 1, "entropy": 1, "homogeneous": 1}
    assert value(found, "t_closeness") == {"t": 0, "mean": 0}
    empty = measured(table.slice(0, 0), **options)
    assert not empty.measures
    assert set(empty.left_out) >= set(KEYS)


def test_sensitive_fields_of_which_none_has_a_value_are_left_out() -> None:
    table = pa.table({"key": ["a", "b"], "income": pa.array([None, None], pa.float64())})
    found = measured(table, key_fields=["key"], sensitive_fields=["income"])
    assert found.left_out["t_closeness"] == "no sensitive field has a value in both tables"
    assert value(found, "l_diversity")["distinct"] == 1


def test_a_sensitive_field_is_measured_even_if_fields_does_not_name_it() -> None:
    found = measured(SALARIES, fields=["zip"], key_fields=["zip"], sensitive_fields=["salary"])
    assert value(found, "t_closeness")["t"] == pytest.approx(0.375)
    codes = measured(
        SALARIES,
        fields=["zip"],
        key_fields=["zip"],
        sensitive_fields=["salary"],
        categorical_fields=["salary"],
    )
    assert value(codes, "t_closeness")["t"] == pytest.approx(2 / 3)


def test_without_options_the_measures_say_what_they_need() -> None:
    found = measured(SALARIES, key_fields=["zip"])
    assert list(found.measures) == ["k_anonymity"]
    assert "sensitive_fields" in found.left_out["l_diversity"]
    assert "key_fields" in measured(SALARIES, sensitive_fields=["salary"]).left_out["t_closeness"]


@pytest.mark.parametrize(
    ("options", "pointer", "words"),
    [
        ({"sensitive_fields": ["salry"]}, "/measures/sensitive_fields/0", "did you mean 'salary'?"),
        (
            {"key_fields": ["zip"], "sensitive_fields": ["salary", "zip"]},
            "/measures/sensitive_fields/1",
            "also in 'key_fields'",
        ),
        (
            {"identifier_fields": ["zip"], "sensitive_fields": ["zip"]},
            "/measures/identifier_fields/0",
            "also in 'sensitive_fields'",
        ),
    ],
)
def test_sensitive_fields_that_do_not_fit_are_refused(
    options: dict[str, Any], pointer: str, words: str
) -> None:
    with pytest.raises(ParameterError, match=words) as caught:
        measured(SALARIES, **options)
    assert caught.value.pointer == pointer
