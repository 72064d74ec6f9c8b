"""Two-sample Kolmogorov-Smirnov tests of many pairs of small samples at a time.

References
----------
Stephens 1970, Use of the Kolmogorov-Smirnov, Cramer-von Mises and related statistics without extensive
tables, J. R. Stat. Soc. B 32, 115-122: the correction that Matlab's kstest2 uses.
"""

import math

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
TERMS = 101
"""Terms of the series of the limiting distribution."""


def distances(one: Matrix, other: Matrix) -> Matrix:
    """Return the greatest distance between the empirical distributions of each pair of rows.

    Parameters
    ----------
    one : ndarray of float64, shape (pairs, values)
    other : ndarray of float64, shape (pairs, other values)

    Returns
    -------
    ndarray of float64, shape (pairs,)
    """
    both = np.concatenate([one, other], axis=1)
    order = np.argsort(both, axis=1, kind="stable")
    values = np.take_along_axis(both, order, axis=1)
    steps = np.where(order < one.shape[1], 1 / one.shape[1], -1 / other.shape[1])
    difference = np.abs(np.cumsum(steps, axis=1))
    # the distributions are compared after all equal values
    last = np.concatenate([values[:, 1:] > values[:, :-1], np.ones((len(both), 1), np.bool_)], axis=1)
    found: Matrix = np.where(last, difference, 0.0).max(axis=1)
    return found


def probability(distance: float, size: int, other_size: int) -> float:
    """Probability of such a distance or a larger one if both samples have one distribution."""
    root = math.sqrt(size * other_size / (size + other_size))
    scaled = (root + 0.12 + 0.11 / root) * distance
    if scaled < 1e-9:
        return 1.0
    total = sum((-1.0) ** (term - 1) * math.exp(-2 * (scaled * term) ** 2) for term in range(1, TERMS + 1))
    return float(min(1.0, max(0.0, 2 * total)))


def accepted(one: Matrix, other: Matrix, level: float = 0.05) -> int:
    """Number of pairs of rows whose test does not reject equality at a level; shapes as in `distances`."""
    found, counts = np.unique(np.round(distances(one, other), 9), return_counts=True)
    sizes = one.shape[1], other.shape[1]
    return sum(
        int(count) for each, count in zip(found, counts, strict=True) if probability(each, *sizes) > level
    )
