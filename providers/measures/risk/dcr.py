"""DCR: distance to the closest record of the release."""

from typing import Any

import numpy as np

from providers.arrays import Float64Array, Int64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.record_distance import COST_AMONG_SAMPLE, SCALED_BY_RANGE
from providers.measures.shared.repeats import interval_of_rows, mean_interval, quantile_interval
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


def _of_ranks(found: Closest) -> dict[str, float]:
    """Mean and fifth percentile of the distances on ranks; the share at 0 is that of the numbers."""
    figures = dcr(found)
    return {name: figures[name] for name in ("mean", "p05")}


def raw_distances(source: Float64Array, destination: Float64Array) -> Float64Array:
    """Distance of each row of the source to the closest record, in the fields' own units.

    Parameters
    ----------
    source, destination : ndarray of float64, shapes (n, fields) and (m, fields)
        None missing; n and m at least 1.

    Returns
    -------
    ndarray of float64, shape (n,)
    """
    one, two = (
        Points(np.ascontiguousarray(table, np.float64), np.zeros((len(table), 0), np.int32), 0, 0.0)
        for table in (source, destination)
    )
    return closest(one, two).distances


def _intervals(
    distances: Float64Array, clusters: Int64Array | None, raw: Float64Array, raw_clusters: Int64Array | None
) -> dict[str, dict[str, float]]:
    """Confidence intervals (95 %) of the figures for rows like those sampled, two or more."""
    found = {
        "mean": mean_interval(distances, clusters),
        "p05": quantile_interval(distances, 0.05, clusters),
        "at_zero": interval_of_rows((distances == 0).astype(np.float64), clusters),
    }
    return {**found, "raw_mean": mean_interval(raw, raw_clusters)} if len(raw) > 1 else found


def _find(comparison: Comparison) -> Finding:
    fields, rows = comparison.need_compared(), comparison.sample.size
    found, raw = comparison.closest, np.empty(0)
    masks = [~np.isnan(table).any(axis=1) for table in comparison.sampled_matrices]
    complete = [table[mask] for table, mask in zip(comparison.sampled_matrices, masks, strict=True)]
    if comparison.numeric and all(map(len, complete)):
        raw = raw_distances(complete[0], complete[1])
    value: dict[str, Any] = {**dcr(found), "raw_mean": float(raw.mean()) if len(raw) else None}
    ranked = closest(*comparison.points(fields, by_ranks=True)) if comparison.numeric else None
    if ranked is not None:
        value["ranks"] = _of_ranks(ranked)
    if rows is None:
        return Finding(value, fields)
    clusters = comparison.sampled_clusters
    of_complete = None if clusters is None else clusters[masks[0]]
    intervals: dict[str, Any] = _intervals(found.distances, clusters, raw, of_complete)
    if ranked is not None:
        distances = ranked.distances
        intervals["ranks"] = {
            "mean": mean_interval(distances, clusters),
            "p05": quantile_interval(distances, 0.05, clusters),
        }
    return Finding(value, fields, rows, {"interval": intervals})


MEASURE = Measure(
    key="dcr",
    title="Distance to the closest record",
    concerns="risk",
    goal="high",
    range="0 or more",
    formula="m_i, the least distance of x_i to any y_j: mean, 5th percentile, share of m_i = 0; raw_mean: "
    "the mean on the numbers in their own units, over the rows of X and Y that miss none; ranks: with the "
    "rank of each number among the source's in its place, scaled like a number, so that extreme values "
    "hide nothing",
    source="Perry, Matloff and Tendick 2024, 9.1.5 and 9.4",
    cost=COST_AMONG_SAMPLE,
    find=_find,
    extremes=SCALED_BY_RANGE,
    parts=(
        Part("mean"),
        Part("p05"),
        Part("at_zero", goal="low", share_of_rows=True),
        Part("raw_mean"),
        Part("ranks.mean", words="on ranks, mean"),
        Part("ranks.p05", words="on ranks, 5th percentile"),
    ),
    words={
        "at_zero": "share at distance 0",
        "raw_mean": "mean, in the fields' own units",
        "ranks": "on ranks",
    },
)
