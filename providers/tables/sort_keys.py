"""Order-preserving uint64 keys for columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.arrays import BoolArray, UInt64Array, Words
from providers.errors import ParameterError
from providers.kernels.parallel import ROWS_OF_A_THREAD, parallel, ranges_of
from providers.numba import prange
from providers.tables.columns import combined, is_words, null_mask, unwrapped, words_of

_LARGEST = 2**64 - 1


def is_orderable(kind: pa.DataType) -> bool:
    """Whether values of the type have an order: numbers, dates, times, text, bytes, booleans and null."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return not (pa.types.is_nested(kind) or pa.types.is_interval(kind))


def check_orderable(field: pa.Field, pointer: str = "") -> None:
    """Raise ParameterError if the field cannot be a control field."""
    if not is_orderable(field.type):
        raise ParameterError(
            f"control field '{field.name}' has type {field.type}; a control field holds numbers, "
            "dates, times, text, bytes or booleans",
            pointer,
        )


def sort_keys(column: pa.ChunkedArray, name: str = "") -> list[UInt64Array]:
    """Return keys that order the rows as the column's values do, most significant array first.

    Numbers, dates, times and durations are ascending, with -0.0 equal to 0.0 and NaN after all numbers. False
    is before true. Text is ordered by code points, bytes by bytes. Nulls are last. Equal keys mean equal
    values.

    Raises
    ------
    ParameterError
        The type has no order: lists, structs, maps, unions, calendar intervals.

    Notes
    -----
    Keys count from the smallest value, and those of floats in units of the lowest bit that varies, which is
    far up in whole numbers. So the radix sort (`providers.kernels.radix_sort`) needs few passes. O(rows), and
    O(d log d) for the d distinct values of a text field.
    """
    check_orderable(pa.field(name, column.type))
    column = unwrapped(column)
    kind = column.type
    if pa.types.is_null(kind):
        return [np.zeros(len(column), np.uint64)]
    if is_text(kind) or pa.types.is_dictionary(kind):
        codes, values = distinct(column)
        return [np.append(ranks(values), np.uint64(len(values)))[codes]]
    valid = ~null_mask(column)
    if is_words(kind):
        return _nulls_last([_word_keys(combined(column), valid)], valid)
    return _nulls_last(_wide_decimal_keys(combined(column), valid), valid)


def is_text(kind: pa.DataType) -> bool:
    """Whether a plain, orderable type that is no dictionary holds text or bytes."""
    return not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_dictionary(kind))


def distinct(column: pa.ChunkedArray) -> tuple[npt.NDArray[Any], pa.Array]:
    """Return the index of each row's value among the distinct values, and these values.

    The distinct values hold no null; a null row has the index after the last. They are in order of their
    first occurrence, in the plain type below a dictionary or a run-end encoding.
    """
    column = unwrapped(column)
    kind = column.type
    if pa.types.is_dictionary(kind):
        array = combined(column)
        entries, values = distinct(pa.chunked_array([array.dictionary]))
        entries = np.append(entries, len(values))
        indices = array.indices.cast(pa.int64()).fill_null(len(entries) - 1)
        return entries[indices.to_numpy(zero_copy_only=False)], values
    wide = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        wide = (
            (pa.large_string() if pa.types.is_string(kind) else pa.large_binary())
            if column.nbytes >= 2**31
            else None
        )
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        wide = pa.decimal128(kind.precision, kind.scale)
    encoded = combined((column.cast(wide) if wide else column).dictionary_encode())
    values = encoded.dictionary
    codes = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    return codes, values


def ranks(values: pa.Array) -> UInt64Array:
    """Return the rank of each value; equal values, such as 0.0 and -0.0, have equal ranks."""
    ranks = np.zeros(len(values), np.uint64)
    if not len(values):
        return ranks
    if is_text(values.type):
        ranks[pc.array_sort_indices(values).to_numpy(zero_copy_only=False)] = np.arange(len(values))
        return ranks
    keys = sort_keys(pa.chunked_array([values]))
    order = np.lexsort(keys[::-1])
    is_new = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
    ranks[order[1:]] = np.cumsum(is_new)
    return ranks


def _word_keys(array: pa.Array, valid: BoolArray) -> UInt64Array:
    """Return keys of fixed-width values, 0 for the smallest; undefined for rows that are not valid."""
    kind, words = array.type, words_of(array)
    keys: UInt64Array
    if pa.types.is_floating(kind):
        keys = float_keys(words)
    elif pa.types.is_unsigned_integer(kind) or pa.types.is_boolean(kind):
        keys = words.astype(np.uint64)
    else:  # integers, dates, times, durations, small decimals: counted from the smallest, they wrap
        signed = words.view(f"i{words.dtype.itemsize}").astype(np.int64, copy=False)
        counted = signed if valid.all() else signed[valid]
        smallest = counted.min() if len(counted) else np.int64(0)
        return np.subtract(signed, smallest).view(np.uint64)
    present = keys if valid.all() else keys[valid]
    if len(present):
        ranges = ranges_of(len(present))
        smallest, varying = np.empty(ranges, np.uint64), np.empty(ranges, np.uint64)
        _find_range(present, smallest, varying)
        bits = int(np.bitwise_or.reduce(varying))
        constant = max(0, (bits & -bits).bit_length() - 1)
        _count_from(keys, smallest.min(), np.uint64(constant))
    return keys


@parallel
def _find_range(keys, smallest, varying):
    """Find the smallest key of each of equal ranges of rows, and the bits that vary.

    Parameters
    ----------
    keys : uint64, shape (rows,)
        At least one key.
    smallest : uint64, shape (ranges,)
        Receives the smallest keys; 2^64 - 1 for an empty range.
    varying : uint64, shape (ranges,)
        Receives the bits in which a key differs from the first key of all.
    """
    ranges = len(smallest)
    for chunk in prange(ranges):
        least = np.uint64(_LARGEST)
        bits = np.uint64(0)
        for row in range(len(keys) * chunk // ranges, len(keys) * (chunk + 1) // ranges):
            key = keys[np.uint64(row)]
            least = min(least, key)
            bits |= key ^ keys[0]
        smallest[chunk] = least
        varying[chunk] = bits


@parallel(least=ROWS_OF_A_THREAD)
def _count_from(keys, smallest, constant):
    """Count the keys from the smallest one, in units of their lowest bit that varies, in place.

    Parameters
    ----------
    keys : uint64, shape (rows,)
        Written.
    smallest, constant : uint64
        Smallest key, and number of lowest bits that are the same in all keys.
    """
    for row in prange(len(keys)):
        keys[row] = (keys[row] - smallest) >> constant


def float_keys(words: Words) -> UInt64Array:
    """Return keys that order floats; 0.0 and -0.0 have the same key, and so have all NaN, which are last."""
    bits = 8 * words.dtype.itemsize
    infinity = np.array(np.inf, f"f{words.dtype.itemsize}").view(words.dtype)
    keys = np.empty(len(words), np.uint64)
    _fill_float_keys(words, np.uint64(1 << (bits - 1)), np.uint64(infinity), keys)
    return keys


@parallel(least=ROWS_OF_A_THREAD)
def _fill_float_keys(words, sign, infinity, keys):
    """Write order-preserving keys of the bits of floats.

    The bits of a negative float descend as it grows, so they are inverted. All others get the sign bit, which
    puts them above.

    Parameters
    ----------
    words : uint16, uint32 or uint64, shape (rows,)
        Bits of the floats.
    sign, infinity : uint64
        Bits of -0.0 and of infinity.
    keys : uint64, shape (rows,)
        Written.
    """
    every_bit = sign | (sign - np.uint64(1))
    nan = sign | infinity | ((infinity & (~infinity + np.uint64(1))) >> np.uint64(1))  # its lowest bits are 0
    for row in prange(len(words)):
        word = np.uint64(words[row])
        if (word & ~sign) > infinity:
            keys[row] = nan
        elif word > sign:
            keys[row] = word ^ every_bit
        else:
            keys[row] = word | sign  # -0.0, the sign alone, gets the key of 0.0


def _nulls_last(keys: list[UInt64Array], valid: BoolArray) -> list[UInt64Array]:
    """Return the keys with null after all values, as a flag array only if no key is free."""
    if valid.all():
        return keys
    if len(keys) == 1:
        largest = int(keys[0][valid].max(initial=0))
        if largest < _LARGEST:
            keys[0][~valid] = largest + 1
            return keys
    for key in keys:
        key[~valid] = 0
    return [(~valid).astype(np.uint64), *keys]


def _wide_decimal_keys(array: pa.Array, valid: BoolArray) -> list[UInt64Array]:
    """Return keys of 128 or 256 bit decimals: one array if the values fit 64 bits, else one per word."""
    width = array.type.bit_width // 64
    if not len(array):
        return [np.zeros(0, np.uint64)]
    words = np.frombuffer(array.buffers()[1], np.uint64, width * len(array), array.offset * 8 * width)
    words = np.where(valid[:, np.newaxis], words.reshape(len(array), width), np.uint64(0))
    lowest = np.ascontiguousarray(words[:, 0])
    if (words[:, 1:].view(np.int64) == (lowest.view(np.int64) >> 63)[:, np.newaxis]).all():
        keys = [lowest ^ np.uint64(2**63)]
    else:
        keys = [np.ascontiguousarray(words[:, word]) for word in range(width - 1, -1, -1)]
        keys[0] ^= np.uint64(2**63)
    for key in keys[:1]:
        key -= key[valid].min(initial=_LARGEST) if valid.any() else np.uint64(0)
    return [key for key in keys if key.any()] or keys[:1]


def packed(keys: Sequence[UInt64Array]) -> list[UInt64Array]:
    """Pack the keys into as few arrays as their bits fit in: fewer passes, fewer comparisons."""
    if len(keys) == 1:
        return list(keys)
    packed_keys: list[UInt64Array] = []
    used = 0
    for key in reversed(keys):
        bits = int(key.max(initial=0)).bit_length()
        if packed_keys and used + bits <= 64:
            if bits:
                packed_keys[0] = packed_keys[0] | (key << np.uint64(used))
            used += bits
        else:
            packed_keys.insert(0, key)
            used = bits
    return packed_keys
