"""R squared of a regression of the target, before and after."""

from providers.measures.models.linear_model import Regression
from providers.measures.models.target_regression import target_regressions
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import Extremes, Measure, Part


def r_squared(source: Regression, destination: Regression) -> dict[str, float]:
    """Share of the target's variance that is explained, in both tables, and its absolute change."""
    before, after = source.r_squared, destination.r_squared
    return {"before": before, "after": after, "change": abs(after - before)}


def _find(comparison: Comparison) -> Finding:
    both = target_regressions(comparison)
    return Finding(r_squared(both.source, both.destination), both.fields)


MEASURE = Measure(
    key="r_squared",
    title="R squared",
    concerns="utility",
    goal="near",
    range="0 to 1",
    formula="1 - sum e^2 / sum y^2 of the target on the rest, standardised within each table; change: "
    "|after - before|, by which releases are ranked",
    source="Perry, Matloff and Tendick 2024, 9.4",
    cost="O(n p^2)",
    find=_find,
    extremes=Extremes("squares"),
    parts=(Part("change", goal="low"),),
    needs=("target",),
)
