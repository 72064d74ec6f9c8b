"""Clustering error: share of rows that k-means puts into another cluster after than before."""

import math
from collections.abc import Sequence

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import BEYOND_FLOAT64, Finding, NotApplicable
from providers.measures.shared.measure import Extremes, Measure
from providers.measures.shared.repeats import DRAWS, Interval, intervals, mean_of_draws, student_quantile
from providers.measures.shared.sampling import random_state, uniforms

CLUSTERS = 8
_STARTS = 10
"""Random starts of k-means, of which the best is taken."""
_FEWEST = 10
"""Least number of rows."""
_HALVES = 10
"""Number of random halves of a sample, whose errors estimate the spread of other samples."""


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
    The source is clustered from the best of 10 starts, then both tables from the centres found: k-means may
    move a few rows when it goes on from its own result, and the error of an unchanged table is 0. The
    clusters are matched so that most rows agree (Kuhn 1955, doi:10.1002/nav.3800020109). O(n) per step.
    """
    from scipy.optimize import linear_sum_assignment  # takes a second to import and is rarely needed
    from sklearn.cluster import KMeans

    centres = KMeans(clusters, n_init=_STARTS, random_state=random_state).fit(source).cluster_centers_
    first, second = (KMeans(clusters, init=centres, n_init=1).fit(table) for table in (source, destination))
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
    if comparison.sample.size is None:
        interval = intervals(draws, (0.0, 1.0))[""]
    else:
        halves = _errors_of_halves(comparison, before, after)
        interval = interval_of_sample([draw[""] for draw in draws], halves)
    notes = {"clusters": clusters, "draws": DRAWS, "interval": interval}
    return Finding(mean_of_draws(draws)[""], fields, comparison.sample.size, notes)


def _errors_of_halves(comparison: Comparison, before: Float64Array, after: Float64Array) -> list[float]:
    """Return the errors of random halves of the sampled rows, each with its own starts."""
    errors = []
    for half in range(_HALVES):
        comparison.progress(half / _HALVES, "clustering halves of the sample")
        purpose = f"clustering_error/half/{half}"
        rows = uniforms(len(before), comparison.stream, purpose).argsort(kind="stable")[: len(before) // 2]
        clusters = min(CLUSTERS, len(np.unique(before[rows], axis=0)))
        state = random_state(comparison.stream, f"{purpose}/starts")
        errors.append(clustering_error(before[rows], after[rows], state, clusters))
    return errors


def interval_of_sample(draws: Sequence[float], halves: Sequence[float]) -> Interval:
    """Confidence interval (95 %) of the mean error of draws on one sample, for other samples like it.

    Parameters
    ----------
    draws : sequence of float
        Errors of two or more random starts on the sample.
    halves : sequence of float
        Errors of random halves of it without replacement, each with its own starts.

    Notes
    -----
    The variance V of other samples is that of halves drawn without replacement, as for a mean of rows:
    (1 - 1/2) / (n / 2) = 1 / n. A half has the variance V + S, S that of one start; the mean of J draws has
    V + S / J. The halves' squares are taken about the value, so that they include their bias.

    References
    ----------
    Shao and Wu 1989, A general theory for jackknife variance estimation, Annals of Statistics 17(3),
    1176-1197, doi:10.1214/aos/1176347263: deleting half of the rows serves figures that are not smooth.
    """
    mean, count = math.fsum(draws) / len(draws), len(draws)
    of_start = math.fsum((draw - mean) ** 2 for draw in draws) / (count - 1)
    of_half = math.fsum((half - mean) ** 2 for half in halves) / len(halves)
    variance = max(of_half - (1 - 1 / count) * of_start, of_start / count)
    reach = student_quantile(len(halves)) * math.sqrt(variance)
    return {"low": max(0.0, mean - reach), "high": min(1.0, mean + reach)}


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
    "on the source, then on both from its centres, scaled by the source's ranges; the mean "
    f"of {DRAWS} draws of the starts, with its 95 % interval for other starts, and on a sample for other "
    f"rows, too, from {_HALVES} random halves of it (Shao and Wu 1989)",
    source="Xue, Karras, Raissi and Pung 2011; Kuhn 1955, doi:10.1002/nav.3800020109",
    cost="O(n) a step, many steps: on the sample",
    find=_find,
    extremes=Extremes("range", sides=("source",)),
    interval_of_draws=True,
    interval_of_samples=True,
)
