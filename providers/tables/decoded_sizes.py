"""Sizes of values after all encodings are removed, without decoding them.

A few bytes can stand for a table of any size: an index for a value of a dictionary, a run for all its rows,
and views for bytes or elements that other views show too. Readers decode them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.tables.encodings import list_spans
from providers.tables.type_names import is_list

Sizes = npt.NDArray[np.int64] | int
"""Bytes of each value; one number if all values take as many."""

_LARGEST = 1 << 36
"""Largest size in bytes; larger sizes count as this size, because sizes of nested lists would exceed 64
bits."""

_MOST_RUN_ROWS = 1 << 26
"""Most rows of runs whose values are looked up row by row; each row of more counts as the largest value."""


def is_expanding(data_type: pa.DataType) -> bool:
    """Whether values of the type may take more bytes when they are decoded, at any depth."""
    kind = pa.types
    if isinstance(data_type, pa.BaseExtensionType):
        return is_expanding(data_type.storage_type)
    if kind.is_dictionary(data_type) or kind.is_run_end_encoded(data_type):
        return True
    if kind.is_string_view(data_type) or kind.is_binary_view(data_type):
        return True
    if kind.is_list_view(data_type) or kind.is_large_list_view(data_type):
        return True
    return any(is_expanding(data_type.field(number).type) for number in range(data_type.num_fields))


def decoded_row_sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
    """Return the decoded bytes of each row in all columns of expanding types; None if there are none."""
    sizes = [_sizes(column) for column in batch.columns if is_expanding(column.type)]
    if not sizes:
        return None
    total: npt.NDArray[np.int64] = np.zeros(batch.num_rows, np.int64)
    for each in sizes:
        np.add(total, each, out=total)
    return _limited(total)


def row_sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the bytes of each row when its values are decoded, without masks of nulls.

    They depend on the values only, not on the batch, its encodings or its layout, if there are no data below
    nulls.
    """
    total: npt.NDArray[np.int64] = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        np.add(total, _sizes(column), out=total)
    return _limited(total)


def _sizes(array: pa.Array) -> Sizes:
    kind, data_type = pa.types, array.type
    if isinstance(data_type, pa.BaseExtensionType):
        return _sizes(array.storage)
    if kind.is_dictionary(data_type):
        return _of_indices(_sizes(array.dictionary), array.indices)
    if kind.is_run_end_encoded(data_type):
        return _of_runs(array)
    if kind.is_map(data_type):
        return _of_lists(array, array.keys, array.items)
    if is_list(data_type):
        return _of_lists(array, array.values)
    if kind.is_struct(data_type):
        size: Sizes = 0
        for number in range(data_type.num_fields):  # values below nulls count, because they are decoded too
            size = _added(size, _sizes(array.field(number)))
        return size
    if kind.is_string_view(data_type) or kind.is_binary_view(data_type):
        return _of_views(array)
    if kind.is_null(data_type):
        return 0
    if kind.is_fixed_size_binary(data_type):
        return int(data_type.byte_width)
    texts = kind.is_string(data_type) or kind.is_large_string(data_type)
    if texts or kind.is_binary(data_type) or kind.is_large_binary(data_type):
        return np.asarray(pc.binary_length(array).fill_null(0)).astype(np.int64)
    return max(1, int(data_type.bit_width) // 8)


def _limited(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.minimum(sizes, _LARGEST)


def _added(sizes: Sizes, others: Sizes) -> Sizes:
    if isinstance(sizes, int) and isinstance(others, int):
        return min(sizes + others, _LARGEST)
    total: npt.NDArray[np.int64] = np.add(sizes, others)
    return _limited(total)


def _of_indices(sizes: Sizes, indices: pa.Array) -> Sizes:
    """Return the size of the value of each index, 0 for a null."""
    if isinstance(sizes, int):
        return sizes
    if not len(sizes):
        return 0
    found: npt.NDArray[np.int64] = sizes[np.asarray(indices.fill_null(0))]
    if indices.null_count:
        found[np.asarray(indices.is_null())] = 0
    return found


def _of_runs(array: pa.Array) -> Sizes:
    if not len(array):
        return 0
    run_ends = np.asarray(array.run_ends)
    first, last = np.searchsorted(run_ends, [array.offset, array.offset + len(array) - 1], side="right")
    sizes = _sizes(array.values.slice(first, last - first + 1))
    if isinstance(sizes, int):
        return sizes
    if len(array) > _MOST_RUN_ROWS:
        return int(sizes.max())
    rows = np.arange(array.offset, array.offset + len(array))
    found: Sizes = sizes[np.searchsorted(run_ends, rows, side="right") - first]
    return found


def _of_lists(array: pa.Array, *children: pa.Array) -> Sizes:
    """Return the sum of the sizes of each row's elements; views may share elements."""
    starts, lengths = list_spans(array)
    is_used = lengths > 0
    if not is_used.any():
        return 0
    first, last = int(starts[is_used].min()), int((starts + lengths)[is_used].max())
    sizes: Sizes = 0
    for child in children:
        sizes = _added(sizes, _sizes(child.slice(first, last - first)))
    if isinstance(sizes, int):
        return _limited(lengths * sizes)
    before = np.concatenate([[0], np.cumsum(sizes)])
    starts = np.where(is_used, starts - first, 0)
    return _limited(before[starts + lengths] - before[starts])


def _of_views(array: pa.Array) -> Sizes:
    """Return the first 4 of the 16 bytes of each view, which are its length; 0 for a null."""
    views = array.buffers()[1]
    if views is None or not len(array):
        return 0
    lengths = np.frombuffer(views, np.int32, 4 * len(array), 16 * array.offset)[::4].astype(np.int64)
    if array.null_count:
        lengths[np.asarray(array.is_null())] = 0
    return lengths
