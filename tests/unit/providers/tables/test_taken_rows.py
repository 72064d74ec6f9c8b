"""Rows of a table, taken by one call of Arrow or column by column."""

import numpy as np
import pyarrow as pa
import pytest

from providers.tables.columns import take, take_rows
from tests.every_type import COLUMNS
from tests.property.out_of_core import assert_same

FIXED_WIDTH = pa.table(
    {
        "number": pa.chunked_array([[1, None], [3, 4]]),
        "flag": [True, None, False, True],
        "day": pa.array([1, 2, None, 4], pa.date32()),
        "label": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    },
    metadata={"origin": "register"},
)
"""Table of which Arrow takes the rows by one call."""


@pytest.mark.parametrize("rows", [[], [3], [2, 0, 2, 1]])
def test_rows_are_those_of_each_column(rows: list[int]) -> None:
    """They have the same schema, with its metadata."""
    labels = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["c"]).dictionary_encode()])
    in_chunks = pa.table({"label": labels.slice(0, 4), "number": [1, 2, 3]})
    places = np.array(rows, np.int64)
    for table in (FIXED_WIDTH, FIXED_WIDTH.append_column("text", [["x", "y", None, "z"]])):
        taken = take_rows(table, places)
        assert taken.schema.equals(table.schema, check_metadata=True)
        for name in table.column_names:
            assert taken.column(name).equals(take(table.column(name), pa.array(places)))
    fewer = places[places < 3]
    assert take_rows(in_chunks, fewer).to_pylist() == [in_chunks.to_pylist()[row] for row in fewer]


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_of_every_type_are_taken(name: str) -> None:
    column = pa.chunked_array([COLUMNS[name]])
    places = np.array([1, 0, 1], np.int64)
    try:
        expected = take(column, pa.array(places))
    except pa.ArrowNotImplementedError:
        with pytest.raises(pa.ArrowNotImplementedError):
            take_rows(pa.table([column], ["field"]), places)
        return
    taken = take_rows(pa.table([column], ["field"]), places)
    assert taken.column("field").type == expected.type
    assert str(taken.column("field").combine_chunks()) == str(expected.combine_chunks())


@pytest.mark.parametrize(("index", "entries"), [(pa.int8(), 2**7), (pa.uint8(), 2**8)])
def test_full_dictionaries_keep_their_narrow_indices(index: pa.DataType, entries: int) -> None:
    """Arrow does not unify a dictionary with as many entries as its indices can number, even with itself."""
    texts = pa.array([f"v{number}" for number in range(entries)])
    indices = pa.array([*range(entries), None], index)
    chunks = [pa.DictionaryArray.from_arrays(indices, each) for each in (texts, texts[::-1])]
    for second in chunks:
        column = pa.chunked_array([chunks[0], second])
        rows = np.arange(len(column))[::-1]
        taken = take_rows(pa.table({"field": column}), rows).column("field")
        assert taken.type == column.type
        assert taken.to_pylist() == column.to_pylist()[::-1]
        assert assert_same("DSWAP", pa.table({"field": column}), {"swap_fields": ["field"]}, 4096, 97, 3)
        others = pa.table({"field": column, "number": np.arange(len(column)) % 17})
        parameters = {"swap_fields": ["number"], "control_field": "field", "block_size": 5}
        assert assert_same("DDSWAP", others, parameters, 4096, 97, 3) is not None
