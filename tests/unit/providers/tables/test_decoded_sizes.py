"""Decoded sizes are those of the plain values, at every depth, and nothing is decoded for them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.tables.decoded_sizes import decoded_row_sizes, is_expanding
from tests.property.arrow_tables import another_carriage, tables

WORDS = pa.array(["x" * 10, None, "yy", "", "x" * 10, "zzz"])
CODES = WORDS.dictionary_encode()
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 6], pa.int32()), pa.array(["aaaa", None, "b"]))
SIZES = [10, 0, 2, 0, 10, 3]
LENGTHS = pa.array([0, 2, 2, 6], pa.int32())

ARRAYS: dict[str, tuple[pa.Array, list[int]]] = {
    "dictionary": (CODES, SIZES),
    "dictionary of numbers": (pa.array([5, 5, None], pa.int16()).dictionary_encode(), [2, 2, 2]),
    "runs": (RUNS, [4, 4, 0, 1, 1, 1]),
    "views": (WORDS.cast(pa.string_view()), SIZES),
    "struct": (pa.StructArray.from_arrays([CODES, RUNS], ["a", "b"]), [14, 4, 2, 1, 11, 4]),
    "list": (pa.ListArray.from_arrays(LENGTHS, CODES), [10, 0, 15]),
    "map": (pa.MapArray.from_arrays(LENGTHS, pa.array([1] * 6, pa.int8()), CODES), [12, 0, 19]),
    "list views": (
        pa.ListViewArray.from_arrays(
            pa.array([0, 0, 3], pa.int32()), pa.array([6, 6, 2], pa.int32()), pa.array([1] * 6, pa.int32())
        ),
        [24, 24, 8],
    ),
    "dictionary of lists": (
        pa.DictionaryArray.from_arrays(
            pa.array([0, 2, None, 2], pa.int8()), pa.ListArray.from_arrays(LENGTHS, CODES)
        ),
        [10, 15, 0, 15],
    ),
    "dictionary without values": (pa.nulls(2, pa.dictionary(pa.int8(), pa.string())), [0, 0]),
    "extension": (
        pa.ExtensionArray.from_storage(pa.opaque(CODES.type, "type", "vendor"), CODES),
        SIZES,
    ),
}


def sizes(array: pa.Array) -> list[int]:
    found = decoded_row_sizes(pa.record_batch([array], ["a"]))
    assert found is not None
    return [int(size) for size in found]


@pytest.mark.parametrize("case", ARRAYS)
def test_the_size_is_that_of_the_decoded_value(case: str) -> None:
    array, expected = ARRAYS[case]
    assert sizes(array) == expected
    for start in range(len(array)):
        assert sizes(array.slice(start, 2)) == expected[start : start + 2]


def test_plain_columns_have_no_sizes() -> None:
    assert decoded_row_sizes(pa.record_batch({"a": [1], "b": ["x"], "c": [[1.5]]})) is None


@given(st.data())
def test_every_type_has_sizes(data: st.DataObject) -> None:
    table = data.draw(tables().flatmap(another_carriage))
    for batch in table.to_batches():
        found = decoded_row_sizes(batch)
        assert (found is None) == (not any(is_expanding(field.type) for field in batch.schema))
        assert found is None or (len(found) == batch.num_rows and (found >= 0).all())


def test_sizes_beyond_every_limit_take_no_memory() -> None:
    """Lists within lists of the same elements: 10^24 bytes, and runs of 10^12 values."""
    array: Any = pa.array(np.zeros(1000, np.int8))
    for _ in range(8):
        offsets, lengths = pa.array([0] * 1000, pa.int32()), pa.array([1000] * 1000, pa.int32())
        array = pa.ListViewArray.from_arrays(offsets, lengths, array)
    assert min(sizes(array)) == 1 << 36
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([10**12]), pa.array(["abc"]))
    array = pa.LargeListArray.from_arrays(pa.array([0, 10**12], pa.int64()), runs)
    assert sizes(array) == [1 << 36]
