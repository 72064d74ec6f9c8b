"""Arrays without hidden data, as they leave the service.

An Arrow array holds more than the values of its rows. The entries of a dictionary have an order, which is
usually that of their first occurrence in the source, and entries stay although no row has them any more, such
as suppressed values. There may be a value beneath a null. A destination takes all this over from its source,
so that a reader of its file could undo a swap without the seed.

Here each dictionary is made again from the rows that are written, in the order of their first occurrence.
Data beneath nulls are zero or gone. The entries of an ordered dictionary are levels that its sender has
declared, in an order that has a meaning: they stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.tables.columns import (
    names_values_twice,
    take,
    without_null_entries,
    words_array,
    words_of,
)
from providers.tables.encodings import can_take, list_children, list_lengths, validity
from providers.tables.equality import equality_codes
from providers.tables.joining import in_one_array, joined_arrays
from providers.tables.type_names import has_dictionary


def released(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches without hidden data."""
    written = [WrittenDictionary() for _ in schema]
    for batch in batches:
        columns = [one.array(column) for one, column in zip(written, batch.columns, strict=True)]
        if all(column is given for column, given in zip(columns, batch.columns, strict=True)):
            yield batch
        else:
            yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class WrittenDictionary:
    """Dictionary of one field as it was written last; the next batch keeps it if it has all its values."""

    def __init__(self) -> None:
        self._source: pa.Array | None = None
        """Dictionary of the last batch as it was given."""
        self._entries: pa.Array | None = None
        """The same as it was written."""
        self._places: npt.NDArray[np.int64] = np.empty(0, np.int64)
        """Entry of the given dictionary -> entry of the written one; -1: not written."""

    def array(self, array: pa.Array) -> pa.Array:
        """Return the array of a batch as it is written."""
        if not pa.types.is_dictionary(array.type):
            return released_array(array)
        kind = array.type
        if kind.ordered:
            indices = released_array(array.indices)
            return pa.DictionaryArray.from_arrays(indices, array.dictionary, ordered=True)
        array = without_null_entries(array)
        valid, indices = _indices(array)
        if self._source is None or not self._source.equals(array.dictionary):
            self._places = np.empty(0, np.int64)
        places = self._places[indices[valid]] if len(self._places) else np.empty(0, np.int64)
        if self._entries is None or len(places) != valid.sum() or (places < 0).any():
            self._source = array.dictionary
            self._places, used = _own_places(array, indices[valid])
            own = _entries(array.dictionary, used)
            kept = None if self._entries is None else _places_in(self._entries, own)
            if kept is None:
                self._entries = own
            else:  # another dictionary of the source has no other values
                self._places = np.append(kept, -1)[self._places]
            places = self._places[indices[valid]]
        return _dictionary_array(kind, self._entries, places, valid)


def released_array(array: pa.Array) -> pa.Array:
    """Return the same values without hidden data; the array itself if it has none.

    Types that no stored table has (`providers.tables.layouts`) are left as they are.
    """
    kind = array.type
    if not can_take(kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        storage = released_array(array.storage)
        return array if storage is array.storage else pa.ExtensionArray.from_storage(kind, storage)
    if pa.types.is_dictionary(kind):
        return WrittenDictionary().array(array)
    if pa.types.is_nested(kind):
        return _nested(array) if array.null_count or has_dictionary(kind) else array
    if not array.null_count or pa.types.is_null(kind):
        return array
    if pa.types.is_boolean(kind):
        return words_array(words_of(array), kind, validity(array).view(np.bool_))
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return _with_zeros(array)
    return in_one_array(take(pa.chunked_array([array]), pa.array(np.arange(len(array)))))


def _nested(array: pa.Array) -> pa.Array:
    """Build a struct, list or map again from the elements that its rows refer to."""
    kind = array.type
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return array
        children = [released_array(child) for child in _children(array)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        (elements,), sizes = list_children(array), list_lengths(array)
        offset, size = (pa.array(each, pa.int64()) for each in (np.cumsum(sizes) - sizes, sizes))
        if pa.types.is_list_view(kind):
            offset, size = offset.cast(pa.int32()), size.cast(pa.int32())
        return type(array).from_arrays(offset, size, released_array(elements), type=kind, mask=mask)
    # The elements of the rows alone, end to end.
    array = array.take(pa.array(np.arange(len(array))))
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(released_array(array.values), type=kind, mask=mask)
    if pa.types.is_map(kind):
        pairs = [released_array(child) for child in (array.keys, array.items)]
        return pa.MapArray.from_arrays(array.offsets, *pairs, type=kind, mask=mask)
    return type(array).from_arrays(array.offsets, released_array(array.values), type=kind, mask=mask)


def _children(array: pa.Array) -> list[pa.Array]:
    """Return one array of its own type per field of a struct, null where the struct is null."""
    children = [array.field(number) for number in range(array.type.num_fields)]
    if not array.null_count:
        return children
    rows = pa.array(np.arange(len(array)), mask=np.asarray(array.is_null()))
    return [child.take(rows) for child in children]


def _with_zeros(array: pa.Array) -> pa.Array:
    """Return an array of a fixed number of bytes a value with zeros for nulls."""
    width = array.type.bit_width // 8
    if not width:
        return array
    valid = validity(array)
    data = array.buffers()[1]
    values = np.frombuffer(data, np.uint8, len(array) * width, array.offset * width).reshape(-1, width)
    buffers = [pa.py_buffer(np.packbits(valid, bitorder="little")), pa.py_buffer(values * valid[:, None])]
    return pa.Array.from_buffers(array.type, len(array), buffers)


def _indices(array: pa.DictionaryArray) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return the mask of the rows that are not null, and the entry of each row; shape (rows,)."""
    valid = validity(array.indices).view(np.bool_)
    return valid, np.asarray(array.indices.fill_null(0).cast(pa.int64()))


def _own_places(
    array: pa.DictionaryArray, indices: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the new place of each entry, -1 if no row has it, and the entries in their new order.

    Of several equal entries one is kept. ``indices``: entry of each row that is not null.
    """
    entries = len(array.dictionary)
    first = np.arange(entries)  # of equal entries
    if names_values_twice(array.dictionary):
        _, at, code = np.unique(equality_codes(array.dictionary), return_index=True, return_inverse=True)
        first = at[code]
    used = np.asarray(pc.unique(pa.array(first[indices])))  # in the order of their first occurrence
    places = np.full(entries, -1, np.int64)
    places[used] = np.arange(len(used))
    return np.asarray(places[first]), used


def _places_in(entries: pa.Array, values: pa.Array) -> npt.NDArray[np.int64] | None:
    """Return the place of each value among the entries; None if a value is no entry."""
    _, codes = np.unique(equality_codes(joined_arrays([entries, values])), return_inverse=True)
    places = np.full(len(codes), -1, np.int64)
    places[codes[: len(entries)]] = np.arange(len(entries))
    found: npt.NDArray[np.int64] = places[codes[len(entries) :]]
    return None if (found < 0).any() else found


def _entries(dictionary: pa.Array, used: npt.NDArray[np.int64]) -> pa.Array:
    entries = take(pa.chunked_array([dictionary]), pa.array(used, pa.int64()))
    return released_array(in_one_array(entries))


def _dictionary_array(
    kind: pa.DictionaryType,
    entries: pa.Array,
    places: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_],
) -> pa.DictionaryArray:
    indices = np.zeros(len(valid), np.int64)
    indices[valid] = places
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=~valid).cast(kind.index_type), entries)
