"""Mean k-anonymity: rows that share a row's values in the key fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.measures.shared.anonymity import class_codes, class_sizes
from providers.measures.shared.columns import SIDES
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import Measure, Part


def mean_k(
    table: pa.Table,
    key_fields: Sequence[str],
    steps: Mapping[str, float] | None = None,
    units: Int64Array | None = None,
) -> float:
    """Mean over the rows of the number of rows, or persons, that share a row's values in the key fields.

    Parameters
    ----------
    table : pa.Table
    key_fields : sequence of str
    steps : mapping of str to float, optional
        Numeric field -> step to whose multiples its values are rounded.
    units : ndarray of int64, shape (rows,), optional
        Person of each row; default: each row is another one.

    Notes
    -----
    The sum of f_c g_c / n over the key combinations c, which f_c rows of g_c persons share; 0 for a table
    without rows.
    """
    sizes = class_sizes(class_codes(table, key_fields, steps or {}), units)
    return float((sizes.rows.astype(np.float64) * sizes.persons).sum() / max(1, table.num_rows))


def _find(comparison: Comparison) -> Finding:
    fields, steps = comparison.need_key_fields(), comparison.options.rounding
    tables = comparison.release.source, comparison.release.destination
    before, after = (
        mean_k(table, fields, steps, comparison.units[side])
        for side, table in zip(SIDES, tables, strict=True)
    )
    return Finding({"before": before, "after": after}, fields, notes=comparison.unit_note)


MEASURE = Measure(
    key="mean_k",
    title="Mean k-anonymity",
    concerns="risk",
    goal="high",
    range="1 to n",
    formula="sum over the key combinations c of f_c^2 / n, f_c the rows that share c; with units, "
    "sum of f_c g_c / n, g_c the units with such a row",
    source="Perry, Matloff and Tendick 2024, 9.1.2",
    cost="O(n log n)",
    find=_find,
    parts=(Part("after"),),
    needs=("key_fields",),
    uses=("rounding",),
)
