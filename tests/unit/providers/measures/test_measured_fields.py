"""The fields and columns that a measure averages over, against statsmodels and counting by hand."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.measures.assessment import Assessment, MeasureOptions, Release, assess
from providers.measures.run_figures import measures_stream, release_of_run
from tests.naive.agreement import swap

SEED = bytes(range(32))
ROWS = 600


def people() -> pa.Table:
    """Table of numbers, of frequent categories with two, three and four levels, and of a constant field."""
    random = np.random.default_rng(11)
    age = random.integers(18, 80, ROWS)
    town = random.choice(["a", "b", "c", "d"], ROWS, p=[0.4, 0.3, 0.2, 0.1])
    sex = random.choice(["f", "m"], ROWS, p=[0.6, 0.4])
    income = 900.0 * age + 4000 * (town == "b") - 3000 * (sex == "m") + random.normal(0, 8000, ROWS)
    return pa.table(
        {
            "income": income,
            "age": age,
            "year": np.full(ROWS, 2020),
            "town": town,
            "sex": sex,
            "job": random.choice(["x", "y", "z"], ROWS, p=[0.5, 0.3, 0.2]),
        }
    )


def released(table: pa.Table) -> pa.Table:
    """Permute the ages and the towns."""
    random = np.random.default_rng(12)
    half = np.where(random.random(ROWS) < 0.5, np.arange(ROWS), random.permutation(ROWS))
    moved = {name: table[name].take(pa.array(half)) for name in ("age", "town")}
    return pa.table({name: moved.get(name, table[name]) for name in table.column_names})


def judged(source: pa.Table, destination: pa.Table, only: str, **options: Any) -> Assessment:
    given = MeasureOptions(only=(only,), **options)
    return assess(Release(source, destination), given, measures_stream(SEED))


def standardised(values: Any) -> Any:
    return (values - values.mean()) / values.std(ddof=1)


def coefficients(table: pa.Table, numbers: list[str], levels: dict[str, list[str]]) -> Any:
    """Fit standardised income to standardised numbers and levels by statsmodels."""
    from statsmodels.api import OLS  # takes a second to import

    columns = [standardised(table[name].to_numpy().astype(float)) for name in numbers]
    for name, shown in levels.items():
        text = np.array(table[name].to_pylist())
        columns += [standardised((text == level).astype(float)) for level in shown]
    income = standardised(table["income"].to_numpy())
    return OLS(income, np.column_stack(columns)).fit().params


LEVELS = {"town": ["b", "c", "d"], "sex": ["m"], "job": ["y", "z"]}
"""Category -> its levels, without the most frequent one."""


def test_il3_averages_the_coefficients_that_statsmodels_gives() -> None:
    """There is no column for rare levels if there are none, and none for a constant field."""
    source = people()
    destination = released(source)
    before, after = (coefficients(table, ["age"], LEVELS) for table in (source, destination))
    expected = np.abs(after - before).mean()
    found = judged(source, destination, "il3", target="income").measures["il3"]
    assert found["value"] == pytest.approx(expected)


def test_il3_counts_a_coefficient_that_the_release_has_lost() -> None:
    """The coefficient of a field that became constant is 0 and is still averaged."""
    source = people()
    at = source.column_names.index("age")
    destination = source.set_column(at, "age", pa.array(np.full(ROWS, 40)))
    before = coefficients(source, ["age"], LEVELS)
    after = np.concatenate([[0.0], coefficients(destination, [], LEVELS)])
    found = judged(source, destination, "il3", target="income").measures["il3"]
    assert found["value"] == pytest.approx(np.abs(after - before).mean())


def test_other_levels_share_a_column_where_there_are_some() -> None:
    """Levels below the threshold share a column; a level that only the release has is not averaged."""
    source = people()
    job = np.array(source["job"].to_pylist(), dtype=object)
    job[:3], job[3:6] = "rare", "seldom"
    source = source.set_column(source.column_names.index("job"), "job", pa.array(job))
    destination = released(source)
    merged = [
        table.set_column(
            table.column_names.index("job"),
            "job",
            pa.array(
                ["other" if value in ("rare", "seldom") else value for value in table["job"].to_pylist()]
            ),
        )
        for table in (source, destination)
    ]
    levels = LEVELS | {"job": ["y", "z", "other"]}
    before, after = (coefficients(table, ["age"], levels) for table in merged)
    found = judged(source, destination, "il3", target="income").measures["il3"]
    assert found["value"] == pytest.approx(np.abs(after - before).mean())
    sex = np.array(source["sex"].to_pylist(), dtype=object)
    sex[:50] = None
    suppressed = destination.set_column(destination.column_names.index("sex"), "sex", pa.array(sex))
    found = judged(source, suppressed, "il3", target="income").measures["il3"]
    assert found["value"] > 0


def run(service: str, parameters: dict[str, Any], table: pa.Table, **options: Any) -> Assessment:
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    result = swap(service, table, parameters, SEED)
    given = MeasureOptions(only=("changed_share", "distortion"), **options)
    return assess(release_of_run(provider, params, table, result, 128), given, measures_stream(SEED))


def test_distortion_covers_the_same_fields_for_every_service() -> None:
    """Distortion of a LOCALITY run is the mean over the cells of all numeric fields, redrawn or not."""
    table = people().select(["income", "age", "year", "sex"])
    result = swap("LOCALITY", table, {"fields": ["income"]}, SEED)
    found = run("LOCALITY", {"fields": ["income"]}, table).measures["distortion"]
    income, moved = (side["income"].to_numpy() for side in (table, result.table))
    changes = np.abs(moved - income) / np.abs(income)
    assert found["fields"] == ["income", "age", "year"]
    assert found["value"] == pytest.approx(changes.sum() / (3 * ROWS))
    assert result.provider["distortion"] == pytest.approx(changes.mean())
    assert "distortion" not in result.measures


def test_the_share_of_a_row_is_that_of_the_swap_fields() -> None:
    """The share per row leaves out fields that the service does not change."""
    table = people()
    parameters = {"swap_fields": ["income", "town"]}
    shares = run("DSWAP", parameters, table).measures["changed_share"]
    assert shares["per_row"]["fields"] == ["income", "town"]
    swapped = [shares["value"][name] for name in ("income", "town")]
    assert shares["per_row"]["mean"] == pytest.approx(np.mean(swapped))
    assert shares["value"]["age"] == 0
    released_table = swap("DSWAP", table, parameters, SEED).table
    same = [
        np.array(table[name].to_pylist()) == np.array(released_table[name].to_pylist())
        for name in ("income", "town")
    ]
    assert shares["per_row"]["none"] == pytest.approx(np.mean(same[0] & same[1]))
    some = run("DSWAP", parameters, table, fields=("town", "age")).measures["changed_share"]["per_row"]
    assert some["fields"] == ["town"]


def test_the_share_of_a_row_where_only_two_tables_are_known() -> None:
    """Without a run, the share per row covers the fields that the caller names, or else those that differ."""
    table = people()
    other = released(table)
    found = judged(table, other, "changed_share").measures["changed_share"]
    assert found["per_row"]["fields"] == ["age", "town"]
    assert found["per_row"]["mean"] == pytest.approx((found["value"]["age"] + found["value"]["town"]) / 2)
    named = judged(table, other, "changed_share", fields=("age", "sex")).measures["changed_share"]
    assert named["per_row"]["mean"] == pytest.approx(named["value"]["age"] / 2)
    unchanged = judged(table, table, "changed_share").measures["changed_share"]["per_row"]
    assert (unchanged["mean"], unchanged["none"]) == (0.0, 1.0)


def test_interval_sd_says_which_definition_it_is() -> None:
    """A row with one field outside its interval is not disclosed, as in sdcMicro since 5.5.2."""
    random = np.random.default_rng(2)
    table = pa.table({name: random.normal(size=100) for name in "abc"})
    moved = table.set_column(0, "a", pa.array(table["a"].to_numpy() + 100))
    found = judged(table, moved, "interval_sd").measures["interval_sd"]
    assert found["value"]["share"] == 0
    assert found["value"]["by_field"] == {"a": 0.0, "b": 1.0, "c": 1.0}
    assert "sdcMicro, dRisk from 5.5.2 on: every field" in found["source"]
