"""DCR: distance to the closest record of the release."""

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.record_distance import COST_AMONG_SAMPLE
from providers.neighbours.closest_record import Closest, closest
from providers.neighbours.points import Points


def dcr(found: Closest) -> dict[str, float]:
    """Mean and fifth percentile of the distances to the closest record, and share of distances that are 0."""
    distances = found.distances
    return {
        "mean": float(distances.mean()),
        "p05": float(np.percentile(distances, 5)),
        "at_zero": float(np.mean(distances == 0)),
    }


def raw_dcr(source: Float64Array, destination: Float64Array) -> float:
    """Mean distance to the closest record in the fields' own units; shapes (n, fields)."""
    no_codes = np.zeros((len(source), 0), np.int32)
    one, two = (
        Points(np.ascontiguousarray(table, np.float64), no_codes, 0, 0.0) for table in (source, destination)
    )
    return float(closest(one, two).distances.mean())


def _find(comparison: Comparison) -> Finding:
    fields = comparison.need_compared()
    value: dict[str, float | None] = {**dcr(comparison.closest), "raw_mean": None}
    complete = [table[~np.isnan(table).any(axis=1)] for table in comparison.sampled_matrices]
    count = min(len(table) for table in complete)
    if comparison.numeric and count:
        value["raw_mean"] = raw_dcr(complete[0][:count], complete[1][:count])
    return Finding(value, fields, comparison.sample.size)


MEASURE = Measure(
    key="dcr",
    title="Distance to the closest record",
    concerns="risk",
    goal="high",
    range="0 or more",
    formula="m_i, the least distance of x_i to any y_j: mean, 5th percentile, share of m_i = 0",
    source="Perry, Matloff and Tendick 2024, 9.1.5 and 9.4",
    cost=COST_AMONG_SAMPLE,
    find=_find,
    parts=(Part("mean"), Part("p05"), Part("at_zero", goal="low"), Part("raw_mean")),
    words={"at_zero": "share at distance 0", "raw_mean": "mean, in the fields' own units"},
)
