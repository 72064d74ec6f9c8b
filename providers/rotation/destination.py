"""Assemble the destination of a perturbation: perturbed fields, all others, and the random order of rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, IndexArray
from providers.grouping.shuffle import reorder, shuffle_rows
from providers.progress import Progress
from providers.randomness.chacha20 import Key
from providers.tables.columns import take, words_array
from providers.tables.schemas import with_field_type


def destination_schema(schema: pa.Schema, fields: tuple[str, ...]) -> pa.Schema:
    """Return the source's schema with float64 for every perturbed field."""
    for name in fields:
        schema = with_field_type(schema, schema.get_field_index(name), pa.float64())
    return schema


def destination_table(
    table: pa.Table,
    fields: tuple[str, ...],
    values: Float64Array,
    valid: Mapping[str, BoolArray],
    shuffle_key: Key | None,
    progress: Progress,
) -> tuple[pa.Table, IndexArray | None]:
    """Replace the perturbed fields and shuffle all fields of a row together.

    Parameters
    ----------
    table : pa.Table
        The source.
    fields : tuple of str
        Perturbed fields.
    values : ndarray of float64, shape (fields, rows)
        Perturbed values; reordered in place.
    valid : mapping
        Field -> mask of the values that are not null, for fields that hold nulls.
    shuffle_key : Key or None
        Key of the random order; None keeps the order of the source.
    progress : Progress

    Returns
    -------
    destination : pa.Table
    order : ndarray of int or None
        Source row of each row of the destination; None if the order is kept.
    """
    rows = table.num_rows
    pairing, order = None, None
    if shuffle_key is not None:
        progress(0.0, "shuffling")
        pairing = shuffle_rows(rows, shuffle_key)
        order = pairing.order
    scratch = np.empty(0 if shuffle_key is None else rows)
    position = {name: index for index, name in enumerate(fields)}
    columns = []
    for done, field in enumerate(table.schema):
        progress((1 + done) / (1 + table.num_columns), "shuffling")
        if field.name in position:
            field_values, not_null = values[position[field.name]], valid.get(field.name)
            if pairing is not None and order is not None:
                reorder(field_values, pairing, order, scratch)
                not_null = not_null if not_null is None else not_null[order]
            bits = field_values.view(np.uint64)
            if not_null is not None:
                bits[~not_null] = 0  # deterministic bytes below a null
            columns.append(pa.chunked_array([words_array(bits, pa.float64(), not_null)]))
        else:
            column = table.column(field.name)
            columns.append(column if order is None else take(column, pa.array(order)))
    return pa.Table.from_arrays(columns, schema=destination_schema(table.schema, fields)), order
