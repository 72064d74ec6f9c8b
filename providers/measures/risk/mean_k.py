"""Mean k-anonymity: rows that share a row's values in the key fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from providers.measures.shared.anonymity import group_sizes
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import Measure, Part


def mean_k(table: pa.Table, key_fields: Sequence[str], steps: Mapping[str, float] | None = None) -> float:
    """Mean over the rows of the number of rows that share a row's values in the key fields.

    Parameters
    ----------
    table : pa.Table
    key_fields : sequence of str
    steps : mapping of str to float, optional
        Numeric field -> step to whose multiples its values are rounded.

    Notes
    -----
    The sum of f_c^2 / n over the key combinations c, which f_c rows share; 0 for a table without rows.
    """
    sizes = group_sizes(table, key_fields, steps or {})
    return float((sizes.astype(np.float64) ** 2).sum() / max(1, table.num_rows))


def _find(comparison: Comparison) -> Finding:
    fields, release = comparison.need_key_fields(), comparison.release
    before, after = (
        mean_k(table, fields, comparison.options.rounding) for table in (release.source, release.destination)
    )
    return Finding({"before": before, "after": after}, fields)


MEASURE = Measure(
    key="mean_k",
    title="Mean k-anonymity",
    concerns="risk",
    goal="high",
    range="1 to n",
    formula="sum over the key combinations c of f_c^2 / n, f_c the rows that share c",
    source="Perry, Matloff and Tendick 2024, 9.1.2",
    cost="O(n log n)",
    find=_find,
    parts=(Part("after"),),
    needs=("key_fields",),
    uses=("rounding",),
)
