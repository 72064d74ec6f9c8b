"""Reweighted minimum covariance determinant, by trying every subset of the rows.

The plain text of R's covMcd, with the factors of Croux and Haesbroeck 1999 (eqs. 4.1 and 4.2) and, of two
fields, of Pison, Van Aelst and Willems 2002.
"""

import itertools
import math

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

Matrix = npt.NDArray[np.float64]


def consistency(p: int, alpha: float) -> float:
    q = chi2.ppf(alpha, p)
    return float(alpha / chi2.cdf(q, p + 2))


def least_determinant(x: Matrix, h: int) -> tuple[int, ...]:
    """The h rows whose covariance has the least determinant."""
    return min(
        itertools.combinations(range(len(x)), h),
        key=lambda rows: float(np.linalg.det(np.cov(x[list(rows)], rowvar=False))),
    )


def reweighted(x: Matrix, chosen: tuple[int, ...]) -> Matrix:
    """The covariance of two fields with alpha .5, from the rows of least determinant."""
    n, p = x.shape
    assert p == 2
    h = (n + p + 1) // 2
    small = 1 / (1 - math.exp(0.673292623522027) / n**0.691365864961895)
    raw = np.cov(x[list(chosen)], rowvar=False) * consistency(p, h / n) * small
    centre = x[list(chosen)].mean(axis=0)
    squares = [float((row - centre) @ np.linalg.inv(raw) @ (row - centre)) for row in x]
    inside = x[np.array(squares) < chi2.ppf(0.975, p)]
    covariance = np.cov(inside, rowvar=False)
    if len(inside) == n:
        return covariance
    small = 1 / (1 - math.exp(3.11101712909049) / n**1.91401056721863)
    return np.asarray(covariance * consistency(p, 0.975) * small)


def interval_rmd(source: Matrix, destination: Matrix, covariance: Matrix) -> dict[str, float]:
    """dRiskRMD's risk1, row by row, by the covariance of the source's z-scores."""
    own = [(table - table.mean(axis=0)) / table.std(axis=0, ddof=1) for table in (source, destination)]
    by_source = (destination - source.mean(axis=0)) / source.std(axis=0, ddof=1)
    hits = {"own": 0.0, "source": 0.0, "chance": 0.0}
    for row, x in enumerate(own[0]):
        reach = 0.01 * math.sqrt(float(x @ np.linalg.inv(covariance) @ x)) * 0.05
        hits["own"] += any(abs(own[1][row] - x) < reach)
        hits["source"] += any(abs(by_source[row] - x) < reach)
        outside = 1.0
        for released, value in zip(by_source.T, x, strict=True):
            outside *= sum(abs(other - value) >= reach for other in released) / len(released)
        hits["chance"] += 1 - outside
    return {name: count / len(source) for name, count in hits.items()}
