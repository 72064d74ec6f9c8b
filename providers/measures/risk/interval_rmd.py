"""Interval disclosure with intervals that widen with a row's robust distance from the other rows."""

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.robust_covariance import independent_fields, robust_covariance

_WIDTH = 0.01 * 0.05
"""sdcMicro's k, times its factor of the distances."""
_FEWEST = 10
"""Least number of complete rows, for tables of one or two fields."""


def interval_rmd(source: Float64Array, destination: Float64Array) -> dict[str, float]:
    """Share of rows of which any value is within the row's own interval, by two scales.

    Parameters
    ----------
    source, destination : ndarray, shape (n, fields)
        Numbers, none missing; no field of the source constant.

    Returns
    -------
    dict
        ``own``: each table's z-scores by its own mean and standard deviation, as in dRiskRMD, which hides
        unmodified cells wherever a field's mean or deviation has changed; ``source``: both by the
        source's; ``support``: the share of the rows that the covariance rests on.

    Raises
    ------
    NotApplicable
        A z-score is beyond float64.

    Notes
    -----
    The distance of a row is from the mean, as in dRiskRMD. O(n p^2), a few hundred times.

    References
    ----------
    Templ and Meindl 2008, Robust statistics meets SDC, doi:10.1007/978-3-540-87471-3_10.
    """
    mean, deviation = source.mean(axis=0), source.std(axis=0, ddof=1)
    x = (source - mean) / deviation
    if not (np.isfinite(x).all() and np.isfinite(deviation).all()):
        raise NotApplicable("the numbers are too large, or too close to each other, for float64")
    kept = independent_fields(x)
    covariance, support = robust_covariance(x[:, kept])
    distances = np.sqrt(np.einsum("ij,ij->i", x[:, kept] @ np.linalg.inv(covariance), x[:, kept]))
    reach = (_WIDTH * distances)[:, np.newaxis]
    own_deviation = destination.std(axis=0, ddof=1)
    own_deviation[own_deviation == 0] = 1.0
    own = (destination - destination.mean(axis=0)) / own_deviation
    by_source = (destination - mean) / deviation
    return {
        "own": float((np.abs(own - x) < reach).any(axis=1).mean()),
        "source": float((np.abs(by_source - x) < reach).any(axis=1).mean()),
        "support": support,
    }


def _find(comparison: Comparison) -> Finding:
    comparison.need_aligned()
    fields = comparison.need_numeric()
    # The whole table decides on the fields: by a sample, a field would be in or out by chance.
    kept = [
        index
        for index, name in enumerate(fields)
        if not _mostly_one_value(comparison.columns[name].numbers("source"))
        and not _mostly_missing(comparison.columns[name].numbers("destination"))
    ]
    if not kept:
        raise NotApplicable("in every field of numbers half of the values or more are equal or missing")
    before, after = (table[:, kept] for table in comparison.sampled_matrices)
    complete = ~np.isnan(before).any(axis=1) & ~np.isnan(after).any(axis=1)
    if complete.sum() < max(_FEWEST, 5 * len(kept)):
        raise NotApplicable("it needs 10 rows without a missing number, and 5 for each field")
    before, after = before[complete], after[complete]
    varying = np.flatnonzero(np.ptp(before, axis=0) > 0)
    if not len(varying):
        raise NotApplicable("every field is constant in the rows without a missing number")
    value = interval_rmd(before[:, varying], after[:, varying])
    return Finding(value, [fields[kept[index]] for index in varying], comparison.sample.size)


def _mostly_one_value(values: Float64Array) -> bool:
    """Whether half of the values or more are missing, or half of the others or more are equal."""
    present = values[~np.isnan(values)]
    if 2 * len(present) < len(values) or not len(present):
        return True
    return 2 * int(np.unique(present, return_counts=True)[1].max()) >= len(present)


def _mostly_missing(values: Float64Array) -> bool:
    """Whether more than half of the values are missing."""
    return 2 * int(np.count_nonzero(~np.isnan(values))) < len(values)


MEASURE = Measure(
    key="interval_rmd",
    title="Interval disclosure by robust Mahalanobis distances",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="share of rows i with |y_if - x_if| < .01 x .05 x RMD_i for any field f, on z-scores: by each "
    "table's own mean and deviation, and by the source's; RMD by the reweighted MCD with its consistency "
    "factors, of half of the rows, or of the larger share `support` where half lie on a hyperplane",
    source="sdcMicro, dRiskRMD (Templ and Meindl 2008), risk1, with covMcd of robustbase from 0.99-0 on; "
    "FAST-MCD (Rousseeuw and Van Driessen 1999), factors of Croux and Haesbroeck 1999 and Pison et al. 2002",
    cost="O(n p^2) many times over: on the sample",
    find=_find,
    parts=(Part("source"), Part("own")),
    words={
        "own": "each table scaled by itself",
        "source": "both scaled by the source",
        "support": "share of rows that the covariance rests on",
    },
)
