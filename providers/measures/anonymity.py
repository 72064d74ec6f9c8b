"""How many rows share what an intruder may know."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.equality import equality_codes
from providers.measures.measure import Measure
from providers.numeric import float_values
from providers.table import combined


def mean_k(table: pa.Table, key_fields: Sequence[str], steps: Mapping[str, float] | None = None) -> float:
    """Mean over the rows of the number of rows that share a row's values in the key fields.

    Parameters
    ----------
    table : pa.Table
    key_fields : sequence of str
    steps : mapping of str to float, optional
        Field of numbers -> what its values are rounded to a multiple of, halves to the even one.

    Notes
    -----
    The sum of f_c^2 / n over the key combinations c, which f_c rows share; 0 of no rows. O(n log n).
    """
    sizes = _sizes(table, key_fields, steps or {})
    return float((sizes.astype(np.float64) ** 2).sum() / max(1, table.num_rows))


def unique_share(
    table: pa.Table, key_fields: Sequence[str], steps: Mapping[str, float] | None = None
) -> float:
    """Share of the rows that no other row equals in the key fields; 0 of no rows."""
    sizes = _sizes(table, key_fields, steps or {})
    return float(np.count_nonzero(sizes == 1) / max(1, table.num_rows))


def _sizes(table: pa.Table, key_fields: Sequence[str], steps: Mapping[str, float]) -> npt.NDArray[np.int64]:
    """Rows of each combination of the key fields that occurs."""
    codes = np.zeros(table.num_rows, np.int64)
    for name in key_fields:
        column = table.column(name)
        if name in steps:
            rounded = np.round(float_values(column) / steps[name]) + 0.0  # -0.0 is 0.0
            field = equality_codes(pa.array(rounded))
        else:
            field = equality_codes(combined(column))
        _, field = np.unique(field, return_inverse=True)
        _, codes = np.unique(codes * (int(field.max(initial=0)) + 1) + field, return_inverse=True)
    return np.bincount(codes) if len(codes) else np.zeros(0, np.int64)


def anonymity(
    source: pa.Table,
    destination: pa.Table,
    key_fields: Sequence[str],
    steps: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """`mean_k` of both tables."""
    return {
        "before": mean_k(source, key_fields, steps),
        "after": mean_k(destination, key_fields, steps),
    }


def unique_combinations(
    source: pa.Table,
    destination: pa.Table,
    key_fields: Sequence[str],
    steps: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """`unique_share` of both tables."""
    return {
        "before": unique_share(source, key_fields, steps),
        "after": unique_share(destination, key_fields, steps),
    }


UNIQUE_COMBINATIONS = Measure(
    key="unique_combinations",
    title="Unique combinations",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="#{rows that no other row equals in the key fields} / n, before and after",
    source="Perry, Matloff and Tendick 2024, 9.1.2",
    cost="O(n log n)",
    compute=unique_combinations,
)

MEAN_K = Measure(
    key="mean_k",
    title="Mean k-anonymity",
    concerns="risk",
    goal="high",
    range="1 to n",
    formula="sum over the key combinations c of f_c^2 / n, f_c the rows that share c",
    source="Perry, Matloff and Tendick 2024, 9.1.2",
    cost="O(n log n)",
    compute=anonymity,
)
