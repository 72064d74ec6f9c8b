"""Arrow layouts whose rows Arrow cannot select: converted before a run and restored after it.

Arrow has no kernel that takes rows of string views, binary views or run-end encoded arrays. During a run
every field has its `workable_type`; afterwards `restored` converts a column back to the type in which it was
received. The values are the same in both.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from providers.tables.encodings import can_take, canonical_array, run_end_decoded, without_hidden_views
from providers.tables.equality import equality_codes
from providers.tables.type_names import canonical_type


@lru_cache(maxsize=4096)
def workable_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type itself if Arrow can select its rows, else the nearest type whose rows it can select.

    Dictionaries stay dictionaries, and extension types whose storage is workable stay as they are. A nested
    type that contains views or runs becomes its canonical type.
    """
    kind = pa.types
    if can_take(data_type):
        return data_type
    if isinstance(data_type, pa.BaseExtensionType):
        return workable_type(data_type.storage_type)
    if kind.is_dictionary(data_type):
        values = workable_type(data_type.value_type)
        return pa.dictionary(data_type.index_type, values, data_type.ordered)
    if kind.is_run_end_encoded(data_type):
        return workable_type(data_type.value_type)
    return canonical_type(data_type)


def workable(array: pa.Array) -> pa.Array:
    """Return the same values in the `workable_type`, without a copy if that is the array's own type."""
    wanted = workable_type(array.type)
    if array.type == wanted:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return workable(array.storage)
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(
            array.indices, workable(array.dictionary), ordered=array.type.ordered
        )
    if pa.types.is_run_end_encoded(array.type):
        return run_end_decoded(array)
    if pa.types.is_nested(array.type):
        return canonical_array(array)
    return without_hidden_views(array).cast(wanted)


def restored(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Convert an array of the `workable_type` of `data_type` back to `data_type`.

    Raises pa.ArrowException if Arrow cannot build such an array; `is_restorable` predicts it.
    """
    kind = pa.types
    if array.type == data_type:
        return array
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, restored(array, data_type.storage_type))
    if kind.is_dictionary(data_type):
        values = restored(array.dictionary, data_type.value_type)
        return pa.DictionaryArray.from_arrays(array.indices, values, ordered=data_type.ordered)
    if kind.is_run_end_encoded(data_type):
        return _run_end_encoded(array, data_type)
    return array.cast(data_type)


@lru_cache(maxsize=4096)
def is_restorable(data_type: pa.DataType) -> bool:
    """Whether `restored` can convert every array of the `workable_type` back to the type."""
    trial = pa.nulls(2, workable_type(data_type))
    try:
        return bool(restored(trial, data_type).type == data_type)
    except (pa.ArrowException, TypeError):
        return False


def most_rows(data_type: pa.DataType) -> int:
    """Return the most rows that an array of the type can hold; run ends of 16 bits limit them."""
    if isinstance(data_type, pa.BaseExtensionType):
        return most_rows(data_type.storage_type)
    if pa.types.is_run_end_encoded(data_type):
        return int(2 ** (data_type.run_end_type.bit_width - 1) - 1)
    return 2**63 - 1


def _run_end_encoded(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Encode runs of equal values, floats compared bit by bit; Arrow's own encoder supports fewer types."""
    codes = equality_codes(array)
    ends = np.append(np.flatnonzero(codes[1:] != codes[:-1]) + 1, [len(codes)] if len(codes) else [])
    values = array.take(pa.array(ends.astype(np.int64) - 1))
    run_ends = pa.array(ends, data_type.run_end_type)
    return pa.RunEndEncodedArray.from_arrays(run_ends, restored(values, data_type.value_type), type=data_type)


# ------------------------------------------------------------------------ schemas

REMEMBERED = b"rowveil:types"
"""Key of the schema metadata that hold the converted fields with their original types."""


def workable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with workable types; its metadata hold the original types that can be restored."""
    converted = [field for field in schema if workable_type(field.type) != field.type]
    metadata = {key: value for key, value in (schema.metadata or {}).items() if key != REMEMBERED}
    kept = [field.remove_metadata() for field in converted if is_restorable(field.type)]
    if kept:
        metadata[REMEMBERED] = pa.schema(kept).serialize().to_pybytes()
    if converted or REMEMBERED in (schema.metadata or {}):
        fields = [field.with_type(workable_type(field.type)) for field in schema]
        return pa.schema(fields, metadata or None)
    return schema


def original_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the original types, except for fields whose type has changed since."""
    serialized = (schema.metadata or {}).get(REMEMBERED)
    if serialized is None:
        return schema
    metadata = {key: value for key, value in schema.metadata.items() if key != REMEMBERED}
    fields = list(schema)
    for former in pa.ipc.read_schema(pa.py_buffer(serialized)):
        index = schema.get_field_index(former.name)
        if index >= 0 and workable_type(former.type) == schema.field(index).type:
            fields[index] = schema.field(index).with_type(former.type)
    return pa.schema(fields, metadata or None)


def restored_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert the batch to the types of its table's `original_schema`."""
    columns = [restored(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
