"""Golden cases: what goes in and what comes out, as data."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from providers.errors import ProviderError
from providers.grouping.groups import Groups, Pairing
from providers.swapping.permute import permute
from tests.naive.agreement import assert_agree, assert_same_values, swap

CASES = [
    pytest.param(case, id=f"{file.stem}: {case['name']}")
    for file in sorted((Path(__file__).parent / "cases").glob("*.yml"))
    for case in yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
]


def source_table(case: dict[str, Any]) -> pa.Table:
    types = case.get("types", {})
    return pa.table(
        {
            name: pa.array(values, pa.type_for_alias(types[name]) if name in types else None)
            for name, values in case["source"].items()
        }
    )


def given_pairs(pairs: list[list[int]]) -> Pairing:
    """A pairing of given rows, counted from 1; three in the last place are a cycle."""
    rows = np.array([row for pair in pairs for row in pair], np.int32) - 1
    starts = np.array([0, len(rows)], np.int64)
    whole = Groups(len(rows), None, starts, np.zeros(1, np.uint64))
    return Pairing(whole, rows, np.array([len(rows)], np.int64))


def assert_figure(found: Any, value: Any, name: str) -> None:
    """Assert that a figure is as given; a computed share may differ in its last digits."""
    if isinstance(value, dict):
        assert found.keys() == value.keys(), name
        for key in value:
            assert_figure(found[key], value[key], key)
    else:
        assert found == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), name


@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any]) -> None:
    """The source becomes the destination, or the error is raised."""
    table = source_table(case)
    if "exchange" in case:
        for name, pairs in case["exchange"].items():
            column, changed = permute(table.column(name), given_pairs(pairs))
            assert column.to_pylist() == case["destination"][name]
            assert changed == case["changed"][name]
        return
    if "error" in case:
        with pytest.raises(ProviderError, match=case["error"]):
            swap(case["service"], table, case["parameters"])
        return
    result, _ = assert_agree(case["service"], table, case["parameters"])
    assert result is not None
    if not case.get("skip_values"):
        assert_same_values(result.table.select(list(case["destination"])), case["destination"])
    for name, value in case.get("figures", {}).items():
        assert getattr(result.summary, name) == value, name
    for name, value in case.get("provider", {}).items():
        assert_figure(result.provider[name], value, name)
    if "guarantee" in case:
        found = result.provider["guarantee"]
        largest = [entry["largest_group"] for entry in found["by_field"].values()]
        assert {name: found.get(name, largest) for name in case["guarantee"]} == {
            name: pytest.approx(value, abs=1e-6) for name, value in case["guarantee"].items()
        }
    if "events" in case:
        assert result.events.counts == case["events"]
    if "listed" in case:
        assert [[event.code, event.row, event.field] for event in result.events.listed] == case["listed"]
