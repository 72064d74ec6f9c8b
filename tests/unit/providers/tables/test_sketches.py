"""Sketches of tables: estimates of their twins, recognition of changed tables, every type, no value."""

import datetime
import hashlib
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from providers.tables.sketches import (
    SKETCHED_ROWS,
    TableSketch,
    _number_texts,
    _texts,
    first_same,
    packed,
    resemblance,
    same_source,
    sketch,
    unpacked,
)
from tests.every_type import COLUMNS
from tests.naive.sketches import jaccard, runs

KEY = b"k" * 32


def people(rows: int, seed: int = 1) -> pa.Table:
    chance = np.random.default_rng(seed)
    return pa.table(
        {
            "age": chance.integers(18, 90, rows),
            "sex": chance.choice(["f", "m"], rows),
            "town": pa.array([f"town {number}" for number in chance.integers(0, 200, rows)], pa.string()),
            "income": chance.lognormal(10, 1, rows).round(2),
        }
    )


def same(one: pa.Table, two: pa.Table) -> bool:
    return same_source(sketch(one, KEY), sketch(two, KEY))


@given(st.integers(0, 400), st.integers(0, 10_000))
@example(400, 0)
def test_resemblance_estimates_the_jaccard_index_of_rows_and_of_runs(kept: int, seed: int) -> None:
    """Four standard deviations of 64 places are 0.25."""
    one = people(400, 1)
    two = pa.concat_tables([one.slice(0, kept), people(400 - kept, seed + 2)])
    first, second = sketch(one, KEY), sketch(two, KEY)
    rows = [[tuple(row.values()) for row in table.to_pylist()] for table in (one, two)]
    assert resemblance(first.rows, second.rows) == pytest.approx(jaccard(*rows), abs=0.26)
    values = [runs(table["income"].to_pylist(), 6) for table in (one, two)]
    by_name = zip(first.fields.items(), second.fields.values(), strict=True)
    found = [resemblance(mine, other) for (_, mine), other in by_name]
    assert found[-1] == pytest.approx(jaccard(*values), abs=0.26)


def test_stored_sketches_stay_comparable() -> None:
    """The ledger keeps sketches: those of a version before must be those of this one."""
    rows = range(300)
    table = pa.table(
        {
            "whole": [row * row for row in rows],
            "small": [float(f"1e-{row}") for row in rows],
            "large": [float(f"1.5e{row}") for row in rows],
            "narrow": pa.array([row / 7 for row in rows], pa.float32()),
            "nulls": [None if row % 3 == 0 else -row / 8 for row in rows],
            "text": [f"text {row}" for row in rows],
        }
    )
    document = json.dumps(sketch(table, KEY).document(), sort_keys=True).encode()
    assert hashlib.sha256(document).hexdigest() == (
        "4923b6346fd202b2cc0400d1f19803a10c918fb054d5ee872b248f5f9cb8b889"
    )


@given(st.lists(st.floats() | st.none() | st.sampled_from([-0.0, 1e-4, 1e16, 9.999999999999999e-05])))
@example([None, 1.5, float("inf"), 1e300, None])
def test_numbers_as_text_are_those_of_python(values: list[float | None]) -> None:
    array = pa.array(values, pa.float64())
    text, starts, ends = _number_texts(array)
    found = [text[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]
    assert found == _texts(pa.chunked_array([array]))
    assert found == [b"" if value is None else b"=" + repr(value).encode() for value in array.to_pylist()]


def test_a_table_with_a_row_more_or_less_is_the_same() -> None:
    table = people(1000)
    assert same(table, pa.concat_tables([people(1, 9), table]))
    assert same(table, pa.concat_tables([table.slice(0, 500), table.slice(501)]))
    assert same(table, table.take(np.random.default_rng(0).permutation(1000)))


def test_a_table_with_other_fields_or_a_changed_field_is_the_same() -> None:
    table = people(1000)
    assert same(table, table.drop_columns(["sex"]))
    assert same(table, table.append_column("new", pa.array(range(1000))))
    raised = pa.array(table["income"].to_numpy() * 1.02)
    assert same(table, table.set_column(3, "income", raised))


def test_another_sample_of_the_same_people_is_another_source() -> None:
    table = people(2000)
    assert not same(table, people(2000, 2))
    assert not same(table.slice(0, 1000), table.slice(1000))


def test_fields_of_few_values_are_no_evidence() -> None:
    table = people(1000)
    assert len(sketch(table, KEY).fields) == 3
    assert not same(table.select(["sex"]), people(1000, 5).select(["sex", "age"]))


def test_tables_without_rows_are_not_the_same() -> None:
    assert not same(people(0), people(0))
    assert not same(people(0), people(5))
    assert same(people(3), people(3))


def test_only_the_first_rows_are_sketched() -> None:
    table = people(SKETCHED_ROWS + 50)
    assert sketch(table, KEY) == sketch(table.slice(0, SKETCHED_ROWS), KEY)


def test_sketches_of_other_keys_do_not_compare_and_hold_no_value() -> None:
    table = people(200)
    one, two = sketch(table, KEY), sketch(table, b"l" * 32)
    assert not same_source(one, two)
    document = json.dumps(one.document())
    assert not any(word in document for word in ("town", "age", "income"))
    assert TableSketch.from_document(json.loads(document)) == one


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_is_sketched(name: str) -> None:
    column = COLUMNS[name]
    table = pa.table({"x": column})
    assert same(table, table)
    assert sketch(table, KEY) == sketch(pa.concat_tables([table.slice(0, 2), table.slice(2)]), KEY)


def test_nanoseconds_and_null_differ_from_other_values() -> None:
    stamps = pa.array([1, 2, None], pa.timestamp("ns"))
    one, two = (sketch(pa.table({"x": values}), KEY) for values in (stamps, stamps.fill_null(2)))
    assert one.rows != two.rows
    dates = pa.table({"x": [datetime.date(2026, 1, 1)]})
    assert same(dates, dates)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 4)), max_size=6))
@example([])
@example([(1, 0, 0), (0, 0, 0)])
def test_many_sketches_are_compared_at_once_as_one_by_one(others: list[tuple[int, int, int]]) -> None:
    """The twin is `same_source`; tables share some rows, and have some of the fields."""
    own = sketch(people(60, 0), KEY)
    tables = [
        pa.concat_tables([people(60, seed).slice(0, kept), people(60 - kept, 9)]).select(range(fields))
        for seed, kept, fields in others
    ]
    documents = [sketch(table, KEY).document() for table in tables]
    assert [unpacked(packed(document)) for document in documents] == documents
    same_ones = [
        number
        for number, document in enumerate(documents)
        if same_source(own, TableSketch.from_document(document))
    ]
    each = list(map(packed, documents))
    sizes = np.array(list(map(len, each)), np.int64)
    assert first_same(own, b"".join(each), sizes) == next(iter(same_ones), None)
