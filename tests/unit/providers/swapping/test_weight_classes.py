"""Swaps within weight classes, in blocks of similar weights, and with weights that are carried along."""

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.errors import ParameterError
from providers.grouping.equivalence_classes import Quantiles, class_keys
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.randomness.chacha20 import Stream
from tests.naive.agreement import swap
from tests.naive.cdswap import quantiles as naive_quantiles
from tests.property.out_of_core import swap_out_of_core

ROWS = 2000
SEEDS = [bytes([seed]) * 32 for seed in range(8)]


def survey() -> pa.Table:
    """Income depends on the weight, as in a sample that draws rich households more often."""
    random = np.random.default_rng(5)
    weight = random.lognormal(3, 0.8, ROWS).round(3)
    income = (50_000 / weight**0.5 * random.lognormal(0, 0.4, ROWS)).round()
    return pa.table({"income": income, "region": random.integers(0, 4, ROWS), "w": weight})


def classes_of(values: list[Any], count: int, kind: pa.DataType | None = None) -> list[int]:
    column = pa.chunked_array([pa.array(values, kind)])
    [keys] = class_keys(column, Quantiles(quantiles=count), pa.field("x", column.type))
    return [int(key) for key in keys]


def test_classes_have_equally_many_rows_and_equal_values_stay_together() -> None:
    assert classes_of([5, 1, 4, 2, 3, 0], 3) == [2, 0, 2, 1, 1, 0]
    assert classes_of([7, 7, 7, 9], 2) == [0, 0, 0, 1]
    assert classes_of([1.0, None, float("nan"), 0.0, -0.0], 2) == [1, 3, 2, 0, 0]
    assert classes_of([None, None], 4, pa.float64()) == [0, 0]
    days = [datetime.date(2000, 1, day) for day in (3, 1, 2, 4)]
    assert classes_of(days, 2) == [1, 0, 0, 1]
    drawn = np.random.default_rng(1).permutation(1003)
    sizes = np.bincount(classes_of(drawn.tolist(), 7))
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("count", [2, 3, 10, 500])
def test_classes_agree_with_a_plain_twin(count: int) -> None:
    """Whole numbers decide, so that no rounding of a quantile can differ."""
    values: list[Any] = np.random.default_rng(count).integers(0, 60, 200).tolist()
    values[3] = values[8] = None
    found, names = classes_of(values, count), naive_quantiles(values, count)
    pairs = set(zip(found, names, strict=True))
    assert len(pairs) == len(set(found)) == len(set(names))


def changes(service: str, parameters: dict[str, Any]) -> tuple[float, float]:
    """Mean absolute change of the weighted total of income by region, in percent, and of the KS distance."""
    table, percents, distances = survey(), [], []
    for seed in SEEDS:
        release = swap(service, table, {"swap_fields": ["income"]} | parameters, seed).table
        options = MeasureOptions(
            weight_fields=("w",), domain_fields=("region",), categorical_fields=("region",),
            only=("domain_totals", "weighted_marginals"),
        )  # fmt: skip
        found = assess(Release(table, release), options, Stream(bytes(32), "measures", 1)).measures
        totals = found["domain_totals"]["value"]["totals"]
        percents += [abs(row["change_percent"]) for row in totals if row["field"] == "income"]
        distances.append(found["weighted_marginals"]["value"]["by_field"]["income"]["distance"])
    return float(np.mean(percents)), float(np.mean(distances))


def test_weight_classes_keep_the_weighted_estimates() -> None:
    """Free swaps bias the totals; weight classes and blocks of similar weights do by far less."""
    free, _ = changes("DSWAP", {})
    within, distance = changes("CDSWAP", {"control_field": "w", "classifier": {"quantiles": 20}})
    by_region, _ = changes(
        "CDSWAP", {"control_field": ["region", "w"], "classifier": ["identity", {"quantiles": 20}]}
    )
    similar, _ = changes("DDSWAP", {"control_field": "w", "block_size": 100})
    assert free > 20
    assert within < 8
    assert by_region < 4
    assert similar < 8
    assert 0 < distance < 0.03


def test_weights_that_are_carried_along_keep_the_estimates_of_the_locked_fields() -> None:
    _, distance = changes("DSWAP", {"swap_fields": ["income", "w"], "locked": True})
    assert distance < 1e-12
    _, apart = changes("DSWAP", {"swap_fields": ["income", "w"], "locked": False})
    assert apart > 0.05


def test_no_value_leaves_its_weight_class() -> None:
    table = survey()
    parameters = {"swap_fields": ["income"], "control_field": "w", "classifier": {"quantiles": 5}}
    result = swap("CDSWAP", table, parameters, SEEDS[0])
    keys = np.array(classes_of(table["w"].to_pylist(), 5))
    before, after = table["income"].to_numpy(), result.table["income"].to_numpy()
    for key in range(5):
        assert sorted(before[keys == key]) == sorted(after[keys == key])
    assert result.provider["classes"] == 5
    assert result.summary.changed["income"] > 0.95 * ROWS


def test_quantiles_are_of_ordered_fields() -> None:
    provider = PROVIDERS["CDSWAP"]
    given = {"swap_fields": ["x"], "control_field": "text", "classifier": {"quantiles": 3}}
    schema = pa.schema([("x", pa.int64()), ("text", pa.string())])
    with pytest.raises(ParameterError, match="quantiles are of numbers, dates and timestamps") as caught:
        provider.check(provider.params.model_validate(given), schema)
    assert caught.value.pointer == "/parameters/classifier/quantiles"
    with pytest.raises(ValueError, match="greater than or equal to 2"):
        provider.params.model_validate(given | {"classifier": {"quantiles": 1}})


def test_a_run_by_quantiles_is_not_cut() -> None:
    """The classes depend on all rows; the breaks of a larger table can be given."""
    provider = PROVIDERS["CDSWAP"]
    schema = survey().schema
    given: dict[str, Any] = {"swap_fields": ["income"], "control_field": "w"}
    by_quantiles, by_breaks = (
        provider.check(provider.params.model_validate(given | {"classifier": classifier}), schema)
        for classifier in ({"quantiles": 3}, {"breaks": [20]})
    )
    assert not provider.scaling.can_cut(by_quantiles)
    assert provider.scaling.can_cut(by_breaks)
    with pytest.raises(ParameterError, match="give the borders of the classes as 'breaks'"):
        swap_out_of_core("CDSWAP", survey(), given | {"classifier": {"quantiles": 3}}, 10**6, 100)
