"""Weighted regression of the target on the other fields, before and after."""

from typing import Any

import numpy as np

from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Extremes, Measure, Part
from providers.measures.shared.weighted_model import INTERCEPT, WeightedModel
from providers.measures.shared.weights import NORMAL_95, weighted_tables


def interval_overlap(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Mean share of two 95 % intervals that lies in the other one; below 0 if they do not meet.

    Parameters
    ----------
    before, after : tuple of two floats
        Estimate and standard error; the interval has a width (`has_width`).

    References
    ----------
    Karr, Kohnen, Oganian, Reiter and Sanil 2006, A framework for evaluating the utility of data altered to
    protect confidentiality, The American Statistician 60, 224-232, doi:10.1198/000313006X124640.
    """
    low, high = [], []
    for estimate, error in (before, after):
        low.append(estimate - NORMAL_95 * error)
        high.append(estimate + NORMAL_95 * error)
    common = min(high) - max(low)
    return (common / (high[0] - low[0]) + common / (high[1] - low[1])) / 2


def has_width(estimate: float, error: float) -> bool:
    """Whether the 95 % interval of an estimate has two different ends in float64."""
    return estimate + NORMAL_95 * error > estimate - NORMAL_95 * error


def _find(comparison: Comparison) -> Finding:
    tables = weighted_tables(comparison)
    model = WeightedModel(comparison)
    fits = {table.view: model.fit(table) for table in tables}
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    for index, term in enumerate(model.terms):
        estimates = {view: float(fit.coefficients[index]) for view, fit in fits.items()}
        if any(np.isnan(estimate) for estimate in estimates.values()):
            left_out.append(term)
            continue
        errors = {view: float(fit.errors[index]) for view, fit in fits.items()}
        row: dict[str, Any] = {"term": term} | dict(estimates.items())
        row["change"] = estimates["after"] - estimates["before"]
        row |= {f"{view}_error": error for view, error in errors.items()}
        if all(has_width(estimates[view], errors[view]) for view in ("before", "after")):
            row["change_in_errors"] = row["change"] / errors["before"]
            both = [(estimates[view], errors[view]) for view in ("before", "after")]
            row["overlap"] = interval_overlap(both[0], both[1])
        rows.append(row)
    compared = [row for row in rows if row["term"] != INTERCEPT and "overlap" in row]
    if not compared:
        raise NotApplicable("no coefficient is defined, with a standard error, in both tables")
    r_squared: dict[str, float] = {view: fit.r_squared for view, fit in fits.items()}
    value: dict[str, Any] = {
        "change_in_errors": float(np.mean([abs(row["change_in_errors"]) for row in compared])),
        "overlap": float(np.mean([row["overlap"] for row in compared])),
        "r_squared": r_squared,
        "coefficients": rows,
    }
    return Finding(value | ({"not_defined": left_out} if left_out else {}), model.fields)


MEASURE = Measure(
    key="weighted_regression",
    title="Weighted regression",
    concerns="utility",
    goal="low",
    range="0 or more; overlap: up to 1",
    formula="coefficients b that minimise sum w (y - x'b)^2, y the target, x the other fields in their units "
    "and an intercept; mean over the coefficients of |b(Y) - b(X)| / SE(b(X)), and mean share of the 95 % "
    "intervals that overlaps, ((c / length before) + (c / length after)) / 2, c the common length, below 0 "
    "if apart. Standard errors by linearisation: z = (sum w x x')^-1 w x e",
    source="Binder 1983, doi:10.2307/1402588; overlap: Karr, Kohnen, Oganian, Reiter and Sanil 2006, "
    "doi:10.1198/000313006X124640",
    cost="O(n p^2)",
    find=_find,
    extremes=Extremes("squares"),
    parts=(Part("change_in_errors"), Part("overlap", goal="high")),
    needs=("target",),
    needs_each=("weight_fields",),
    uses=("stratum_field", "cluster_field"),
    words={
        "change_in_errors": "mean change, in standard errors of the source",
        "overlap": "mean overlap of the 95 % intervals",
        "r_squared": "R squared",
        "r_squared.after_source_weights": "after, with the source's weights",
        "not_defined": "terms that depend on others",
        "coefficients": "coefficients",
        "coefficients.before_error": "standard error before",
        "coefficients.after_error": "standard error after",
        "coefficients.change_in_errors": "change in standard errors",
        "coefficients.after_source_weights": "after, with the source's weights",
        "coefficients.after_source_weights_error": "standard error with the source's weights",
    },
)
