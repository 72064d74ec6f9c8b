"""Classes of rows that share their values in the key fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.tables.columns import combined
from providers.tables.equality import equality_codes
from providers.tables.numbers import float_values
from providers.tables.units import units_in_classes


def field_codes(table: pa.Table, name: str, steps: Mapping[str, float]) -> Int64Array:
    """Code of each row's value of one key field, as `class_codes` compares it; 0 to the values less 1."""
    column = table.column(name)
    if name in steps:
        rounded = np.round(float_values(column) / steps[name]) + 0.0  # turns -0.0 into 0.0
        codes = equality_codes(pa.array(rounded))
    else:
        codes = equality_codes(combined(column))
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def class_codes(table: pa.Table, key_fields: Sequence[str], steps: Mapping[str, float]) -> Int64Array:
    """Code of each row's class; two rows have the same code exactly if all of their key fields are equal.

    Parameters
    ----------
    table : pa.Table
    key_fields : sequence of str
    steps : mapping of str to float
        Numeric field -> step; its values are rounded to multiples of the step, halves to the even one.

    Returns
    -------
    ndarray of int64, shape (rows,)
        Codes from 0 to the number of classes less 1, each of at least one row.

    Notes
    -----
    O(n log n) a field. A null is a value of its own, equal to other nulls only, and so is NaN. In a field
    that is rounded, null and NaN are the same value.
    """
    codes = np.zeros(table.num_rows, np.int64)
    for name in key_fields:
        field = field_codes(table, name, steps)
        # renumbered after each field: codes of combinations stay below the number of rows
        _, codes = np.unique(codes * (int(field.max(initial=0)) + 1) + field, return_inverse=True)
    return codes


class ClassSizes(NamedTuple):
    """Sizes of the classes of rows that share their key fields; arrays of shape (classes,)."""

    rows: Int64Array
    """Rows of each class, 1 or more."""
    persons: Int64Array
    """Persons of each class, 1 or more; its rows if each is another person."""


def class_sizes(classes: Int64Array, units: Int64Array | None = None) -> ClassSizes:
    """Return the sizes of classes, numbered from 0, whose rows belong to these units, if any are known."""
    return ClassSizes(units_in_classes(classes, None), units_in_classes(classes, units))
