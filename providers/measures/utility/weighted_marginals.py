"""Weighted distribution of each field: shares of categories, means, variances and quartiles."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from providers.arrays import Int64Array
from providers.measures.shared.columns import SIDES, Column, Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.levels import few_lost, grouped_codes
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.weights import (
    WeightedTable,
    surveyed_fields,
    weighted_distance,
    weighted_mean,
    weighted_quantiles,
    weighted_tables,
    weighted_variance,
)

QUARTILES = (0.25, 0.5, 0.75)

MOST_LEVELS = 12
"""Most categories of a field that are named; the others are added up."""


def weighted_marginal_of_numbers(
    column: Column, tables: list[WeightedTable], threshold: int
) -> dict[str, Any]:
    """Weighted distance, means with standard errors, variances and quartiles of a field of numbers.

    Parameters
    ----------
    column : Column
    tables : list of WeightedTable
        As `weighted_tables` returns them.
    threshold : int
        Disclosure threshold: means and variances need this many numbers with a weight above 0 in each
        table, quartiles four times as many. They leave out the values that fewer rows have lost (`few_lost`).
    """
    values = {side: column.numbers(side) for side in SIDES}
    lost = few_lost(values, threshold)
    pairs = [(values[table.side], table.weights) for table in tables[:2]]
    missing = [float(weights[np.isnan(each)].sum() / weights.sum()) for each, weights in pairs]
    found: dict[str, Any] = {
        "distance": _at_least_lost(
            max(weighted_distance(*pairs), abs(missing[0] - missing[1])), lost, tables
        ),
        "by": "Kolmogorov-Smirnov",
    }
    for side in SIDES:
        values[side][lost[side]] = np.nan
    numbers = {table.view: values[table.side] for table in tables}
    pairs = [(numbers[table.view], table.weights) for table in tables]
    counts = [int(np.count_nonzero(~np.isnan(each) & (weights > 0))) for each, weights in pairs]
    if min(counts) >= max(2, threshold) and column.kind == "number":
        means = {table.view: weighted_mean(numbers[table.view], table) for table in tables}
        variances = {table.view: weighted_variance(numbers[table.view], table.weights) for table in tables}
        found["mean"] = {view: mean.value + column.offset for view, mean in means.items() if mean}
        found["standard_error"] = {view: mean.error for view, mean in means.items() if mean}
        found["variance"] = variances
    if min(counts) >= 4 * threshold and column.kind == "number":
        found["quartiles"] = {
            table.view: [
                quantile + column.offset
                for quantile in weighted_quantiles(numbers[table.view], table.weights, QUARTILES)
            ]
            for table in tables
        }
    return found


def weighted_marginal_of_categories(
    column: Column, tables: list[WeightedTable], threshold: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Weighted distance of a field of categories, and the shares of its named categories.

    Parameters
    ----------
    column : Column
    tables : list of WeightedTable
        As `weighted_tables` returns them.
    threshold : int
        Disclosure threshold: a category is named if it has this many rows in both tables.

    Returns
    -------
    dict
        ``distance``, half the sum over all categories of the absolute change of their weighted share.
    list of dict
        Share of each named category and of the others, by view, with standard errors, without the values that
        fewer rows than the threshold have lost.
    """
    lost = few_lost({side: column.codes(side) for side in SIDES}, threshold)
    sums = [
        np.bincount(column.codes(table.side), weights=table.weights, minlength=column.levels)
        for table in tables[:2]
    ]
    shares = [each / each.sum() for each in sums]
    distance = _at_least_lost(float(np.abs(shares[0] - shares[1]).sum() / 2), lost, tables)
    labels, groups = grouped_codes(column, threshold, MOST_LEVELS)
    rows: list[dict[str, Any]] = [{"field": column.name, "category": label} for label in labels]
    for row, index in zip(rows, range(len(labels)), strict=True):
        members = {side: (groups[side] == index).astype(np.float64) for side in SIDES}
        for side in SIDES:
            members[side][lost[side]] = np.nan
        means = {table.view: weighted_mean(members[table.side], table) for table in tables}
        if means["before"] is None or means["after"] is None:  # every row with a weight has lost its value
            return {"distance": distance, "by": "total variation"}, []
        row |= {view: mean.value for view, mean in means.items() if mean}
        row["change"] = row["after"] - row["before"]
        row |= {f"{view}_error": mean.error for view, mean in means.items() if mean}
    return {"distance": distance, "by": "total variation"}, rows


def _at_least_lost(
    distance: float, lost: Mapping[Side, Int64Array], tables: Sequence[WeightedTable]
) -> float:
    """Return the distance, or the share of the weights of few lost values if that is larger.

    With equal weights no distance is larger than this share. The last digits of one are left out, since they
    depend on the values.
    """
    if not len(lost["source"]):
        return distance
    shares = [table.weights[lost[table.side]].sum() / table.weights.sum() for table in tables[:2]]
    return round(float(max(distance, *shares)), 12)


def _find(comparison: Comparison) -> Finding:
    tables = weighted_tables(comparison)
    threshold = comparison.options.threshold
    fields = surveyed_fields(comparison, comparison.need_compared())
    by_field: dict[str, dict[str, Any]] = {}
    shares: list[dict[str, Any]] = []
    for done, name in enumerate(fields):
        comparison.progress(done / len(fields), "measuring weighted marginals")
        column = comparison.columns[name]
        if column.kind == "category":
            by_field[name], rows = weighted_marginal_of_categories(column, tables, threshold)
            shares += rows
        else:
            by_field[name] = weighted_marginal_of_numbers(column, tables, threshold)
    if not by_field:
        raise NotApplicable("no field can be compared")
    value: dict[str, Any] = {
        "mean_distance": sum(one["distance"] for one in by_field.values()) / len(by_field),
        "by_field": by_field,
    }
    return Finding(value | ({"shares": shares} if shares else {}), fields)


MEASURE = Measure(
    key="weighted_marginals",
    title="Weighted marginal distributions",
    concerns="utility",
    goal="low",
    range="0 to 1",
    formula="per field, each row counted w times: Kolmogorov-Smirnov distance (numbers; or the change of the "
    "share that is missing, if larger) or total variation (categories). mean m = sum w x / sum w; variance "
    "m' / (m' - 1) sum w (x - m)^2 / sum w, m' rows with a number and a weight; quartiles: least x up to "
    "which the share of the weights lies; shares of categories; these without the values that few rows have "
    "lost, fewer than the threshold. Standard errors by linearisation: z = w (x - m) / sum w, variance sum "
    "over strata of n_h / (n_h - 1) sum (z_c - mean z)^2 over units c",
    source="Binder 1983, doi:10.2307/1402588; Särndal, Swensson and Wretman 1992, "
    "doi:10.1007/978-1-4612-4378-6; Lumley 2010, doi:10.1002/9780470580066",
    cost="O(n log n) for each field",
    find=_find,
    parts=(Part("mean_distance"),),
    needs_each=("weight_fields",),
    uses=("stratum_field", "cluster_field"),
    words={
        "mean_distance": "mean distance",
        "by_field.by": "kind of distance",
        "shares": "shares of categories",
        "shares.before_error": "standard error before",
        "shares.after_error": "standard error after",
        "shares.after_source_weights": "after, with the source's weights",
        "shares.after_source_weights_error": "standard error with the source's weights",
    },
)
