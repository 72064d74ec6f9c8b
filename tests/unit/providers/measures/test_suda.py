"""SUDA scores: published examples, the plain twin, and tables without special uniques."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.arrays import Int64Array
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.measures.risk.suda import minimal_sample_uniques, suda
from providers.measures.shared.anonymity import field_codes
from providers.randomness.chacha20 import Stream
from tests.naive import anonymity as naive


def codes(rows: Sequence[Sequence[object]]) -> list[Int64Array]:
    return [
        np.unique([str(value) for value in column], return_inverse=True)[1]
        for column in zip(*rows, strict=True)
    ]


def scores(rows: Sequence[Sequence[object]], largest: int) -> list[int]:
    """Scores of the rows, from the sets that the measure finds."""
    found = [0] * len(rows)
    for subset, unique in minimal_sample_uniques(codes(rows), largest):
        for row in unique:
            found[row] += int(np.prod([len(rows[0]) - i for i in range(len(subset), largest + 1)]))
    return found


GUIDE = [
    ("urban", "f", "secondary incomplete", "employed"),
    ("urban", "f", "secondary incomplete", "employed"),
    ("urban", "f", "primary incomplete", "no"),
    ("urban", "m", "secondary complete", "employed"),
    ("rural", "f", "secondary complete", "unemployed"),
    ("urban", "m", "secondary complete", "employed"),
    ("urban", "f", "primary complete", "no"),
    ("urban", "m", "post-secondary", "unemployed"),
    ("urban", "f", "secondary incomplete", "no"),
    ("urban", "f", "secondary incomplete", "no"),
]
"""Example of the guide to statistical disclosure control of the International Household Survey Network."""

BOOK = [
    *[("20s", "m", "50k+", "high school")] * 2,
    *[("20s", "m", "50k-", "high school")] * 2,
    ("20s", "f", "50k-", "university"),
    ("20s", "f", "50k-", "high school"),
    ("20s", "f", "50k-", "middle school"),
    ("60s", "m", "50k-", "university"),
]
"""Example of Templ 2017, Statistical Disclosure Control for Microdata, as sdcMicro's tests print it."""


def test_published_scores() -> None:
    """The scores are those that sdcMicro's tests state for the two published examples."""
    assert scores(GUIDE, 3) == [0, 0, 6, 0, 12, 0, 6, 10, 0, 0]
    assert scores(BOOK, 3)[4:] == [4, 2, 6, 8]
    found = suda(["residence", "gender", "education", "labour"], codes(GUIDE))
    assert found["mean"] == pytest.approx(3.4)
    assert found["max"] == 12
    assert found["special"] == 0.4
    assert found["by_size"] == {"1": 0.4, "2": 0.0, "3": 0.0}


def test_published_contributions() -> None:
    """The first field is in half of the scores, the others in three eighths each (sdcMicro's tests)."""
    found = suda(["a", "b", "c"], codes([(2, 0, 0), (1, 3, 6), (1, 0, 0)]))
    assert found["contribution"] == {"a": 0.5, "b": 0.375, "c": 0.375}


@given(st.integers(2, 5), st.data())
@settings(max_examples=60, deadline=None)
def test_the_plain_twin_agrees(fields: int, data: st.DataObject) -> None:
    """Every set, every score: the twin counts the rows of each proper subset of the fields."""
    row = st.tuples(*[st.integers(0, 3)] * fields)
    rows = data.draw(st.lists(row, min_size=2, max_size=14))
    largest = min(fields - 1, 3)
    found: list[set[tuple[int, ...]]] = [set() for _ in rows]
    for subset, unique in minimal_sample_uniques(codes(rows), largest):
        for index in unique:
            assert subset not in found[index]
            found[index].add(subset)
    for index in range(len(rows)):
        expected = naive.minimal_sample_uniques(rows, index)
        assert found[index] == {subset for subset in expected if len(subset) <= largest}
        assert scores(rows, largest)[index] == naive.suda_score(rows, index, largest)


def assessed(table: pa.Table, keys: Sequence[str], **options: object) -> object:
    chosen = MeasureOptions.model_validate({"only": ["suda"], "key_fields": keys} | options)
    found = assess(Release(table, table), chosen, Stream(bytes(32), "measures", 1))
    return found.measures["suda"]["value"]["after"] if found.measures else found.left_out["suda"]


def test_null_and_rounded_keys() -> None:
    """A null is a value of its own; rounding removes a difference that the intruder does not know."""
    table = pa.table({"age": [31.0, 33.0, None, 58.0], "town": ["a", "a", "a", "a"]})
    exact, rounded = assessed(table, ["age", "town"]), assessed(table, ["age", "town"], rounding={"age": 10})
    assert isinstance(exact, dict)
    assert isinstance(rounded, dict)
    assert (exact["special"], rounded["special"]) == (1.0, 0.5)
    assert field_codes(table, "age", {}).tolist() == [1, 2, 0, 3]


def test_one_row_is_unique_on_every_field() -> None:
    table = pa.table({"a": [1], "b": [2], "c": [3]})
    found = assessed(table, ["a", "b", "c"])
    assert isinstance(found, dict)
    assert (found["special"], found["max"]) == (1.0, 6.0)


def test_equal_rows_have_no_score() -> None:
    found = assessed(pa.table({"a": [1, 1], "b": [2, 2]}), ["a", "b"])
    assert found == {
        "special": 0.0, "mean": 0.0, "max": 0.0, "by_size": {"1": 0.0}, "contribution": {"a": 0.0, "b": 0.0}
    }  # fmt: skip


def test_what_it_needs() -> None:
    table = pa.table({f"f{index}": [1, 2] for index in range(31)})
    assert assessed(table, ["f0"]) == "it needs 2 to 30 key fields; there are 1"
    assert assessed(table, table.column_names) == "it needs 2 to 30 key fields; there are 31"
    assert "1 row" in str(assessed(table.slice(0, 0), ["f0", "f1"]))
