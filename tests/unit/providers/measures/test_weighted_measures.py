"""Weighted measures: plain twins, weights as copies of rows, known designs, and invalid weights."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.report.measure_tables import measure
from app.report.small_counts import Discretion
from app.report.survey_totals import survey_totals
from providers.errors import ParameterError
from providers.measures import MEASURES
from providers.measures.assessment import Assessment, MeasureOptions, Release, assess, check_options
from providers.measures.models.target_model import has_width, interval_overlap
from providers.measures.shared.columns import Side
from providers.measures.shared.survey_design import Design, design_of
from providers.measures.shared.weights import (
    WeightedTable,
    weighted_distance,
    weighted_mean,
    weighted_quantiles,
    weighted_variance,
)
from providers.measures.utility.domain_totals import domain_totals, withheld
from providers.measures.utility.weighted_correlations import weighted_correlation
from providers.randomness.chacha20 import Stream
from tests.naive import survey as naive

KEYS = ("weighted_marginals", "weighted_correlations", "weighted_regression", "domain_totals")
CLOSE = 1e-12


def random_rows(seed: int, rows: int = 60) -> tuple[list[float | None], list[float], list[int], list[int]]:
    """Numbers of which some are missing, weights of which some are 0, strata and clusters."""
    random = np.random.default_rng(seed)
    numbers = [None if random.random() < 0.1 else float(x) for x in random.normal(50, 9, rows).round(1)]
    weights = random.lognormal(3, 0.7, rows).round(2)
    weights[random.random(rows) < 0.05] = 0.0
    strata = [*random.integers(0, 4, rows - 1).tolist(), 9]  # stratum 9 has a single unit
    return numbers, weights.tolist(), strata, random.integers(0, 14, rows).tolist()


def array(numbers: list[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([math.nan if x is None else x for x in numbers])


def table_of(weights: list[float], design: Design | None = None) -> WeightedTable:
    return WeightedTable("before", "source", np.array(weights), design or Design(len(weights)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("has_strata", [False, True])
@pytest.mark.parametrize("has_clusters", [False, True])
def test_means_and_their_errors_agree_with_a_plain_twin(
    seed: int, has_strata: bool, has_clusters: bool
) -> None:
    """Every design, with missing numbers, weights of 0, and a stratum of a single unit."""
    numbers, weights, strata, clusters = random_rows(seed)
    by, units = (strata if has_strata else None), (clusters if has_clusters else None)
    design = design_of(
        len(weights),
        None if by is None else np.array(by, np.int64),
        None if units is None else np.array(units, np.int64),
    )
    found = weighted_mean(array(numbers), table_of(weights, design))
    assert found is not None
    assert found.value == pytest.approx(naive.mean(numbers, weights), rel=CLOSE)
    expected = naive.variance_of_total(naive.mean_scores(numbers, weights), by, units)
    assert found.error == pytest.approx(math.sqrt(expected), rel=CLOSE)


@pytest.mark.parametrize("seed", range(6))
def test_variances_quantiles_and_distances_agree_with_plain_twins(seed: int) -> None:
    numbers, weights, _, _ = random_rows(seed)
    others, other_weights, _, _ = random_rows(seed + 100)
    assert weighted_variance(array(numbers), np.array(weights)) == pytest.approx(
        naive.variance(numbers, weights), rel=CLOSE
    )
    shares = [Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1)]
    found = weighted_quantiles(array(numbers), np.array(weights), [float(share) for share in shares])
    assert found == [naive.quantile(numbers, weights, share) for share in shares]
    assert weighted_distance(
        (array(numbers), np.array(weights)), (array(others), np.array(other_weights))
    ) == pytest.approx(naive.largest_difference((numbers, weights), (others, other_weights)), rel=CLOSE)


@pytest.mark.parametrize("weight", [0.1, 1.0, 3.7])
def test_equal_weights_change_no_quantile(weight: float) -> None:
    """The share 1/4 of eight rows is reached exactly by the second one, however the weights are rounded."""
    numbers = np.array([5.0, 1.0, 8.0, 3.0, 2.0, 7.0, 6.0, 4.0])
    assert weighted_quantiles(numbers, np.full(8, weight), (0.25, 0.5, 0.75)) == [2, 4, 6]


def test_weights_are_copies_of_rows() -> None:
    """Whole weights give the mean, share, correlation and coefficients of a table with as many copies."""
    random = np.random.default_rng(8)
    rows = 80
    x, z = random.normal(size=rows), random.normal(size=rows)
    y = 3 * x - z + random.normal(size=rows)
    weights = random.integers(1, 6, rows)
    copies = np.repeat(np.arange(rows), weights)
    table = table_of(weights.astype(float).tolist())
    mean = weighted_mean(y, table)
    correlation = weighted_correlation(x, y, table)
    assert mean is not None
    assert correlation is not None
    assert mean.value == pytest.approx(y[copies].mean(), rel=CLOSE)
    assert correlation.value == pytest.approx(np.corrcoef(x[copies], y[copies])[0, 1], rel=CLOSE)
    source = pa.table({"x": x, "z": z, "y": y, "w": weights})
    found = assessed(source, source, target="y")
    design = np.column_stack([np.ones(len(copies)), x[copies], z[copies]])
    expected = np.linalg.lstsq(design, y[copies], rcond=None)[0]
    rows_found = found.measures["weighted_regression"]["value"]["coefficients"]
    assert [row["before"] for row in rows_found] == pytest.approx(expected.tolist(), rel=1e-10)


def test_without_design_the_error_of_a_total_is_that_of_a_simple_sample() -> None:
    """Equal weights N / n: the standard error of the mean is s / sqrt(n)."""
    numbers = np.random.default_rng(2).normal(10, 3, 50)
    found = weighted_mean(numbers, table_of([20.0] * 50))
    assert found is not None
    assert found.error == pytest.approx(numbers.std(ddof=1) / math.sqrt(50), rel=CLOSE)


def test_the_error_is_the_spread_over_repeated_samples() -> None:
    """Unequal probabilities, with replacement: the mean of the estimated variances is the real one."""
    random = np.random.default_rng(4)
    income = random.lognormal(3, 0.6, 3000)
    chance = np.clip(income, 10, 60)
    chance /= chance.sum()
    groups = np.arange(3000) % 3
    estimates, variances = [], []
    for _ in range(600):
        drawn = random.choice(3000, 150, p=chance)
        table = table_of((1 / (150 * chance[drawn])).tolist())
        [_, (total, error), _] = domain_totals(income[drawn], groups[drawn], 3, table)
        estimates.append(total)
        variances.append(error**2)
    assert np.mean(estimates) == pytest.approx(income[groups == 1].sum(), rel=0.02)
    assert np.mean(variances) == pytest.approx(np.var(estimates, ddof=1), rel=0.12)


@pytest.mark.parametrize("seed", range(3))
def test_correlations_agree_with_a_plain_twin(seed: int) -> None:
    """Also far from zero, where sums of squares would lose their digits; scores by numeric derivatives."""
    random = np.random.default_rng(seed)
    weights = random.lognormal(0, 0.5, 40)
    one = 1e6 + random.normal(size=40)
    other = one + random.normal(size=40)
    found = weighted_correlation(one, other, table_of(weights.tolist()))
    assert found is not None
    assert found.value == pytest.approx(naive.correlation(one.tolist(), other.tolist(), weights.tolist()))
    # the score of a row is its weight times the derivative of the estimate by its weight
    scores = []
    for row in range(40):
        step = 1e-5 * weights[row]
        sides = []
        for sign in (1, -1):
            moved = weights.copy()
            moved[row] += sign * step
            sides.append(naive.correlation((one - 1e6).tolist(), (other - 1e6).tolist(), moved.tolist()))
        scores.append(weights[row] * (sides[0] - sides[1]) / (2 * step))
    assert found.error == pytest.approx(math.sqrt(naive.variance_of_total(scores)), rel=1e-5)


def test_constant_fields_have_no_correlation() -> None:
    table = table_of([1.0] * 5)
    varying = np.arange(5.0)
    assert weighted_correlation(np.full(5, 1e9 + 0.1), varying, table) is None
    assert weighted_correlation(np.array([1.0, 2, np.nan, np.nan, np.nan]), varying, table) is None


def assessed(
    source: pa.Table, release: pa.Table, weight: str = "w", origin: Any = None, **options: Any
) -> Assessment:
    given = {"only": KEYS, "weight_fields": [weight]} | options
    chosen = MeasureOptions.model_validate(given)
    return assess(Release(source, release, origin), chosen, Stream(bytes(32), "measures", 1))


def survey(rows: int = 300, seed: int = 3) -> pa.Table:
    random = np.random.default_rng(seed)
    age = random.integers(18, 80, rows)
    hours = random.normal(40, 5, rows).round(1)
    missing = random.random(rows) < 0.05
    return pa.table(
        {
            "age": age,
            "hours": pa.array(hours, mask=missing),
            "income": (900 * age + 300 * hours + random.normal(0, 4000, rows)).round(),
            "sex": np.array(["f", "m"])[random.integers(0, 2, rows)],
            "region": np.array(["north", "south", "west"])[random.choice(3, rows, p=(0.5, 0.3, 0.2))],
            "stratum": random.integers(0, 5, rows),
            "household": np.sort(random.integers(0, 120, rows)),
            "w": random.lognormal(4, 0.5, rows).round(3),
        }
    )


def swapped(table: pa.Table, fields: list[str], seed: int = 1) -> pa.Table:
    """Return the table with some fields permuted together."""
    order = pa.array(np.random.default_rng(seed).permutation(table.num_rows))
    for name in fields:
        index = table.column_names.index(name)
        table = table.set_column(index, name, table.column(name).take(order))
    return table


DESIGN = {"stratum_field": "stratum", "cluster_field": "household"}


@pytest.mark.parametrize("design", [{}, DESIGN, {"stratum_field": "stratum"}, {"cluster_field": "household"}])
def test_regressions_agree_with_exact_fractions(design: dict[str, str]) -> None:
    """Coefficients and standard errors in the fields' units, with indicators, nulls and every design."""
    source = survey(70)
    found = assessed(source, source, target="income", fields=["age", "hours", "sex", "income"], **design)
    rows = [row for row in source.to_pylist() if row["hours"] is not None]
    levels = sorted(("f", "m"), key=lambda level: -source["sex"].to_pylist().count(level))
    columns = [
        [row["age"] for row in rows],
        [row["hours"] for row in rows],
        [float(row["sex"] == levels[1]) for row in rows],
    ]
    coefficients, scores = naive.regression(
        [row["income"] for row in rows], columns, [row["w"] for row in rows]
    )
    value = found.measures["weighted_regression"]["value"]
    assert [row["term"] for row in value["coefficients"]] == [
        "(intercept)", "age", "hours", f"sex: {levels[1]}",
    ]  # fmt: skip
    complete = [row["hours"] is not None for row in source.to_pylist()]
    strata, clusters = (source[design[option]].to_pylist() if option in design else None for option in DESIGN)
    for row, coefficient, own in zip(value["coefficients"], coefficients, scores, strict=True):
        assert row["before"] == row["after"] == pytest.approx(coefficient, rel=1e-10)
        whole = iter(own)
        by_row = [next(whole) if each else 0.0 for each in complete]
        error = math.sqrt(naive.variance_of_total(by_row, strata, clusters))
        assert row["before_error"] == pytest.approx(error, rel=1e-9)
        assert (row["change"], row["change_in_errors"], row["overlap"]) == (0, 0, pytest.approx(1))


@pytest.mark.parametrize("moved", [False, True])
def test_totals_by_domain_agree_with_a_plain_twin(moved: bool) -> None:
    """Before and after, with the release's weights and, if they moved, with those of the source."""
    source = survey()
    release = swapped(source, ["income", "w"] if moved else ["income"])
    found = assessed(source, release, domain_fields=["region", "sex"], **DESIGN)
    totals = found.measures["domain_totals"]["value"]["totals"]
    views = {"before": (source, source), "after": (release, release)}
    if moved:
        views["after_source_weights"] = (release, source)
    assert len(totals) == (3 + 2) * 4  # of w, age, hours and income
    for total in totals:
        for view, (table, weighting) in views.items():
            weights = weighting["w"].to_pylist()
            numbers = [1.0] * 300 if total["field"] == "w" else table[total["field"]].to_pylist()
            inside = [value == total["domain"] for value in table[total["domain_field"]].to_pylist()]
            scores = [
                w * (x or 0.0) if is_in else 0.0 for w, x, is_in in zip(weights, numbers, inside, strict=True)
            ]
            assert total[view] == pytest.approx(math.fsum(scores), rel=CLOSE)
            error = naive.variance_of_total(
                scores, table["stratum"].to_pylist(), table["household"].to_pylist()
            )
            assert total[f"{view}_error"] == pytest.approx(math.sqrt(error), rel=CLOSE)
        assert ("after_source_weights" in total) == moved
        percent = 100 * (total["after"] - total["before"]) / total["before"]
        assert total["change_percent"] == pytest.approx(percent)


def test_shares_of_categories_are_weighted() -> None:
    """The shares of a field add up to 1 and are sums of weights, and null is among the others."""
    sex = ["f"] * 30 + ["m"] * 20 + [None] * 6
    weights = [1.0] * 30 + [4.0] * 20 + [5.0] * 6
    table = pa.table({"sex": sex, "x": list(range(56)), "w": weights})
    shares = assessed(table, table).measures["weighted_marginals"]["value"]["shares"]
    assert {row["category"]: row["before"] for row in shares} == {
        "f": pytest.approx(30 / 140), "m": pytest.approx(80 / 140), "(others)": pytest.approx(30 / 140),
    }  # fmt: skip
    expected = math.sqrt(
        naive.variance_of_total(naive.mean_scores([float(value == "m") for value in sex], weights))
    )
    [error] = [row["before_error"] for row in shares if row["category"] == "m"]
    assert error == pytest.approx(expected, rel=CLOSE)


def test_moved_weights_change_the_estimates_and_carried_ones_do_not() -> None:
    """A field that moves together with the weights keeps its weighted mean to the last digits."""
    source = survey()
    found = assessed(source, swapped(source, ["income", "w"]))
    by_field = found.measures["weighted_marginals"]["value"]["by_field"]
    assert by_field["income"]["distance"] < CLOSE
    assert by_field["income"]["mean"]["after"] == pytest.approx(by_field["income"]["mean"]["before"])
    assert by_field["age"]["distance"] > 0.01
    assert by_field["age"]["mean"]["after_source_weights"] == by_field["age"]["mean"]["before"]
    kept = assessed(source, swapped(source, ["income"]))
    assert (
        "after_source_weights" not in kept.measures["weighted_marginals"]["value"]["by_field"]["age"]["mean"]
    )


def test_rows_of_another_order_keep_the_weights_of_the_source() -> None:
    """With a known origin, weights follow their rows; without one, only the release's are used."""
    source = survey()
    order = np.random.default_rng(6).permutation(300)
    release = source.take(pa.array(order))
    found = assessed(source, release, origin=order, domain_fields=["region"])
    assert found.measures["domain_totals"]["value"]["percent"] == pytest.approx(0, abs=1e-10)
    assert "after_source_weights" not in found.measures["domain_totals"]["value"]["totals"][0]
    doubled = release.set_column(7, "w", pa.array(2 * release["w"].to_numpy()))
    found = assessed(source, doubled, origin=order, domain_fields=["region"])
    [row, *_] = found.measures["domain_totals"]["value"]["totals"]
    assert row["change_percent"] == pytest.approx(100)
    assert row["after_source_weights"] == pytest.approx(row["before"])


def with_weights(values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"age": list(range(len(values))), "w": pa.array(values, kind)})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0, -1.0, 2.0], "negative values in the source"),
        ([1.0, None, 2.0], r"missing \(null or NaN\) values in the source"),
        ([1.0, math.nan, 2.0], r"missing \(null or NaN\) values in the source"),
        ([1.0, math.inf, 2.0], "infinite values in the source"),
        ([0.0, 0.0, 0.0], "all values of the survey weight 'w' are 0 in the source"),
        ([1.7e308, 1.7e308, 1.0], "too large for float64"),
        (["1", "2", "3"], "is no number in the source"),
    ],
)
def test_invalid_weights_are_answered_by_their_reason(values: list[Any], words: str) -> None:
    table = with_weights(values)
    found = assessed(table, table, domain_fields=["age"], target="age")
    for key in KEYS:
        assert key not in found.measures
        with pytest.raises(AssertionError, match=words):
            raise AssertionError(found.left_out[key])


def test_invalid_weights_of_the_release_are_named_so() -> None:
    found = assessed(with_weights([1, 2, 3]), with_weights([1, None, 3]))
    assert "values in the release" in found.left_out["weighted_marginals"]
    found = assessed(with_weights([1]), with_weights([1]))
    assert "2 rows" in found.left_out["weighted_marginals"]


@pytest.mark.parametrize("weights", [[], ["w", "v"]])
def test_one_weight_is_needed(weights: list[str]) -> None:
    table = survey().append_column("v", pa.array(np.ones(300)))
    found = assessed(table, table, weight_fields=weights, domain_fields=["region"], target="income")
    assert {found.left_out[key] for key in KEYS} == {"name one survey weight in 'weight_fields'"}
    found = assessed(table, table)
    assert "domain_fields" in found.left_out["domain_totals"]
    assert "'target'" in found.left_out["weighted_regression"]


def test_small_domains_are_not_shown() -> None:
    """A domain of few rows joins the others, or is withheld with another one to hide it."""
    region = ["a"] * 40 + ["b"] * 30 + ["c"] * 20 + ["d"] * 3
    table = pa.table({"region": region, "x": [1.0] * 93, "w": [1.0] * 93})
    totals = assessed(table, table, domain_fields=["region"]).measures["domain_totals"]["value"]["totals"]
    # the three rows of d would be shown by the others, so that c joins them
    assert {row["domain"] for row in totals} == {"a", "b", "(others)"}
    rows = np.arange(30)
    present: dict[Side, Any] = {"source": (rows > 1) & (rows < 22), "destination": (rows > 1) & (rows < 22)}
    assert withheld(present, dict.fromkeys(present, 2 - rows // 10), 3, 5) == [True, False, True]


@pytest.mark.parametrize("dropped", [True, False])
def test_totals_do_not_show_which_domain_lost_few_values(dropped: bool) -> None:
    """The report is the same whichever domain lost a row, or the value of a row, and whatever it was."""
    region, numbers = ["a"] * 40 + ["b"] * 30 + ["c"] * 20, [float(row) for row in range(90)]

    def report(domain: str, lost: float) -> Any:
        others = pa.table({"region": region, "x": numbers, "w": [1.0] * 90})
        row = {"region": pa.array([domain]), "x": pa.array([lost]), "w": pa.array([2.0])}
        source = pa.concat_tables([pa.table(row), others])
        empty = pa.table(row | {"x": pa.array([None], pa.float64())})
        release = others if dropped else pa.concat_tables([empty, others])
        options = MeasureOptions(weight_fields=("w",), domain_fields=("region",), only=("domain_totals",))
        origin = np.arange(1, 91) if dropped else None
        found = assess(Release(source, release, origin), options, Stream(bytes(32), "measures", 1))
        return [row for row in found.measures["domain_totals"]["value"]["totals"] if row["field"] == "x"]

    shown = report("a", 5.0)
    assert [(row["domain"], row["change"]) for row in shown] == [("a", 0.0), ("b", 0.0), ("c", 0.0)]
    assert report("c", 1e6) == shown


def test_no_total_is_shown_if_an_unknown_row_of_a_domain_is_missing() -> None:
    """If source rows are unknown, the absence of a single total would show the domain that lost a number."""
    region = ["a"] * 40 + ["b"] * 30 + ["c"] * 20
    table = pa.table({"region": region, "x": [float(row) for row in range(90)], "w": [1.0] * 90})
    lost = table.set_column(1, "x", pa.array([None, *table["x"].to_pylist()[1:]]))
    options = MeasureOptions(weight_fields=("w",), domain_fields=("region",), only=("domain_totals",))
    value = assess(Release(table, lost, aligned=False), options, Stream(bytes(32), "measures", 1)).measures[
        "domain_totals"
    ]["value"]
    assert {row["field"] for row in value["totals"]} == {"w"}
    assert value["withheld"] == 3


def test_estimates_that_are_undefined_are_absent() -> None:
    """A total of 0 has no change in percent, and a field that became constant no error of its correlation."""
    source = survey().select(["age", "income", "region", "w"])
    zero = source.append_column("zero", pa.array([0.0] * 300))
    constant = source.set_column(1, "income", pa.array([5.0] * 300))
    [pair] = assessed(source, constant).measures["weighted_correlations"]["value"]["pairs"]
    assert (pair["after"], pair["change"]) == (0, -pair["before"])
    assert "before_error" in pair
    assert "after_error" not in pair
    totals = assessed(zero, zero, domain_fields=["region"]).measures["domain_totals"]["value"]["totals"]
    absent = [row for row in totals if row["field"] == "zero"]
    assert len(absent) == 3
    assert not any({"change_percent", "change_in_errors"} & set(row) for row in absent)


def test_shares_are_absent_if_every_row_with_a_weight_has_lost_its_value() -> None:
    """A table of three rows, or three rows with a weight: the shares without lost values are of no row."""
    for rows in (3, 10):
        source = pa.table({"c": ["a", "b", "c"] + ["d"] * (rows - 3), "w": [1.0] * 3 + [0.0] * (rows - 3)})
        lost = pa.array([None] * 3 + ["d"] * (rows - 3), pa.string())
        found = assessed(source, source.set_column(0, "c", lost)).measures["weighted_marginals"]["value"]
        assert found == {"mean_distance": 1.0, "by_field": {"c": {"distance": 1.0, "by": "total variation"}}}


def test_a_target_that_depends_on_a_field_has_no_errors_to_compare() -> None:
    """The standard errors are then those of rounding, and an interval without width has no overlap."""
    monthly = np.array([1000 + 7 * (13 * row % 40) for row in range(60)])
    table = pa.table(
        {"monthly": monthly, "yearly": 12 * monthly, "v": np.arange(60) % 11, "w": 1 + np.arange(60) % 3}
    )
    found = assessed(table, table, target="yearly")
    for row in found.measures["weighted_regression"]["value"]["coefficients"]:
        assert "overlap" not in row or row["overlap"] == pytest.approx(1)
    assert not has_width(12.0, 1e-16)
    assert not has_width(12.0, 0.0)
    assert has_width(12.0, 1e-9)


@pytest.mark.parametrize("values", [[1e-300, 0.0], [1e300, -1e308]])
def test_a_target_beyond_float64_is_left_out(values: list[float]) -> None:
    table = pa.table({"y": values * 10, "x": range(20), "w": [1.0, 2.0] * 10})
    left_out = assessed(table, table, target="y").left_out
    assert "too large, or too close to each other" in left_out["weighted_regression"]
    assessed(table, table, target="x")


def test_terms_that_depend_on_others_are_named() -> None:
    """A copy of a field, and a constant one, have no coefficient; the others are those without them."""
    source = survey().select(["age", "income", "w"])
    copied = source.append_column("copy", source["age"]).append_column("one", pa.array([7.0] * 300))
    value = assessed(copied, copied, target="income").measures["weighted_regression"]["value"]
    assert value["not_defined"] == ["copy", "one"]
    alone = assessed(source, source, target="income").measures["weighted_regression"]["value"]
    assert [row["term"] for row in value["coefficients"]] == ["(intercept)", "age"]
    for row, other in zip(value["coefficients"], alone["coefficients"], strict=True):
        assert row["before"] == pytest.approx(other["before"], rel=1e-10)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((0.0, 1.0), (0.0, 1.0), 1.0),
        ((0.0, 1.0), (0.0, 2.0), 0.75),
        ((0.0, 1.0), (2 * 1.959963984540054, 1.0), 0.0),
    ],
)
def test_overlap_of_intervals(
    before: tuple[float, float], after: tuple[float, float], expected: float
) -> None:
    """Equal intervals, one of half the length inside, and two that touch."""
    assert interval_overlap(before, after) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "words", "pointer"),
    [
        ({"domain_fields": ["regio"]}, "did you mean 'region'", "/measures/domain_fields/0"),
        ({"domain_fields": ["w"]}, "also in 'weight_fields'", "/measures/domain_fields/0"),
        ({"stratum_field": "strata"}, "unknown field 'strata'", "/measures/stratum_field"),
        ({"cluster_field": "w"}, "also in 'weight_fields'", "/measures/cluster_field"),
        ({"cluster_field": "list"}, "cannot be read: it has type", "/measures/cluster_field"),
    ],
)
def test_options_of_surveys_are_checked(options: dict[str, Any], words: str, pointer: str) -> None:
    table = survey(9).append_column("list", pa.array([[1]] * 9))
    chosen = MeasureOptions.model_validate({"weight_fields": ["w"]} | options)
    with pytest.raises(ParameterError, match=words) as caught:
        check_options(chosen, table.schema, table.schema)
    assert caught.value.pointer == pointer


def test_pages_have_a_table_of_every_estimate_and_a_picture_of_the_totals() -> None:
    source = survey()
    release = swapped(source, ["income", "w"])
    everything: dict[str, Any] = {"only": [], "domain_fields": ["region"], "target": "income", "sample": 100}
    found = assessed(source, release, **everything)
    shown = measure("domain_totals", found.measures["domain_totals"], source.column_names, Discretion(300))
    [table] = shown.tables
    assert table.caption == "totals by domain"
    assert "change in percent" in table.head
    assert "after, with the source's weights" in table.head
    assert len(table.rows) == 18
    assert "<bdi" in str(table.rows[0][1])
    picture = survey_totals(found.pictures["survey_totals"])
    assert picture is not None
    assert len(picture.drawings) == 6
    assert len(picture.table.rows) == 18
    assert survey_totals([]) is None
    matrix = found.pictures["survey_correlations"]
    [pair] = [
        pair
        for pair in found.measures["weighted_correlations"]["value"]["pairs"]
        if (pair["field"], pair["with"]) == ("age", "income")
    ]
    one, other = (matrix["fields"].index(name) for name in ("age", "income"))
    assert matrix["destination"][one][other] == pytest.approx(pair["after"], abs=1e-6)


def test_every_weighted_measure_needs_a_weight() -> None:
    for key in KEYS:
        assert "weight_fields" in MEASURES[key].needs_each
