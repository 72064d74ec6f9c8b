"""Arrow columns as numpy words: null masks, take, put, gather, scatter.

A column keeps its type, whatever the type is; only its chunks may differ. Values of a fixed width are moved
as machine words (`providers.swapping.exchange.exchange`), all others by Arrow's ``take``. The data of a null
is zero in every column that this module creates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.arrays import BoolArray, IndexArray, Words
from providers.errors import ParameterError, SourceError
from providers.kernels.gather import gather, scatter
from providers.tables.encodings import run_end_decoded
from providers.tables.equality import equality_codes
from providers.tables.joining import arrow_take, in_one_array, joined_arrays, unified
from providers.tables.layouts import restored

TAKEN_AT_ONCE = 2**31 - 1
"""Most bytes of text that a chunk with 32-bit offsets can hold."""

_FEW = 2**17
"""Number of rows below which numpy gathers them before the threads of the kernel have started."""

_WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
"""Bits of a word -> numpy type."""

# ------------------------------------------------------------------------------------ numpy views


def combined(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array, without a copy if it has one chunk.

    Dictionaries of chunks that hold more values together than the index type can number get wider indices.
    Nested dictionaries that differ are put one after the other, and can name a value twice. A column to be
    published keeps its type, or raises, in `one_dictionary`.
    """
    if column.num_chunks == 1:
        return column.chunk(0)
    if len(column) == 0:  # Arrow cannot combine empty dictionaries of every type
        return pa.nulls(0, column.type)
    if pa.types.is_dictionary(column.type):
        if pa.types.is_null(column.type.value_type):  # Arrow cannot unify such dictionaries
            return pa.nulls(len(column), column.type)
        column = _unified(_without_null_entries(column))
    return in_one_array(column)


def _unified(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the dictionary column with one dictionary for all chunks, with indices as wide as it needs."""
    try:
        return unified(column)
    except pa.ArrowNotImplementedError:
        return _appended(column)
    except pa.ArrowInvalid:
        entries = sum(len(chunk.dictionary) for chunk in column.chunks)
        index_type = pa.int32() if entries < 2**31 else pa.int64()
        wide = [_indexed(chunk.indices.cast(index_type), chunk.dictionary, column) for chunk in column.chunks]
        return unified(pa.chunked_array(wide))


def _distinct(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the dictionary column, whose chunks share one dictionary, with each entry once."""
    entries = column.chunk(0).dictionary
    _, firsts, numbers = np.unique(equality_codes(entries), return_index=True, return_inverse=True)
    kept, renumbered = entries.take(pa.array(firsts)), pa.array(numbers)
    wide = [_indexed(renumbered.take(chunk.indices), kept, column) for chunk in column.chunks]
    return pa.chunked_array(wide)


def _appended(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the dictionary column with the dictionaries of its chunks one after the other.

    Chunks in a row whose dictionaries are equal share one.
    """
    dictionaries: list[pa.Array] = []
    indices = []
    start = 0
    for chunk in column.chunks:
        if not dictionaries or not chunk.dictionary.equals(dictionaries[-1]):
            start += len(dictionaries[-1]) if dictionaries else 0
            dictionaries.append(chunk.dictionary)
        indices.append(pc.add(chunk.indices.cast(pa.int64()), start))
    entries = joined_arrays(dictionaries)
    return pa.chunked_array([_indexed(pa.concat_arrays(indices), entries, column)])


def _indexed(indices: pa.Array, entries: pa.Array, column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return these indices of these entries, ordered like the column."""
    return pa.DictionaryArray.from_arrays(indices, entries, ordered=column.type.ordered)


def without_null_entries(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Move the nulls of a dictionary to its indices.

    Arrow can neither unify dictionaries that hold a null nor write them as Parquet. An array without such a
    null is not copied. O(rows + dictionary).
    """
    absent = null_mask(pa.chunked_array([array.dictionary]))
    if not absent.any():
        return array
    new_index = np.cumsum(~absent) - 1
    lookup = pa.array(new_index, mask=absent).cast(array.type.index_type)
    entries = take(pa.chunked_array([array.dictionary]), pa.array(np.flatnonzero(~absent)))
    indices = lookup.take(array.indices)
    return pa.DictionaryArray.from_arrays(indices, combined(entries), ordered=array.type.ordered)


def _without_null_entries(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([without_null_entries(chunk) for chunk in column.chunks], type=column.type)


def unwrapped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values below run-end encoding and extension types."""
    if isinstance(column.type, pa.BaseExtensionType):
        storage = [chunk.storage for chunk in column.chunks]
        return unwrapped(pa.chunked_array(storage, type=column.type.storage_type))
    if pa.types.is_run_end_encoded(column.type):
        decoded = [run_end_decoded(chunk) for chunk in column.chunks]
        return unwrapped(pa.chunked_array(decoded, type=None if decoded else column.type.value_type))
    return column


def null_mask(column: pa.ChunkedArray) -> BoolArray:
    """Mask of the null rows, encoded nulls included; shape (rows,)."""
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


def is_text(kind: pa.DataType) -> bool:
    """Whether values are texts or bytes of any length, found by offsets of 32 or 64 bits."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_binary(kind)
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
    )


def words_of(array: pa.Array) -> Words:
    """Return the data of an `is_words` array as unsigned words, read-only; undefined for a null."""
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
    """Return the Arrow array of these words; a row that is not `valid` is null."""
    data = np.packbits(words, bitorder="little") if pa.types.is_boolean(kind) else words
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(words), [mask, pa.py_buffer(data)])


def read_only(words: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view, like Arrow's words, so that one compiled kernel serves both."""
    view = words.view()
    view.flags.writeable = False
    return view


def encoded_as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a plain column in the extension type or run-end encoding `kind`."""
    return pa.chunked_array([restored(chunk, kind) for chunk in column.chunks], type=kind)


def one_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the dictionary column with one dictionary for all chunks."""
    if column.num_chunks < 2:
        return column
    if pa.types.is_null(column.type.value_type):
        return pa.chunked_array([combined(column)])
    column = _without_null_entries(column)
    if pa.types.is_nested(column.type.value_type):  # Arrow cannot unify these
        return _narrowed(_distinct(_appended(column)), column.type, None)
    try:
        return unified(column)
    except pa.ArrowInvalid as error:
        return _narrowed(_unified(column), column.type, error)


def _narrowed(column: pa.ChunkedArray, kind: pa.DataType, error: pa.ArrowInvalid | None) -> pa.ChunkedArray:
    """Return the unified column with the indices of `kind`, or raise SourceError from `error`.

    Arrow refuses to unify a dictionary of 2^7 entries with 8-bit indices, although these can number it.
    """
    entries = column.chunk(0).dictionary
    bits = kind.index_type.bit_width - pa.types.is_signed_integer(kind.index_type)
    if len(entries) > 2**bits:
        message = (
            f"the chunks and replacements of a field hold more values together than {kind} can number; "
            "convert it to wider indices, such as int32, or to plain values"
        )
        raise SourceError(message) from error
    # One chunk: Arrow would refuse to combine several, even if they share their dictionary.
    indices = pa.concat_arrays([chunk.indices for chunk in column.chunks]).cast(kind.index_type)
    return pa.chunked_array([_indexed(indices, entries, column)], type=kind)


def is_negative_scale(kind: pa.DataType) -> bool:
    """Whether the type is a decimal of negative scale, which Arrow moves but does not compare."""
    return bool(pa.types.is_decimal(kind) and kind.scale < 0)


def gathered(column: pa.ChunkedArray, rows: IndexArray) -> tuple[pa.ChunkedArray, BoolArray]:
    """Replace the value of each row by the value of another row; return it with the mask of changed rows.

    Parameters
    ----------
    column : pa.ChunkedArray
        Column of any type.
    rows : ndarray of int, shape (rows,)
        For each row the row whose value it gets; a row may occur any number of times.

    Notes
    -----
    Values are compared as in `providers.swapping.permute.permute`, with the same errors. O(rows).
    """
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_run_end_encoded(kind):
        moved, changed = gathered(unwrapped(column), rows)
        return encoded_as(moved, kind), changed
    if pa.types.is_dictionary(kind):
        array = combined(one_dictionary(column))
        indices, changed = gathered(pa.chunked_array([array.indices]), rows)
        if names_values_twice(array.dictionary):
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
    moved_words = _gathered_words(read_only(words), rows)
    moved_valid = _gathered_words(read_only(valid.view(np.uint8)), rows).view(np.bool_)
    changed = (moved_words != words) | (moved_valid != valid)
    return pa.chunked_array([words_array(moved_words, kind, moved_valid)]), changed


def _gathered_words(words: Words, rows: IndexArray) -> npt.NDArray[Any]:
    """Return the words of these rows."""
    if len(rows) < _FEW:
        return words.take(rows)
    moved = np.empty(len(rows), words.dtype)
    gather(words, rows, moved)
    return moved


def _differ(codes: npt.NDArray[np.int64], rows: IndexArray) -> BoolArray:
    """Mask of the rows whose code differs from that of the row from which they get their value."""
    return np.asarray(codes[rows] != codes)


def names_values_twice(dictionary: pa.Array) -> bool:
    """Whether two entries are equal or one is null, so that indices do not identify values."""
    codes = equality_codes(dictionary)
    return len(np.unique(codes)) < len(codes) or bool(dictionary.null_count)


# -------------------------------------------------------------------------------- take and put


def take(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    """Return the values of these rows in the same type; a null row number gives a null."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_run_end_encoded(kind):
        return encoded_as(take(unwrapped(column), rows), kind)
    if pa.types.is_dictionary(kind):
        column = one_dictionary(column)
    wide = _wider().get(kind)
    if wide is not None and (column.nbytes > TAKEN_AT_ONCE or kind in (pa.string_view(), pa.binary_view())):
        texts = combined(column.cast(wide).take(rows))
        return pa.chunked_array([text.cast(kind) for text in _slices(texts)], type=kind)
    return arrow_take(column, rows)


@cache
def _wider() -> dict[pa.DataType, pa.DataType]:
    """Map each type of which Arrow cannot take rows, or not beyond 2 GiB, to the type to take them from."""
    return {
        pa.string(): pa.large_string(),
        pa.binary(): pa.large_binary(),
        pa.string_view(): pa.large_string(),
        pa.binary_view(): pa.large_binary(),
    }


def _slices(array: pa.Array) -> list[pa.Array]:
    """Cut a large text array into slices of at most `TAKEN_AT_ONCE` bytes."""
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, 8 * array.offset)
    slices, start = [], 0
    while start < len(array):
        end = int(np.searchsorted(offsets, offsets[start] + TAKEN_AT_ONCE, side="right")) - 1
        slices.append(array.slice(start, max(end, start + 1) - start))
        start = max(end, start + 1)
    return slices


def scattered(column: pa.ChunkedArray, places: IndexArray) -> pa.ChunkedArray:
    """Return the column with the value of row i at ``places[i]``, in the same type.

    Parameters
    ----------
    column : pa.ChunkedArray
    places : ndarray of int32 or int64, shape (rows,)
        Each row number once.

    Notes
    -----
    O(rows). Words without nulls are written to their places, which takes less time than to invert the places
    and let Arrow take the values.
    """
    if not has_words(column):
        return take(column, pa.array(inverse(places)))
    return pa.chunked_array([words_array(scattered_words(column, places), column.type, None)])


def has_words(column: pa.ChunkedArray) -> bool:
    """Whether the column holds `is_words` values without nulls."""
    return is_words(column.type) and not column.null_count


def scattered_words(column: pa.ChunkedArray, places: IndexArray) -> Words:
    """Return the words of a `has_words` column with that of row i at ``places[i]``, as `scattered` does."""
    chunks = [words_of(chunk) for chunk in column.chunks]
    moved = np.empty(len(places), chunks[0].dtype if chunks else np.uint8)
    first = 0
    for words in chunks:
        scatter(words, places[first : first + len(words)], moved)
        first += len(words)
    return moved


def inverse(places: IndexArray) -> IndexArray:
    """Return the row at each place, from the place of each row."""
    rows = np.empty_like(places)
    rows[places] = np.arange(len(places), dtype=places.dtype)
    return rows


def put(column: pa.ChunkedArray, rows: IndexArray, value: pa.Array) -> pa.ChunkedArray:
    """Set these rows to one value, an array of length 1 of the column's type."""
    source = np.arange(len(column), dtype=np.int64)
    absent = np.zeros(len(column), np.bool_)
    if value.null_count:
        absent[rows] = True
        return take(column, pa.array(source, mask=absent))
    source[rows] = len(column)
    return take(pa.chunked_array([*column.chunks, value], type=column.type), pa.array(source))


def take_rows(table: pa.Table, rows: IndexArray) -> pa.Table:
    """Return these rows of the table in the same schema."""
    indices = pa.array(rows)
    # One call of Arrow for the whole table: of few rows, a call for each column takes several times as long.
    if all(map(_is_taken_as_it_is, table.columns)):
        return table.take(indices)
    return pa.Table.from_arrays([take(column, indices) for column in table.columns], schema=table.schema)


def _is_taken_as_it_is(column: pa.ChunkedArray) -> bool:
    """Whether `take` leaves a column of this type, in these chunks, to Arrow."""
    kind = column.type.id
    return kind in _fixed_width() or (kind == pa.lib.Type_DICTIONARY and column.num_chunks == 1)


@cache
def _fixed_width() -> frozenset[int]:
    """Identifiers of plain types whose values have a fixed width."""
    plain = (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("s"), pa.duration("s")),
    )
    return frozenset(kind.id for kind in plain)


def unused(wish: str, names: Sequence[str]) -> str:
    """Return `wish` with as many underscores as make it different from all `names`."""
    while wish in names:
        wish += "_"
    return wish


def check_movable(field: pa.Field, pointer: str) -> None:
    """Raise ParameterError if Arrow cannot move values of the field's type."""
    if not _is_movable(field.type):
        raise ParameterError(
            f"field '{field.name}' has type {field.type}, whose values cannot be moved; "
            "cast it to a simpler type",
            pointer,
        )


@lru_cache(maxsize=1024)
def _is_movable(kind: pa.DataType) -> bool:
    """Whether Arrow can move values of the type. A trial for each of 100,000 fields takes ten seconds."""
    try:
        take(pa.chunked_array([], type=kind), pa.array([], pa.int32()))
    except pa.ArrowNotImplementedError:
        return False
    return True
