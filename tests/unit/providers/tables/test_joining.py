"""Chunks with different dictionaries of half floats are joined without a change of their values."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.formats.batched_columns import elementwise
from app.store.blobs.batches import evened
from providers.tables.columns import combined, null_mask, one_dictionary, take, take_rows
from providers.tables.digest import table_digest
from providers.tables.joining import in_one_chunk, joinable_type, joined_arrays, joined_batches
from providers.tables.sort_keys import distinct, sort_keys
from tests.every_type import halves_in_two_chunks

ROOT = Path(__file__).parents[4]
VALUES = [1.5, 2.5, None, 2.5, -4.0, 1.5, None]


def _list(chunk: pa.Array) -> pa.Array:
    offsets = pa.array([0, *range(2, len(chunk)), len(chunk)], pa.int32())
    return pa.ListArray.from_arrays(offsets, chunk)


NESTED: dict[str, Callable[[pa.Array], pa.Array]] = {
    "dictionary": lambda chunk: chunk,
    "struct": lambda chunk: pa.StructArray.from_arrays([chunk, chunk.indices], ["a", "b"]),
    "list": _list,
    "large_list": lambda chunk: pa.LargeListArray.from_arrays(range(len(chunk) + 1), chunk),
    "fixed_size_list": lambda chunk: pa.FixedSizeListArray.from_arrays(chunk, 1),
    "map": lambda chunk: pa.MapArray.from_arrays(range(len(chunk) + 1), range(len(chunk)), chunk),
    "list of structs": lambda chunk: _list(pa.StructArray.from_arrays([chunk], ["a"])),
}


@pytest.fixture(params=NESTED)
def column(request: pytest.FixtureRequest) -> pa.ChunkedArray:
    """A column of two chunks and slices of them, one without rows."""
    nest = NESTED[request.param]
    chunks = [nest(chunk) for chunk in halves_in_two_chunks().chunks]
    return pa.chunked_array([chunks[0], chunks[1].slice(1), chunks[0].slice(1, 0), chunks[1]])


def test_the_values_of_the_example() -> None:
    assert halves_in_two_chunks().to_pylist() == VALUES


def test_arrow_still_changes_them() -> None:
    """If this fails, Arrow has been repaired, and `providers.tables.joining` is no longer needed."""
    assert halves_in_two_chunks().unify_dictionaries().to_pylist() != VALUES


def test_a_column_is_joined_and_its_rows_are_taken(column: pa.ChunkedArray) -> None:
    values = column.to_pylist()
    whole = combined(column)
    assert whole.type == column.type
    assert whole.to_pylist() == values
    whole.validate(full=True)
    rows = pa.array([*range(len(values))[::-1], 0])
    taken = take(column, rows)
    assert taken.type == column.type
    assert taken.to_pylist() == [*values[::-1], values[0]]
    assert null_mask(column).tolist() == [value is None for value in values]


def test_tables_and_batches_are_joined(column: pa.ChunkedArray) -> None:
    table = pa.table({"a": column, "b": range(len(column))}).replace_schema_metadata({"unit": "EUR"})
    batches = table.to_batches()
    for joined in (
        in_one_chunk(table),
        pa.Table.from_batches([joined_batches(batches)]),
        pa.Table.from_batches(list(evened(batches)), table.schema),
        take_rows(table, np.arange(len(column))),
    ):
        assert joined.schema.equals(table.schema, check_metadata=True)
        assert joined.to_pylist() == table.to_pylist()
        assert table_digest(joined) == table_digest(table)
    assert joined_arrays(column.chunks).to_pylist() == column.to_pylist()


def test_many_columns_are_written_together() -> None:
    """A function of the values of many short columns sees them as they are."""
    columns = [*halves_in_two_chunks().chunks] * 40
    columns = [column.slice(0, 3) for column in columns]
    found = elementwise(lambda array, _: array.cast(pa.float16()), columns, [None] * len(columns))
    assert [array.to_pylist() for array in found] == [column.to_pylist() for column in columns]


def test_one_dictionary_and_keys() -> None:
    column = halves_in_two_chunks()
    unified = one_dictionary(column)
    assert unified.type == column.type
    assert unified.to_pylist() == VALUES
    assert len({str(chunk.dictionary) for chunk in unified.chunks}) == 1
    plain = pa.chunked_array([chunk.cast(pa.float16()) for chunk in column.chunks])
    for each in (column, plain):
        codes, values = distinct(each)
        assert values.to_pylist() == [1.5, 2.5, -4.0]
        assert codes.tolist() == [0, 1, 3, 1, 2, 0, 3]
        keys = sort_keys(each)[0].tolist()
        assert [sorted(set(keys)).index(key) for key in keys] == [1, 2, 3, 2, 0, 1, 3]


def test_an_ordered_dictionary_keeps_its_order_and_more_values_get_wider_indices() -> None:
    first, second = (pa.array(range(start, start + 100), pa.float16()) for start in (0, 100))
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), entries, ordered=True)
        for entries in (first, second)
    ]
    whole = combined(pa.chunked_array(chunks))
    assert whole.type.ordered
    assert whole.type.value_type == pa.float16()
    assert whole.to_pylist() == [float(value) for value in range(200)]


@pytest.mark.parametrize(
    "kind",
    [pa.float16(), pa.list_(pa.float16()), pa.dictionary(pa.int8(), pa.float32()), pa.uuid(), pa.string()],
)
def test_other_types_go_to_arrow_as_they_are(kind: pa.DataType) -> None:
    assert joinable_type(kind) == kind


def test_nothing_else_joins_chunks() -> None:
    """Code of the service joins chunks by `providers.tables.joining`, or is named here as without halves."""
    joins = re.compile(r"\.combine_chunks\(|\.unify_dictionaries\(|\.concat_arrays\(|\.concat_batches\(")
    found: dict[str, Any] = {}
    for path in [*ROOT.glob("app/**/*.py"), *ROOT.glob("providers/**/*.py")]:
        count = len(joins.findall(path.read_text()))
        if count:
            found[str(path.relative_to(ROOT))] = count
    del found["providers/tables/joining.py"]
    assert found == {
        "app/worker/field_profile.py": 2,  # counted values and their counts, plain
        "app/worker/row_comparison.py": 1,  # counted pairs of texts
        "providers/rotation/out_of_core.py": 1,  # lists of float64
        "providers/swapping/check_expressions.py": 1,  # booleans
        "providers/tables/columns.py": 2,  # indices
    }
