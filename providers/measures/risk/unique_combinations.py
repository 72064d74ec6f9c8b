"""Share of rows that are unique in the key fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from providers.arrays import Int64Array
from providers.measures.shared.anonymity import class_codes, class_sizes
from providers.measures.shared.columns import SIDES
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import Measure, Part


def unique_share(
    table: pa.Table,
    key_fields: Sequence[str],
    steps: Mapping[str, float] | None = None,
    units: Int64Array | None = None,
) -> float:
    """Share of the rows whose key fields no row of another person equals; 0 for a table without rows.

    Parameters
    ----------
    table : pa.Table
    key_fields : sequence of str
    steps : mapping of str to float, optional
        Numeric field -> step to whose multiples its values are rounded.
    units : ndarray of int64, shape (rows,), optional
        Person of each row; default: each row is another one.
    """
    sizes = class_sizes(class_codes(table, key_fields, steps or {}), units)
    return float(sizes.rows[sizes.persons == 1].sum() / max(1, table.num_rows))


def _find(comparison: Comparison) -> Finding:
    fields, steps = comparison.need_key_fields(), comparison.options.rounding
    tables = comparison.release.source, comparison.release.destination
    before, after = (
        unique_share(table, fields, steps, comparison.units[side])
        for side, table in zip(SIDES, tables, strict=True)
    )
    return Finding({"before": before, "after": after}, fields, notes=comparison.unit_note)


MEASURE = Measure(
    key="unique_combinations",
    title="Unique combinations",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="#{rows that no other row equals in the key fields} / n, before and after; with units, no row of "
    "another unit",
    source="Perry, Matloff and Tendick 2024, 9.1.2",
    cost="O(n log n)",
    find=_find,
    parts=(Part("after"),),
    needs=("key_fields",),
    uses=("rounding",),
)
