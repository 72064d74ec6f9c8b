"""Apply an exchange to an Arrow column of any type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from providers.arrays import BoolArray
from providers.grouping.groups import BufferPool, Pairing
from providers.swapping.exchange import exchange, sources
from providers.tables.columns import (
    combined,
    encoded_as,
    is_negative_scale,
    is_words,
    names_values_twice,
    one_dictionary,
    read_only,
    take,
    unwrapped,
    words_array,
    words_of,
)
from providers.tables.equality import equality_codes


def permute(
    column: pa.ChunkedArray, pairing: Pairing, last: bool = False, workspace: BufferPool | None = None
) -> tuple[pa.ChunkedArray, int]:
    """Exchange the values of a column; return the new column and the number of rows whose value differs.

    Values differ if their bits differ (NaN is equal to itself, -0.0 is not 0.0); null is equal to null.

    Parameters
    ----------
    column : pa.ChunkedArray
    pairing : Pairing
    last, workspace
        See `exchange.exchange`.

    Raises
    ------
    SourceError
        The combined dictionary of the chunks does not fit the index type.

    Notes
    -----
    O(rows): about three passes over fixed-width values; a random gather and a comparison for other types.
    Nested values are compared by `equality_codes`, which hashes every value of the column.
    """
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_run_end_encoded(kind):
        moved, changed = permute(unwrapped(column), pairing)
        return encoded_as(moved, kind), changed
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
    moved_words, _ = exchange(read_only(words), pairing, workspace=workspace)
    moved_valid, _ = exchange(read_only(valid.view(np.uint8)), pairing, workspace=workspace)
    changed = int(np.count_nonzero((moved_words != words) | (moved_valid != valid)))
    return pa.chunked_array([words_array(moved_words, kind, moved_valid)]), changed


def _permute_dictionary(column: pa.ChunkedArray, pairing: Pairing) -> tuple[pa.ChunkedArray, int]:
    """Exchange the indices of a dictionary column."""
    kind = column.type
    array = combined(one_dictionary(column))
    indices, changed = permute(pa.chunked_array([array.indices]), pairing)
    if names_values_twice(array.dictionary):
        changed = int(np.count_nonzero(equality_codes(array)[sources(pairing)] != equality_codes(array)))
    moved = pa.DictionaryArray.from_arrays(combined(indices), array.dictionary, ordered=kind.ordered)
    return pa.chunked_array([moved], type=kind), changed


def _permute_by_take(column: pa.ChunkedArray, pairing: Pairing) -> tuple[pa.ChunkedArray, int]:
    """Exchange values that are not fixed-width words by gathering each row's source row."""
    rows = sources(pairing)
    moved = take(column, pa.array(rows))
    if pa.types.is_null(column.type):
        return moved, 0
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_interval(kind) or is_negative_scale(kind):
        codes = equality_codes(combined(column))
        return moved, int(np.count_nonzero(codes[rows] != codes))
    differs = pc.not_equal(column, moved).fill_null(False)
    if column.null_count:
        differs = pc.or_(differs, pc.xor(column.is_null(), moved.is_null()))
    return moved, int(pc.sum(differs).as_py() or 0)
