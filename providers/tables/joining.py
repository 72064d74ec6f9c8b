"""Join the chunks of columns and tables: Arrow's functions, with half floats in dictionaries as words.

Arrow (26.0.1) unifies dictionaries of float16 as if their bits were integers: the entry 1.5 becomes 15872.
It does so wherever it joins arrays whose dictionaries differ: in ``unify_dictionaries``, ``combine_chunks``,
``concat_arrays``, ``concat_batches`` and ``take``, also of lists and structs that contain such dictionaries.
Here these dictionaries are joined as uint16, which has the same bits, and become float16 again. All other
columns go to Arrow as they are. Code that joins chunks uses this module; a test looks for code that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from providers.tables.encodings import can_take


@lru_cache(maxsize=4096)
def joinable_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with uint16 for float16 in dictionaries at every depth; the type itself without any.

    Names, metadata and extension types of children are kept only as far as the buffers depend on them.
    """
    if isinstance(kind, pa.BaseExtensionType):
        storage = joinable_type(kind.storage_type)
        return kind if storage == kind.storage_type else storage
    types = pa.types
    if types.is_dictionary(kind):
        is_half = types.is_float16(kind.value_type)
        values = pa.uint16() if is_half else joinable_type(kind.value_type)
        return pa.dictionary(kind.index_type, values, kind.ordered)
    if types.is_run_end_encoded(kind):
        return pa.run_end_encoded(kind.run_end_type, joinable_type(kind.value_type))
    if types.is_union(kind) or not kind.num_fields:
        return kind
    children = [kind.field(number) for number in range(kind.num_fields)]
    joinable = [child.with_type(joinable_type(child.type)) for child in children]
    if all(one.type == child.type for one, child in zip(joinable, children, strict=True)):
        return kind
    return _nested_type(kind, joinable)


def _nested_type(kind: pa.DataType, children: Sequence[pa.Field]) -> pa.DataType:
    """Return the list, map or struct type with these children."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct(children)
    if types.is_map(kind):
        entries = children[0].type
        return pa.map_(entries.field(0), entries.field(1), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(children[0], kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(children[0])
    if types.is_list_view(kind):
        return pa.list_view(children[0])
    return pa.large_list_view(children[0]) if types.is_large_list_view(kind) else pa.list_(children[0])


def reinterpreted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values of the array as another type of the same layout; a nested array is copied."""
    _, data = _importable(array).__arrow_c_array__()
    return pa.Array._import_from_c_capsule(kind.__arrow_c_schema__(), data)


def _importable(array: pa.Array) -> pa.Array:
    """Return the same values such that no array, at any depth, is an empty slice that begins after row 0.

    Arrow imports such a slice without its buffers and refuses to join it afterwards.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _importable(array.storage)
    if pa.types.is_dictionary(kind):
        indices = array.indices if len(array) else pa.array([], kind.index_type)
        entries = array.dictionary if len(array.dictionary) else pa.array([], kind.value_type)
        return pa.DictionaryArray.from_arrays(indices, entries, ordered=kind.ordered)
    if not len(array):
        return pa.nulls(0, kind)
    return array.take(pa.array(np.arange(len(array)))) if can_take(kind) else array


def as_joinable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column in its `joinable_type`."""
    return as_type(column, joinable_type(column.type))


def as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the column with its buffers as another type of the same layout."""
    if column.type == kind:
        return column
    return pa.chunked_array([reinterpreted(chunk, kind) for chunk in column.chunks], type=kind)


def unified(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the dictionary column with one dictionary for all chunks. Raises as Arrow does."""
    return as_type(as_joinable(column).unify_dictionaries(), column.type)


def in_one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the chunks as one array. Raises as Arrow does."""
    kind = column.type
    if joinable_type(kind) == kind:
        return column.combine_chunks()
    return reinterpreted(as_joinable(column).combine_chunks(), kind)


def joined_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return the values of one or more arrays of one type, end to end. Raises as Arrow does."""
    kind = arrays[0].type
    joinable = joinable_type(kind)
    if joinable == kind:
        return pa.concat_arrays(arrays)
    return reinterpreted(pa.concat_arrays([reinterpreted(array, joinable) for array in arrays]), kind)


def in_one_chunk(table: pa.Table) -> pa.Table:
    """Return the table with one chunk for each column. Raises as Arrow does."""
    return _as_schema(_as_joinable(table).combine_chunks(), table.schema)


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return the table without rows, also for nested dictionaries of half floats, where Arrow's own fails."""
    return pa.Table.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def joined_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of one or more batches as one batch. Raises as Arrow does."""
    schema = batches[0].schema
    if _is_joinable(schema):
        return pa.concat_batches(batches)
    table = in_one_chunk(pa.Table.from_batches(batches))
    columns = [column.chunk(0) if column.num_chunks else pa.nulls(0, column.type) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def arrow_take(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    """Return the values of these rows, taken by Arrow. Raises as Arrow does."""
    return as_type(as_joinable(column).take(rows), column.type)


def _is_joinable(schema: pa.Schema) -> bool:
    return all(joinable_type(kind) == kind for kind in schema.types)


def _as_joinable(table: pa.Table) -> pa.Table:
    if _is_joinable(table.schema):
        return table
    columns = [as_joinable(column) for column in table.columns]
    fields = [field.with_type(joinable_type(field.type)) for field in table.schema]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, table.schema.metadata))


def _as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema.types == schema.types:
        return table
    columns = [as_type(column, kind) for column, kind in zip(table.columns, schema.types, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)
