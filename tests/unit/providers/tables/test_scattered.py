"""Columns whose values are written to other places, against Arrow's own order."""

import numpy as np
import pyarrow as pa
import pytest

from providers.tables.columns import scattered, take
from tests.every_type import COLUMNS


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("has_nulls", [False, True])
def test_each_value_is_at_its_place(name: str, has_nulls: bool) -> None:
    """Row ``places[i]`` of the result is row i, in several chunks, with and without nulls."""
    array = COLUMNS[name]
    chunks = [array, array.slice(1), array.slice(0, 0)]
    if not has_nulls:
        present = [row for row in range(len(array)) if array[row].is_valid]
        chunks = [array.slice(row, 1) for row in (*present, *present[::-1])]
    column = pa.chunked_array(chunks, type=array.type)
    places = np.random.default_rng(3).permutation(len(column)).astype(np.int32)
    inverse = np.argsort(places)
    try:
        expected = take(column, pa.array(inverse))
    except pa.ArrowNotImplementedError:
        pytest.skip(f"Arrow cannot move values of type {array.type}")
    found = scattered(column, places)
    assert found.type == column.type
    assert str(found.combine_chunks()) == str(expected.combine_chunks())


def test_a_column_without_rows_stays_without() -> None:
    nothing = pa.chunked_array([], type=pa.int16())
    assert scattered(nothing, np.zeros(0, np.int32)) == nothing
