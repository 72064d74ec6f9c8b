"""Change of the first two principal components (IL2)."""

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Extremes, Measure, Part


def components(matrix: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Principal components of the standardised fields, and each one's share of the variance.

    Parameters
    ----------
    matrix : ndarray, shape (fields, fields)
        Correlations; undefined ones count as 0.

    Returns
    -------
    ndarray, shape (fields, fields)
        One component a row, in descending order of variance.
    ndarray, shape (fields,)
        Shares of the variance.
    """
    complete = np.nan_to_num(matrix, nan=0.0)
    np.fill_diagonal(complete, 1.0)
    variances, vectors = np.linalg.eigh(complete)
    return vectors.T[::-1], variances[::-1] / variances.sum()


def change_of_components(source: Float64Array, destination: Float64Array) -> list[float]:
    """Mean absolute difference of the loadings, for the first and the second principal component.

    The sign of a component is arbitrary: the one with the smaller difference is taken.

    Parameters
    ----------
    source, destination : ndarray, shape (fields, fields)
        Correlations.
    """
    one, two = components(source)[0], components(destination)[0]
    return [
        float(min(np.abs(one[index] - two[index]).mean(), np.abs(one[index] + two[index]).mean()))
        for index in range(min(2, len(one)))
    ]


def _find(comparison: Comparison) -> Finding:
    before, after = comparison.correlations
    varying = np.flatnonzero(~np.isnan(np.diag(before)))
    if len(varying) < 2:
        raise NotApplicable("fewer than two fields of numbers vary in the source")
    kept = np.ix_(varying, varying)
    first, second = change_of_components(before[kept], after[kept])
    shares = zip(components(before[kept])[1].tolist(), components(after[kept])[1].tolist(), strict=True)
    value = {
        "pc1": first,
        "pc2": second,
        "variance_shares": [
            {"component": number, "before": one, "after": two} for number, (one, two) in enumerate(shares, 1)
        ],
    }
    return Finding(value, [comparison.numeric[index] for index in varying])


MEASURE = Measure(
    key="il2",
    title="Change of principal components",
    concerns="utility",
    goal="low",
    range="0 to 2",
    formula="mean over the fields of |loading in Y - in X|, for the first two components, signs aligned; "
    "variance_shares: each component's share of the variance of the standardised fields, in descending order",
    source="Perry, Matloff and Tendick 2024, 9.4; variance shares: 9.3.2, figure 6",
    cost="O(n) for each pair of fields",
    find=_find,
    extremes=Extremes("squares"),
    parts=(Part("pc1"), Part("pc2")),
    words={
        "pc1": "first component",
        "pc2": "second component",
        "variance_shares": "shares of the variance, by component",
    },
)
