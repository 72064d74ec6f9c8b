"""Weighted correlation of each pair of fields of numbers, before and after."""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import BEYOND_FLOAT64, Finding, NotApplicable
from providers.measures.shared.measure import Extremes, Measure, Part
from providers.measures.shared.weights import WeightedTable, surveyed_fields, weighted_tables

MOST_FIELDS = 40
"""Most fields that are paired: the first ones of the table."""

_CONSTANT = 1e-12
"""Variance below this share of the mean square of the values counts as 0."""


class WeightedCorrelation(NamedTuple):
    """Estimate of a correlation, with its standard error."""

    value: float
    error: float


def weighted_correlation(
    one: Float64Array, other: Float64Array, table: WeightedTable
) -> WeightedCorrelation | None:
    """Estimate the correlation over the rows that have both numbers; None if it is undefined.

    Raises NotApplicable if the numbers are too large for float64.

    Parameters
    ----------
    one, other : ndarray of float64, shape (rows,)
        Numbers, NaN if missing.
    table : WeightedTable

    Notes
    -----
    sum w a b / sum w, a and b the weighted z-scores. The scores of the standard error are
    w (a b - r (a^2 + b^2) / 2) / sum w. O(n).
    """
    rows = np.flatnonzero(~np.isnan(one) & ~np.isnan(other) & (table.weights > 0))
    if len(rows) < 3:
        return None
    weights = table.weights[rows] / table.weights[rows].sum()
    scores = []
    for numbers in (one[rows], other[rows]):
        shifted = numbers - numbers[0]  # the means of large numbers that differ little stay exact
        centred = shifted - (weights * shifted).sum()
        variance = float((weights * centred**2).sum())
        if not np.isfinite(variance):
            raise NotApplicable(BEYOND_FLOAT64)
        if variance <= _CONSTANT * float((weights * shifted**2).sum()):
            return None
        scores.append(centred / np.sqrt(variance))
    a, b = scores
    correlation = float(np.clip((weights * a * b).sum(), -1.0, 1.0))
    linearised = weights * (a * b - correlation * (a**2 + b**2) / 2)
    return WeightedCorrelation(correlation, table.design.standard_error(linearised, rows))


def _find(comparison: Comparison) -> Finding:
    tables = weighted_tables(comparison)
    fields = surveyed_fields(comparison, comparison.need_numeric(2))[:MOST_FIELDS]
    pairs: list[dict[str, Any]] = []
    matrices = {
        table.view: [comparison.columns[name].numbers(table.side) for name in fields] for table in tables
    }
    listed = list(combinations(range(len(fields)), 2))
    for done, (one, other) in enumerate(listed):
        comparison.progress(done / len(listed), "measuring weighted correlations")
        found = {
            table.view: weighted_correlation(matrices[table.view][one], matrices[table.view][other], table)
            for table in tables
        }
        if found["before"] is None:
            continue
        pair: dict[str, Any] = {"field": fields[one], "with": fields[other]}
        # a field that the release makes constant or missing has lost its correlations
        pair |= {view: each.value if each else 0.0 for view, each in found.items()}
        pair["change"] = pair["after"] - pair["before"]
        pair |= {f"{view}_error": each.error for view, each in found.items() if each}
        pairs.append(pair)
    if not pairs:
        raise NotApplicable("no two fields of numbers vary together in the source")
    changes = np.array([abs(pair["change"]) for pair in pairs])
    value = {"mean": float(changes.mean()), "sd": float(changes.std()), "pairs": pairs}
    return Finding(value, fields)


MEASURE = Measure(
    key="weighted_correlations",
    title="Change of weighted correlations",
    concerns="utility",
    goal="low",
    range="0 to 2",
    formula="|r_ij(Y) - r_ij(X)| over the pairs i < j of the first 40 fields of numbers: mean and standard "
    "deviation; r = sum w a b / sum w, a and b the z-scores with weighted means and variances over the rows "
    "that have both. Standard errors by linearisation: z = w (a b - r (a^2 + b^2) / 2) / sum w",
    source="Binder 1983, doi:10.2307/1402588; Lumley 2010, doi:10.1002/9780470580066",
    cost="O(n) for each pair of fields",
    find=_find,
    extremes=Extremes("squares"),
    parts=(Part("mean"), Part("sd")),
    needs_each=("weight_fields",),
    uses=("stratum_field", "cluster_field"),
    words={
        "mean": "mean absolute change",
        "pairs": "correlation of each pair",
        "pairs.before_error": "standard error before",
        "pairs.after_error": "standard error after",
        "pairs.change": "change",
        "pairs.after_source_weights": "after, with the source's weights",
        "pairs.after_source_weights_error": "standard error with the source's weights",
    },
)
