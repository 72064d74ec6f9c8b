"""Utility measures: what a release keeps of the source."""

import math

import numpy as np
import numpy.typing as npt

from providers.measures.measure import Measure
from providers.measures.relations import bins_of, entropy_of, equal_widths

Float64Array = npt.NDArray[np.float64]


def distortion(changes: npt.NDArray[np.float64]) -> float | None:
    """The mean of the cells' relative changes |y - x| / |x|; None of none. Cells at zero have none."""
    return float(changes.mean()) if len(changes) else None


DISTORTION = Measure(
    key="distortion",
    title="Distortion",
    concerns="utility",
    goal="low",
    range="0 or more",
    formula="mean over cells with x != 0 of |y - x| / |x|",
    source="Xue, Karras, Raissi and Pung 2011, equation 6; cells at zero are left out and counted",
    cost="O(n)",
    compute=distortion,
)


def relations_kept(holding: int, found: int) -> float | None:
    """The share of the source's localities that still hold in the destination; None of none."""
    return holding / found if found else None


def nearness_kept(source: Float64Array, destination: Float64Array) -> tuple[int, int]:
    """Of triples of numbers, those with a nearer one, and those of them whose nearer one still is.

    Parameters
    ----------
    source, destination : ndarray, shape (triples, 3)
        Numbers before and after; NaN where missing. In the source's order i <= j <= k, i is nearer to j
        than k or the other way round; a tie has no relation, and one that is lost does not hold.
    """
    order = np.argsort(source, axis=1, kind="stable")
    i, j, k = np.take_along_axis(source, order, axis=1).T
    before = i + k - 2 * j
    counted = (i < j) & (j < k) & (before != 0)
    x, y, z = np.take_along_axis(destination, order, axis=1)[counted].T
    with np.errstate(invalid="ignore"):
        after = np.sign(np.abs(z - y) - np.abs(y - x))
    return int(counted.sum()), int(np.count_nonzero(after == np.sign(before[counted])))


RELATIONS_KEPT = Measure(
    key="relations_kept",
    title="Relations kept",
    concerns="utility",
    goal="high",
    range="0 to 1",
    formula="#{localities of the source's segments that hold in the destination} / #{localities}; of "
    "services other than LOCALITY, of random triples of rows in each field: which of two is nearer to the "
    "middle one. 1/2 is what chance keeps",
    source="Xue, Karras, Raissi and Pung 2011, definition 2, extracted with strict comparisons",
    cost="O(n s) for segments of s records; else of the sample",
    compute=relations_kept,
)


def entropy_increase(source: Float64Array, destination: Float64Array) -> float | None:
    """Entropy of a field's numbers after less before, in bits; None where either has no number.

    Parameters
    ----------
    source, destination : ndarray, shape (rows,)
        NaN where missing: those are left out.

    Notes
    -----
    Both are cut into floor(n^(1/3)) bins of equal width over the range of both, n the source's numbers.
    """
    one, two = source[~np.isnan(source)], destination[~np.isnan(destination)]
    if not len(one) or not len(two):
        return None
    low, high = float(min(one.min(), two.min())), float(max(one.max(), two.max()))
    before, after = (entropy_of(equal_widths(side, low, high, bins_of(len(one)))) for side in (one, two))
    return (after - before) / math.log(2)


ENTROPY_INCREASE = Measure(
    key="entropy_increase",
    title="Increase of entropy",
    concerns="utility",
    goal="low",
    range="any, in bits",
    formula="H(Y_f) - H(X_f), numbers in floor(n^(1/3)) bins of equal width over the range of both: field by "
    "field, and the mean; 0 where a field keeps its values",
    source="Chamikara et al. 2019, doi:10.1016/j.ins.2019.05.053, eq. 44, on bins",
    cost="O(n)",
    compute=entropy_increase,
)
