"""Codes of values, and of combinations of values, numbered in the order in which they first occur."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.tables.columns import combined, is_words
from providers.tables.equality import equality_codes

_FEW_CELLS = 2**16


def codes(column: pa.ChunkedArray) -> tuple[Int64Array, int]:
    """Return a code for each value, null included, and the number of codes, which count from 0.

    Codes are numbered in the order in which the values first occur. O(rows).
    """
    found, count, _ = codes_and_nulls(column)
    return found, count


def codes_and_nulls(column: pa.ChunkedArray) -> tuple[Int64Array, int, int]:
    """Return codes by first occurrence, their number, and the number of nulls."""
    found = equality_codes(combined(column))
    absent = int(np.count_nonzero(found < 0))
    kind = column.type
    if absent or not (is_words(kind) or is_text(kind)):  # a dictionary has codes of its own
        found, count = _renumbered(found)
    else:
        count = int(found.max()) + 1 if len(found) else 0
    return found, count, absent


def joined(first: Int64Array, second: Int64Array, second_count: int) -> tuple[Int64Array, int]:
    """Return a code for each pair of codes, and the number of codes; numbered like `codes`."""
    return _renumbered(first * second_count + second)


def cells(first: Int64Array, count: int, second: Int64Array, second_count: int) -> tuple[Int64Array, int]:
    """Return a code for each pair of codes, and a bound of the codes: some may not occur.

    Pairs are numbered like `joined` only where the bound would exceed twice the number of rows.
    """
    if count * second_count <= max(2 * len(first), _FEW_CELLS):
        return first * second_count + second, count * second_count
    return joined(first, second, second_count)


def is_text(kind: pa.DataType) -> bool:
    """Whether the type is a text type."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _renumbered(numbers: Int64Array) -> tuple[Int64Array, int]:
    encoded = pa.array(numbers).dictionary_encode()
    indices: Int64Array = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return indices, len(encoded.dictionary)
