"""Increase of the entropy of numbers."""

import math

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.entropy import bin_count, entropy, equal_width_bins
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Measure, Part


def entropy_increase(source: Float64Array, destination: Float64Array) -> float | None:
    """Entropy of a field's numbers after less before, in bits; None if a table has no number.

    Parameters
    ----------
    source, destination : ndarray, shape (rows,)
        NaN where missing: missing numbers are left out.

    Notes
    -----
    Both are cut into floor(n^(1/3)) bins of equal width over the range of both, n the source's numbers.
    """
    one, two = source[~np.isnan(source)], destination[~np.isnan(destination)]
    if not len(one) or not len(two):
        return None
    low, high = float(min(one.min(), two.min())), float(max(one.max(), two.max()))
    bins = bin_count(len(one))
    before, after = (entropy(equal_width_bins(numbers, low, high, bins)) for numbers in (one, two))
    return (after - before) / math.log(2)


def _find(comparison: Comparison) -> Finding:
    by_field = {}
    for name in comparison.need_numeric():
        column = comparison.columns[name]
        increase = entropy_increase(column.numbers("source"), column.numbers("destination"))
        if increase is not None:
            by_field[name] = increase
    if not by_field:
        raise NotApplicable("no field of numbers has a value in both tables")
    return Finding({"mean": sum(by_field.values()) / len(by_field), "by_field": by_field}, list(by_field))


MEASURE = Measure(
    key="entropy_increase",
    title="Increase of entropy",
    concerns="risk",
    goal="high",
    range="any, in bits",
    formula="H(Y_f) - H(X_f), numbers in floor(n^(1/3)) bins of equal width over the range of both: field by "
    "field, and the mean; 0 where a field keeps its values",
    source="Chamikara et al. 2019, doi:10.1016/j.ins.2019.05.053, eq. 44, on bins",
    cost="O(n)",
    find=_find,
    parts=(Part("mean"),),
)
