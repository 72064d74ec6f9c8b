"""k-anonymity: distribution of the sizes of the classes of rows that share their key fields."""

from itertools import pairwise
from typing import Any

import numpy as np

from providers.arrays import Int64Array
from providers.measures.shared.columns import SIDES
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import Measure, Part

_BOUNDS = (1, 2, 3, 5, 10, 20, 50, 100)
"""Least class size of each interval of the distribution; the last one is open."""


def _labels() -> list[str]:
    closed = [str(low) if high == low + 1 else f"{low}-{high - 1}" for low, high in pairwise(_BOUNDS)]
    return [*closed, f"{_BOUNDS[-1]}+"]


def k_anonymity(sizes: Int64Array, threshold: int, rows: Int64Array | None = None) -> dict[str, Any]:
    """Distribution of class sizes.

    Parameters
    ----------
    sizes : ndarray of int64, shape (classes,)
        Number of persons of each class; at least one class.
    threshold : int
        A class of fewer persons is small.
    rows : ndarray of int64, shape (classes,), optional
        Number of rows of each class; default: one for each person.

    Returns
    -------
    dict
        ``k``, the persons of the smallest class; ``small``, the share of the rows that are in small classes;
        ``by_size``, interval of class sizes -> share of the rows that are in such classes.
    """
    rows = sizes if rows is None else rows
    total = int(rows.sum())
    interval = np.searchsorted(_BOUNDS, sizes, side="right") - 1
    counts = np.bincount(interval, weights=rows, minlength=len(_BOUNDS))
    return {
        "k": int(sizes.min()),
        "small": float(rows[sizes < threshold].sum() / total),
        "by_size": {label: float(count / total) for label, count in zip(_labels(), counts, strict=True)},
    }


def _find(comparison: Comparison) -> Finding:
    fields = comparison.need_key_fields()
    before, after = (
        k_anonymity(sizes.persons, comparison.options.threshold, sizes.rows)
        for sizes in (comparison.class_sizes[side] for side in SIDES)
    )
    return Finding({"before": before, "after": after}, fields, notes=comparison.unit_note)


MEASURE = Measure(
    key="k_anonymity",
    title="k-anonymity",
    concerns="risk",
    goal="high",
    range="k: 1 to n; shares: 0 to 1",
    formula="k = min over the combinations c of key fields of f_c, f_c the rows that share c, with "
    "units the units that have such a row; small: share of the rows with f_c < `threshold`; by_size: share "
    "of the rows with f_c in 1, 2, 3-4, 5-9, 10-19, 20-49, 50-99, 100 or more",
    source="Samarati 2001, doi:10.1109/69.971193; Sweeney 2002, doi:10.1142/S0218488502001648",
    cost="O(n log n) for each key field",
    find=_find,
    parts=(Part("after.k"), Part("after.small", goal="low")),
    needs=("key_fields",),
    uses=("rounding", "threshold"),
    words={
        "k": "rows of the smallest class (k)",
        "small": "share of rows in small classes",
        "by_size": "share of rows in classes of size",
        "before.k": "rows of the smallest class (k)",
        "before.small": "share of rows in small classes",
        "after.k": "rows of the smallest class (k)",
        "after.small": "share of rows in small classes",
    },
)
