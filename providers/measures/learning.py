"""What learners make of the release: clusters, and predictions of rows that were set aside."""

from typing import Any

import numpy as np
import numpy.typing as npt

from providers.measures.measure import Measure

Float64Array = npt.NDArray[np.float64]

CLUSTERS = 8
_STARTS = 10  # the best of so many is taken
TREES = 100


def clustering_error(
    source: Float64Array, destination: Float64Array, random_state: int, clusters: int = CLUSTERS
) -> float:
    """Share of rows that k-means puts into another cluster after than before.

    Parameters
    ----------
    source, destination : ndarray, shape (n, fields)
        Row i of the one became row i of the other; both scaled by the source's ranges; nothing missing.
    random_state : int
    clusters : int
        Not more than the distinct rows of the source.

    Notes
    -----
    The source is clustered from the best of 10 starts, the destination from the centres found there; the
    clusters are matched so that the most rows agree (Kuhn 1955, doi:10.1002/nav.3800020109). O(n) a step.
    """
    from scipy.optimize import linear_sum_assignment  # a second to import, for this report only
    from sklearn.cluster import KMeans

    first = KMeans(clusters, n_init=_STARTS, random_state=random_state).fit(source)
    second = KMeans(clusters, init=first.cluster_centers_, n_init=1).fit(destination)
    together = np.zeros((clusters, clusters), np.int64)
    np.add.at(together, (first.labels_, second.labels_), 1)
    matched = together[linear_sum_assignment(together, maximize=True)].sum()
    return float(1 - matched / len(source))


def prediction(
    source: Float64Array,
    destination: Float64Array,
    source_target: npt.NDArray[Any],
    destination_target: npt.NDArray[Any],
    test: Float64Array,
    test_target: npt.NDArray[Any],
    categories: bool,
    random_state: int,
) -> dict[str, float]:
    """How well a forest predicts untouched rows, grown on the source and on the destination.

    Parameters
    ----------
    source, destination : ndarray, shape (n, fields), (m, fields)
        What the two forests are grown on; NaN where missing.
    source_target, destination_target : ndarray, shape (n,), (m,)
    test : ndarray, shape (t, fields)
        Rows of the source that took no part in anything.
    test_target : ndarray, shape (t,)
    categories : bool
        Whether the target is codes: then accuracy is told, else R^2.
    random_state : int

    References
    ----------
    Breiman 2001, doi:10.1023/A:1010933404324.
    """
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    forest = RandomForestClassifier if categories else RandomForestRegressor
    found = {}
    for name, fields, target in (
        ("source", source, source_target),
        ("destination", destination, destination_target),
    ):
        grown = forest(TREES, random_state=random_state, max_features="sqrt").fit(fields, target)
        found[name] = float(grown.score(test, test_target))
    return found


CLUSTERING_ERROR = Measure(
    key="clustering_error",
    title="Clustering error",
    concerns="utility",
    goal="low",
    range="0 to 1",
    formula=f"1 - (most rows that a matching of clusters keeps together) / n; k-means, {CLUSTERS} clusters, "
    "on the source, then on the destination from its centres, both scaled by the source's ranges",
    source="Xue, Karras, Raissi and Pung 2011; Kuhn 1955, doi:10.1002/nav.3800020109",
    cost="O(n) a step, many steps: on the sample",
    compute=clustering_error,
)

PREDICTION = Measure(
    key="prediction",
    title="Prediction of rows set aside",
    concerns="utility",
    goal="high",
    range="accuracy 0 to 1, or R^2 up to 1",
    formula=f"a forest of {TREES} trees for the target, grown on 4 rows of 5 of the source and on the same "
    "rows as the service changes them; accuracy (categories) or R^2 (numbers) on the fifth, set aside before",
    source="Perry, Matloff and Tendick 2024, 9.5; Chamikara et al. 2019, 5.2.4; Breiman 2001",
    cost="O(n log n) a tree, and a run of the service: on the sample",
    compute=prediction,
)
