"""Integer codes that are equal exactly where values are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.tables.encodings import list_children, list_lengths, run_end_decoded, struct_children

Codes = npt.NDArray[np.int64]
"""Code of each row; -1 is null."""


def equality_codes(array: pa.Array) -> Codes:
    """Return a code for each value; two rows have the same code exactly if their values are equal.

    Floats are compared bit by bit, and null is equal to null. Dictionaries and run-end encodings are compared
    by the values that they encode, maps by their entries in order.

    Notes
    -----
    O(values), children included: every level is hashed once. A list is hashed as the bytes of its elements'
    codes, a struct as the bytes of its fields' codes.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return equality_codes(array.storage)
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if pa.types.is_run_end_encoded(kind):
        return equality_codes(run_end_decoded(array))
    if pa.types.is_dictionary(kind):
        entries = np.append(equality_codes(array.dictionary), -1)
        indices = array.indices.cast(pa.int64()).fill_null(len(entries) - 1)
        codes: Codes = entries[indices.to_numpy(zero_copy_only=False)]
        null_entries = array.dictionary.is_null().to_numpy(zero_copy_only=False)
        if null_entries.any():  # an encoded null is a null
            codes[np.isin(codes, entries[:-1][null_entries])] = -1
        return codes
    if pa.types.is_union(kind):
        return _union_codes(array)
    if pa.types.is_struct(kind):
        children = [equality_codes(child) for child in struct_children(array)]
        codes = _joined(np.stack(children, axis=1)) if children else np.zeros(len(array), np.int64)
        return _with_nulls(array, codes)
    if pa.types.is_nested(kind):  # lists of every layout, and maps: lists of keys and items
        elements = [equality_codes(child) for child in list_children(array)]
        joined = elements[0] if len(elements) == 1 else _joined(np.stack(elements, axis=1))
        return _with_nulls(array, _list_codes(joined, list_lengths(array)))
    if pa.types.is_floating(kind):
        array = array.view(f"uint{kind.bit_width}")
    elif pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    indices = array.dictionary_encode().indices.cast(pa.int64()).fill_null(-1)
    return np.asarray(indices.to_numpy(zero_copy_only=False))


def _with_nulls(array: pa.Array, codes: Codes) -> Codes:
    """Return the codes with -1 for every null of the array."""
    return np.where(array.is_null().to_numpy(zero_copy_only=False), np.int64(-1), codes)


def _joined(codes: npt.NDArray[np.int64]) -> Codes:
    """Return one code for each row of codes, shape (rows, fields)."""
    width = 8 * codes.shape[1]
    data = pa.py_buffer(np.ascontiguousarray(codes))
    return equality_codes(pa.Array.from_buffers(pa.binary(width), len(codes), [None, data]))


def _list_codes(elements: Codes, lengths: Codes) -> Codes:
    """Return one code for each list, from the codes of all elements end to end."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(8 * lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(elements)]
    return equality_codes(pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers))


def _union_codes(array: pa.UnionArray) -> Codes:
    """Return one code for each value of a union: its type code and the code of its child."""
    type_codes = array.type_codes.to_numpy(zero_copy_only=False)
    dense = array.type.mode == "dense"
    codes = np.zeros((len(array), 2), np.int64)
    for number, type_code in enumerate(array.type.type_codes):
        of_type = np.flatnonzero(type_codes == type_code)
        child = equality_codes(array.field(number))
        offsets = array.offsets.to_numpy(zero_copy_only=False)[of_type] if dense else of_type
        codes[of_type] = np.stack([np.full(len(of_type), type_code), child[offsets]], axis=1)
    return _joined(codes)
