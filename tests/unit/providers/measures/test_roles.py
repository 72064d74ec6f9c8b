"""Identifiers and weights take no part in distances, linkage, relations and models."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers.errors import ParameterError
from providers.measures.assessment import Assessment, MeasureOptions, Release, assess, check_options
from providers.measures.shared.comparison import Comparison
from providers.randomness.chacha20 import Stream

ROWS = 300
STREAM = Stream(bytes(32), "measures", 1)
TAKE_PART = ("pscr", "dcr", "interval_sd", "interval_ranks", "interval_rmd", "delta_rho", "il2", "il3",
             "regression", "r_squared", "total_correlation", "distortion", "clustering_error",
             "range_averages", "prediction", "relations_kept", "association")  # fmt: skip


def people() -> pa.Table:
    random = np.random.default_rng(11)
    age = random.integers(18, 80, ROWS)
    return pa.table(
        {
            "person_id": random.permutation(10**6)[:ROWS],
            "nickname": [f"n{number}" for number in random.permutation(ROWS)],
            "age": age,
            "income": (900.0 * age + random.normal(0, 4000, ROWS)).round(1),
            "sampling_weight": random.uniform(1, 50, ROWS),
            "sex": np.array(["f", "m"])[random.integers(0, 2, ROWS)],
        }
    )


def swapped() -> pa.Table:
    """Permute all fields except names, ids and weights."""
    table = people()
    random = np.random.default_rng(12)
    for name in ("age", "income", "sex"):
        order = pa.array(random.permutation(ROWS))
        table = table.set_column(table.column_names.index(name), name, table[name].take(order))
    return table


def judged(**options: Any) -> Assessment:
    given = MeasureOptions.model_validate({"target": "income", **options})
    source, destination = people(), swapped()
    check_options(given, source.schema, destination.schema)
    released = Release(source, destination, perturb=lambda table, stream: table)
    return assess(released, given, STREAM)


def test_a_name_does_not_link_a_row_to_itself() -> None:
    """With names most rows are closest to their own, whatever is swapped; without them few are."""
    assert judged().measures["pscr"]["value"] < 0.1
    everything = people().column_names
    assert judged(fields=everything).measures["pscr"]["value"] > 0.5


def test_what_takes_no_part_is_in_no_measure_of_distance_or_relation() -> None:
    """The report lists it with the reason; its values are still counted."""
    found = judged()
    for key in TAKE_PART:
        assert not {"person_id", "nickname", "sampling_weight"} & set(found.measures[key]["fields"]), key
    assert found.left_out["fields.person_id"].startswith("its name is that of an identifier")
    assert found.left_out["fields.nickname"].startswith("every row has a different text")
    assert found.left_out["fields.sampling_weight"].startswith("its name is that of a survey weight")
    assert found.measures["changed_share"]["value"]["nickname"] == 0
    assert set(found.measures["marginals"]["fields"]) == set(people().column_names)


def test_the_same_figures_come_out_without_the_fields() -> None:
    """No measure but the changed share and the marginals depends on them."""
    kept = ["age", "income", "sex"]
    with_them, without = judged(), judged(fields=kept)
    for key in (*TAKE_PART, "outlier_exposure"):
        assert with_them.measures[key]["value"] == without.measures[key]["value"], key


def test_roles_can_be_given() -> None:
    """Options declare identifiers and weights that do not look like such."""
    found = judged(identifier_fields=["age"], weight_fields=["sex"])
    assert set(found.measures["pscr"]["fields"]) == {"income"}
    assert found.left_out["fields.age"].startswith("it was given as an identifier")
    assert found.left_out["fields.sex"].startswith("it was given as a weight")


@pytest.mark.parametrize(
    ("options", "pointer", "message"),
    [
        ({"identifier_fields": ["agee"]}, "/measures/identifier_fields/0", "did you mean 'age'?"),
        ({"weight_fields": ["age", "age"]}, "/measures/weight_fields/1", "named twice"),
        (
            {"identifier_fields": ["age"], "key_fields": ["age"]},
            "/measures/identifier_fields/0",
            "also in 'key_fields'",
        ),
        ({"weight_fields": ["income"]}, "/measures/weight_fields/0", "also in 'target'"),
        (
            {"identifier_fields": ["sex"], "weight_fields": ["sex"]},
            "/measures/identifier_fields/0",
            "also in 'weight_fields'",
        ),
    ],
)
def test_roles_that_do_not_fit_are_refused(options: dict[str, Any], pointer: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        judged(**options)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("name", "values", "out"),
    [
        ("customerId", list(range(0, 600, 2)), True),
        ("household_id", [row // 3 for row in range(300)], True),
        ("region_id", [row % 12 for row in range(300)], False),
        ("row", list(range(5, 305)), True),
        ("income", [7 * row for row in range(300)], False),
        ("age", [18 + row / 7 for row in range(300)], False),
        ("paid", [row % 90 for row in range(300)], False),
        ("Whole_weight", [row / 3 for row in range(300)], False),
        ("fnlwgt", [row * 31 % 97 for row in range(300)], True),
        ("comment", [f"text {row}" for row in range(300)], True),
        ("comment", [f"text {row % 150}" for row in range(300)], False),
        ("comment", [None, *(f"text {row}" for row in range(299))], False),
        ("id", list(range(20)), False),
    ],
)
def test_the_rule_is_narrow(name: str, values: list[Any], out: bool) -> None:
    """Floats are never identifiers; other numbers need the name of one, or must number the rows."""
    table = pa.table({name: values})
    case = Comparison(Release(table, table), MeasureOptions(), STREAM)
    assert (name not in case.compared) == out
