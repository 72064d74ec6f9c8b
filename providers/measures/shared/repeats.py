"""Confidence intervals: of means over several random draws, and of figures of sampled rows."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from providers.arrays import Float64Array, Int64Array

DRAWS = 10
"""Number of draws of a measure that depends on chance."""

_LEVEL = 0.95

Interval = dict[str, float]
"""Limits of an interval, ``{"low": ..., "high": ...}``."""


def student_quantile(freedom: float) -> float:
    """Half the width of a 95 % interval of Student's distribution, in standard errors."""
    from scipy.special import stdtrit  # slow to import and rarely needed

    return float(stdtrit(freedom, (1 + _LEVEL) / 2))


def normal_quantile(level: float = _LEVEL) -> float:
    """Half the width of an interval of this level of the normal distribution, in standard errors."""
    from scipy.special import ndtri  # slow to import and rarely needed

    return float(ndtri((1 + level) / 2))


def mean_of_draws(draws: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each figure over one or more draws; all draws have the same figures."""
    return {name: math.fsum(draw[name] for draw in draws) / len(draws) for name in draws[0]}


def intervals(
    draws: Sequence[Mapping[str, float]],
    bounds: tuple[float, float],
    test_share: float = 0.0,
) -> dict[str, dict[str, float]]:
    """Confidence interval (95 %) of the mean of each figure; empty for a single draw.

    Parameters
    ----------
    draws : sequence of mapping
        For each draw, figure -> value.
    bounds : tuple of float
        Least and greatest possible value of the figures; the intervals are cut there.
    test_share : float
        Test rows of a draw divided by its training rows; 0 if draws share no rows.

    Returns
    -------
    dict
        Figure -> ``{"low": ..., "high": ...}``.

    Notes
    -----
    Mean -+ t sd sqrt(1/J + test_share), t the quantile of Student's distribution with J - 1 degrees of
    freedom, J the number of draws. Draws that share training rows depend on each other, so that
    sd / sqrt(J) alone is too narrow: the second term corrects for that.

    References
    ----------
    Nadeau and Bengio 2003, Inference for the generalization error, Machine Learning 52, 239-281,
    doi:10.1023/A:1024068626366.
    """
    count = len(draws)
    if count < 2:
        return {}
    factor = student_quantile(count - 1) * math.sqrt(1 / count + test_share)
    found = {}
    for name, mean in mean_of_draws(draws).items():
        reach = factor * float(np.std([draw[name] for draw in draws], ddof=1))
        found[name] = {"low": max(bounds[0], mean - reach), "high": min(bounds[1], mean + reach)}
    return found


def share_interval(share: float, rows: float, level: float = _LEVEL) -> dict[str, float]:
    """Confidence interval of a share of rows; narrower, the more rows, and never empty at 0 and 1.

    It contains the share itself: the limits are not beyond it by their rounding errors.

    Parameters
    ----------
    share : float
    rows : float
        Number of rows, taken for a random sample of many like them, or their effective number; above 0.
    level : float
        Probability with which the interval covers the share of all rows.

    References
    ----------
    Wilson 1927, Journal of the American Statistical Association 22, 209-212,
    doi:10.1080/01621459.1927.10502953.
    """
    return _wilson(share, rows, normal_quantile(level))


def share_interval_of_variance(share: float, variance: float, freedom: int, rows: float) -> Interval:
    """Confidence interval (95 %) of a share whose variance is estimated, never empty at 0 and 1.

    Parameters
    ----------
    share : float
    variance : float
        Estimated variance of the share. It gives the effective number of rows.
    freedom : int
        Degrees of freedom of the variance, 1 or more.
    rows : float
        Effective number of rows at a share of 0 or 1, or with a variance of 0; above 0.

    References
    ----------
    Korn and Graubard 1998, Survey Methodology 24, 193-201: intervals of shares by effective sample sizes,
    with Student's quantile.
    """
    effective = share * (1 - share) / variance if variance > 0 else 0.0
    return _wilson(share, effective or rows, student_quantile(freedom))


def _wilson(share: float, rows: float, quantile: float) -> Interval:
    weight = quantile**2 / rows
    centre = share + weight / 2
    reach = quantile * math.sqrt(share * (1 - share) / rows + weight / (4 * rows))
    return {
        "low": min(share, max(0.0, (centre - reach) / (1 + weight))),
        "high": max(share, min(1.0, (centre + reach) / (1 + weight))),
    }


def interval_of_rows(values: Float64Array, clusters: Int64Array | None) -> Interval:
    """Confidence interval (95 %) of the mean of one or more values of 0 to 1, such as a share of rows.

    Parameters
    ----------
    values : ndarray of float64, shape (rows,)
    clusters : ndarray of int64, shape (rows,), optional
        Unit or household of each row, whose rows depend on each other; None: rows are independent.
    """
    share = float(values.mean())
    if clusters is None:
        return share_interval(share, len(values))
    variance, count = variance_of_mean(values, clusters)
    return share_interval_of_variance(share, variance, max(1, count - 1), count)


def variance_of_mean(values: Float64Array, clusters: Int64Array) -> tuple[float, int]:
    """Variance of the mean of values in clusters of any size, and the number of clusters; 0 for a single one.

    References
    ----------
    Särndal, Swensson and Wretman 1992, Model assisted survey sampling, section 5.6: linearisation of a ratio,
    the sum of the values by the number of rows.
    """
    _, numbers = np.unique(clusters, return_inverse=True)
    sums = np.bincount(numbers, values - values.mean())
    count = len(sums)
    variance = count / (count - 1) * float((sums * sums).sum()) / len(values) ** 2 if count > 1 else 0.0
    return variance, count


def mean_interval(values: Float64Array, clusters: Int64Array | None = None) -> dict[str, float]:
    """Confidence interval (95 %) of the mean of two or more values, none negative; by Student's t.

    Rows of a cluster depend on each other; without `clusters` each row is one.
    """
    mean = float(values.mean())
    if clusters is None:
        count, error = len(values), float(values.std(ddof=1)) / math.sqrt(len(values))
    else:
        variance, count = variance_of_mean(values, clusters)
        error = math.sqrt(variance)
    if count < 2:
        return {"low": 0.0, "high": float(values.max())}
    reach = student_quantile(count - 1) * error
    return {"low": max(0.0, mean - reach), "high": mean + reach}


def quantile_interval(
    values: Float64Array, share: float, clusters: Int64Array | None = None
) -> dict[str, float]:
    """Confidence interval (95 %) of the quantile at `share`, between two of the values, of shape (n,).

    Where n is too small for such a pair, an end is the least or the greatest value. If the rows are in
    clusters, the ranks are for the number of independent rows with the same error of the share below the
    quantile.

    References
    ----------
    David and Nagaraja 2003, Order Statistics, section 7.1: ranks by the binomial distribution.
    """
    ordered, tail, rows = np.sort(values), (1 - _LEVEL) / 2, len(values)
    independent = rows
    if clusters is not None:
        below = (values <= ordered[min(rows - 1, int(share * rows))]).astype(np.float64)
        variance, count = variance_of_mean(below, clusters)
        mean = float(below.mean())
        independent = min(rows, max(1, round(mean * (1 - mean) / variance))) if variance > 0 else count
    low = int((_binomial_quantile(tail, independent, share) - 1) * rows / independent)
    high = math.ceil(_binomial_quantile(1 - tail, independent, share) * rows / independent)
    return {"low": float(ordered[max(low, 0)]), "high": float(ordered[min(high, rows - 1)])}


def _binomial_quantile(probability: float, trials: int, share: float) -> int:
    """Least number that as many successes or fewer have at least the probability.

    `scipy.stats.binom` has it, too, whose import takes 0.6 s.
    """
    from scipy.special import bdtr, bdtrik

    number = math.ceil(float(bdtrik(probability, trials, share)))
    return number - 1 if number and bdtr(number - 1, trials, share) >= probability else number


def jackknife_interval(
    value: float, without: Sequence[float], bounds: tuple[float, float]
) -> dict[str, float]:
    """Confidence interval (95 %) of a figure by a delete-a-group jackknife.

    Parameters
    ----------
    value : float
        Figure on all rows.
    without : sequence of float
        Figure without each of two or more groups of about equal numbers of random rows.
    bounds : tuple of float
        Least and greatest possible value; the interval is cut there.

    References
    ----------
    Kott 2001, The delete-a-group jackknife, Journal of Official Statistics 17(4), 521-526.
    """
    groups = len(without)
    variance = (groups - 1) / groups * math.fsum((each - value) ** 2 for each in without)
    reach = student_quantile(groups - 1) * math.sqrt(variance)
    return {"low": max(bounds[0], value - reach), "high": min(bounds[1], value + reach)}
