"""Total correlation: how much the fields of a table share, in nats."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import Float64Array, Int64Array
from providers.measures.shared.columns import SIDES, Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.entropy import bin_count, entropy, equal_width_bins
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Extremes, Measure, Part

Codes = npt.NDArray[np.signedinteger[Any]]

_COUNTED = 1 << 24
"""Codes below this bound are renumbered by counting, larger ones by sorting."""


def total_correlation(fields: Iterable[Codes]) -> float:
    """Sum of the entropies of the fields minus the entropy of their combination, in nats.

    O(n log n) per field.

    Parameters
    ----------
    fields : iterable of ndarray of int, shape (n,)
        Codes of equal values; at least one row.
    """
    total = 0.0
    combined = np.zeros(1, np.int64)
    for codes in fields:
        renumbered = _renumbered(codes)
        total += entropy(renumbered)
        # renumbered after each field: codes of combinations stay below the number of rows
        combined = _renumbered(combined * (int(renumbered.max()) + 1) + renumbered)
    return total - entropy(combined)


def binned(values: Float64Array, bins: int) -> Int64Array:
    """Return the bin of each number, of equal widths over the numbers' range; NaN is in bin `bins`."""
    present = ~np.isnan(values)
    found = np.full(len(values), bins, np.int64)
    if present.any():
        low, high = values[present].min(), values[present].max()
        found[present] = equal_width_bins(values[present], float(low), float(high), bins)
    return found


def _renumbered(codes: Codes) -> Int64Array:
    """Renumber the codes that occur as 0, 1, 2, ... in their order."""
    codes = codes - codes.min()
    if int(codes.max()) >= min(_COUNTED, 8 * len(codes) + 1024):
        return np.asarray(np.unique(codes, return_inverse=True)[1], np.int64)
    occurs = np.bincount(codes) > 0
    return np.asarray((np.cumsum(occurs) - 1)[codes], np.int64)


def _find(comparison: Comparison) -> Finding:
    comparison.need_rows()
    if len(comparison.compared) < 2:
        raise NotApplicable("it needs two fields or more")

    def codes(side: Side) -> Iterator[Codes]:
        bins = bin_count(comparison.rows[side])
        for done, column in enumerate(comparison.compared.values()):
            comparison.progress(done / len(comparison.compared), "measuring total correlation")
            yield column.codes(side) if column.kind == "category" else binned(column.numbers(side), bins)

    before, after = (total_correlation(codes(side)) for side in SIDES)
    value = {"before": before, "after": after, "change": abs(after - before)}
    return Finding(value, list(comparison.compared))


MEASURE = Measure(
    key="total_correlation",
    title="Total correlation",
    concerns="utility",
    goal="near",
    range="0 or more, in nats",
    formula="sum over fields of H(f) - H(all fields), numbers in floor(n^(1/3)) bins of equal width; change: "
    "|after - before|, by which releases are ranked",
    source="Perry, Matloff and Tendick 2024, 9.5; Watanabe 1960, doi:10.1147/rd.41.0066",
    cost="O(n log n)",
    find=_find,
    extremes=Extremes("range"),
    parts=(Part("change", goal="low"),),
)
