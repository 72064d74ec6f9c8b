"""Clustering error: share of rows that k-means puts into another cluster after than before."""

import math

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import BEYOND_FLOAT64, Finding, NotApplicable
from providers.measures.shared.measure import Measure
from providers.measures.shared.repeats import DRAWS, intervals, mean_of_draws
from providers.measures.shared.sampling import random_state

CLUSTERS = 8
_STARTS = 10
"""Random starts of k-means, of which the best is taken."""
_FEWEST = 10
"""Least number of rows."""


def clustering_error(
    source: Float64Array, destination: Float64Array, random_state: int, clusters: int = CLUSTERS
) -> float:
    """Share of rows that k-means puts into another cluster after than before.

    Parameters
    ----------
    source, destination : ndarray, shape (n, fields)
        Row i of the source became row i of the destination. Scaled by the source's ranges, none missing.
    random_state : int
    clusters : int
        At most the number of distinct rows of the source.

    Notes
    -----
    The source is clustered from the best of 10 starts, the destination from the source's centres. The
    clusters are matched so that most rows agree (Kuhn 1955, doi:10.1002/nav.3800020109). O(n) per step.
    """
    from scipy.optimize import linear_sum_assignment  # takes a second to import and is rarely needed
    from sklearn.cluster import KMeans

    first = KMeans(clusters, n_init=_STARTS, random_state=random_state).fit(source)
    second = KMeans(clusters, init=first.cluster_centers_, n_init=1).fit(destination)
    shared_rows = np.zeros((clusters, clusters), np.int64)
    np.add.at(shared_rows, (first.labels_, second.labels_), 1)
    matched = shared_rows[linear_sum_assignment(shared_rows, maximize=True)].sum()
    return float(1 - matched / len(source))


def _find(comparison: Comparison) -> Finding:
    comparison.need_aligned()
    comparison.need_rows(_FEWEST)
    fields = comparison.need_numeric()
    before, after = _scaled_samples(comparison)
    if not np.isfinite(before).all() or not np.isfinite(after).all():
        raise NotApplicable("numbers are too far from the source's range for a distance")
    clusters = min(CLUSTERS, len(np.unique(before, axis=0)))
    if clusters < 2 or len(before) < _FEWEST:
        raise NotApplicable("it needs two different rows or more, and 10 in all")
    draws = []
    for draw in range(DRAWS):
        comparison.progress(draw / DRAWS, "clustering")
        state = random_state(comparison.stream, f"clustering_error/{draw}")
        draws.append({"": clustering_error(before, after, state, clusters)})
    interval = intervals(draws, (0.0, 1.0))[""]
    notes = {"clusters": clusters, "draws": DRAWS, "interval": interval}
    return Finding(mean_of_draws(draws)[""], fields, comparison.sample.size, notes)


def _scaled_samples(comparison: Comparison) -> tuple[Float64Array, Float64Array]:
    """Scale the numbers of the sample by the whole source's ranges, missing ones at the source's median."""
    before, after = (np.array(table) for table in comparison.sampled_matrices)
    for column, name in enumerate(comparison.numeric):
        numbers = comparison.columns[name].numbers("source")
        present = numbers[~np.isnan(numbers)]
        low, high = (float(present.min()), float(present.max())) if len(present) else (0.0, 0.0)
        if math.isinf(high - low):
            raise NotApplicable(BEYOND_FLOAT64)
        median = float(np.median(present)) if len(present) else 0.0
        for table in (before, after):
            table[np.isnan(table[:, column]), column] = median
            table[:, column] = (table[:, column] - low) / ((high - low) or 1.0)
    return before, after


MEASURE = Measure(
    key="clustering_error",
    title="Clustering error",
    concerns="utility",
    goal="low",
    range="0 to 1",
    formula=f"1 - (most rows that a matching of clusters keeps together) / n; k-means, {CLUSTERS} clusters, "
    "on the source, then on the destination from its centres, both scaled by the source's ranges; the mean "
    f"of {DRAWS} draws of the starts, with its 95 % interval",
    source="Xue, Karras, Raissi and Pung 2011; Kuhn 1955, doi:10.1002/nav.3800020109",
    cost="O(n) a step, many steps: on the sample",
    find=_find,
)
