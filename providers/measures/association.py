"""What becomes of the association of categories with each other and with numbers."""

import numpy as np
import numpy.typing as npt

from providers.measures.measure import Measure

Float64Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

_COUNTED = 1 << 22  # cells of a contingency table that are counted without sorting


def cramers_v(one: Codes, two: Codes) -> float | None:
    """Cramer's V of two categories, 0 to 1; None where one of them has a single level.

    Parameters
    ----------
    one, two : ndarray of int32, shape (n,)
        Codes, 0 or more.

    Notes
    -----
    sqrt(chi^2 / (n (min(r, c) - 1))), r and c the levels that occur, chi^2 / n = sum of
    f_ij^2 / (f_i f_j) - 1: only cells that occur are looked at. O(n), and sorting where the levels are many.
    """
    if not len(one):
        return None
    rows, columns = np.bincount(one), np.bincount(two)
    smaller = min(np.count_nonzero(rows), np.count_nonzero(columns))
    if smaller < 2:
        return None
    cells = one.astype(np.int64) * len(columns) + two
    if len(rows) * len(columns) <= _COUNTED:
        counted = np.bincount(cells)
        found = np.flatnonzero(counted)
        counts = counted[found]
    else:
        found, counts = np.unique(cells, return_counts=True)
    expected = rows[found // len(columns)].astype(np.float64) * columns[found % len(columns)]
    phi_squared = float((counts.astype(np.float64) ** 2 / expected).sum()) - 1.0
    return float(np.sqrt(min(1.0, max(0.0, phi_squared / (smaller - 1)))))


def correlation_ratio(category: Codes, numbers: Float64Array) -> float | None:
    """The correlation ratio eta of a number by category, 0 to 1; None where either is constant.

    The square root of the share of the numbers' variance that lies between the categories, over the rows
    whose number is not missing (NaN). O(n).
    """
    there = ~np.isnan(numbers)
    codes, values = category[there], numbers[there]
    if len(values) < 2 or values.min() == values.max():
        return None
    counts = np.bincount(codes)
    if np.count_nonzero(counts) < 2:
        return None
    values = values - values.mean()
    total = float(values @ values)
    if total == 0.0:  # the squares of numbers this near each other are below what float64 has
        return None
    means = np.bincount(codes, values) / np.maximum(counts, 1)
    return float(np.sqrt(min(1.0, float((counts * means**2).sum()) / total)))


def mean_change(before: list[float | None], after: list[float | None]) -> float | None:
    """Mean absolute change over the pairs that the source defines; lost ones count as 0. None of none."""
    changes = [abs((two or 0.0) - one) for one, two in zip(before, after, strict=True) if one is not None]
    return sum(changes) / len(changes) if changes else None


ASSOCIATION = Measure(
    key="association",
    title="Change of association",
    concerns="utility",
    goal="low",
    range="0 to 1",
    formula="mean over pairs of categories of |V(Y) - V(X)|, V Cramer's; and over pairs of a category and a "
    "number of |eta(Y) - eta(X)|, eta the correlation ratio",
    source="Cramer 1946, Mathematical Methods of Statistics, 21.9; Pearson 1905, On the general theory of "
    "skew correlation",
    cost="O(n) for each pair of fields",
    compute=mean_change,
)
