"""Persons of several rows: figures that count persons, and intervals that hold for them."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import ParameterError
from providers.measures.assessment import Assessment, MeasureOptions, Release, assess, check_options
from providers.measures.risk.l_diversity import l_diversity
from providers.measures.run_figures import measures_stream, release_of_run
from providers.measures.shared.repeats import (
    interval_of_rows,
    mean_interval,
    quantile_interval,
    share_interval,
    variance_of_mean,
)
from providers.measures.shared.sensitive import one_of_each_person
from providers.params import SwapParams
from providers.progress import no_progress
from providers.services import dswap
from providers.services.dswap import DswapParams
from providers.tables.units import units_in_classes

KEYS = ("birth", "area")
COUNTING = ("unique_combinations", "mean_k", "k_anonymity", "suda")


def visits(persons: int = 60, each: int = 5) -> pa.Table:
    """Rows of persons of whom nobody shares birth and area, and no two rows the cost."""
    person = np.repeat(np.arange(persons), each)
    random = np.random.default_rng(2)
    return pa.table(
        {
            "person": person,
            "birth": 1900 + person % 10,
            "area": person // 10,
            "weight": np.ones(len(person)),
            "cost": random.permutation(len(person)).astype(float),
        }
    )


def assessed(table: pa.Table, **options: Any) -> Assessment:
    chosen = MeasureOptions(**{"key_fields": KEYS, "weight_fields": ("weight",), **options})
    parameters = options.pop("parameters", None)
    release = Release(table, table, parameters=parameters)
    return assess(release, chosen, measures_stream(bytes(32)), pictures=False)


def test_rows_of_one_person_are_one_person() -> None:
    """Each of 60 persons is alone with birth and area; the rows of each made them look like five."""
    alone, persons = assessed(visits()), assessed(visits(), unit_field="person")
    figures = {
        key: [found.measures[key]["value"]["before"] for found in (alone, persons)] for key in COUNTING
    }
    assert figures["unique_combinations"] == [0.0, 1.0]
    assert figures["mean_k"] == [5.0, 1.0]
    assert [each["k"] for each in figures["k_anonymity"]] == [5, 1]
    assert figures["k_anonymity"][1]["by_size"]["1"] == 1.0
    assert [each["special"] for each in figures["suda"]] == [0.0, 0.0]  # M is 1 of two key fields
    linked = persons.measures["record_linkage"]
    assert linked["value"] == {"rate": 1.0, "chance": pytest.approx(1 / 60)}
    assert all(persons.measures[key]["unit"] == "person" for key in (*COUNTING, "record_linkage"))
    assert "unit" not in alone.measures["k_anonymity"]
    assert "several persons" in persons.left_out["population_uniques"]
    assert "fields.person" in persons.left_out


def test_one_row_a_person_changes_no_figure() -> None:
    table = visits(60, 1)
    alone, persons = assessed(table), assessed(table, unit_field="person")
    for key in (*COUNTING, "record_linkage", "population_uniques"):
        assert persons.measures[key]["value"] == alone.measures[key]["value"]


def test_a_special_unique_is_a_person() -> None:
    """Three key fields, on one of which the rows of one person are alone."""
    table = pa.table({"person": [0, 0, 1, 2, 3], "a": [7, 7, 1, 1, 1], "b": [1, 1, 1, 1, 1], "c": [2] * 5})
    found = assessed(table, key_fields=("a", "b", "c"), weight_fields=(), unit_field="person")
    suda = found.measures["suda"]["value"]["before"]
    assert suda["special"] == pytest.approx(2 / 5)
    assert suda["by_size"] == {"1": pytest.approx(2 / 5), "2": 0.0}


def test_the_unit_of_a_run_is_that_of_its_parameters() -> None:
    table = visits()
    parameters = SwapParams.model_validate({"swap_fields": ["cost"], "unit_id": "person"})
    release = Release(table, table, parameters=parameters)
    options = MeasureOptions(key_fields=KEYS, only=("k_anonymity",))
    found = assess(release, options, measures_stream(bytes(32))).measures["k_anonymity"]
    assert (found["value"]["after"]["k"], found["unit"]) == (1, "person")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit_field": "persom"}, "unknown field 'persom'; did you mean 'person'"),
        ({"unit_field": "weight", "weight_fields": ["weight"]}, "it cannot be both"),
    ],
)
def test_an_option_that_names_no_unit_is_refused(options: dict[str, Any], message: str) -> None:
    schema = visits().schema
    with pytest.raises(ParameterError, match=message) as refused:
        check_options(MeasureOptions.model_validate(options), schema, schema)
    assert refused.value.pointer == "/measures/unit_field"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_units_in_classes_are_those_of_sets(pairs: list[tuple[int, int]]) -> None:
    classes = np.unique([one for one, _ in pairs], return_inverse=True)[1]
    units = np.array([two for _, two in pairs])
    expected = [
        len({two for one, two in zip(classes, units, strict=True) if one == each}) for each in set(classes)
    ]
    assert units_in_classes(classes, units).tolist() == expected
    assert units_in_classes(classes, None).tolist() == np.bincount(classes).tolist()


def test_the_variance_of_a_mean_counts_clusters() -> None:
    """Equal rows of a cluster are one; one row a cluster gives the usual variance."""
    values = np.array([0.0, 1.0, 3.0, 6.0])
    for repeats in (1, 5):
        clusters = np.repeat(np.arange(4), repeats)
        variance, count = variance_of_mean(np.repeat(values, repeats), clusters)
        assert variance == pytest.approx(values.var(ddof=1) / 4)
        assert count == 4
    assert variance_of_mean(values, np.zeros(4, np.int64)) == (0.0, 1)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_intervals_of_persons_cover_the_population(share: float) -> None:
    """Ten equal rows a person: 400 tables of 100 persons; intervals of rows covered less than 60 %."""
    random = np.random.default_rng(9)
    clusters = np.repeat(np.arange(100), 10)
    covered = dict.fromkeys(("share", "rows", "mean", "quantile"), 0)
    for _ in range(400):
        number = random.random(100)
        rows = np.repeat(number, 10)
        hits = (rows < share).astype(float)
        found = {
            "share": (interval_of_rows(hits, clusters), share),
            "rows": (share_interval(float(hits.mean()), len(hits)), share),
            "mean": (mean_interval(rows, clusters), 0.5),
            "quantile": (quantile_interval(rows, share, clusters), share),
        }
        for name, (interval, true) in found.items():
            covered[name] += interval["low"] <= true <= interval["high"]
    assert covered["rows"] < 240
    assert min(covered["share"], covered["mean"]) > 364
    assert covered["quantile"] > 364


def test_an_interval_of_one_cluster_is_finite() -> None:
    found = mean_interval(np.array([1.0, 2.0]), np.zeros(2, np.int64))
    assert math.isfinite(found["high"])


def test_persons_are_the_sampling_units_of_weighted_estimates() -> None:
    """Standard errors without `cluster_field` are those with the field of persons as clusters."""
    only = ("weighted_marginals",)
    rows, persons, clusters = (
        assessed(visits(), only=only, **design).measures["weighted_marginals"]["value"]["by_field"]["birth"]
        for design in ({}, {"unit_field": "person"}, {"cluster_field": "person"})
    )
    assert persons["standard_error"] == clusters["standard_error"]
    assert persons["standard_error"]["before"] > 2 * rows["standard_error"]["before"]


def test_a_person_has_one_sensitive_value_in_a_class() -> None:
    """Someone alone in a class discloses all values, and so do all persons of a class if they share one."""
    classes = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
    values = np.array([0, 1, 2, 3, 3, 4, 0, 5, 6])
    persons = np.array([0, 0, 0, 1, 2, 2, 3, 3, 4])
    assert [found.tolist() for found in one_of_each_person(classes, values, persons)] == [
        [0, 1, 1, 2, 2],
        [0, 3, 3, 0, 6],
    ]
    assert l_diversity(classes, values)["homogeneous"] == 0
    assert l_diversity(classes, values, persons) == {
        "distinct": 1,
        "entropy": 1.0,
        "homogeneous": pytest.approx(2 / 3),
    }
    random = np.random.default_rng(4)
    classes, values = random.integers(0, 9, 200), random.integers(0, 5, 200)
    assert l_diversity(classes, values, random.permutation(200)) == l_diversity(classes, values)


def test_diversity_and_closeness_count_persons() -> None:
    """Each of 60 persons is alone with birth and area, whatever five rows show of the costs."""
    options: dict[str, Any] = {"sensitive_fields": ("cost",)}
    rows, persons = (
        assessed(visits(), **options, **more).measures for more in ({}, {"unit_field": "person"})
    )
    assert [found["l_diversity"]["value"]["after"]["distinct"] for found in (rows, persons)] == [5, 1]
    assert persons["l_diversity"]["unit"] == persons["t_closeness"]["unit"] == "person"
    assert rows["t_closeness"]["value"]["after"]["mean"] < persons["t_closeness"]["value"]["after"]["mean"]


def test_a_forest_is_tested_on_other_persons() -> None:
    """Five equal rows a person, with a target at random: a forest knew the persons it was tested on."""
    random = np.random.default_rng(6)
    person = np.repeat(np.arange(100), 5)
    fields = {name: random.normal(size=100)[person] for name in "xy"}
    table = pa.table({"person": person, **fields, "cost": random.normal(size=500)})
    table = table.append_column("target", [np.array(["a", "b"])[random.integers(0, 2, 100)][person]])
    scores = []
    for parameters in ({"unit_id": "person"}, {}):
        params = dswap.PROVIDER.check(DswapParams(swap_fields=("cost",), **parameters), table.schema)
        result = dswap.PROVIDER.swap(table, params, dswap.PROVIDER.stream(bytes(32)), no_progress)
        release = release_of_run(dswap.PROVIDER, params, table, result, 128)
        options = MeasureOptions(target="target", only=("prediction",), identifier_fields=("person",))
        scores.append(assess(release, options, measures_stream(bytes(32))).measures["prediction"]["value"])
    of_persons, of_rows = scores
    assert of_persons["source"] < 0.65
    assert of_rows["source"] > 0.8
