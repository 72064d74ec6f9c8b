"""Exposure of the row with the largest influence on a regression of the target."""

from typing import Any

import numpy as np

from providers.measures.models.linear_model import Regression
from providers.measures.models.target_regression import target_regressions
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Measure, Part


def outlier_exposure(source: Regression, destination: Regression) -> dict[str, Any]:
    """Largest Cook's distance in both tables, and whether the row of the same number has it.

    Raises
    ------
    NotApplicable
        A table has no Cook's distance, because its target is explained exactly.
    """
    before, after = source.cooks_distances, destination.cooks_distances
    if np.isnan(before).all() or np.isnan(after).all():
        raise NotApplicable("the target is explained exactly, or every row fits itself alone")
    return {
        "before": float(np.nanmax(before)),
        "after": float(np.nanmax(after)),
        "same_row": int(np.nanargmax(before)) == int(np.nanargmax(after)),
    }


def _find(comparison: Comparison) -> Finding:
    both = target_regressions(comparison)
    value = outlier_exposure(both.source, both.destination)
    value["same_row"] = None
    if comparison.aligned:
        first = both.rows["source"][int(np.nanargmax(both.source.cooks_distances))]
        leader = both.rows["destination"][int(np.nanargmax(both.destination.cooks_distances))]
        origin = comparison.release.origin
        value["same_row"] = bool(first == (leader if origin is None else origin[leader]))
    return Finding(value, both.fields)


MEASURE = Measure(
    key="outlier_exposure",
    title="Exposure of the most influential row",
    concerns="risk",
    goal="low",
    range="0 or more",
    formula="largest e_i^2 h_i / (p s^2 (1 - h_i)^2) of the target on the rest, in X and Y; same row?",
    source="Perry, Matloff and Tendick 2024, 9.3.2; Cook 1977, doi:10.2307/1268249",
    cost="O(n p^2)",
    find=_find,
    parts=(Part("after"),),
    needs=("target",),
    words={"same_row": "the same row still leads"},
)
