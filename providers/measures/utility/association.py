"""Change of the association of categories with each other and with numbers."""

from itertools import combinations

import numpy as np

from providers.arrays import Float64Array, Int32Array
from providers.measures.shared.columns import SIDES, Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import BEYOND_FLOAT64, Finding, NotApplicable
from providers.measures.shared.measure import Extremes, Measure, Part

_COUNTED = 1 << 22
"""Contingency tables of up to this many cells are counted in an array; larger ones by sorting."""


def cramers_v(one: Int32Array, two: Int32Array) -> float | None:
    """Cramer's V of two categories, 0 to 1; None if one of them has a single level.

    Parameters
    ----------
    one, two : ndarray of int32, shape (n,)
        Codes, 0 or more.

    Notes
    -----
    sqrt(chi^2 / (n (min(r, c) - 1))), r and c the numbers of levels that occur, chi^2 / n = sum of
    f_ij^2 / (f_i f_j) - 1 over the cells that occur. O(n), with many levels O(n log n).
    """
    if not len(one):
        return None
    rows, columns = np.bincount(one), np.bincount(two)
    smaller = min(np.count_nonzero(rows), np.count_nonzero(columns))
    if smaller < 2:
        return None
    cells = one.astype(np.int64) * len(columns) + two
    if len(rows) * len(columns) <= _COUNTED:
        all_counts = np.bincount(cells)
        occurring = np.flatnonzero(all_counts)
        counts = all_counts[occurring]
    else:
        occurring, counts = np.unique(cells, return_counts=True)
    expected = rows[occurring // len(columns)].astype(np.float64) * columns[occurring % len(columns)]
    phi_squared = float((counts.astype(np.float64) ** 2 / expected).sum()) - 1.0
    return float(np.sqrt(min(1.0, max(0.0, phi_squared / (smaller - 1)))))


def correlation_ratio(category: Int32Array, numbers: Float64Array) -> float | None:
    """Correlation ratio eta of a number by category, 0 to 1; None if either is constant.

    The square root of the share of the numbers' variance between the categories, over the rows whose
    number is not missing (NaN). Raises NotApplicable if the numbers are too large for float64. O(n).
    """
    present = ~np.isnan(numbers)
    codes, values = category[present], numbers[present]
    if len(values) < 2 or values.min() == values.max():
        return None
    counts = np.bincount(codes)
    if np.count_nonzero(counts) < 2:
        return None
    values = values - values.mean()
    total = float(values @ values)
    if not np.isfinite(total):
        raise NotApplicable(BEYOND_FLOAT64)
    if total == 0.0:  # the squares of tiny deviations underflow
        return None
    means = np.bincount(codes, values) / np.maximum(counts, 1)
    return float(np.sqrt(min(1.0, float((counts * means**2).sum()) / total)))


def mean_change(before: list[float | None], after: list[float | None]) -> float | None:
    """Mean absolute change over the pairs that the source defines; None if it defines none.

    A pair that is undefined only in the destination has lost its association, which counts as 0.
    """
    changes = [abs((two or 0.0) - one) for one, two in zip(before, after, strict=True) if one is not None]
    return sum(changes) / len(changes) if changes else None


def _find(comparison: Comparison) -> Finding:
    comparison.need_rows(2)
    columns = comparison.columns
    categories = [name for name in comparison.categorical if name not in comparison.identifying]
    if not categories or len(categories) + len(comparison.numeric) < 2:
        raise NotApplicable("it needs a categorical field with few values, and another field")
    pairs = list(combinations(categories, 2))
    by_v: dict[Side, list[float | None]] = {side: [] for side in SIDES}
    by_eta: dict[Side, list[float | None]] = {side: [] for side in SIDES}
    for done, (one, two) in enumerate(pairs):
        comparison.progress(done / (2 * len(pairs)), "measuring association")
        for side in SIDES:
            by_v[side].append(cramers_v(columns[one].codes(side), columns[two].codes(side)))
    for done, name in enumerate(comparison.numeric):
        comparison.progress(0.5 + done / (2 * len(comparison.numeric)), "measuring association")
        for side in SIDES:
            numbers = columns[name].numbers(side)
            by_eta[side] += [correlation_ratio(columns[one].codes(side), numbers) for one in categories]
    value = {
        "cramers_v": mean_change(by_v["source"], by_v["destination"]),
        "correlation_ratio": mean_change(by_eta["source"], by_eta["destination"]),
    }
    if value["cramers_v"] is None and value["correlation_ratio"] is None:
        raise NotApplicable("no categorical field varies together with another field in the source")
    return Finding(value, [*categories, *comparison.numeric])


MEASURE = Measure(
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
    find=_find,
    extremes=Extremes("squares"),
    jackknife="smooth",
    parts=(Part("cramers_v"), Part("correlation_ratio")),
)
