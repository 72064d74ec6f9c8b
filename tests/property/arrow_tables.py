"""Random Arrow tables of every type, and the same tables carried in another way.

Strategies are kept: Hypothesis examines each new one, which took longer than to draw from it.
"""

import math
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

ZONES = ["UTC", "Europe/Dublin", "America/St_Johns", "+05:30", "Mars/Olympus"]
UNITS = ["s", "ms", "us", "ns"]
PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


def integers_of(bits: int, signed: bool) -> st.SearchStrategy[int]:
    """All of a width, its ends more often than chance."""
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high) | st.sampled_from([low, 0, high])


@st.composite
def decimal_types(draw: st.DrawFn) -> pa.DataType:
    precision = draw(st.integers(1, 76))
    scale = draw(st.integers(-3, precision))
    return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale)


FLAT_TYPES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [
            *(pa.null(), pa.bool_(), pa.string(), pa.binary(), pa.date32()),
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
            *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(pa.float16(), pa.float32(), pa.float64()),
            *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
        ]
    ),
    decimal_types(),
    st.integers(0, 5).map(pa.binary),
    st.builds(pa.timestamp, st.sampled_from(UNITS), st.none() | st.sampled_from(ZONES)),
    st.builds(pa.duration, st.sampled_from(UNITS)),
)


def structs(children: st.SearchStrategy[Any], empty: bool) -> st.SearchStrategy[Any]:
    return st.dictionaries(NAMES, children, min_size=0 if empty else 1, max_size=3).map(
        lambda members: pa.struct(list(members.items()))
    )


@cache
def types(flat: st.SearchStrategy[Any] = FLAT_TYPES, empty_structs: bool = True) -> st.SearchStrategy[Any]:
    """Canonical types, nested ones too."""
    keys = flat.filter(lambda key: not pa.types.is_null(key))
    return st.recursive(
        flat,
        lambda children: st.one_of(
            children.map(pa.list_), structs(children, empty_structs), st.builds(pa.map_, keys, children)
        ),
        max_leaves=4,
    )


@lru_cache(maxsize=2000)
def values_of(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    """Values that `pa.array` takes for a canonical type, now and then None."""
    if pa.types.is_null(data_type):
        return st.none()
    return st.none() | _present(data_type)


@lru_cache(maxsize=2000)
def _present(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    kind = pa.types
    if kind.is_boolean(data_type):
        return st.booleans()
    if kind.is_integer(data_type):
        return integers_of(data_type.bit_width, kind.is_signed_integer(data_type))
    if kind.is_floating(data_type):
        return st.floats(width=data_type.bit_width) | st.sampled_from([0.0, -0.0, math.nan, math.inf, 5.0])
    if kind.is_decimal(data_type):
        most = 10**data_type.precision - 1
        scale = data_type.scale
        return st.integers(-most, most).map(
            lambda unscaled: Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
        )
    if kind.is_string(data_type):
        return TEXTS
    if kind.is_fixed_size_binary(data_type):
        return st.binary(min_size=data_type.byte_width, max_size=data_type.byte_width)
    if kind.is_binary(data_type):
        return st.binary(max_size=6)
    if kind.is_date(data_type):
        return integers_of(32, signed=True) | st.integers(-30_000, 30_000)
    if kind.is_time(data_type):
        return st.integers(0, PER_DAY[data_type.unit] - 1)
    if kind.is_interval(data_type):
        return st.tuples(integers_of(32, True), integers_of(32, True), integers_of(64, True))
    if kind.is_timestamp(data_type):
        near = 40_000 * PER_DAY[data_type.unit]
        return integers_of(64, signed=True) | st.integers(-near, near)
    if kind.is_duration(data_type):
        return integers_of(64, signed=True)
    if kind.is_map(data_type):
        keys, items = _present(data_type.key_type), values_of(data_type.item_type)
        return st.lists(st.tuples(keys, items), max_size=3)
    if kind.is_struct(data_type):
        return st.fixed_dictionaries({member.name: values_of(member.type) for member in data_type})
    return st.lists(values_of(data_type.value_type), max_size=3)


@st.composite
def tables(
    draw: st.DrawFn, of: st.SearchStrategy[Any] | None = None, min_fields: int = 0, max_fields: int = 4
) -> pa.Table:
    """A table whose fields have canonical types."""
    names = draw(st.lists(NAMES, min_size=min_fields, max_size=max_fields, unique=True))
    rows = draw(st.integers(0, 6))
    columns = []
    for _ in names:
        data_type = draw(types() if of is None else of)
        values = draw(st.lists(values_of(data_type), min_size=rows, max_size=rows))
        columns.append(pa.array(values, data_type))
    return pa.table(columns, names=names) if names else pa.table({})


# ------------------------------------------------------------------------- the same, carried otherwise


@st.composite
def carried_otherwise(draw: st.DrawFn, array: pa.Array) -> pa.Array:
    """The same values as a slice of a longer array, in another layout, at every depth."""
    array = _inside_otherwise(draw, array)
    kind = pa.types
    layouts = ["plain", "slice"]
    if kind.is_string(array.type):
        layouts += ["large_string", "string_view", "dictionary", "runs"]
    elif kind.is_binary(array.type):
        layouts += ["large_binary", "binary_view", "dictionary", "runs"]
    elif kind.is_list(array.type):
        layouts += ["large_list", "list_view", "hidden"]
    elif kind.is_date(array.type):
        layouts += ["date64"]
    elif kind.is_decimal128(array.type):
        layouts += ["decimal256"]
    elif kind.is_int64(array.type):
        layouts += ["dictionary", "runs", "hidden"]
    elif kind.is_struct(array.type) and array.type.num_fields:
        layouts += ["hidden"]
    match draw(st.sampled_from(layouts)):
        case "slice":
            return _slice_of_longer(array)
        case "large_string" | "large_binary" | "string_view" | "binary_view" | "date64" as name:
            return array.cast(getattr(pa, name)())
        case "dictionary":
            return array.dictionary_encode()
        case "runs":
            run_ends = pa.array(range(1, len(array) + 1), pa.int32())
            return pa.RunEndEncodedArray.from_arrays(run_ends, array)
        case "large_list":
            offsets = array.offsets.cast(pa.int64())  # a cast of the list loses elements of type null
            return pa.LargeListArray.from_arrays(offsets, array.values, mask=array.is_null())
        case "list_view":
            offsets = pa.array(array.offsets.to_pylist()[:-1], pa.int32())
            sizes = array.value_lengths().fill_null(0)
            return pa.ListViewArray.from_arrays(offsets, sizes, array.values, mask=array.is_null())
        case "decimal256":
            return array.cast(pa.decimal256(array.type.precision, array.type.scale))
        case "hidden":
            return _with_hidden_values(array)
    return array


def _slice_of_longer(array: pa.Array) -> pa.Array:
    if not len(array):
        return array
    try:
        longer = pa.concat_arrays([array.slice(0, 1), array, array.slice(len(array) - 1)])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # Arrow cannot join every layout
        return array
    return longer.slice(1, len(array))


def _with_hidden_values(array: pa.Array) -> pa.Array:
    """Nulls that still have something in the memory behind them."""
    null = array.is_null()
    if pa.types.is_int64(array.type):
        values = [7 if value is None else value for value in array.to_pylist()]
        return pa.array(values, array.type, mask=null.to_numpy(zero_copy_only=False))
    if pa.types.is_struct(array.type):
        children = [array.field(number) for number in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=null)
    if not len(array) or array.null_count:
        return array
    # the first list becomes null and keeps its elements; put a row before it, then cut it off
    mask = pa.array([True] + [False] * len(array))
    first = array.offsets[1].as_py() - array.offsets[0].as_py()
    values = pa.concat_arrays([array.slice(0, 1).flatten(), array.flatten()])
    offsets = [0, first, *(first + end - array.offsets[0].as_py() for end in array.offsets.to_pylist()[1:])]
    hidden = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=mask)
    return hidden.slice(1)


def _inside_otherwise(draw: st.DrawFn, array: pa.Array) -> pa.Array:
    kind = pa.types
    if kind.is_struct(array.type) and array.type.num_fields:
        children = [draw(carried_otherwise(child)) for child in array.flatten()]
        names = [member.name for member in array.type]
        return pa.StructArray.from_arrays(children, names, mask=array.is_null())
    if kind.is_list(array.type):
        values = draw(carried_otherwise(array.flatten()))
        lengths = array.value_lengths().fill_null(0).to_pylist()
        offsets = [sum(lengths[:row]) for row in range(len(lengths) + 1)]
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=array.is_null())
    return array


@st.composite
def another_carriage(draw: st.DrawFn, table: pa.Table) -> pa.Table:
    """The same table in other chunks, slices and encodings."""
    columns = []
    for column in table.columns:
        whole = column.combine_chunks()
        whole = whole if isinstance(whole, pa.Array) else whole.chunk(0)
        cut = draw(st.integers(0, len(whole)))
        parts = [whole.slice(0, cut), whole.slice(cut)]
        if draw(st.booleans()):
            columns.append(pa.chunked_array([draw(carried_otherwise(whole))]))
        else:
            columns.append(pa.chunked_array(parts, whole.type))
    return pa.table(columns, names=table.column_names) if columns else table
