"""Files show the values of their rows, and nothing else of the source."""

import io
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.formats.media_types import ARROW_STREAM, PARQUET
from app.formats.released_arrays import released, released_array
from providers.tables.digest import table_digest
from tests.naive.agreement import swap
from tests.whole_tables import write_table

SECRET = "RARE-SECRET"


def written(media_type: str, table: pa.Table) -> bytes:
    return b"".join(write_table(media_type, table))


def read(media_type: str, content: bytes) -> pa.Table:
    """Read a file with its dictionaries, as a recipient does."""
    if media_type == PARQUET:
        return pq.read_table(io.BytesIO(content), read_dictionary=["v"])
    return pa.ipc.open_stream(content).read_all()


def entries(table: pa.Table) -> list[list[Any]]:
    """Dictionary of each chunk of the field `v`."""
    return [chunk.dictionary.to_pylist() for chunk in table["v"].chunks]


@pytest.mark.parametrize("media_type", [ARROW_STREAM, PARQUET])
def test_the_order_of_a_dictionary_is_that_of_the_released_rows(media_type: str) -> None:
    source = [str(number) for number in random.Random(3).sample(range(1000), 300)]
    table = pa.table({"v": pa.array(source).dictionary_encode()})
    found = read(media_type, written(media_type, swap("DSWAP", table, {"swap_fields": ["v"]}).table))
    values = found["v"].to_pylist()
    assert entries(found) == [values]
    assert not any(one == other for one, other in zip(values, source, strict=True))


@pytest.mark.parametrize("media_type", [ARROW_STREAM, PARQUET])
@pytest.mark.parametrize("policy", ["suppress", "drop", "replace"])
def test_a_suppressed_value_is_not_in_the_file(media_type: str, policy: str) -> None:
    table = pa.table(
        {"v": pa.array(["flu", "cold", "flu", "cold", SECRET]).dictionary_encode(), "city": list("AAAAB")}
    )
    replacement = {"v": "other"} if policy == "replace" else {}
    given = {"policy": policy, "replacement": replacement}
    made = swap("CDSWAP", table, {"swap_fields": ["v"], "control_field": "city", "suppression": given}).table
    content = written(media_type, made)
    assert SECRET.encode() not in content
    assert all(SECRET not in each for each in entries(read(media_type, content)))


def test_a_batch_keeps_the_dictionary_of_the_one_before_if_it_has_its_values() -> None:
    """A reader then receives each dictionary once; another value makes another dictionary."""
    dictionary = pa.array(["unused", "b", "a", "c"])
    batches = [
        pa.record_batch({"v": pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), dictionary)})
        for indices in ([2, 1, None, 2], [1, 1], [3, 2], [])
    ]
    found = list(released(batches[0].schema, iter(batches)))
    assert [batch["v"].to_pylist() for batch in found] == [batch["v"].to_pylist() for batch in batches]
    assert [batch["v"].dictionary.to_pylist() for batch in found] == [
        ["a", "b"],
        ["a", "b"],
        ["c", "a"],
        ["c", "a"],
    ]
    assert {batch["v"].type for batch in found} == {pa.dictionary(pa.int8(), pa.string())}


def test_equal_entries_and_null_entries_become_one() -> None:
    dictionary = pa.array(["x", None, "x", "y"])
    array = pa.DictionaryArray.from_arrays(pa.array([2, 3, 1, 0, None]), dictionary)
    found = released_array(array)
    assert found.to_pylist() == ["x", "y", None, "x", None]
    assert found.dictionary.to_pylist() == ["x", "y"]
    assert found.indices.to_pylist() == [0, 1, None, 0, None]


def test_the_levels_of_an_ordered_dictionary_stay_in_their_order() -> None:
    kind = pa.dictionary(pa.int32(), pa.string(), ordered=True)
    array = pa.array(["mid", None, "low"]).dictionary_encode().cast(pa.string())
    levels = pa.DictionaryArray.from_arrays(
        pa.array([1, None, 0], pa.int32()), ["low", "mid", "high"], ordered=True
    )
    found = released_array(levels)
    assert found.type == kind
    assert found.to_pylist() == array.to_pylist()
    assert found.dictionary.to_pylist() == ["low", "mid", "high"]


@pytest.mark.parametrize("media_type", [ARROW_STREAM, PARQUET])
def test_an_ordered_dictionary_that_holds_a_null_can_be_downloaded(media_type: str) -> None:
    """A Parquet file was cut off, since Arrow writes no dictionary with a null."""
    levels = pa.DictionaryArray.from_arrays(
        pa.array([2, 1, None, 0], pa.int8()), pa.array(["low", None, "high"]), ordered=True
    )
    found = read(media_type, written(media_type, pa.table({"v": levels})))["v"]
    assert found.to_pylist() == ["high", None, None, "low"]
    assert [entry for entry in found.chunk(0).dictionary.to_pylist() if entry] == ["low", "high"]


@pytest.mark.parametrize(
    "inner",
    [
        lambda array: pa.StructArray.from_arrays([array, pa.array(range(len(array)))], ["d", "n"]),
        lambda array: pa.ListArray.from_arrays(pa.array(range(len(array) + 1)), array),
        lambda array: pa.LargeListArray.from_arrays(pa.array(range(len(array) + 1), pa.int64()), array),
        lambda array: pa.ListViewArray.from_arrays(
            pa.array(range(len(array), -1, -1)[1:], pa.int32()), pa.array([1] * len(array), pa.int32()), array
        ),
        lambda array: pa.FixedSizeListArray.from_arrays(array, 1),
        lambda array: pa.MapArray.from_arrays(
            pa.array(range(len(array) + 1), pa.int32()), pa.array(range(len(array))), array
        ),
        lambda array: pa.ListArray.from_arrays(
            pa.array(range(len(array) + 1)), pa.StructArray.from_arrays([array], ["d"])
        ),
    ],
    ids=["struct", "list", "large list", "list view", "fixed list", "map", "list of structs"],
)
def test_dictionaries_within_other_types_are_made_again(inner: Any) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([3, 1, None, 3, 2, 0]), ["first", "b", "c", "d"])
    whole = inner(texts)
    array = whole.slice(1, 4)
    found = released_array(array)
    assert found.type == array.type
    assert found.to_pylist() == array.to_pylist()
    found.validate(full=True)
    content = written(ARROW_STREAM, pa.table({"v": array}))
    assert b"first" not in content
    assert pa.ipc.open_stream(content).read_all()["v"].to_pylist() == array.to_pylist()


def hidden(kind: pa.DataType, buffers: list[Any], rows: int = 2) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [pa.py_buffer(b"\x01"), *map(pa.py_buffer, buffers)])


@pytest.mark.parametrize(
    "array",
    [
        hidden(pa.int64(), [np.array([1, 0x5345435245543132], np.int64)]),
        hidden(pa.decimal128(30, 2), [b"\x01" + bytes(15) + b"SECRET12" + bytes(8)]),
        hidden(pa.binary(6), [b"publicSECRET"]),
        hidden(pa.string(), [np.array([0, 6, 12], np.int32), b"publicSECRET"]),
        hidden(pa.large_binary(), [np.array([0, 6, 12], np.int64), b"publicSECRET"]),
        pa.StructArray.from_arrays([pa.array(["public", "SECRET"])], ["s"], mask=pa.array([False, True])),
        pa.ListArray.from_arrays(
            pa.array([0, 1, 2]), pa.array(["public", "SECRET"]), mask=pa.array([False, True])
        ),
    ],
    ids=["number", "decimal", "bytes", "text", "large bytes", "struct", "list"],
)
def test_data_beneath_nulls_are_not_in_the_file(array: pa.Array) -> None:
    for held in (array, pa.concat_arrays([array.slice(0, 1), array]).slice(1)):
        content = written(ARROW_STREAM, pa.table({"v": held}))
        assert b"SECRET" not in content
        assert b"TERCES" not in content
        assert b"21TERCES"[:6] not in content
        assert pa.ipc.open_stream(content).read_all()["v"].to_pylist() == array.to_pylist()


@pytest.mark.parametrize("ordered", [False, True])
def test_members_of_a_struct_with_nulls_keep_their_types(ordered: bool) -> None:
    """Dictionaries and wide decimals; the rows of a struct that is null have no entry."""
    words = pa.DictionaryArray.from_arrays(
        pa.array([1, 0, None, 1], pa.int8()), pa.array(["a", "b"]), ordered=ordered
    )
    fields = [pa.field("word", words.type), pa.field("number", pa.decimal256(1, 0))]
    array = pa.StructArray.from_arrays(
        [words, pa.array([1, 2, 3, 4]).cast(pa.decimal256(20, 0)).cast(pa.decimal256(1, 0))],
        fields=fields,
        mask=pa.array([False, True, False, False]),
    )
    for part in (array, array[1:], array[1:2]):
        released = released_array(part)
        assert released.type == array.type
        assert released.to_pylist() == part.to_pylist()
        if not ordered:
            assert "a" not in released.field("word").dictionary.to_pylist()


@pytest.mark.parametrize("nulls", [False, True])
def test_booleans_and_numbers_keep_their_values(nulls: bool) -> None:
    generator = np.random.default_rng(5)
    mask = generator.random(1000) < 0.3 if nulls else None
    table = pa.table(
        {
            "b": pa.array(generator.random(1000) < 0.5, mask=mask),
            "x": pa.array(generator.random(1000), mask=mask),
            "d": pa.array(generator.integers(0, 9, 1000), mask=mask).dictionary_encode(),
            "n": pa.nulls(1000),
        }
    ).slice(3)
    batches = list(released(table.schema, table.to_batches(max_chunksize=100)))
    assert table_digest(pa.Table.from_batches(batches)) == table_digest(table)
    if not nulls:
        assert (
            batches[0]["x"].buffers()[1].address
            == table.to_batches(max_chunksize=100)[0]["x"].buffers()[1].address
        )
