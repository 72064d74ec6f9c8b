"""Share of rows that are unique in the key fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from providers.measures.shared.anonymity import group_sizes
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import Measure, Part


def unique_share(
    table: pa.Table, key_fields: Sequence[str], steps: Mapping[str, float] | None = None
) -> float:
    """Share of the rows that no other row equals in the key fields; 0 for a table without rows.

    Parameters
    ----------
    table : pa.Table
    key_fields : sequence of str
    steps : mapping of str to float, optional
        Numeric field -> step to whose multiples its values are rounded.
    """
    sizes = group_sizes(table, key_fields, steps or {})
    return float(np.count_nonzero(sizes == 1) / max(1, table.num_rows))


def _find(comparison: Comparison) -> Finding:
    fields, release = comparison.need_key_fields(), comparison.release
    before, after = (
        unique_share(table, fields, comparison.options.rounding)
        for table in (release.source, release.destination)
    )
    return Finding({"before": before, "after": after}, fields)


MEASURE = Measure(
    key="unique_combinations",
    title="Unique combinations",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="#{rows that no other row equals in the key fields} / n, before and after",
    source="Perry, Matloff and Tendick 2024, 9.1.2",
    cost="O(n log n)",
    find=_find,
    parts=(Part("after"),),
    needs=("key_fields",),
    uses=("rounding",),
)
