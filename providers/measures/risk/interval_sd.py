"""Interval disclosure: values within an interval of standard deviations around the released value."""

from collections.abc import Callable
from typing import Any

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.columns import Column
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import BEYOND_FLOAT64, Finding, NotApplicable
from providers.measures.shared.measure import Measure, Part

_WIDE, _NARROW = 1.0, 0.05
"""Half widths k of the intervals: 1 in the paper of RWN, .05 in sdcMicro."""


class IntervalDisclosure:
    """Share of rows of which every value is near the released one, and the same share field by field.

    Fields are added one by one. A value that is missing in the source has nothing to disclose and is not
    counted; a value that is missing only in the release is not near.

    Parameters
    ----------
    rows : int
    k : float
        Half the width of an interval, in standard deviations of the destination's field.
    """

    def __init__(self, rows: int, k: float) -> None:
        self.k = k
        self.by_field: list[float] = []
        self._near = np.ones(rows, np.bool_)
        self._known = np.zeros(rows, np.bool_)

    def add(self, source: Float64Array, destination: Float64Array) -> None:
        """Count one field: its numbers before and after, NaN where missing, shape (rows,).

        Raises NotApplicable if float64 cannot represent the deviation.
        """
        known = ~np.isnan(source)
        width = self.k * _deviation(destination[~np.isnan(destination)])
        near = np.abs(source - destination) <= width
        self.by_field.append(float(near[known].mean()) if known.any() else 0.0)
        self._near &= near | ~known
        self._known |= known

    @property
    def share(self) -> float:
        """Share of the rows that have a value."""
        return float(self._near[self._known].mean()) if self._known.any() else 0.0


def _deviation(numbers: Float64Array) -> float:
    """Standard deviation of numbers, none missing; 0 for fewer than two.

    Raises NotApplicable if the squares overflow, or if they vanish although the numbers differ.
    """
    if len(numbers) < 2:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = float(numbers.std(ddof=1))
    if not np.isfinite(deviation) or (deviation == 0 and numbers.min() < numbers.max()):
        raise NotApplicable(BEYOND_FLOAT64)
    return deviation


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
    ranked = np.sort(numbers[~np.isnan(numbers)])
    if not len(ranked):
        return None
    try:
        width = k * _deviation(ranked)
    except NotApplicable:
        return None
    near = np.searchsorted(ranked, ranked + width, "right") - np.searchsorted(ranked, ranked - width, "left")
    return float(near.sum() / (len(ranked) * len(numbers)))


def _chance(k: float) -> Callable[[Column], float | None]:
    return lambda column: None if column.kind == "category" else share_near(column.numbers("source"), k)


def _find(comparison: Comparison) -> Finding:
    comparison.need_aligned()
    comparison.need_rows(2)
    fields = comparison.need_numeric()
    wide, narrow = (IntervalDisclosure(comparison.rows["destination"], k) for k in (_WIDE, _NARROW))
    for name in fields:
        before, after = comparison.number_pairs(name)
        wide.add(before, after)
        narrow.add(before, after)
    return Finding(_value(wide, fields) | {"narrow": _value(narrow, fields)}, fields)


def _value(disclosure: IntervalDisclosure, fields: list[str]) -> dict[str, Any]:
    by_field = dict(zip(fields, disclosure.by_field, strict=True))
    return {"share": disclosure.share, "by_field": by_field}


_NARROW_WORDS = "with a twentieth of the width"
_SHARE_WORDS = "share of rows near in every field"

MEASURE = Measure(
    key="interval_sd",
    title="Interval disclosure by standard deviations",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="share of rows i with |x_if - y_if| <= k sd(y_f) for every field f, and field by field; k = 1, "
    "and narrow: k = .05",
    source="Perry, Matloff and Tendick 2024, 9.4; sdcMicro, dRisk from 5.5.2 on: every field must be within "
    "its interval (before, one field of a row might be outside); Mateo-Sanz, Sebe and Domingo-Ferrer 2004",
    cost="O(n)",
    find=_find,
    parts=(
        Part("share"),
        Part("narrow.share", words=f"{_NARROW_WORDS}, {_SHARE_WORDS}"),
        Part("by_field", words="mean over the fields", chance=_chance(_WIDE)),
        Part("narrow.by_field", words=f"{_NARROW_WORDS}, mean over the fields", chance=_chance(_NARROW)),
    ),
    words={"narrow": _NARROW_WORDS, "share": _SHARE_WORDS},
)
