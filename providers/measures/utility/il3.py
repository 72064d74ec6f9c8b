"""Change of the coefficients of a regression of the target (IL3)."""

import numpy as np

from providers.measures.models.linear_model import Regression
from providers.measures.models.target_regression import target_regressions
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Extremes, Measure


def il3(source: Regression, destination: Regression) -> float:
    """Mean absolute difference of the coefficients.

    A column that is constant in the source has no coefficient there and is left out. A column that is
    constant only in the destination has lost its coefficient, which counts as 0.

    Raises
    ------
    NotApplicable
        Every column is constant in the source.
    """
    if not source.varies.any():
        raise NotApplicable("every field that explains the target is constant in the source")
    return float(np.abs(source.coefficients - destination.coefficients)[source.varies].mean())


def _find(comparison: Comparison) -> Finding:
    both = target_regressions(comparison)
    if not len(both.source.coefficients):
        raise NotApplicable("no level of the categories that explain the target is frequent enough")
    return Finding(il3(both.source, both.destination), both.fields)


MEASURE = Measure(
    key="il3",
    title="Change of regression coefficients",
    concerns="utility",
    goal="low",
    range="0 or more",
    formula="mean of |b(Y) - b(X)| over the columns that vary in X, b the standardised coefficients of the "
    "target; a category has a column for each level but its most frequent one",
    source="Perry, Matloff and Tendick 2024, 9.4",
    cost="O(n p^2)",
    find=_find,
    extremes=Extremes("squares"),
    needs=("target",),
)
