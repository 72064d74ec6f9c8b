"""Distortion: mean relative change of the numbers."""

import numpy as np

from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Measure


def _find(comparison: Comparison) -> Finding:
    comparison.need_aligned()
    fields = [name for name in comparison.numeric if comparison.columns[name].kind == "number"]
    total, cells, zeros, missing = 0.0, 0, 0, 0
    for name in fields:
        before, after = comparison.number_pairs(name)
        offset = float(comparison.columns[name].offset)
        present = ~np.isnan(before) & ~np.isnan(after)
        before, after = before[present], after[present]
        not_zero = before + offset != 0
        zeros += int(len(before) - not_zero.sum())
        missing += int(np.count_nonzero(~present))
        cells += int(not_zero.sum())
        total += float(np.sum(np.abs(after - before)[not_zero] / np.abs(before + offset)[not_zero]))
    if not cells:
        raise NotApplicable("no number other than 0 is in both tables")
    all_cells = cells + zeros + missing
    left_out = {"zero": zeros / all_cells, "missing": missing / all_cells}
    return Finding(total / cells, fields, notes={"left_out_share": left_out})


MEASURE = Measure(
    key="distortion",
    title="Distortion",
    concerns="utility",
    goal="low",
    range="0 or more",
    formula="mean over cells with x != 0 of |y - x| / |x|, of every field of numbers that is measured, "
    "changed or not",
    source="Xue, Karras, Raissi and Pung 2011, equation 6; cells at zero are left out and counted",
    cost="O(n)",
    find=_find,
)
