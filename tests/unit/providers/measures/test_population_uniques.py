"""Estimators of population uniques: plain twins, enumerations, and a population that is known."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.report.measure_tables import measure
from app.report.small_counts import Discretion
from providers import PROVIDERS
from providers.measures.assessment import Assessment, MeasureOptions, Release, assess
from providers.measures.risk.population_uniques import (
    benedetti_franconi,
    correct_match,
    fitted,
    household_risk,
    log_likelihood,
    population_uniques,
    row_risks,
    stays_unique,
    zayatz,
)
from providers.randomness.chacha20 import Stream
from tests.naive import population as naive


@pytest.mark.parametrize("size", [1, 2, 3, 7, 19, 20, 21, 60, 400])
@pytest.mark.parametrize("success", [0.004, 0.1, 0.6, 1.0])
def test_the_expected_inverse_frequency_is_the_mean_over_the_negative_binomial(
    size: int, success: float
) -> None:
    """The closed form agrees with the sum over 200,000 outcomes; from 20 rows on it is a series."""
    found = benedetti_franconi(np.array([size]), np.array([size / success]))
    assert found["reidentified"] == pytest.approx(size * naive.expected_inverse(size, success), rel=1e-9)
    assert found["unique"] == (pytest.approx(success) if size == 1 else 0)


def test_published_forms_of_small_classes() -> None:
    """The forms for f = 1 and 2 of the manual of mu-Argus and of sdcMicro: logarithms of p."""
    p = 0.07
    q = p / (1 - p)
    single = benedetti_franconi(np.array([1]), np.array([1 / p]))["reidentified"]
    double = benedetti_franconi(np.array([2]), np.array([2 / p]))["reidentified"]
    assert single == pytest.approx(q * math.log(1 / p))
    assert double == pytest.approx(2 * (q - q * q * math.log(1 / p)))


def test_a_class_of_more_rows_than_weight_is_seen_completely() -> None:
    found = benedetti_franconi(np.array([1, 30]), np.array([0.5, 3.0]))
    assert found == {"unique": 1.0, "reidentified": pytest.approx(2.0)}


@pytest.mark.parametrize(("sizes", "population"), [([1, 1, 2, 5], 9), ([1, 1, 2, 5], 40), ([1, 3, 3], 8)])
def test_zayatz_agrees_with_exact_fractions(sizes: list[int], population: int) -> None:
    assert zayatz(np.array(sizes), population) == pytest.approx(naive.zayatz(sizes, population), rel=1e-12)


def test_one_sampled_row_by_enumeration_of_all_samples() -> None:
    """All samples of 3 of 7 persons, of which 4 are in one class."""
    samples = list(combinations(range(7), 3))
    ones = sum(sum(person < 4 for person in sample) == 1 for sample in samples)
    assert float(naive.one_sampled(4, 3, 7)) == pytest.approx(ones / len(samples))


def partitions(persons: int) -> Iterator[list[list[int]]]:
    """Yield every division of the persons 0, 1, ... into classes, classes in the order of their first."""
    if not persons:
        yield []
        return
    for classes in partitions(persons - 1):
        for index in range(len(classes)):
            yield [[*each, persons - 1] if index == at else each for at, each in enumerate(classes)]
        yield [*classes, [persons - 1]]


@pytest.mark.parametrize(("theta", "alpha"), [(0.7, 0.3), (5.0, 0.9), (-0.2, 0.5)])
def test_the_sampling_formula_by_enumeration_of_all_partitions(theta: float, alpha: float) -> None:
    """The probabilities of the 203 partitions of six persons add up to 1, or to that of staying unique."""
    total, alone = 0.0, 0.0
    for classes in partitions(6):
        sizes = [len(each) for each in classes]
        occurring, counts = np.unique(sizes, return_counts=True)
        share = math.exp(log_likelihood(theta, alpha, occurring, counts))
        assert share == pytest.approx(naive.probability(sizes, theta, alpha))
        total += share
        alone += share * (1 in sizes and [0] in classes)
    assert total == pytest.approx(1)
    assert stays_unique(theta, alpha, 1, 6) == pytest.approx(alone)
    assert naive.stays_unique(theta, alpha, 1, 6) == pytest.approx(alone)
    assert stays_unique(theta, alpha, 50, 4000) == pytest.approx(naive.stays_unique(theta, alpha, 50, 4000))


@pytest.mark.parametrize("sizes", [[1] * 9 + [2] * 3 + [7], [1, 1, 1, 4, 4, 6, 9], [2, 2, 3, 30]])
def test_no_pair_of_a_grid_is_more_probable_than_the_fit(sizes: list[int]) -> None:
    thetas = [10 ** (exponent / 4) for exponent in range(-8, 9)]
    alphas = [step / 20 for step in range(1, 20)]
    found = fitted(np.array(sizes))
    best = naive.best_fit(sizes, thetas, alphas)
    assert naive.probability(sizes, *found) >= naive.probability(sizes, *best) * (1 - 1e-9)


def pitman_population(
    persons: int, theta: float, alpha: float, seed: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Class of each person of a population drawn by the prediction rule."""
    random = np.random.default_rng(seed)
    labels, sizes = np.empty(persons, np.int64), [0] * persons
    classes = 0
    for person in range(persons):
        if random.random() < (theta + classes * alpha) / (theta + person):
            labels[person], classes = classes, classes + 1
        else:
            while True:  # a class of f persons by f - alpha: by f, and accepted with 1 - alpha / f
                labels[person] = labels[random.integers(person)]
                if random.random() < 1 - alpha / sizes[labels[person]]:
                    break
        sizes[labels[person]] += 1
    return labels


def test_a_known_population_is_estimated() -> None:
    """4,000 of 20,000 persons: Pitman's and Zayatz's estimators find the share of population uniques.

    The weights are all equal, so that Benedetti and Franconi's has nothing to learn from, and is too low.
    """
    labels = pitman_population(20_000, 50.0, 0.5, seed=2)
    sampled = np.bincount(np.random.default_rng(3).choice(labels, 4000, replace=False), minlength=20_000)
    frequency = np.bincount(labels, minlength=20_000)
    true = float(((sampled == 1) & (frequency == 1)).sum() / 4000)
    seen = sampled > 0
    found = population_uniques(sampled[seen], (sampled[seen] * 5.0).astype(np.float64))
    assert found["population"] == 20_000
    assert found["pitman"] == pytest.approx(true, rel=0.2)
    assert found["zayatz"] == pytest.approx(true, rel=0.2)
    assert found["benedetti_franconi"] < found["pitman"] < found["unique"]
    assert found["reidentified"] < (sampled[seen] / frequency[seen]).sum() / 4000
    matches = frequency[sampled == 1]
    assert found["correct_match"] == pytest.approx(len(matches) / matches.sum(), rel=0.2)
    theta, alpha = fitted(sampled[seen])
    assert theta == pytest.approx(50, rel=0.4)
    assert alpha == pytest.approx(0.5, abs=0.1)


def test_a_table_that_is_its_population_has_its_own_uniques() -> None:
    sizes = np.array([1, 1, 1, 2, 4])
    found = population_uniques(sizes, sizes * 1.0)
    for key in ("unique", "benedetti_franconi", "pitman", "zayatz"):
        assert found[key] == pytest.approx(3 / 9), key
    assert found["reidentified"] == pytest.approx(5 / 9)
    assert found["correct_match"] == 1


def test_probability_of_a_correct_match() -> None:
    assert correct_match(np.array([1, 1, 1, 2, 2, 3]), 0.1) == pytest.approx(0.3 / (0.3 + 2 * 0.9 * 2))
    assert correct_match(np.array([3, 4]), 0.1) == 0


@pytest.mark.parametrize("sizes", [[1], [1, 1, 1], [5]])
def test_tables_without_information_have_no_fit(sizes: list[int]) -> None:
    """All rows are unique, or all are equal: any alpha is as probable as another one."""
    found = population_uniques(np.array(sizes), np.array(sizes) * 10.0)
    assert found["pitman"] is None
    assert found["zayatz"] == (1.0 if 1 in sizes else 0.0)


def assessed(table: pa.Table, weights: Sequence[str], **options: Any) -> Assessment:
    chosen = MeasureOptions.model_validate(
        {"only": ["population_uniques"], "key_fields": ["age"], "weight_fields": weights} | options
    )
    return assess(Release(table, table), chosen, Stream(bytes(32), "measures", 1))


def test_weights_of_any_number_type_and_a_report_that_shows_what_is_undefined() -> None:
    """Weights are summed as they are, whole or not, also if `fields` leaves them out."""
    table = pa.table({"age": [1, 2, 3], "w": [10, 20, 30], "x": [10.5, 20.0, 29.5]})
    for weight in ("w", "x"):
        found = assessed(table, [weight], fields=["age"]).measures["population_uniques"]
        value = found["value"]["after"]
        assert value["population"] == 60
    assert value["benedetti_franconi"] == pytest.approx((1 / 10.5 + 1 / 20 + 1 / 29.5) / 3)
    shown = dict(measure("population_uniques", found, [], Discretion(3)).pairs)
    assert shown["after, unique in the population, by Pitman's formula"] == "not defined"


@pytest.mark.parametrize(
    ("weights", "values", "words"),
    [
        ([], [1, 1], "name one survey weight"),
        (["w", "v"], [1, 1], "name one survey weight"),
        (["w"], [1, None], "missing, or not above 0"),
        (["w"], [1, 0], "missing, or not above 0"),
        (["w"], ["a", "b"], "is no number"),
        (["w"], [9e18, 9e18], "sum to 1.8e+19 persons"),
        (["w"], [1.7e308, 1.7e308], "sum to inf persons"),
    ],
)
def test_what_it_needs(weights: list[str], values: list[Any], words: str) -> None:
    table = pa.table({"age": [1, 2], "w": values, "v": [1, 1]})
    assert words in assessed(table, weights).left_out["population_uniques"]
    assert "1 row" in assessed(table.slice(0, 0), ["w"]).left_out["population_uniques"]


def test_the_risk_of_a_household_is_that_of_one_of_its_members() -> None:
    """1 - prod(1 - r_i), also with a member who is certainly re-identified; the mean over the households."""
    risks, households = [0.1, 0.5, 1.0, 0.2, 0.0, 0.3], [7, 7, 3, 3, 5, 7]
    by_hand = [1 - 0.9 * 0.5 * 0.7, 1.0, 0.0]
    assert household_risk(np.array(risks), np.array(households)) == pytest.approx(math.fsum(by_hand) / 3)
    assert household_risk(np.array([1e-12]), np.array([0])) == pytest.approx(1e-12, rel=1e-9)


def test_households_are_those_that_are_named_or_those_of_the_run() -> None:
    """Persons of a release without the field have the households of their source rows."""
    random = np.random.default_rng(9)
    source = pa.table(
        {
            "house": np.repeat(np.arange(100), 3),
            "age": random.integers(20, 60, 300),
            "sex": random.choice(["f", "m"], 300),
            "weight": random.uniform(5, 40, 300),
        }
    )

    def found(release: Release, **options: Any) -> dict[str, Any]:
        given = MeasureOptions(
            only=("population_uniques",), key_fields=("age", "sex"), weight_fields=("weight",), **options
        )
        value = assess(release, given, Stream(bytes(32), "measures", 1)).measures["population_uniques"][
            "value"
        ]
        assert isinstance(value, dict)
        return value

    released = source.set_column(1, "age", source["age"].take(pa.array(random.permutation(300))))
    value = found(Release(source, released), household_field="house")
    keys = source.select(["age", "sex"]).to_pylist()
    classes: dict[tuple[Any, ...], list[int]] = {tuple(row.values()): [] for row in keys}
    for index, row in enumerate(keys):
        classes[tuple(row.values())].append(index)
    weights = source["weight"].to_numpy()
    risk: dict[int, float] = {}
    for rows in classes.values():
        (of_row,) = row_risks(np.array([len(rows)]), np.array([weights[rows].sum()]))
        risk |= dict.fromkeys(rows, float(of_row))
    expected = [
        1 - math.prod(1 - risk[row] for row in range(3 * house, 3 * house + 3)) for house in range(100)
    ]
    assert value["before"]["household_risk"] == pytest.approx(math.fsum(expected) / 100)
    assert value["before"]["household_risk"] > value["before"]["reidentified"]
    assert value["after"]["household_risk"] != value["before"]["household_risk"]
    params = PROVIDERS["CDSWAP"].params.model_validate(
        {"swap_fields": ["age"], "control_field": "sex", "household": "house"}
    )
    assert found(Release(source, released, service="CDSWAP", parameters=params)) == value
    without = released.drop_columns(["house"])
    assert found(Release(source, without, service="CDSWAP", parameters=params)) == value
    assert "household_risk" not in found(Release(source, released))["before"]
