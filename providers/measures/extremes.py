"""Cautions about measures that a few extreme values decide.

Both criteria are exact statements about a field. A caution names the field and the criterion. It has neither
the row, nor the value, nor its share of the squares: with mean and deviation the share would give the value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.columns import Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.entropy import MOST_IN_ONE_BIN, range_is_stretched
from providers.measures.shared.measure import Extremes, Measure
from providers.measures.shared.weights import survey_weights, weight_field

_FEW, _ROWS_OF_ONE = 4, 100
"""Most rows that are a few, and rows of the table for each of them."""

_MOST_NAMES = 5
"""Most fields that a caution names; of others it has the number."""


def few_rows_decide(numbers: Float64Array, weights: Float64Array | None = None) -> bool:
    """Whether a few numbers have more than half of the (weighted) squared deviations from the mean.

    A few are the four most extreme ones, at most 1 % of the rows, and at least one.

    Parameters
    ----------
    numbers : ndarray of float64, shape (rows,)
        NaN where missing.
    weights : ndarray of float64, shape (rows,), optional
        0 or more.

    Notes
    -----
    If their share is s, all other rows together contribute at most sqrt(1 - s) to a correlation of the field
    (Cauchy-Schwarz). O(n).
    """
    present = ~np.isnan(numbers)
    values = numbers[present]
    weighted = np.ones(len(values)) if weights is None else weights[present]
    total = float(weighted.sum())
    if not total:
        return False
    few = max(1, min(_FEW, len(numbers) // _ROWS_OF_ONE))
    with np.errstate(over="ignore", invalid="ignore"):
        squares = weighted * (values - (weighted * values).sum() / total) ** 2
        half = squares.sum() / 2
        if few * squares.max() <= half:  # spares the search in nearly all fields
            return False
        return bool(np.partition(squares, len(squares) - few)[-few:].sum() > half)


def caution(measure: Measure, comparison: Comparison, fields: Sequence[str]) -> str:
    """Return sentences on the measured fields that a few values decide, and on the remedy; or empty text.

    Parameters
    ----------
    measure : Measure
    comparison : Comparison
    fields : sequence of str
        Fields on which the measure was taken.
    """
    extremes = measure.extremes
    if extremes is None:
        return ""
    tested = [comparison.options.target] if extremes.target_alone else fields
    weighted = "weight_fields" in measure.needs_each
    named = [
        f"'{name}'"
        for name in tested
        if name in comparison.columns
        and comparison.columns[name].kind != "category"
        and any(_holds(comparison, extremes, name, side, weighted) for side in extremes.sides)
    ]
    if not named:
        return ""
    more = len(named) - _MOST_NAMES
    names = ", ".join([*named[:_MOST_NAMES], *([f"{more} more"] if more > 0 else [])])
    if extremes.criterion == "squares":
        said = (
            "A few extreme values decide this figure, whatever happened to all others: they have more than "
            f"half of the squared deviations from the mean of {names}."
        )
    else:
        said = (
            f"Extreme values stretch the range of {names}: more than {100 * MOST_IN_ONE_BIN:g} % of the "
            "values are in one bin of equal width, and this figure hardly distinguishes them."
        )
    return f"{said} Read {extremes.instead}, or bound the extreme values and measure again."


def _holds(comparison: Comparison, extremes: Extremes, name: str, side: Side, weighted: bool) -> bool:
    key = (extremes.criterion, name, side, weighted)
    if key not in comparison.extremes:
        numbers = comparison.columns[name].numbers(side)
        if extremes.criterion == "range":
            found = range_is_stretched(numbers)
        else:
            found = few_rows_decide(numbers, _weights(comparison, side) if weighted else None)
        comparison.extremes[key] = found
    return comparison.extremes[key]


def _weights(comparison: Comparison, side: Side) -> Float64Array:
    release = comparison.release
    table = release.source if side == "source" else release.destination
    return survey_weights(table, weight_field(comparison), side)
