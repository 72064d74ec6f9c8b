"""Interval disclosure: values within an interval of standard deviations around the released value.

One extreme value makes the standard deviation so large that all other values are near each other. The robust
scale, from the quartiles, does not depend on it.
"""

from collections.abc import Callable, Sequence

import numpy as np

from providers.arrays import Float64Array, IndexArray
from providers.measures.shared.columns import Column
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import BEYOND_FLOAT64, Finding, NotApplicable
from providers.measures.shared.interval_disclosure import IntervalDisclosure, share_near_by_chance
from providers.measures.shared.measure import ByChance, Measure, Part

_WIDE, _NARROW = 1.0, 0.05
"""Half widths k of the intervals: 1 in the paper of RWN, .05 in sdcMicro."""

_SPANS = ((0.25, 1.349), (0.05, 3.290))
"""Lower share of a range of quantiles, and its width in standard deviations of a normal distribution."""


def deviation(numbers: Float64Array) -> float:
    """Standard deviation of numbers, none missing; 0 for fewer than two.

    Raises NotApplicable if the squares overflow, or if they vanish although the numbers differ.
    """
    if len(numbers) < 2:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        found = float(numbers.std(ddof=1))
    if not np.isfinite(found) or (found == 0 and numbers.min() < numbers.max()):
        raise NotApplicable(BEYOND_FLOAT64)
    return found


def robust_scale(numbers: Float64Array) -> float:
    """Interquartile range of the numbers divided by 1.349, the standard deviation of normal numbers.

    If half of the numbers are equal, the range of the middle nine tenths divided by 3.290; 0 if these are
    equal too, or if there is no number.

    Parameters
    ----------
    numbers : ndarray of float64, shape (rows,)
        NaN where missing.
    """
    present = numbers[~np.isnan(numbers)]
    if not len(present):
        return 0.0
    for tail, deviations in _SPANS:
        low, high = np.quantile(present, (tail, 1 - tail))
        if high > low:
            return float((high - low) / deviations)
    return 0.0


def share_near(numbers: Float64Array, k: float) -> float | None:
    """Share of the pairs of rows (i, j), i with a number, whose numbers differ by at most k deviations.

    None if there is no number, or if float64 cannot represent the deviation.

    Parameters
    ----------
    numbers : ndarray of float64, shape (rows,)
        NaN where missing: a missing number is near to none.
    k : float
        In standard deviations of the numbers.

    Notes
    -----
    The expected share of near values after a random permutation. O(n log n).
    """
    try:
        return share_within(numbers, k * deviation(numbers[~np.isnan(numbers)]))
    except NotApplicable:
        return None


def share_within(numbers: Float64Array, width: float) -> float | None:
    """Share of the pairs of rows, as of `share_near`, whose numbers differ by at most `width`."""
    ranked = np.sort(numbers[~np.isnan(numbers)])
    if not len(ranked):
        return None
    return float(_near(ranked, width).sum() / (len(ranked) * len(numbers)))


def _near(ranked: Float64Array, width: float) -> IndexArray:
    """Count the numbers that differ by at most `width` from each of them, given in ascending order."""
    return np.searchsorted(ranked, ranked + width, "right") - np.searchsorted(ranked, ranked - width)


def shares_within(numbers: Float64Array, widths: Sequence[float]) -> list[Float64Array]:
    """Share of the rows whose number differs from that of each row by at most a width, for each width.

    Returns
    -------
    list of ndarray of float64, shape (rows,)
        NaN where the row's own number is missing; a missing number is near to none.
    """
    order = np.argsort(numbers)[: len(numbers) - int(np.count_nonzero(np.isnan(numbers)))]  # NaN last
    ranked, found = numbers[order], []
    for width in widths:
        shares = np.full(len(numbers), np.nan)
        shares[order] = _near(ranked, width) / len(numbers)
        found.append(shares)
    return found


def _chance(k: float) -> Callable[[Column], float | None]:
    return lambda column: None if column.kind == "category" else share_near(column.numbers("source"), k)


def _robust_chance(column: Column) -> float | None:
    if column.kind == "category":
        return None
    numbers = column.numbers("source")
    return share_within(numbers, _NARROW * robust_scale(numbers))


def _by_chance(comparison: Comparison) -> ByChance:
    """Values by chance of the shares of rows; `_chance` has those of the fields."""
    by_field = []
    for name in comparison.need_numeric():
        numbers = comparison.columns[name].numbers("source")
        present = numbers[~np.isnan(numbers)]
        if len(present):
            scale = deviation(present)
            widths = (_WIDE * scale, _NARROW * scale, _NARROW * robust_scale(numbers))
            by_field.append(shares_within(numbers, widths))
    wide, narrow, robust = map(share_near_by_chance, zip(*by_field, strict=True))
    return ByChance({"share": wide, "narrow": {"share": narrow}, "robust": {"share": robust}})


def _find(comparison: Comparison) -> Finding:
    comparison.need_aligned()
    comparison.need_rows(2)
    fields = []
    wide, narrow, robust = (IntervalDisclosure(comparison.rows["destination"]) for _ in range(3))
    for name in comparison.need_numeric():
        before, after = comparison.number_pairs(name)
        if np.isnan(before).all():
            continue  # a field without values has nothing to disclose
        fields.append(name)
        spread = deviation(after[~np.isnan(after)])
        wide.add(before, after, _WIDE * spread)
        narrow.add(before, after, _NARROW * spread)
        robust.add(before, after, _NARROW * robust_scale(comparison.columns[name].numbers("source")))
    if not fields:
        raise NotApplicable("no field of numbers has a value in the source")
    further = {"narrow": narrow.value(fields), "robust": robust.value(fields)}
    return Finding(wide.value(fields) | further, fields)


_NARROW_WORDS = "with a twentieth of the width"
_ROBUST_WORDS = "with a twentieth of a robust standard deviation"
_SHARE_WORDS = "share of rows near in every field"

MEASURE = Measure(
    key="interval_sd",
    title="Interval disclosure by standard deviations",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="share of rows i with |x_if - y_if| <= k sd(y_f) for every field f, and field by field; k = 1, "
    "and narrow: k = .05; robust: k = .05 with IQR(x_f) / 1.349 in place of sd(y_f), or, if these quartiles "
    "are equal, with the range of the middle 90 % / 3.290",
    source="Perry, Matloff and Tendick 2024, 9.4; sdcMicro, dRisk from 5.5.2 on: every field must be within "
    "its interval (before, one field of a row might be outside); Mateo-Sanz, Sebe and Domingo-Ferrer 2004",
    cost="O(n)",
    find=_find,
    by_chance=_by_chance,
    jackknife="share",
    parts=(
        Part("share"),
        Part("narrow.share", words=f"{_NARROW_WORDS}, {_SHARE_WORDS}"),
        Part("by_field", words="mean over the fields", chance=_chance(_WIDE)),
        Part("narrow.by_field", words=f"{_NARROW_WORDS}, mean over the fields", chance=_chance(_NARROW)),
        Part("robust.share", words=f"{_ROBUST_WORDS}, {_SHARE_WORDS}"),
        Part("robust.by_field", words=f"{_ROBUST_WORDS}, mean over the fields", chance=_robust_chance),
    ),
    words={"narrow": _NARROW_WORDS, "robust": _ROBUST_WORDS, "share": _SHARE_WORDS},
)
