"""LOCALITY: provider and twin agree bit for bit, and every kept relation holds in exact arithmetic."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.results import SwapResult
from tests.naive.agreement import assert_agree
from tests.naive.locality import LocalityOutcome

SEEDS = st.binary(min_size=32, max_size=32)

POOLS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "lattice": (pa.int64(), st.integers(0, 9)),
    "int": (pa.int64(), st.integers(-1000, 1000)),
    "huge": (pa.int64(), st.integers(2**60, 2**60 + 40)),
    "wide": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "unsigned": (pa.uint64(), st.sampled_from([0, 1, 2**53 + 1, 2**63, 2**64 - 1])),
    "steps": (pa.float64(), st.integers(-8, 8).map(lambda value: value / 8)),
    "float": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "unit": (pa.float64(), st.floats(0, 1)),
    "tenths": (pa.float64(), st.integers(0, 30).map(lambda value: value / 10)),
    "outlier": (pa.float64(), st.sampled_from([0.0, 1.0, 2.0, 3.5, 1e12, -1e-300, 5e-324])),
    "doubling": (pa.float64(), st.integers(0, 40).map(lambda value: 2.0**value)),
    "date": (pa.date32(), st.dates(datetime.date(1960, 1, 1), datetime.date(2030, 1, 1))),
    "decimal": (pa.decimal128(18, 2), st.integers(-500, 500).map(lambda value: Decimal(value).scaleb(-2))),
}


@st.composite
def numbers(draw: st.DrawFn, rows: int) -> pa.Array:
    """A column with ties, duplicates and nulls."""
    kind, pool = POOLS[draw(st.sampled_from(sorted(POOLS)))]
    some = draw(st.lists(pool, min_size=1, max_size=9))
    values = st.one_of(pool, st.sampled_from(some), st.sampled_from([*some, None]))
    return pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind)


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Table, dict[str, Any]]:
    """A table and parameters that fit it."""
    rows = draw(st.one_of(st.integers(0, 6), st.integers(0, 26)))
    names = draw(st.lists(st.sampled_from(["a", "b c", "\U0001f600"]), min_size=1, max_size=2, unique=True))
    table = pa.table({name: draw(numbers(rows)) for name in names})
    walk = draw(st.sampled_from(["rounded", "rounded", "hit_and_run", "paper"]))
    parameters: dict[str, Any] = {
        "fields": names,
        "segment_size": draw(st.integers(3, 11)),
        "sigma": draw(st.sampled_from([0.01, 0.1, 0.5, 1.0])),
        "bounds": draw(st.sampled_from(["segment", "column", "keep"])),
        "ties": draw(st.sampled_from(["free", "one_sided", "equal"])),
        "duplicates": draw(st.sampled_from(["collapse", "spread"])),
        "walk": walk,
        "iterations": draw(st.sampled_from([1, 4, {"total": 30}])),
        "start": draw(st.sampled_from(["centre", "data"])),
        "decimals": draw(st.sampled_from(["off", "off", 0, 2])),
    }
    if parameters["ties"] == "equal":
        parameters |= {"duplicates": "collapse", "decimals": "off"}
        if parameters["bounds"] == "keep":
            parameters["bounds"] = "segment"
    if parameters["bounds"] == "segment" and draw(st.booleans()):
        parameters["margin"] = draw(st.sampled_from([0, 0.1, 3]))
    if parameters["decimals"] != "off" and any(is_wide(table.column(name)) for name in names):
        parameters["decimals"] = "off"
    return table, parameters


def is_wide(column: pa.ChunkedArray) -> bool:
    """Whether float64 cannot distinguish the column's hundredths, or a limit of the type is near."""
    return any(abs(float(value)) > 2**40 for value in column.drop_null().to_pylist() if is_number(value))


def is_number(value: Any) -> bool:
    return not isinstance(value, datetime.date)


def assert_same_figures(fast: SwapResult | None, naive: Any) -> None:
    """Assert that the provider's own figures are those of the twin."""
    assert fast is not None
    assert isinstance(naive, LocalityOutcome)
    found = fast.provider
    assert found["violations"] == naive.provider["violations"] == 0
    assert found["relations_found"] == naive.provider["found"]
    assert found["relations_chosen"] == naive.provider["chosen"]
    assert found["rows_after_pruning"] == naive.provider["rows"]
    if found["relations_found"]:
        assert found["relations_kept"] == naive.provider["holding"] / naive.provider["found"]
    if naive.provider["distortion"] is not None:
        assert found["distortion"] == pytest.approx(naive.provider["distortion"], rel=1e-9, abs=1e-300)


@settings(max_examples=150)
@given(cases(), SEEDS)
def test_locality(case: tuple[pa.Table, dict[str, Any]], seed: bytes) -> None:
    """Provider and twin agree."""
    table, parameters = case
    assert_same_figures(*assert_agree("LOCALITY", table, parameters, seed))
