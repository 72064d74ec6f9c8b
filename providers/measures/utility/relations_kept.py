"""Relations kept: share of the comparisons of distances between numbers that still hold."""

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import BEYOND_FLOAT64, Finding, NotApplicable
from providers.measures.shared.measure import Measure
from providers.measures.shared.repeats import share_interval
from providers.measures.shared.sampling import uniforms

_KEY = "relations_kept"

_MOST_TRIPLES = 10**6
"""Largest number of triples drawn of a field; the standard error of a share of as many is below 0.1 %."""


def nearness_kept(source: Float64Array, destination: Float64Array) -> tuple[int, int]:
    """Count the triples that have a relation in the source, and the triples that keep it.

    With the source's numbers in the order i <= j <= k, the relation says which of i and k is nearer to j.

    Parameters
    ----------
    source, destination : ndarray, shape (triples, 3)
        Numbers before and after; NaN where missing. A tie in the source has no relation. A relation is not
        kept by a tie in the destination, which would keep all relations of a constant field, or by a number
        that is missing there.

    Raises
    ------
    NotApplicable
        A difference is too large for float64.
    """
    order = np.argsort(source, axis=1, kind="stable")
    i, j, k = np.take_along_axis(source, order, axis=1).T
    with np.errstate(over="ignore", invalid="ignore"):
        before = i + k - 2 * j
        counted = (i < j) & (j < k) & (before != 0)
        x, y, z = np.take_along_axis(destination, order, axis=1)[counted].T
        left, right = np.abs(y - x), np.abs(z - y)
        after = np.sign(right - left)
    if not np.isfinite(before[counted]).all() or np.isinf(left).any() or np.isinf(right).any():
        raise NotApplicable(BEYOND_FLOAT64)
    return int(counted.sum()), int(np.count_nonzero(after == np.sign(before[counted])))


def share_kept_by_chance(released: Float64Array) -> float:
    """Expected share of relations that hold if the released numbers are dealt to the rows at random.

    A tie and a missing number keep no relation; all else keeps a relation or its opposite with probability
    1/2. Hence it is 1/2 less half the share of ties.

    Parameters
    ----------
    released : ndarray of float64, shape (triples, 3)
        Numbers of random triples of different rows, at least one; NaN where missing. Each of the three is
        taken for the middle one in turn.
    """
    sides = np.abs(np.roll(released, -1, axis=1) - released)  # from number m to m + 1
    present = ~np.isnan(released).any(axis=1, keepdims=True)
    differ = (sides != np.roll(sides, 1, axis=1)) & present  # the two that meet in m
    return float(differ.mean()) / 2


def _find(comparison: Comparison) -> Finding:
    """Return the value of a LOCALITY run, over all of its constraints; else count random triples."""
    of_run = comparison.release.run_values.get(_KEY)
    if of_run is not None:
        return Finding(of_run)
    comparison.need_aligned()
    comparison.need_rows(3)
    fields = comparison.need_numeric()
    before, after = comparison.sampled_matrices
    rows = len(before)
    total, kept, by_chance = 0, 0, 0.0
    triples_drawn = min(comparison.options.sample, _MOST_TRIPLES)
    for column, name in enumerate(fields):
        numbers = uniforms(3 * triples_drawn, comparison.stream, f"{_KEY}/{name}").reshape(-1, 3)
        triples = np.minimum((numbers * rows).astype(np.int64), rows - 1)
        total_here, kept_here = nearness_kept(before[triples, column], after[triples, column])
        total, kept = total + total_here, kept + kept_here
        if total_here:
            different = (triples != np.roll(triples, 1, axis=1)).all(axis=1)
            by_chance += total_here * share_kept_by_chance(after[triples[different], column])
    if not total:
        raise NotApplicable("no three different numbers of a field have a nearer one")
    # The variance of a share of triples of m sampled rows is at most 3 / m of one triple's (Hoeffding 1948).
    spread = 1 / total + (3 / rows if comparison.sample.size is not None else 0.0)
    notes = {
        "triples": total,
        "chance": by_chance / total,
        "interval": share_interval(kept / total, 1 / spread),
    }
    return Finding(kept / total, fields, comparison.sample.size, notes)


MEASURE = Measure(
    key=_KEY,
    title="Relations kept",
    concerns="utility",
    goal="high",
    range="0 to 1",
    formula="#{localities of the source's segments that hold in the destination} / #{localities}; of "
    "services other than LOCALITY, of random triples of rows in each field: which of two is nearer to the "
    "middle one. A tie in the destination keeps none. chance: the share if each field's released values are "
    "dealt to the rows at random, which is 1/2 less half the share of ties",
    source="Xue, Karras, Raissi and Pung 2011, definition 2, extracted with strict comparisons",
    cost="O(n s) for segments of s records; else of the sample",
    find=_find,
    words={"chance": "by chance alone"},
)
