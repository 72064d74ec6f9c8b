"""Remove dictionary, run-end, view and extension encodings from arrays.

An encoding of a column (a dictionary, runs, views, an extension over its storage) is no part of the data.
Code that reads values calls `plain`, and `list_lengths`, `list_children` and `struct_children` for the
elements of nested values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.tables.type_names import canonical_type, is_list


def plain(array: pa.Array) -> pa.Array:
    """Remove the outermost encodings of an array.

    The result is of a canonical type, or large_string, large_binary, or a list (of any layout), map or struct
    whose children may still be encoded. An array without an encoding is not copied.
    """
    kind = pa.types
    while True:
        data_type = array.type
        if isinstance(data_type, pa.BaseExtensionType):
            array = array.storage
        elif kind.is_dictionary(data_type):
            values = array.dictionary
            values = values if can_take(values.type) else canonical_array(values)
            array = values.take(array.indices)
        elif kind.is_run_end_encoded(data_type):
            array = run_end_decoded(array)
        else:
            break
    if kind.is_string_view(data_type):
        return without_hidden_views(array).cast(pa.large_string())
    if kind.is_binary_view(data_type):
        return without_hidden_views(array).cast(pa.large_binary())
    if kind.is_date64(data_type) or (kind.is_decimal(data_type) and canonical_type(data_type) != data_type):
        return array.cast(canonical_type(data_type))
    return array


def run_end_decoded(array: pa.Array) -> pa.Array:
    """Decode a run-end encoded array; values of which Arrow cannot take rows get their canonical type."""
    try:
        return pc.run_end_decode(array)
    except pa.ArrowNotImplementedError:  # no kernel for views, dictionaries and extensions
        rows = np.arange(array.offset, array.offset + len(array))
        run = np.searchsorted(np.asarray(array.run_ends), rows, side="right")
        values = array.values if can_take(array.values.type) else canonical_array(array.values)
        return values.take(pa.array(run))


def can_take(data_type: pa.DataType) -> bool:
    """Whether Arrow can `take` from arrays of this type; it has no kernel for views and runs."""
    kind = pa.types
    if isinstance(data_type, pa.BaseExtensionType):
        return can_take(data_type.storage_type)
    if kind.is_dictionary(data_type):
        return can_take(data_type.value_type)
    if kind.is_string_view(data_type) or kind.is_binary_view(data_type) or kind.is_run_end_encoded(data_type):
        return False
    return all(can_take(data_type.field(number).type) for number in range(data_type.num_fields))


def validity(array: pa.Array) -> npt.NDArray[np.uint8]:
    """Return 1 for each value of a plain array and 0 for each null; shape (rows,)."""
    return np.asarray(array.is_valid().cast(pa.uint8()))


def list_lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """Number of elements of each row of a list or map, 0 for a null; shape (rows,)."""
    return list_spans(array)[1]


def list_children(array: pa.Array) -> list[pa.Array]:
    """Return the elements of the rows that are not null, end to end: of a list one array, of a map two."""
    starts, lengths = list_spans(array)
    total = int(lengths.sum())
    children = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    if total == 0:
        return [child.slice(0, 0) for child in children]
    used = lengths > 0
    starts, lengths = starts[used], lengths[used]
    ends = starts + lengths
    first, last = int(starts.min()), int(ends.max())
    children = [child.slice(first, last - first) for child in children]
    if np.array_equal(ends[:-1], starts[1:]):
        return children
    before = np.cumsum(lengths) - lengths  # elements of the rows before
    elements = np.arange(total) + np.repeat(starts - first - before, lengths)
    return [
        (child if can_take(child.type) else canonical_array(child)).take(pa.array(elements))
        for child in children
    ]


def struct_children(array: pa.Array) -> list[pa.Array]:
    """Return one array per field of a struct, null where the struct is null."""
    if array.null_count == 0:
        return list(array.flatten())
    # flatten() cannot put a parent's nulls into runs, so runs are decoded first
    children = [plain(array.field(number)) for number in range(array.type.num_fields)]
    if not children:
        return []
    names = [str(number) for number in range(len(children))]
    return list(pa.StructArray.from_arrays(children, names, mask=array.is_null()).flatten())


def list_spans(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the start of each row's elements in the child, and their number (0 for a null)."""
    data_type, rows = array.type, len(array)
    if pa.types.is_fixed_size_list(data_type):
        width = data_type.list_size
        starts = (np.arange(rows) + array.offset) * width
        lengths = np.full(rows, width, np.int64)
    elif pa.types.is_list_view(data_type) or pa.types.is_large_list_view(data_type):
        starts = np.asarray(array.offsets).astype(np.int64)
        lengths = np.asarray(array.sizes).astype(np.int64)
    else:
        offsets = np.asarray(array.offsets).astype(np.int64)
        starts, lengths = offsets[:-1], np.diff(offsets)
    if array.null_count:
        lengths = lengths * validity(array)
    return starts, lengths


def without_hidden_views(array: pa.Array) -> pa.Array:
    """Return the views with zeros for nulls: Arrow's cast reads those views, but its validation does not."""
    if not array.null_count:
        return array
    _, stored, *data = array.buffers()
    valid = validity(array)
    views = np.frombuffer(stored, np.uint8, 16 * len(array), 16 * array.offset).reshape(-1, 16)
    shown = np.packbits(valid, bitorder="little")
    buffers = [pa.py_buffer(shown), pa.py_buffer(views * valid[:, None]), *data]
    return pa.Array.from_buffers(array.type, len(array), buffers)


def canonical_array(array: pa.Array) -> pa.Array:
    """Convert an array to its canonical type: encodings are removed at every depth."""
    wanted = canonical_type(array.type)
    if array.type == wanted:
        return array
    array = plain(array)
    if pa.types.is_struct(wanted):
        children = [canonical_array(child) for child in struct_children(array)]
        if not children:
            return array.cast(wanted)
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    if pa.types.is_map(wanted) or is_list(wanted):
        children = [canonical_array(child) for child in list_children(array)]
        return nested(wanted, list_lengths(array), validity(array) == 0, children)
    return array.cast(wanted)


def nested(
    data_type: pa.DataType,
    lengths: npt.NDArray[np.int64],
    null: npt.NDArray[np.bool_],
    children: list[pa.Array],
) -> pa.Array:
    """Build a list or map array.

    Parameters
    ----------
    data_type : pa.DataType
        Canonical list or map type.
    lengths : ndarray of int64, shape (rows,)
        Number of elements of each row, 0 for a null.
    null : ndarray of bool, shape (rows,)
        Mask of the null rows.
    children : list of pa.Array
        Elements of all rows, end to end: one array for a list, keys and items for a map.
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets.astype(np.int32, casting="same_kind"))]
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError("a column holds more than 2**31 - 1 list elements; split the table")
    if null.any():
        buffers[0] = pa.py_buffer(np.packbits(~null, bitorder="little"))
    if pa.types.is_map(data_type):
        fields = [data_type.key_field, data_type.item_field]
        children = [pa.StructArray.from_arrays(children, fields=fields)]
    return pa.Array.from_buffers(data_type, len(lengths), buffers, children=children)
