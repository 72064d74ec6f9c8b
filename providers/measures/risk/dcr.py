"""DCR: distance to the closest record of the release."""

from typing import Any, NamedTuple

import numpy as np

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.grouping.shuffle import shuffle_rows
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import ByChance, Measure, Part
from providers.measures.shared.record_distance import COST_AMONG_SAMPLE, SCALED_BY_RANGE
from providers.measures.shared.repeats import DRAWS, interval_of_rows, mean_interval, quantile_interval
from providers.measures.shared.sampling import sample_rows
from providers.neighbours.closest_record import closest
from providers.neighbours.points import Points

_DEALT_ROWS = 1_000
"""Number of rows whose distances by chance are measured; of fewer rows in several draws."""


class _Distances(NamedTuple):
    """Distances of rows to their closest records, in the three scales of the measure."""

    scaled: Float64Array
    """Distances on numbers scaled by their ranges; shape (rows,)."""
    ranked: Float64Array | None
    """Distances on ranks of numbers; shape (rows,). None without numbers."""
    raw: Float64Array
    """Distances in the fields' own units; shape (rows without a missing number,), maybe empty."""

    @property
    def value(self) -> dict[str, Any]:
        """Parts of the measure's value."""
        value: dict[str, Any] = {**dcr(self.scaled), "raw_mean": None}
        if len(self.raw):
            value["raw_mean"] = float(self.raw.mean())
        if self.ranked is not None:
            figures = dcr(self.ranked)  # the share at 0 is that of the numbers
            value["ranks"] = {name: figures[name] for name in ("mean", "p05")}
        return value

    def intervals(
        self, clusters: Int64Array | None = None, raw_clusters: Int64Array | None = None
    ) -> dict[str, Any]:
        """Confidence intervals (95 %) of the parts for rows like these, two or more.

        Parameters
        ----------
        clusters, raw_clusters : ndarray of int64, shape (rows,), optional
            Unit or household of each row, and of each row without a missing number.
        """
        found: dict[str, Any] = {
            "mean": mean_interval(self.scaled, clusters),
            "p05": quantile_interval(self.scaled, 0.05, clusters),
            "at_zero": interval_of_rows((self.scaled == 0).astype(np.float64), clusters),
        }
        if len(self.raw) > 1:
            found["raw_mean"] = mean_interval(self.raw, raw_clusters)
        if self.ranked is not None:
            found["ranks"] = {
                "mean": mean_interval(self.ranked, clusters),
                "p05": quantile_interval(self.ranked, 0.05, clusters),
            }
        return found


def dcr(distances: Float64Array) -> dict[str, float]:
    """Mean and fifth percentile of the distances to the closest record, and share of distances that are 0."""
    return {
        "mean": float(distances.mean()),
        "p05": float(np.percentile(distances, 5)),
        "at_zero": float(np.mean(distances == 0)),
    }


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


def _complete(numbers: Float64Array) -> BoolArray:
    """Return which rows miss no number; shape (rows,)."""
    return np.asarray(~np.isnan(numbers).any(axis=1))


def _find(comparison: Comparison) -> Finding:
    fields, rows = comparison.need_compared(), comparison.sample.size
    raw, ranked = np.empty(0), None
    before, after = comparison.sampled_matrices
    complete = _complete(before)
    if comparison.numeric:
        ranked = closest(*comparison.points(fields, by_ranks=True)).distances
        if complete.any() and _complete(after).any():
            raw = raw_distances(before[complete], after[_complete(after)])
    found = _Distances(comparison.closest.distances, ranked, raw)
    if rows is None:
        return Finding(found.value, fields)
    clusters = comparison.sampled_clusters
    intervals = found.intervals(clusters, None if clusters is None else clusters[complete])
    return Finding(found.value, fields, rows, {"interval": intervals})


def _by_chance(comparison: Comparison) -> ByChance:
    """Values if each field's released values are dealt to the sample's rows at random.

    The distances of up to 1,000 rows to the rows of one deal, or of fewer rows to those of up to ten deals.
    """
    count = len(comparison.sample.source)
    draws = min(DRAWS, -(-_DEALT_ROWS // count))
    rows = sample_rows(count, _DEALT_ROWS, comparison.stream, "dcr/by chance")
    dealt = [_dealt(comparison, rows, f"dcr/by chance/{draw}") for draw in range(draws)]
    scaled, ranked, raw = zip(*dealt, strict=True)
    found = _Distances(
        np.concatenate(scaled),
        np.concatenate(ranked) if comparison.numeric else None,
        np.concatenate(raw),
    )
    return ByChance(found.value, found.intervals() if len(found.scaled) > 1 else {})


def _dealt(comparison: Comparison, rows: Int64Array, purpose: str) -> _Distances:
    """Distances of some rows of the sample to the closest rows of a random deal of the released values."""
    fields, count = comparison.need_compared(), len(comparison.sample.source)
    orders = {name: shuffle_rows(count, comparison.stream.key(f"{purpose}/{name}")).order for name in fields}

    def distances(by_ranks: bool) -> Float64Array:
        points, others = comparison.points(fields, by_ranks, orders)
        return closest(points.rows(rows), others).distances

    raw, ranked = np.empty(0), None
    if comparison.numeric:
        ranked = distances(by_ranks=True)
        before, released = comparison.sampled_matrices
        after = np.column_stack([released[orders[name], at] for at, name in enumerate(comparison.numeric)])
        known = before[rows]
        if _complete(known).any() and _complete(after).any():
            raw = raw_distances(known[_complete(known)], after[_complete(after)])
    return _Distances(distances(by_ranks=False), ranked, raw)


MEASURE = Measure(
    key="dcr",
    title="Distance to the closest record",
    concerns="risk",
    goal="high",
    range="0 or more",
    formula="m_i, the least distance of x_i to any y_j: mean, 5th percentile, share of m_i = 0; raw_mean: "
    "the mean on the numbers in their own units, over the rows of X and Y that miss none; ranks: with the "
    "rank of each number among the source's in its place, scaled like a number, so that extreme values "
    "hide nothing; chance: the value if each field's released values are dealt to the rows at random, on up "
    "to 1,000 rows, or on ten draws of fewer",
    source="Perry, Matloff and Tendick 2024, 9.1.5 and 9.4",
    cost=COST_AMONG_SAMPLE,
    find=_find,
    by_chance=_by_chance,
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
