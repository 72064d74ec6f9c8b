"""t-closeness: distance of each sensitive field's distribution within a class from that in the table."""

import numpy as np

from providers.arrays import Float64Array, Int64Array
from providers.measures.shared.columns import Column, Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.sensitive import (
    ClassValues,
    by_sensitive_field,
    class_values,
    one_of_each_person,
)


def equal_distances(found: ClassValues, levels: int) -> Float64Array:
    """Earth mover's distance of each class from the table, all values being equally distant.

    Parameters
    ----------
    found : ClassValues
        Values of the classes, below `levels`.
    levels : int
        Number of different values in the table.

    Returns
    -------
    ndarray of float64, shape (classes,)
        Half of the sum of |p_i - q_i| over the values i, from 0 to 1.
    """
    table = np.bincount(found.values, weights=found.counts, minlength=levels) / found.counts.sum()
    excess = found.counts / found.sizes[found.classes] - table[found.values]
    # the positive differences add up to half of all, and occur only at values of the class
    return np.bincount(found.classes, weights=np.maximum(excess, 0.0)).astype(np.float64)


def ordered_distances(found: ClassValues, levels: int) -> Float64Array:
    """Earth mover's distance of each class from the table, values being distant by their ranks.

    Parameters
    ----------
    found : ClassValues
        Ranks of the values among the different values of the table, below `levels`.
    levels : int
        Number m of different values in the table.

    Returns
    -------
    ndarray of float64, shape (classes,)
        1 / (m - 1) times the sum over the ranks i of |sum over j <= i of (p_j - q_j)|, from 0 to 1; 0 if m
        is 1.

    Notes
    -----
    O(pairs log m): between two values of a class its cumulative share is constant, and that of the table
    ascends, so that each such run of ranks is one difference of prefix sums on each side of the crossing.
    """
    if levels == 1:
        return np.zeros(len(found.sizes))
    rows = np.cumsum(np.bincount(found.values, weights=found.counts, minlength=levels))
    table = rows / rows[-1]
    before = np.concatenate(([0.0], np.cumsum(table)))  # sum of the table's cumulative shares below a rank

    last = np.append(found.classes[1:] != found.classes[:-1], True)
    first = np.append(True, last[:-1])
    running = np.cumsum(found.counts)
    start = (running - found.counts)[first]  # rows of all earlier classes
    share = (running - start[found.classes]) / found.sizes[found.classes]
    stop = np.where(last, levels, np.append(found.values[1:], levels))
    crossing = np.clip(np.searchsorted(table, share), found.values, stop)
    below = share * (crossing - found.values) - (before[crossing] - before[found.values])
    above = before[stop] - before[crossing] - share * (stop - crossing)
    # below its least value a class has the cumulative share 0
    sums = before[found.values[first]] + np.bincount(found.classes, weights=below + above)
    distances: Float64Array = np.maximum(sums / (levels - 1), 0.0)
    return distances


def t_closeness(classes: Int64Array, values: Int64Array, ordered: bool) -> dict[str, float]:
    """Greatest distance of a class, and the mean over the rows of their class's distance.

    Parameters
    ----------
    classes : ndarray of int, shape (rows,)
        Code of each row's class.
    values : ndarray of int, shape (rows,)
        Code of each row's sensitive value from 0 on, its rank if `ordered`; each code occurs. At least one
        row.
    ordered : bool
        Whether values are distant by their ranks; otherwise any two are equally distant.

    References
    ----------
    Li, Li and Venkatasubramanian 2007, t-closeness: privacy beyond k-anonymity and l-diversity, ICDE, pp.
    106-115, doi:10.1109/ICDE.2007.367856, section 4: ordered distance, equal distance.
    """
    found = class_values(classes, values)
    distances = (ordered_distances if ordered else equal_distances)(found, int(values.max()) + 1)
    return {"t": float(distances.max()), "mean": float(np.average(distances, weights=found.sizes))}


def _find(comparison: Comparison) -> Finding:
    def take(column: Column, side: Side) -> dict[str, float] | None:
        classes = comparison.key_classes[side]
        units = comparison.units[side]
        if column.kind == "category":
            _, codes = np.unique(column.codes(side), return_inverse=True)
            return t_closeness(*_by_person(classes, codes, units), ordered=False)
        numbers = column.numbers(side)
        known = ~np.isnan(numbers)
        if not known.any():
            return None
        _, ranks = np.unique(numbers[known], return_inverse=True)
        units = None if units is None else units[known]
        return t_closeness(*_by_person(classes[known], ranks, units), ordered=True)

    return by_sensitive_field(comparison, take, {"t": max, "mean": max})


def _by_person(
    classes: Int64Array, codes: Int64Array, units: Int64Array | None
) -> tuple[Int64Array, Int64Array]:
    """Return class and code of each person in each class, in codes that all occur."""
    classes, values = one_of_each_person(classes, codes, units)
    return classes, values if units is None else np.unique(values, return_inverse=True)[1].astype(np.int64)


MEASURE = Measure(
    key="t_closeness",
    title="t-closeness",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="max, and mean over the rows, of the earth mover's distance between the distribution p of a "
    "sensitive field in a combination of key fields and q in the table: sum over i of |sum over j <= i of "
    "(p_j - q_j)| / (m - 1) over the m ordered values of a number or time; sum of |p_i - q_i| / 2 of a "
    "category. With units, each counts once in a combination, with the one of its values that most units "
    "there have. Field by field, and the worst field",
    source="Li, Li and Venkatasubramanian 2007, doi:10.1109/ICDE.2007.367856, section 4",
    cost="O(n log n) for each field",
    find=_find,
    parts=(Part("after.mean"), Part("after.t")),
    needs=("key_fields",),
    needs_each=("sensitive_fields",),
    uses=("rounding",),
    words={
        f"{within}{key}": words
        for within in ("", "before.", "after.")
        for key, words in {"t": "greatest distance of a class (t)", "mean": "mean over the rows"}.items()
    },
)
