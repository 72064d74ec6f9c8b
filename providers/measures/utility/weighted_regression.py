"""Weighted regression of the target on the other fields, before and after."""

from typing import Any

from providers.measures.models.target_model import (
    COEFFICIENT_WORDS,
    TargetModel,
    coefficient_changes,
    mean_changes,
)
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import Extremes, Measure, Part
from providers.measures.shared.weights import surveyed_fields, weighted_tables


def _find(comparison: Comparison) -> Finding:
    tables = weighted_tables(comparison)
    model = TargetModel(comparison, surveyed_fields)
    fits = {table.view: model.fit(table) for table in tables}
    rows, left_out = coefficient_changes(model, fits, range(len(model.terms)))
    means = mean_changes(rows)
    r_squared: dict[str, float] = {view: fit.r_squared for view, fit in fits.items()}
    value: dict[str, Any] = {
        **means,
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
        **COEFFICIENT_WORDS,
        "r_squared": "R squared",
        "r_squared.after_source_weights": "after, with the source's weights",
        "coefficients.after_source_weights": "after, with the source's weights",
        "coefficients.after_source_weights_error": "standard error with the source's weights",
    },
)
