"""PSCR: share of rows whose own row is the closest one of the release."""

from typing import Any

from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.record_distance import COST_AMONG_SAMPLE, SCALED_BY_RANGE, chances_of_link
from providers.measures.shared.repeats import interval_of_rows


def _find(comparison: Comparison) -> Finding:
    comparison.need_aligned()
    fields = comparison.need_compared()
    chances, rows = chances_of_link(comparison.closest), comparison.sample.size
    # Released rows dealt to the source's rows at random: the own row is one of the t_i with chance t_i / n.
    notes: dict[str, Any] = {"chance": 1 / len(comparison.sample.source)}
    if rows is not None:
        notes["interval"] = interval_of_rows(chances, comparison.sampled_clusters)
    return Finding(float(chances.mean()), fields, rows, notes)


MEASURE = Measure(
    key="pscr",
    title="Share of rows whose own released row is the closest",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="mean over i of [d(x_i, y_i) = m_i] / t_i, m_i the least distance to any y_j, attained t_i "
    "times; chance: 1 / n, of the n rows that are compared",
    source="Perry, Matloff and Tendick 2024, 9.1.4",
    cost=COST_AMONG_SAMPLE,
    find=_find,
    extremes=SCALED_BY_RANGE,
    parts=(Part(guessing=True, share_of_rows=True),),
    words={"chance": "by chance alone"},
)
