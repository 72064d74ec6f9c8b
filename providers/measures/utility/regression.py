"""Regression of the target on the other fields: coefficients and standard errors, before and after."""

from typing import Any

import numpy as np

from providers.measures.models.target_model import (
    COEFFICIENT_WORDS,
    TargetModel,
    coefficient_changes,
    mean_changes,
)
from providers.measures.shared.columns import Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Extremes, Measure, Part
from providers.measures.shared.survey_design import design_of
from providers.measures.shared.weights import View, WeightedTable


def _find(comparison: Comparison) -> Finding:
    model = TargetModel(comparison, lambda _, fields: fields)
    wanted = set(comparison.options.term_fields)
    missing = wanted - set(model.field_of_term)
    if missing:
        names = ", ".join(f"'{name}'" for name in sorted(missing))
        raise NotApplicable(f"no term of the regression belongs to {names} of 'term_fields'")
    chosen = [index for index, name in enumerate(model.field_of_term) if not wanted or name in wanted]
    fits = {view: model.fit(_unweighted(comparison, view, side), independent=True) for view, side in _VIEWS}
    rows, left_out = coefficient_changes(model, fits, chosen)
    value: dict[str, Any] = {**mean_changes(rows), "coefficients": rows}
    return Finding(value | ({"not_defined": left_out} if left_out else {}), model.fields)


_VIEWS: tuple[tuple[View, Side], ...] = (("before", "source"), ("after", "destination"))


def _unweighted(comparison: Comparison, view: View, side: Side) -> WeightedTable:
    """Return a table whose rows count alike."""
    rows = comparison.rows[side]
    return WeightedTable(view, side, np.ones(rows), design_of(rows, None, None))


MEASURE = Measure(
    key="regression",
    title="Regression with standard errors",
    concerns="utility",
    goal="low",
    range="0 or more; overlap: up to 1",
    formula="coefficients b of the least squares fit of the target on the other fields, in their units and "
    "with an intercept, and their standard errors, those of independent rows with one variance; of the "
    "fields in `term_fields`, or of all: mean of |b(Y) - b(X)| / SE(b(X)), and mean share of the 95 % "
    "intervals that overlaps, ((c / length before) + (c / length after)) / 2, c the common length, below 0 "
    "if apart; the intercept is shown alone",
    source="Perry, Matloff and Tendick 2024, 9.2 and 9.3.1; overlap: Karr, Kohnen, Oganian, Reiter and Sanil "
    "2006, doi:10.1198/000313006X124640",
    cost="O(n p^2)",
    find=_find,
    extremes=Extremes("squares"),
    parts=(Part("change_in_errors"), Part("overlap", goal="high")),
    needs=("target",),
    uses=("term_fields",),
    words=COEFFICIENT_WORDS,
)
