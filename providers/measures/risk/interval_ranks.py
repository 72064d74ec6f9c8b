"""Interval disclosure by ranks: values within an interval of ranks around the released value.

Unlike an interval of standard deviations, it has the same width in rows everywhere, also where values are
dense, and does not depend on extreme values.
"""

from collections.abc import Callable, Sequence

import numpy as np

from providers.arrays import Float64Array, IndexArray
from providers.measures.shared.columns import Column
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.interval_disclosure import IntervalDisclosure, share_near_by_chance
from providers.measures.shared.measure import ByChance, Measure, Part

_WIDE, _NARROW = 0.1, 0.01
"""Half widths p of the intervals, as shares of the field's values in the release."""


def rank_limits(released: Float64Array, p: float) -> tuple[Float64Array, Float64Array]:
    """Return the least and the greatest released value whose rank is within p n of that of each row's value.

    Parameters
    ----------
    released : ndarray of float64, shape (rows,)
        The field's released numbers, NaN where missing: n others.
    p : float
        Half the width of the interval, as a share of n; the number of ranks is rounded down.

    Returns
    -------
    ndarray of float64, ndarray of float64, shape (rows,)
        Equal values have all of their ranks: the interval begins below the smallest and ends above the
        greatest of them. NaN where the row's number is missing.

    Notes
    -----
    O(n log n).
    """
    order = _ascending(released)
    low, high = np.full(len(released), np.nan), np.full(len(released), np.nan)
    low[order], high[order] = _limits_of_ordered(released[order], p)
    return low, high


def _ascending(numbers: Float64Array) -> IndexArray:
    """Return the rows that have a number, by their numbers."""
    return np.argsort(numbers)[: len(numbers) - int(np.count_nonzero(np.isnan(numbers)))]  # NaN last


def _limits_of_ordered(ordered: Float64Array, p: float) -> tuple[Float64Array, Float64Array]:
    """Return the limits of ascending numbers: sought in this order, they are found many times faster."""
    ranks = int(p * len(ordered))
    first = np.searchsorted(ordered, ordered, "left") - ranks
    last = np.searchsorted(ordered, ordered, "right") - 1 + ranks
    return ordered[np.maximum(first, 0)], ordered[np.minimum(last, len(ordered) - 1)]


def share_by_chance(numbers: Float64Array, p: float) -> float | None:
    """Share of the pairs of rows (i, j), i with a number, whose number i is in the interval of number j.

    The expected share of near values after a random permutation. A missing number is near to none. None
    without a number. O(n log n).
    """
    ordered = np.sort(numbers[~np.isnan(numbers)])
    return float(_near(ordered, p).sum() / (len(ordered) * len(numbers))) if len(ordered) else None


def _near(ordered: Float64Array, p: float) -> IndexArray:
    """Count the numbers in whose intervals each of them lies, given in ascending order."""
    low, high = _limits_of_ordered(ordered, p)
    return np.searchsorted(low, ordered, "right") - np.searchsorted(high, ordered, "left")


def shares_between(numbers: Float64Array, shares: Sequence[float]) -> list[Float64Array]:
    """Share of the rows in whose interval of ranks each row's number lies, for each half width p.

    Returns
    -------
    list of ndarray of float64, shape (rows,)
        NaN where the row's number is missing.
    """
    order, found = _ascending(numbers), []
    ordered = numbers[order]
    for p in shares:
        of_rows = np.full(len(numbers), np.nan)
        of_rows[order] = _near(ordered, p) / len(numbers)
        found.append(of_rows)
    return found


def _chance(p: float) -> Callable[[Column], float | None]:
    return lambda column: None if column.kind == "category" else share_by_chance(column.numbers("source"), p)


def _by_chance(comparison: Comparison) -> ByChance:
    """Values by chance of the shares of rows; `_chance` has those of the fields."""
    fields = [comparison.columns[name].numbers("source") for name in comparison.need_numeric()]
    by_field = [
        shares_between(numbers, (_WIDE, _NARROW)) for numbers in fields if not np.isnan(numbers).all()
    ]
    wide, narrow = map(share_near_by_chance, zip(*by_field, strict=True))
    return ByChance({"share": wide, "narrow": {"share": narrow}})


def _find(comparison: Comparison) -> Finding:
    comparison.need_aligned()
    comparison.need_rows(2)
    fields = []
    wide, narrow = (IntervalDisclosure(comparison.rows["destination"]) for _ in range(2))
    for name in comparison.need_numeric():
        before, after = comparison.number_pairs(name)
        if np.isnan(before).all():
            continue  # a field without values has nothing to disclose
        fields.append(name)
        for disclosed, p in ((wide, _WIDE), (narrow, _NARROW)):
            low, high = rank_limits(after, p)
            disclosed.add_near(~np.isnan(before), (low <= before) & (before <= high))
    if not fields:
        raise NotApplicable("no field of numbers has a value in the source")
    return Finding({**wide.value(fields), "narrow": narrow.value(fields)}, fields)


_NARROW_WORDS = "with a tenth of the width"
_SHARE_WORDS = "share of rows near in every field"

MEASURE = Measure(
    key="interval_ranks",
    title="Interval disclosure by ranks",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="share of rows i whose x_if is between the released values of field f whose ranks are p n below "
    "and above that of y_if, for every field f, and field by field; n values, p = .1, and narrow: p = .01",
    source="Perry, Matloff and Tendick 2024, 9.1.6; Domingo-Ferrer and Torra 2001, A quantitative comparison "
    "of disclosure control methods for microdata, rank intervals; Mateo-Sanz, Sebe and Domingo-Ferrer 2004",
    cost="O(n log n)",
    find=_find,
    by_chance=_by_chance,
    jackknife="share",
    parts=(
        Part("share"),
        Part("by_field", words="mean over the fields", chance=_chance(_WIDE)),
        Part("narrow.share", words=f"{_NARROW_WORDS}, {_SHARE_WORDS}"),
        Part("narrow.by_field", words=f"{_NARROW_WORDS}, mean over the fields", chance=_chance(_NARROW)),
    ),
    words={"narrow": _NARROW_WORDS, "share": _SHARE_WORDS},
)
