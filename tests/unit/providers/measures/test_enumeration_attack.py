"""The attack that tries every transform: its quantiles, and the fields that it needs."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.measures.risk.enumeration_attack import GRID, quantiles_of
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream


@pytest.mark.parametrize("rows", [1, 2, 10, 199, 200, 201, 3000])
def test_quantiles_are_those_of_numpy(rows: int) -> None:
    """Bit for bit, with ties."""
    values = np.random.default_rng(rows).normal(size=(rows, 3)).round(2)
    np.testing.assert_array_equal(quantiles_of(values), np.quantile(values, GRID, axis=0))


@pytest.mark.parametrize(
    ("name", "options"),
    [("d", {}), ("fnlwgt", {}), ("d", {"fields": ["a", "b"]}), ("d", {"weight_fields": ["d"]})],
)
def test_all_rotated_fields_are_turned_back(name: str, options: dict[str, Any]) -> None:
    """A field that takes no part in other measures was rotated, too: without it no transform fits."""
    random = np.random.default_rng(1)
    numbers = {field: random.gamma(shape, size=500) for shape, field in enumerate(("a", "b", "c", name), 1)}
    source, provider = pa.table(numbers), PROVIDERS["PABIDOT"]
    parameters = provider.check(provider.params.model_validate({"sigma": 0.1}), source.schema)
    run = provider.swap(source, parameters, provider.stream(bytes(32)), no_progress)
    release = Release(source, run.table, run.origin, service="PABIDOT", parameters=parameters)
    given = MeasureOptions.model_validate({"only": ["enumeration_attack"]} | options)
    found = assess(release, given, Stream(bytes(32), "measures", 1)).measures["enumeration_attack"]
    assert found["value"] > 0.9
    assert found["fields"] == ["a", "b", "c", name]
