"""Utility measures: what a release keeps of the source."""

import numpy as np
import numpy.typing as npt

from providers.measures.measure import Measure


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


RELATIONS_KEPT = Measure(
    key="relations_kept",
    title="Relations kept",
    concerns="utility",
    goal="high",
    range="0 to 1",
    formula="#{localities of the source's segments that hold in the destination} / #{localities}",
    source="Xue, Karras, Raissi and Pung 2011, definition 2, extracted with strict comparisons",
    cost="O(n s) for segments of s records",
    compute=relations_kept,
)
