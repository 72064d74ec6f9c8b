"""Arrow columns as numpy arrays, and values moved between their rows without being parsed.

A column goes in and comes out with its type unchanged, whatever the type; only its chunks may
differ. Values of a fixed width move as machine words by `providers.kernels.exchange`; all else
moves by Arrow's ``take``. What lies below a null is zero in every column made here.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.equality import equality_codes
from providers.errors import ParameterError, SourceError
from providers.groups import Pairing, Workspace
from providers.kernels import exchange, gather, sources
from providers.radix import IndexArray

BoolArray = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.uint32] | npt.NDArray[np.uint64]

TAKEN_AT_ONCE = 2**31 - 1
"""Bytes of text that one chunk of 32-bit offsets can hold."""

_FEW = 2**17  # rows that are gathered sooner than threads are started

_WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


# ------------------------------------------------------------------------------------ numpy views


def combined(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array; without a copy where it has one chunk."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if len(column) == 0:  # Arrow cannot combine empty dictionaries of every type
        return pa.nulls(0, column.type)
    if pa.types.is_dictionary(column.type):
        if pa.types.is_null(column.type.value_type):  # whose dictionaries Arrow cannot unify: all is null
            return pa.nulls(len(column), column.type)
        column = column.unify_dictionaries()
    return column.combine_chunks()


def unwrapped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without run-end encoding and extension types: the values that lie below."""
    if isinstance(column.type, pa.BaseExtensionType):
        storage = [chunk.storage for chunk in column.chunks]
        return unwrapped(pa.chunked_array(storage, type=column.type.storage_type))
    if pa.types.is_run_end_encoded(column.type):
        return unwrapped(pc.run_end_decode(column))
    return column


def null_mask(column: pa.ChunkedArray) -> BoolArray:
    """Where the column is null, an encoded null included; shape (rows,)."""
    column = unwrapped(column)
    if pa.types.is_dictionary(column.type):
        array = combined(column)
        null_entries = null_mask(pa.chunked_array([array.dictionary]))
        mask: BoolArray = array.indices.is_null().to_numpy(zero_copy_only=False)
        if null_entries.any():
            mask |= null_entries[array.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        return mask
    if column.null_count == 0 and not pa.types.is_union(column.type):
        return np.zeros(len(column), np.bool_)
    return np.asarray(combined(column.is_null()).to_numpy(zero_copy_only=False))


def is_words(kind: pa.DataType) -> bool:
    """Whether values of the type are words of 1, 2, 4 or 8 bytes, or booleans."""
    if pa.types.is_fixed_size_binary(kind):
        return kind.byte_width in (1, 2, 4, 8)
    return pa.types.is_boolean(kind) or (
        (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)) and kind.bit_width in _WORDS
    )


def words_of(array: pa.Array) -> Words:
    """The data of an `is_words` array as unsigned words, read-only; undefined below a null."""
    if pa.types.is_boolean(array.type):
        words: Words = array.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8)
    else:
        data, width = array.buffers()[1], array.type.bit_width // 8
        word = _WORDS[8 * width]
        if data is None or len(array) == 0:
            words = np.zeros(len(array), word)
        else:
            words = np.frombuffer(data, word, len(array), array.offset * width)
    words = words.view()
    words.flags.writeable = False
    return words


def words_array(words: Words, kind: pa.DataType, valid: BoolArray | None) -> pa.Array:
    """The Arrow array of these words; null where not valid."""
    data = np.packbits(words, bitorder="little") if pa.types.is_boolean(kind) else words
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(words), [mask, pa.py_buffer(data)])


# ----------------------------------------------------------------------------------- moving values


def permute(
    column: pa.ChunkedArray, pairing: Pairing, last: bool = False, workspace: Workspace | None = None
) -> tuple[pa.ChunkedArray, int]:
    """The column after the exchange, and the number of rows whose value differs.

    ``last``: nobody needs the pairing's order any more; ``workspace``: where values are laid out (both as
    `providers.kernels.exchange`).

    Values differ when their bits do (NaN is itself, -0.0 is not 0.0); null is equal to null.

    Raises
    ------
    SourceError
        The chunks' dictionaries together do not fit the dictionary type.

    Notes
    -----
    O(rows): about three passes over fixed-width values, a random gather and a comparison for the
    rest. Nested values are compared by `equality_codes`, which hashes every value of the column.
    """
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_run_end_encoded(kind):
        moved, changed = permute(unwrapped(column), pairing)
        return _encoded_as(moved, kind), changed
    if pa.types.is_dictionary(kind):
        return _permute_dictionary(column, pairing)
    if not is_words(kind):
        return _permute_by_take(column, pairing)
    array = combined(column)
    words = words_of(array)
    if array.null_count == 0:
        moved_words, differing = exchange(words, pairing, last, workspace)
        return pa.chunked_array([words_array(moved_words, kind, None)]), differing
    valid: BoolArray = array.is_valid().to_numpy(zero_copy_only=False)
    words = np.where(valid, words, words.dtype.type(0))
    moved_words, _ = exchange(_read_only(words), pairing, workspace=workspace)
    moved_valid, _ = exchange(_read_only(valid.view(np.uint8)), pairing, workspace=workspace)
    changed = int(np.count_nonzero((moved_words != words) | (moved_valid != valid)))
    return pa.chunked_array([words_array(moved_words, kind, moved_valid)]), changed


def _read_only(words: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same words, read-only like Arrow's: one compiled kernel serves both."""
    view = words.view()
    view.flags.writeable = False
    return view


def _encoded_as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The plain column in the extension type or run-end encoding that it came from."""
    if isinstance(kind, pa.BaseExtensionType):
        stored = _encoded_as(column, kind.storage_type)
        chunks = [pa.ExtensionArray.from_storage(kind, chunk) for chunk in stored.chunks]
        return pa.chunked_array(chunks, type=kind)
    if pa.types.is_run_end_encoded(kind):
        chunks = [
            pc.run_end_encode(chunk, run_end_type=kind.run_end_type)
            for chunk in _encoded_as(column, kind.value_type).chunks
        ]
        return pa.chunked_array(chunks, type=kind)
    return column


def _permute_dictionary(column: pa.ChunkedArray, pairing: Pairing) -> tuple[pa.ChunkedArray, int]:
    kind = column.type
    array = combined(_one_dictionary(column))
    indices, changed = permute(pa.chunked_array([array.indices]), pairing)
    if _names_values_twice(array.dictionary):
        changed = int(np.count_nonzero(equality_codes(array)[sources(pairing)] != equality_codes(array)))
    moved = pa.DictionaryArray.from_arrays(combined(indices), array.dictionary, ordered=kind.ordered)
    return pa.chunked_array([moved], type=kind), changed


def _one_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The dictionary column with one dictionary for all chunks."""
    if column.num_chunks < 2:
        return column
    if pa.types.is_null(column.type.value_type):
        return pa.chunked_array([combined(column)])
    first = column.chunk(0).dictionary
    if pa.types.is_nested(column.type.value_type):  # which Arrow cannot unify, but may be the same
        if all(chunk.dictionary.equals(first) for chunk in column.chunks):
            indices = pa.chunked_array([chunk.indices for chunk in column.chunks])
            ordered = column.type.ordered
            array = pa.DictionaryArray.from_arrays(combined(indices), first, ordered=ordered)
            return pa.chunked_array([array], type=column.type)
        raise SourceError(f"chunks of type {column.type} must share one dictionary")
    try:
        return column.unify_dictionaries()
    except pa.ArrowInvalid as error:
        raise SourceError(
            f"the dictionaries of the chunks hold more values together than {column.type} can number"
        ) from error


def _permute_by_take(column: pa.ChunkedArray, pairing: Pairing) -> tuple[pa.ChunkedArray, int]:
    rows = sources(pairing)
    moved = take(column, pa.array(rows))
    if pa.types.is_null(column.type):
        return moved, 0
    if pa.types.is_nested(column.type) or pa.types.is_interval(column.type):
        codes = equality_codes(combined(column))
        return moved, int(np.count_nonzero(codes[rows] != codes))
    differs = pc.not_equal(column, moved).fill_null(False)
    if column.null_count:
        differs = pc.or_(differs, pc.xor(column.is_null(), moved.is_null()))
    return moved, int(pc.sum(differs).as_py() or 0)


def gathered(column: pa.ChunkedArray, rows: IndexArray) -> tuple[pa.ChunkedArray, BoolArray]:
    """The column with the values of these rows, one for each of its own, and which rows' values differ.

    A row may give its value to any number of others. What differs is as for `permute`, and so are the
    errors. O(rows).
    """
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_run_end_encoded(kind):
        moved, changed = gathered(unwrapped(column), rows)
        return _encoded_as(moved, kind), changed
    if pa.types.is_dictionary(kind):
        array = combined(_one_dictionary(column))
        indices, changed = gathered(pa.chunked_array([array.indices]), rows)
        if _names_values_twice(array.dictionary):
            changed = _differ(equality_codes(array), rows)
        entries = pa.DictionaryArray.from_arrays(combined(indices), array.dictionary, ordered=kind.ordered)
        return pa.chunked_array([entries], type=kind), changed
    if not is_words(kind):
        moved = take(column, pa.array(rows))
        return moved, _differ(equality_codes(combined(column)), rows)
    array = combined(column)
    words = words_of(array)
    if array.null_count == 0:
        moved_words = _gathered_words(words, rows)
        return pa.chunked_array([words_array(moved_words, kind, None)]), moved_words != words
    valid: BoolArray = array.is_valid().to_numpy(zero_copy_only=False)
    words = np.where(valid, words, words.dtype.type(0))
    moved_words = _gathered_words(_read_only(words), rows)
    moved_valid = _gathered_words(_read_only(valid.view(np.uint8)), rows).view(np.bool_)
    changed = (moved_words != words) | (moved_valid != valid)
    return pa.chunked_array([words_array(moved_words, kind, moved_valid)]), changed


def _gathered_words(words: Words, rows: IndexArray) -> npt.NDArray[Any]:
    if len(rows) < _FEW:
        return words.take(rows)
    moved = np.empty(len(rows), words.dtype)
    gather(words, rows, moved)
    return moved


def _differ(codes: npt.NDArray[np.int64], rows: IndexArray) -> BoolArray:
    return np.asarray(codes[rows] != codes)


def _names_values_twice(dictionary: pa.Array) -> bool:
    """Whether two entries are one value, or one is null: then indices do not tell values apart."""
    codes = equality_codes(dictionary)
    return len(np.unique(codes)) < len(codes) or bool(dictionary.null_count)


# -------------------------------------------------------------------------------- taking and putting


def take(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    """The values of these rows, null for a null row number; the type stays."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_run_end_encoded(kind):
        return _encoded_as(take(unwrapped(column), rows), kind)
    if pa.types.is_dictionary(kind):
        column = _one_dictionary(column)
    wide = _WIDER.get(kind)
    if wide is not None and (column.nbytes > TAKEN_AT_ONCE or kind in (pa.string_view(), pa.binary_view())):
        taken = combined(column.cast(wide).take(rows))
        return pa.chunked_array([piece.cast(kind) for piece in _pieces(taken)], type=kind)
    return column.take(rows)


_WIDER = {
    pa.string(): pa.large_string(),
    pa.binary(): pa.large_binary(),
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}
"""Types that Arrow cannot take from, or not beyond 2 GiB -> the one to take from in their place."""


def _pieces(array: pa.Array) -> list[pa.Array]:
    """Slices of a large text array that each fit `TAKEN_AT_ONCE` bytes."""
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, 8 * array.offset)
    pieces, start = [], 0
    while start < len(array):
        end = int(np.searchsorted(offsets, offsets[start] + TAKEN_AT_ONCE, side="right")) - 1
        pieces.append(array.slice(start, max(end, start + 1) - start))
        start = max(end, start + 1)
    return pieces


def put(column: pa.ChunkedArray, rows: IndexArray, value: pa.Array) -> pa.ChunkedArray:
    """The column with one value (an array of length 1, of the column's type) in these rows."""
    source = np.arange(len(column), dtype=np.int64)
    absent = np.zeros(len(column), np.bool_)
    if value.null_count:
        absent[rows] = True
        return take(column, pa.array(source, mask=absent))
    source[rows] = len(column)
    return take(pa.chunked_array([*column.chunks, value], type=column.type), pa.array(source))


def take_rows(table: pa.Table, rows: IndexArray) -> pa.Table:
    """These rows of the table, all fields as they are."""
    indices = pa.array(rows)
    return pa.Table.from_arrays([take(column, indices) for column in table.columns], schema=table.schema)


def check_movable(field: pa.Field, pointer: str) -> None:
    """Raise ParameterError where Arrow has no way to move values of the field's type."""
    if pa.types.is_decimal(field.type) and field.type.scale < 0:
        raise ParameterError(
            f"field '{field.name}' has type {field.type}, which Arrow cannot compare; "
            "use a scale of 0 or more",
            pointer,
        )
    try:
        take(pa.chunked_array([], type=field.type), pa.array([], pa.int32()))
    except pa.ArrowNotImplementedError as error:
        raise ParameterError(
            f"field '{field.name}' has type {field.type}, whose values cannot be moved; "
            "cast it to a simpler type",
            pointer,
        ) from error
