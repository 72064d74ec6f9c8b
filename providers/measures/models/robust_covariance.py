"""Robust covariance: the reweighted minimum covariance determinant (MCD).

It is that of R's `covMcd`, which sdcMicro's `dRiskRMD` calls, with the same factors.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.measures.models import fast_mcd
from providers.randomness.chacha20 import Stream

_SEARCH = Stream(bytes(32), "fast_mcd", 1)
"""Randomness of the search: fixed, so that the value does not depend on the job's seed."""

_SUPPORTS = (0.5, 0.75, 1.0)
"""Shares alpha of the rows whose determinant is minimised, in the order in which they are tried."""

_OUTLIER = 0.975
"""Quantile of chi squared beyond which a row is left out of the reweighted covariance."""

_DEPENDENT = 1e-9
"""Share of its variance below which a field is a linear combination of the fields before it."""


def independent_fields(x: Float64Array) -> list[int]:
    """Return the columns that are no linear combination of the columns before them.

    Mahalanobis distances over these columns are those over all columns.

    Parameters
    ----------
    x : ndarray, shape (n, fields)
        z-scores.
    """
    kept: list[int] = []
    x = x - x.mean(axis=0)  # of huge numbers the mean is not exact; a covariance does not depend on it
    basis = np.zeros((len(x), 0))
    for column in range(x.shape[1]):
        residual = x[:, column]
        for _ in range(2):  # twice is enough: one projection leaves rounding errors in the basis
            residual = residual - basis @ (basis.T @ residual)
        squares = float(residual @ residual)
        if squares > _DEPENDENT * float(x[:, column] @ x[:, column]):
            kept.append(column)
            basis = np.column_stack([basis, residual / math.sqrt(squares)])
    return kept


class RobustFit(NamedTuple):
    """Robust covariance of a table, and the rows that it rests on."""

    covariance: Float64Array
    """Shape (fields, fields)."""
    share: float
    """Share alpha of the rows whose determinant was minimised."""
    support: BoolArray
    """These rows; shape (n,)."""


def robust_covariance(x: Float64Array, near: RobustFit | None = None) -> RobustFit:
    """Compute the reweighted MCD covariance.

    Parameters
    ----------
    x : ndarray, shape (n, fields)
        Independent columns, none constant.
    near : RobustFit, optional
        Fit of a table that differs by few rows, its support restricted to rows of `x`: the search
        continues from there instead of starting at random.

    Notes
    -----
    If half of the rows or more lie on a hyperplane, such as when two fields are mostly equal, the least
    determinant is 0 and says nothing about the other rows; `covMcd` ends there. Here a larger share of the
    rows is tried, up to all of them: the covariance is then less robust, but exists for every table.

    With h = floor(2 m - n + 2 (n - m) alpha) rows, m = (n + p + 1) div 2, the raw covariance of the h rows
    is multiplied by c(p, h/n) and by the factor for small samples. Rows whose squared distance is below
    the .975 quantile of chi squared with p degrees of freedom give the reweighted covariance, multiplied by
    c(p, .975) and by its factor for small samples. c(p, a) = a / P(chi^2_(p+2) <= q), q the a quantile of
    chi^2_p.

    References
    ----------
    Rousseeuw and Van Driessen 1999, doi:10.1080/00401706.1999.10485670: FAST-MCD.
    Croux and Haesbroeck 1999, doi:10.1006/jmva.1999.1839: c(p, a), eqs. 4.1 and 4.2.
    Pison, Van Aelst and Willems 2002, doi:10.1007/s001840200191: factors for small samples.
    """
    if near is not None:
        fit = _reweighted(x, near.share, near.support)
        if fit is not None:
            return fit
    for alpha in _SUPPORTS:
        fit = _reweighted(x, alpha)
        if fit is not None:
            return fit
    return RobustFit(_covariance(x), 1.0, np.ones(len(x), np.bool_))


def _reweighted(x: Float64Array, alpha: float, near: BoolArray | None = None) -> RobustFit | None:
    """Compute the reweighted covariance with the share `alpha`; None if it or the raw one is singular."""
    rows, fields = x.shape
    half = (rows + fields + 1) // 2
    size = min(rows, math.floor(2 * half - rows + 2 * (rows - half) * alpha))
    chosen = _least_determinant(x, size, near)
    support = np.zeros(rows, np.bool_)
    support[chosen] = True
    raw = _covariance(x[chosen])
    if _is_singular(raw):
        return None
    if size < rows:
        raw *= consistency_factor(fields, size / rows) * small_sample_factor(fields, rows, alpha, _RAW)
    centred = x - x[chosen].mean(axis=0)
    squares = np.einsum("ij,ij->i", centred @ np.linalg.inv(raw), centred)
    inside = squares < _chi_squared_quantile(_OUTLIER, fields)
    covariance = _covariance(x[inside])
    if inside.sum() < size / 2 or _is_singular(covariance):
        return None
    if inside.all():
        return RobustFit(covariance, alpha, support)
    factor = small_sample_factor(fields, rows, alpha, _REWEIGHTED)
    return RobustFit(covariance * consistency_factor(fields, _OUTLIER) * factor, alpha, support)


def _least_determinant(x: Float64Array, size: int, near: BoolArray | None = None) -> Int64Array:
    """Find the `size` rows whose covariance has the least determinant that FAST-MCD finds."""
    rows, fields = x.shape
    if size == rows:
        return np.arange(rows)
    if fields == 1:
        return _least_variance(x[:, 0], size)
    if near is not None:
        return fast_mcd.continued(x, size, near)
    return fast_mcd.least_determinant(x, size, _SEARCH)


def _least_variance(values: Float64Array, size: int) -> Int64Array:
    """Find the `size` values of least variance exactly: they are adjacent in sorted order. O(n log n)."""
    order = np.argsort(values, kind="stable")
    ranked = values[order] - np.median(values)
    sums, squares = (np.concatenate([[0.0], np.cumsum(power)]) for power in (ranked, ranked**2))
    starts = np.arange(len(values) - size + 1)
    total = sums[starts + size] - sums[starts]
    first = int(np.argmin(squares[starts + size] - squares[starts] - total**2 / size))
    return np.sort(order[first : first + size])


def _covariance(x: Float64Array) -> Float64Array:
    return np.atleast_2d(np.cov(x, rowvar=False))


def _is_singular(covariance: Float64Array) -> bool:
    """Whether the correlations of the fields are of lower rank, or a field is constant."""
    deviations = np.sqrt(np.diag(covariance))
    if not (deviations > 0).all():  # also if they are NaN, for fewer than two rows
        return True
    correlations = covariance / np.outer(deviations, deviations)
    return bool(np.linalg.eigvalsh(correlations)[0] < _DEPENDENT)


def consistency_factor(fields: int, share: float) -> float:
    """c(p, a): factor from the covariance of the central share of normal rows to that of all rows."""
    from scipy.special import chdtr  # slow to import and rarely needed

    return float(share / chdtr(fields + 2, _chi_squared_quantile(share, fields)))


def _chi_squared_quantile(share: float, fields: int) -> float:
    """Quantile as `scipy.stats.chi2` computes it, whose import takes 0.6 s."""
    from scipy.special import gammaincinv

    return float(2 * gammaincinv(fields / 2, share))


_Coefficients = dict[str, Any]

_RAW: _Coefficients = {
    "one": ((0.262024211897096, 0.604756680630497), (-0.351584646688712, 1.01646567502486)),
    "two": ((0.673292623522027, 0.691365864961895), (0.446537815635445, 1.06690782995919)),
    "more": (
        ((-1.42764571687802, 1.26263336932151, 2), (-1.06141115981725, 1.28907991440387, 3)),
        ((-0.455179464070565, 1.11192541278794, 2), (-0.294241208320834, 1.09649329149811, 3)),
    ),
}
"""Coefficients of Pison, Van Aelst and Willems 2002 for the raw covariance, for alpha .5 and .875.

One and two fields: ln of the factor, and exponent of n. More fields: (factor, exponent, q) of their table
for q = 2 and 3.
"""

_REWEIGHTED: _Coefficients = {
    "one": ((1.11098143415027, 1.5182890270453), (-0.66046776772861, 0.88939595831888)),
    "two": ((3.11101712909049, 1.91401056721863), (0.79473550581058, 1.10081930350091)),
    "more": (
        ((-1.02842572724793, 1.67659883081926, 2), (-0.26800273450853, 1.35968562893582, 3)),
        ((-0.544482443573914, 1.25994483222292, 2), (-0.343791072183285, 1.25159004257133, 3)),
    ),
}
"""The same coefficients for the reweighted covariance."""


def small_sample_factor(fields: int, rows: int, alpha: float, table: _Coefficients) -> float:
    """Factor for small samples by Pison, Van Aelst and Willems 2002; it tends to 1 for many rows.

    For some sizes `covMcd` uses simulated factors instead, which differ in the third digit.
    """
    at_half, at_most = (
        1 - math.exp(log_factor) / rows**exponent
        for log_factor, exponent in (
            {1: table["one"], 2: table["two"]}.get(fields)
            or [_fitted(fields, pair) for pair in table["more"]]
        )
    )
    if alpha <= 0.875:
        return float(1 / (at_half + (at_most - at_half) / 0.375 * (alpha - 0.5)))
    return float(1 / (at_most + (1 - at_most) / 0.125 * (alpha - 0.875)))


def _fitted(fields: int, pair: tuple[tuple[float, float, int], ...]) -> tuple[float, float]:
    """Fit log factor and exponent to the two points of the table, at n = q p^2 for q = 2 and 3."""
    heights = [math.log(-factor / fields**exponent) for factor, exponent, _ in pair]
    sides = [math.log(q * fields**2) for _, _, q in pair]
    slope = (heights[0] - heights[1]) / (sides[1] - sides[0])
    return heights[0] + slope * sides[0], slope
