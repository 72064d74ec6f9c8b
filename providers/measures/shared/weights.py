"""Survey weights of a comparison, and estimates of means, variances and quantiles that use them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from providers.arrays import Float64Array, Int64Array
from providers.measures.shared.columns import SIDES, Side, kind_of
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.survey_design import Design, design_of
from providers.tables.numbers import float_values

View = Literal["before", "after", "after_source_weights"]

NORMAL_95 = 1.959963984540054
"""Half the width of a 95 % interval of the normal distribution, in standard errors."""

_TIE = 1e-12
"""Relative error of a sum of weights up to which it reaches the share of a quantile."""


@dataclass(frozen=True)
class WeightedTable:
    """One of the tables with the weights by which it is read."""

    view: View
    """`after_source_weights`: the release with the weights that its rows have in the source."""
    side: Side
    weights: Float64Array
    """Weight of each row, 0 or more; shape (rows,)."""
    design: Design


def survey_weights(table: pa.Table, name: str, where: str) -> Float64Array:
    """Return the weights of a table's rows; shape (rows,).

    Parameters
    ----------
    table : pa.Table
    name : str
        Field of the weights.
    where : str
        Name of the table in messages.

    Raises
    ------
    NotApplicable
        The field is no number, a weight is missing, infinite or below 0, or their sum is 0 or infinite.
    """
    if kind_of(table.schema.field(name).type) != "number":
        raise NotApplicable(f"the survey weight '{name}' is no number in the {where}")
    weights = float_values(table.column(name)).astype(np.float64)
    for wrong, words in (
        (np.isnan(weights), "missing (null or NaN)"),
        (np.isinf(weights), "infinite"),
        (weights < 0, "negative"),
    ):
        if wrong.any():
            raise NotApplicable(f"the survey weight '{name}' has {words} values in the {where}")
    total = float(weights.sum())
    if total == 0:
        raise NotApplicable(f"all values of the survey weight '{name}' are 0 in the {where}")
    if not np.isfinite(total):
        raise NotApplicable(f"the sum of the survey weight '{name}' is too large for float64 in the {where}")
    return weights


def weight_field(comparison: Comparison) -> str:
    """Return the field of the weights. Raises NotApplicable unless the options name exactly one."""
    named = comparison.options.weight_fields
    if len(named) != 1:
        raise NotApplicable("name one survey weight in 'weight_fields'")
    return named[0]


def surveyed_fields(comparison: Comparison, fields: Iterable[str]) -> list[str]:
    """Return the fields that are estimated: all but the weight, the strata and the clusters."""
    options = comparison.options
    design = {weight_field(comparison), options.stratum_field, _cluster_field(comparison)}
    return [name for name in fields if name not in design]


def weighted_tables(comparison: Comparison) -> list[WeightedTable]:
    """Return the source, the release with its own weights and, if weights have moved, with the source's.

    Raises
    ------
    NotApplicable
        No weight is named, weights are invalid, or a table has fewer than two rows.
    """
    name = weight_field(comparison)
    comparison.need_rows(2)
    tables = comparison.release.source, comparison.release.destination
    before, after = (
        survey_weights(table, name, where) for table, where in zip(tables, ("source", "release"), strict=True)
    )
    source, release = (design_of(comparison.rows[side], *_codes(comparison, side)) for side in SIDES)
    found = [
        WeightedTable("before", "source", before, source),
        WeightedTable("after", "destination", after, release),
    ]
    if comparison.aligned:
        kept = comparison.by_destination_row(before)
        if kept.sum() > 0 and not np.array_equal(kept, after):
            found.append(WeightedTable("after_source_weights", "destination", kept, release))
    return found


def _cluster_field(comparison: Comparison) -> str | None:
    """Return the field of the primary sampling units: by default the field of persons of several rows."""
    return comparison.options.cluster_field or comparison.unit_field


def _codes(comparison: Comparison, side: Side) -> tuple[Int64Array | None, Int64Array | None]:
    """Return the codes of the strata and of the clusters; None without such a field."""
    names = comparison.options.stratum_field, _cluster_field(comparison)
    found = [
        None if name is None else comparison.named_column(name).codes(side).astype(np.int64) for name in names
    ]
    return found[0], found[1]


@dataclass(frozen=True)
class WeightedMean:
    """Estimate of a mean, with its standard error."""

    value: float
    error: float


def weighted_mean(numbers: Float64Array, table: WeightedTable) -> WeightedMean | None:
    """Estimate the mean over the rows that have a number: sum of w x / sum of w, a ratio of two totals.

    Parameters
    ----------
    numbers : ndarray of float64, shape (rows,)
        Numbers, NaN if missing.
    table : WeightedTable

    Returns
    -------
    WeightedMean or None
        None if no row with a weight has a number. The scores of the error are w (x - mean) / sum of w.
    """
    rows = np.flatnonzero(~np.isnan(numbers))
    weights, values = table.weights[rows], numbers[rows]
    total = float(weights.sum())
    if total == 0:
        return None
    mean = float((weights * values).sum()) / total
    return WeightedMean(mean, table.design.standard_error(weights * (values - mean) / total, rows))


def weighted_variance(numbers: Float64Array, weights: Float64Array) -> float | None:
    """Estimate the variance in the population: m / (m - 1) sum of w (x - mean)^2 / sum of w.

    Parameters
    ----------
    numbers : ndarray of float64, shape (rows,)
        Numbers, NaN if missing.
    weights : ndarray of float64, shape (rows,)

    Returns
    -------
    float or None
        None for fewer than two numbers with a weight above 0; m is the number of these.
    """
    counted = ~np.isnan(numbers) & (weights > 0)
    values, weights = numbers[counted], weights[counted]
    if len(values) < 2:
        return None
    total = weights.sum()
    mean = (weights * values).sum() / total
    return float((weights * (values - mean) ** 2).sum() / total * len(values) / (len(values) - 1))


def weighted_quantiles(numbers: Float64Array, weights: Float64Array, shares: Sequence[float]) -> list[float]:
    """Return the least numbers up to which at least these shares of the weights lie.

    Parameters
    ----------
    numbers : ndarray of float64, shape (rows,)
        Numbers, NaN if missing; at least one with a weight above 0.
    weights : ndarray of float64, shape (rows,)
    shares : sequence of float
        Above 0, up to 1.
    """
    counted = ~np.isnan(numbers) & (weights > 0)
    order = np.argsort(numbers[counted], kind="stable")
    ranked, reached = numbers[counted][order], np.cumsum(weights[counted][order])
    wanted = np.asarray(shares) * reached[-1] * (1 - _TIE)
    return [float(ranked[index]) for index in np.searchsorted(reached, wanted)]


def weighted_distance(
    source: tuple[Float64Array, Float64Array], destination: tuple[Float64Array, Float64Array]
) -> float:
    """Largest difference of two weighted distribution functions; numbers and weights of each table.

    It is 0 if neither table has a number with a weight, and 1 if only one has.
    """
    both = []
    for numbers, weights in (source, destination):
        counted = ~np.isnan(numbers) & (weights > 0)
        order = np.argsort(numbers[counted], kind="stable")
        both.append((numbers[counted][order], np.cumsum(weights[counted][order])))
    if not len(both[0][0]) or not len(both[1][0]):
        return float(len(both[0][0]) != len(both[1][0]))
    points = np.concatenate([ranked for ranked, _ in both])
    below = []
    for ranked, reached in both:
        places = np.searchsorted(ranked, points, side="right")
        below.append(np.concatenate(([0.0], reached))[places] / reached[-1])
    return float(np.abs(below[0] - below[1]).max())
