"""Sizes of the groups of rows that share their values in the key fields."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import NotApplicable
from providers.tables.columns import combined
from providers.tables.equality import equality_codes
from providers.tables.numbers import float_values


def need_key_fields(comparison: Comparison) -> tuple[str, ...]:
    """Return the key fields. Raises NotApplicable if none is named, or if a table has no row."""
    if not comparison.options.key_fields:
        raise NotApplicable("name what an intruder may know in 'key_fields'")
    comparison.need_rows()
    return comparison.options.key_fields


def group_sizes(table: pa.Table, key_fields: Sequence[str], steps: Mapping[str, float]) -> Int64Array:
    """Number of rows of each combination of the key fields that occurs.

    Parameters
    ----------
    table : pa.Table
    key_fields : sequence of str
    steps : mapping of str to float
        Numeric field -> step; its values are rounded to multiples of the step, halves to the even one.

    Notes
    -----
    O(n log n) a field.
    """
    codes = np.zeros(table.num_rows, np.int64)
    for name in key_fields:
        column = table.column(name)
        if name in steps:
            rounded = np.round(float_values(column) / steps[name]) + 0.0  # turns -0.0 into 0.0
            field = equality_codes(pa.array(rounded))
        else:
            field = equality_codes(combined(column))
        # renumbered after each field: codes of combinations stay below the number of rows
        _, field = np.unique(field, return_inverse=True)
        _, codes = np.unique(codes * (int(field.max(initial=0)) + 1) + field, return_inverse=True)
    return np.bincount(codes) if len(codes) else np.zeros(0, np.int64)
