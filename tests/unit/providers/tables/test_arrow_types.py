"""Every Arrow type can be swapped: values move, the type stays, and changes are counted."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from providers.errors import ParameterError, SourceError
from providers.grouping.groups import Pairing
from providers.grouping.shuffle import shuffle_groups
from providers.randomness.chacha20 import Stream
from providers.swapping.exchange import sources
from providers.swapping.permute import permute
from providers.tables import columns as table_module
from providers.tables.columns import combined, null_mask
from providers.tables.equality import equality_codes
from providers.tables.sort_keys import distinct, is_orderable, sort_keys
from tests.naive.agreement import swap
from tests.naive.swapping import same
from tests.property.out_of_core import swap_out_of_core

NAN = float("nan")


def _unions() -> list[pa.Array]:
    codes = pa.array([0, 1, 0, 1], pa.int8())
    fields = [pa.array([1, None, 1, None]), pa.array([None, "x", None, None], pa.string())]
    dense = [pa.array([1, 2]), pa.array(["x", "x"])]
    offsets = pa.array([0, 0, 1, 1], pa.int32())
    return [pa.UnionArray.from_sparse(codes, fields), pa.UnionArray.from_dense(codes, offsets, dense)]


ARRAYS: list[pa.Array] = [
    pa.nulls(4),
    *(pa.array([1, 2, None, 1], kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *(pa.array([1, 2, None, 1], kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    pa.array([np.float16(1), np.float16(2), None, np.float16(1)], pa.float16()),
    pa.array([NAN, 0.0, -0.0, None], pa.float32()),
    pa.array([NAN, 0.0, -0.0, None, NAN], pa.float64()),
    pa.array([True, False, None, True]),
    *(pa.array(["a", "", None, "a"], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *(pa.array([b"a", b"", None, b"a"], k) for k in (pa.binary(), pa.large_binary(), pa.binary_view())),
    *(pa.array([bytes(w), None, b"\1" * w, b"\1" * w], pa.binary(w)) for w in (1, 2, 3, 4, 8, 16)),
    *(
        pa.array([datetime.date(2024, 2, 29), None, datetime.date(1969, 1, 1)], kind)
        for kind in (pa.date32(), pa.date64())
    ),
    *(pa.array([0, 1, None, 1], kind) for kind in (pa.time32("s"), pa.time32("ms"))),
    *(pa.array([0, 1, None, 1], kind) for kind in (pa.time64("us"), pa.time64("ns"))),
    *(pa.array([0, -1, None, 1], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
    pa.array([0, -1, None, 1], pa.timestamp("us", "Europe/Dublin")),
    *(pa.array([0, -1, None, 1], pa.duration(unit)) for unit in ("s", "ms", "us", "ns")),
    pa.array([(1, 2, 3), None, (1, 2, 3), (1, 2, 4)], pa.month_day_nano_interval()),
    *(
        pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal("1.50")], kind)
        for kind in (pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(38, 2), pa.decimal256(76, 2))
    ),
    pa.array(["a", "b", None, "a"]).dictionary_encode(),
    pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], pa.int8()), pa.array(["a", "a", None])),
    pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 1], pa.uint16()), pa.array([1.5, NAN]), ordered=True
    ),
    pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array([[1], [2, None]])),
    pc.run_end_encode(pa.array([1, 1, None, 2])),
    pc.run_end_encode(pa.array(["a", "a", None, "b"]), run_end_type=pa.int64()),
    *(
        pa.array([[1, None], None, [], [1, None]], kind)
        for kind in (
            pa.list_(pa.int8()),
            pa.large_list(pa.int8()),
            pa.list_view(pa.int8()),
            pa.large_list_view(pa.int8()),
        )
    ),
    pa.array([[1, None], None, [3, 4], [1, None]], pa.list_(pa.int8(), 2)),
    pa.array([[[NAN]], [], None, [[NAN], None]], pa.list_(pa.list_(pa.float64()))),
    pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}, {"a": 1, "b": ["x"]}]),
    pa.array([[("k", 1)], None, [], [("k", 1), ("l", None)]], pa.map_(pa.string(), pa.int8())),
    pa.array([{}, None, {}, {}], pa.struct([])),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, None, b"b" * 16], pa.binary(16))),
    pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None, 0], pa.int8())),
    pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", None, "{}"])),
    *_unions(),
]
IDS = [f"{at} {array.type}" for at, array in enumerate(ARRAYS)]


def pairing_of(rows: int, seed: int) -> Pairing:
    from providers.services.dswap import whole_table

    return shuffle_groups(whole_table(rows), Stream(bytes([seed] * 32), "DSWAP", 1).key("exchange"), 1.0)


def plain_values(array: pa.Array) -> list[Any]:
    """Return the values as Python objects, also if they have nanoseconds."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type) or pa.types.is_time(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return list(array.to_pylist())


@pytest.mark.parametrize("array", ARRAYS, ids=IDS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_values_move_and_the_type_stays(array: pa.Array, seed: int) -> None:
    """The values are permuted, whether the column has one chunk or several, sliced or not."""
    pairing = pairing_of(len(array), seed)
    before = plain_values(array)
    wanted = [before[row] for row in sources(pairing)]
    expected = sum(not same(a, b) for a, b in zip(before, wanted, strict=True))
    twice = pa.chunked_array([array, array], type=array.type)
    sliced = twice.slice(len(array) - 1, len(array) + 1).slice(1)
    for column in (pa.chunked_array([array], type=array.type), sliced):
        moved, changed = permute(column, pairing)
        moved.validate(full=True)
        assert moved.type == array.type
        values = [value for chunk in moved.chunks for value in plain_values(chunk)]
        assert all(same(a, b) for a, b in zip(values, wanted, strict=True))
        assert changed == expected
        assert null_mask(moved).tolist() == [value is None for value in values]


@pytest.mark.parametrize("array", ARRAYS, ids=IDS)
def test_any_type_can_be_suppressed_and_dropped(array: pa.Array) -> None:
    """A row is nulled or left out, and the type stays."""
    table = pa.table({"f": array.slice(0, 1), "other": [1]})
    nulled = swap("DSWAP", table, {"swap_fields": ["f"]}).table
    assert nulled.schema.types == table.schema.types
    assert nulled["f"].to_pylist() == [None]
    dropped = swap("DSWAP", table, {"swap_fields": ["f"], "suppression": {"policy": "drop"}}).table
    assert dropped.num_rows == 0
    assert dropped.schema == table.schema


@pytest.mark.parametrize("array", ARRAYS, ids=IDS)
def test_the_control_field_has_an_order_or_is_refused(array: pa.Array) -> None:
    """Keys sort as the values do, or the message names field and type."""
    table = pa.table({"c": array, "v": np.arange(len(array))})
    parameters = {"swap_fields": ["v"], "control_field": "c", "block_size": 2}
    if is_orderable(array.type):
        keys = sort_keys(table["c"])
        order = sorted(range(len(array)), key=lambda row: tuple(key[row] for key in keys))
        values = plain_values(array)
        present = [values[row] for row in order if values[row] is not None]
        numbers = [value for value in present if value == value]
        assert numbers == sorted(numbers)
        assert [values[row] for row in order][len(present) :] == [None] * (len(array) - len(present))
        assert swap("DDSWAP", table, parameters).table.num_rows == len(array)
        assert swap("CDSWAP", table, {"swap_fields": ["v"], "control_field": "c"}).table.num_rows == len(
            array
        )
        return
    for service in ("CDSWAP", "DDSWAP"):
        given = parameters if service == "DDSWAP" else {"swap_fields": ["v"], "control_field": "c"}
        with pytest.raises(ParameterError, match="control field 'c' has type") as caught:
            swap(service, table, given)
        assert caught.value.pointer == "/parameters/control_field"
        assert str(array.type) in caught.value.message


def test_what_arrow_cannot_move_is_named() -> None:
    """A list of views cannot be moved: the message names it before the run starts."""
    table = pa.table({"f": pa.array([["a"], ["b"]], pa.list_(pa.string_view()))})
    with pytest.raises(ParameterError, match="field 'f' has type list<item: string_view>") as caught:
        swap("DSWAP", table, {"swap_fields": ["f"]})
    assert caught.value.pointer == "/parameters/swap_fields/0"


def test_a_type_is_tried_once_for_all_of_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial for each of 100,000 fields took ten seconds of the process that answers all requests."""
    tried: list[pa.DataType] = []
    take = table_module.take

    def noted(column: pa.ChunkedArray, indices: pa.Array) -> pa.ChunkedArray:
        tried.append(column.type)
        return take(column, indices)

    monkeypatch.setattr(table_module, "take", noted)
    kinds = [pa.decimal128(37, 29), pa.list_(pa.string_view())]
    for number in range(20):
        table_module.check_movable(pa.field(f"f{number}", kinds[0]), "")
        with pytest.raises(ParameterError, match=f"field 'f{number}' has type list"):
            table_module.check_movable(pa.field(f"f{number}", kinds[1]), "")
    assert tried.count(kinds[0]) <= 1
    assert tried.count(kinds[1]) <= 1


def test_text_beyond_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text of more bytes than 32-bit offsets can number comes out in several chunks of the same type."""
    monkeypatch.setattr(table_module, "TAKEN_AT_ONCE", 100)
    values = [f"{number:07}" for number in range(99)] + [None, "x" * 250, ""]
    for kind in (pa.string(), pa.binary(), pa.string_view()):
        column = pa.chunked_array([pa.array(values).cast(kind)])
        pairing = pairing_of(len(values), 1)
        moved, _ = permute(column, pairing)
        assert moved.type == kind
        assert moved.num_chunks > 5
        assert moved.to_pylist() == [column[int(row)].as_py() for row in sources(pairing)]


def test_dictionaries_of_chunks_are_brought_together() -> None:
    """Chunks with different dictionaries are unified; too many values for the index type are an error."""
    halves = [
        pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array(range(start, start + 100)))
        for start in (0, 50, 100)
    ]
    column = pa.chunked_array(halves[:1] * 2)
    assert permute(column, pairing_of(200, 1))[0].type == column.type
    both = pa.chunked_array([halves[0].slice(0, 10), pa.array([7, 3]).dictionary_encode().cast(column.type)])
    moved, changed = permute(both, pairing_of(12, 1))
    assert sorted(moved.to_pylist()) == sorted(both.to_pylist())
    assert changed == 12 - sum(a == b for a, b in zip(moved.to_pylist(), both.to_pylist(), strict=True))
    with pytest.raises(SourceError, match="more values together than dictionary"):
        permute(pa.chunked_array([halves[0], halves[2]]), pairing_of(200, 1))
    nested = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([[1], [2]]))
    assert permute(pa.chunked_array([nested, nested]), pairing_of(4, 1))[0].type == nested.type
    other = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([[1], [3]]))
    moved = permute(pa.chunked_array([nested, other]), pairing_of(4, 1))[0]
    assert sorted(moved.to_pylist()) == [[1], [1], [2], [3]]
    assert len(combined(moved).dictionary) == 3


def coded(texts: list[Any]) -> pa.Array:
    """Return the texts as a dictionary with 8-bit indices."""
    return pa.DictionaryArray.from_arrays(pa.array(range(len(texts)), pa.int8()), pa.array(texts))


FULL = pa.chunked_array([coded([f"a{i}" for i in range(100)]), coded([f"b{i}" for i in range(100)])])
"""Column whose dictionaries hold more values together than their index type can number."""


def test_dictionaries_that_together_are_too_many_are_read() -> None:
    """Only their release needs narrow indices: they are read with wider ones, which keep the values."""
    array = combined(FULL)
    assert array.type == pa.dictionary(pa.int32(), pa.string())
    assert array.to_pylist() == FULL.to_pylist()
    assert len(np.unique(equality_codes(combined(pa.chunked_array([*FULL.chunks, FULL.chunk(0)]))))) == 200
    assert not null_mask(FULL).any()
    assert len(distinct(FULL)[1]) == 200


def test_nested_dictionaries_that_differ_are_read() -> None:
    """They are put one after the other, and equal values keep equal codes."""
    chunks = [coded(lists) for lists in ([[1], [2], None], [[1], [2], None], [[3], [2]])]
    column = pa.chunked_array(chunks)
    assert combined(column).to_pylist() == column.to_pylist()
    assert null_mask(column).tolist() == [False, False, True] * 2 + [False, False]
    codes = equality_codes(combined(column)).tolist()
    assert (codes[1], codes[4]) == (codes[7], codes[7])
    assert len(set(codes)) == 4  # [1], [2], [3] and null


@pytest.mark.parametrize(
    ("service", "parameters"),
    [
        ("DSWAP", {"swap_fields": ["n"]}),
        ("DSWAP", {"swap_fields": ["n"], "household": "a"}),
        ("DSWAP", {"swap_fields": ["n"], "unit_id": "a"}),
        ("DSWAP", {"swap_fields": ["n"], "rate": 0.5, "risk": {"key_fields": ["a"]}}),
        ("CDSWAP", {"swap_fields": ["n"], "control_field": "a"}),
        ("DDSWAP", {"swap_fields": ["n"], "control_field": "a", "block_size": 5}),
        ("RWN", {"k": 3, "distance_fields": ["a"], "perturb_fields": ["n"]}),
        ("RSWAP", {"hierarchy": ["g"], "risk_fields": ["a"]}),
    ],
)
def test_services_read_dictionaries_that_together_are_too_many(
    service: str, parameters: dict[str, Any]
) -> None:
    """The result is that of the same texts without a dictionary, and the field keeps its type."""
    table = pa.table({"a": FULL, "n": range(200), "g": [0, 1] * 100})
    moved = swap(service, table, parameters).table
    assert moved.schema == table.schema
    plain = swap(service, table.set_column(0, "a", FULL.cast(pa.string())), parameters).table
    assert moved.select(["n", "g"]) == plain.select(["n", "g"])


def test_a_replacement_that_narrow_indices_cannot_number_is_refused() -> None:
    """A field keeps its type, also with a replacement next to 128 values."""
    lone = pa.table({"a": coded([f"a{i}" for i in range(128)]), "n": [0, *[1] * 127]})
    parameters = {"swap_fields": ["a"], "control_field": "n"}
    replaced = {"suppression": {"policy": "replace", "replacement": {"a": "other"}}}
    with pytest.raises(SourceError, match="can number; convert it to wider indices"):
        swap("CDSWAP", lone, parameters | replaced)


@pytest.mark.parametrize("nulls", ["swap", "keep"])
def test_a_swap_of_dictionaries_that_together_are_too_many_is_refused(nulls: str) -> None:
    """The values of the release do not fit its type, in memory and out of core."""
    table = pa.table({"a": FULL})
    parameters = {"swap_fields": ["a"], "nulls": nulls}
    with pytest.raises(SourceError, match="more values together than dictionary"):
        swap("DSWAP", table, parameters)
    with pytest.raises(SourceError, match="more values together than dictionary"):
        swap_out_of_core("DSWAP", table, parameters, 4096, 7)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float32(), pa.decimal64(9, 2), pa.bool_()])
def test_what_lies_below_a_null_is_not_moved(kind: pa.DataType) -> None:
    """Data below a null are not counted as a change and are not in the result."""
    data = pa.py_buffer(bytes(range(1, 129)))
    hidden = pa.Array.from_buffers(kind, 8, [pa.py_buffer(b"\x00"), data])
    moved, changed = permute(pa.chunked_array([hidden]), pairing_of(8, 1))
    assert changed == 0
    assert moved.null_count == 8
    found = moved.chunk(0).buffers()[1].to_pybytes()
    assert found == bytes(len(found))


def test_field_metadata_and_nullability_are_kept() -> None:
    """A field that is not nullable becomes nullable only if a value was nulled."""
    field = pa.field("v", pa.int64(), nullable=False, metadata={"unit": "EUR"})
    schema = pa.schema([field, pa.field("c", pa.string())], metadata={"made": "by hand"})
    pairs = pa.table([pa.array([1, 2]), pa.array(["a", "a"])], schema=schema)
    assert swap("DSWAP", pairs, {"swap_fields": ["v"]}).table.schema.equals(schema, check_metadata=True)
    alone = pairs.slice(0, 1)
    nulled = swap("DSWAP", alone, {"swap_fields": ["v"]}).table.schema
    assert nulled.field("v") == field.with_nullable(True)
    assert nulled.field("v").metadata == {b"unit": b"EUR"}
    assert nulled.metadata == {b"made": b"by hand"}
    kept = swap("DSWAP", alone, {"swap_fields": ["v"], "suppression": {"policy": "keep"}}).table.schema
    assert kept.equals(schema, check_metadata=True)


def test_a_dictionary_of_lists_is_shuffled_out_of_core() -> None:
    """Its parts have dictionaries of their own, which are joined."""
    indices = pa.array([0, 1, None, 1] * 100)
    lists = pa.DictionaryArray.from_arrays(indices, pa.array([["a"], ["b", "c"]]))
    table = pa.table({"x": np.arange(400.0) ** 2, "y": np.sin(np.arange(400)), "lists": lists})
    parameters = {"fields": ["x", "y"]}
    found = swap_out_of_core("PABIDOT", table, parameters, 4096, 100)
    expected = swap("PABIDOT", table, parameters)
    assert found.table.column("lists").to_pylist() == expected.table.column("lists").to_pylist()
