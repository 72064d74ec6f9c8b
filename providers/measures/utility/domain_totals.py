"""Weighted totals by domain, before and after: sums of weights, and of weights times the numbers."""

from itertools import pairwise
from typing import Any

import numpy as np

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.measures.shared.columns import SIDES, Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.levels import OTHERS, grouped_codes, shown
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.weights import WeightedTable, surveyed_fields, weight_field, weighted_tables

MOST_DOMAINS = 50
"""Most domains of a field that are named; the others are added up."""

MOST_FIELDS = 40
"""Most fields of numbers that are added up: the first ones of the table."""


def domain_totals(
    values: Float64Array, groups: Int64Array, domains: int, table: WeightedTable
) -> list[tuple[float, float]]:
    """Estimate the total of each domain, sum of w x over its rows, with its standard error.

    Parameters
    ----------
    values : ndarray of float64, shape (rows,)
        Numbers x, NaN if missing; a missing number adds nothing. 1 for the number of persons.
    groups : ndarray of int64, shape (rows,)
        Domain of each row, from 0 on.
    domains : int
    table : WeightedTable

    Returns
    -------
    list of tuple
        Total and standard error of each domain. The scores of the error are w x, and 0 outside of the domain.
    """
    rows = np.flatnonzero(~np.isnan(values))
    order = rows[np.argsort(groups[rows], kind="stable")]
    products = table.weights[order] * values[order]
    ends = np.searchsorted(groups[order], np.arange(domains + 1))
    found = []
    for first, last in pairwise(ends):
        part = products[first:last]
        found.append((float(part.sum()), table.design.standard_error(part, order[first:last])))
    return found


def without_few(
    present: dict[Side, BoolArray],
    groups: dict[Side, Int64Array],
    threshold: int,
    origin: Int64Array,
) -> dict[Side, BoolArray]:
    """Leave out the numbers that few rows of a domain have lost or gained.

    Without them the totals of the domain are those of the same rows before and after: neither a total nor its
    absence shows which domain lost a number, and which number.

    Parameters
    ----------
    present : dict of side to ndarray of bool, shape (rows,)
        Rows that have a number.
    groups : dict of side to ndarray of int64, shape (rows,)
        Domain of each row, from 0 on.
    threshold : int
        Fewer rows are few.
    origin : ndarray of int64, shape (rows of the destination,)
        Source row of each row of the destination.

    Returns
    -------
    dict
        Side -> rows that have a number and count; shape (rows,).
    """
    kept = present["source"][origin] & present["destination"]
    kept &= groups["source"][origin] == groups["destination"]
    common = {"source": np.zeros(len(present["source"]), np.bool_), "destination": kept}
    common["source"][origin[kept]] = True
    counted = {}
    for side in SIDES:
        alone = present[side] & ~common[side]
        counts = np.bincount(groups[side][alone], minlength=int(groups[side].max(initial=0)) + 1)
        counted[side] = present[side] & ~(alone & (counts < threshold)[groups[side]])
    return counted


def withheld(
    present: dict[Side, BoolArray], groups: dict[Side, Int64Array], domains: int, threshold: int
) -> list[bool]:
    """Whether the total of each domain would show the number of fewer rows than the threshold.

    Parameters
    ----------
    present : dict of side to ndarray of bool, shape (rows,)
        Rows that have a number and count.
    groups : dict of side to ndarray of int64, shape (rows,)
    domains : int
    threshold : int

    Notes
    -----
    A domain is withheld if it has few numbers in a table, or if that of another one would follow from the
    sum of all. All are if one gained or lost few numbers, which the change of its total would show, and its
    absence alone nearly so.
    """
    counts = {side: np.bincount(groups[side][present[side]], minlength=domains) for side in SIDES}
    few = np.abs(counts["source"] - counts["destination"])
    if ((few > 0) & (few < threshold)).any():
        return [True] * domains
    hidden = np.zeros(domains, np.bool_)
    for side in SIDES:
        hidden |= np.array([cell is None for cell in shown(counts[side].tolist(), threshold)], np.bool_)
    return hidden.tolist()


def _find(comparison: Comparison) -> Finding:
    tables = weighted_tables(comparison)
    weight = weight_field(comparison)
    if not comparison.options.domain_fields:
        raise NotApplicable("name the fields whose categories are domains in 'domain_fields'")
    numbers = [name for name in comparison.numeric if comparison.columns[name].kind == "number"]
    fields = surveyed_fields(comparison, numbers)[:MOST_FIELDS]
    rows: list[dict[str, Any]] = []
    hidden = 0
    for done, domain_field in enumerate(comparison.options.domain_fields):
        comparison.progress(done / len(comparison.options.domain_fields), "adding up domains")
        labels, groups = grouped_codes(
            comparison.named_column(domain_field), comparison.options.threshold, MOST_DOMAINS
        )
        for name in (weight, *(field for field in fields if field != domain_field)):
            found, left_out = _totals_of(comparison, tables, name, groups, labels)
            rows += [{"domain_field": domain_field, **row} for row in found]
            hidden += left_out
    if not rows:
        raise NotApplicable("every domain, or its change, is of too few rows to be shown")
    percent = [abs(row["change_percent"]) for row in rows if "change_percent" in row]
    errors = [abs(row["change_in_errors"]) for row in rows if "change_in_errors" in row]
    value: dict[str, Any] = {"totals": rows}
    value |= {
        key: float(np.mean(changes))
        for key, changes in (("percent", percent), ("change_in_errors", errors))
        if changes
    }
    return Finding(value | ({"withheld": hidden} if hidden else {}), [weight, *fields])


def _totals_of(
    comparison: Comparison,
    tables: list[WeightedTable],
    name: str,
    groups: dict[Side, Int64Array],
    labels: list[str],
) -> tuple[list[dict[str, Any]], int]:
    """Return the totals of one field by domain, and the number of withheld totals.

    The total of the weight's own field is the sum of the weights, the estimated number of persons.
    """
    is_weight = name == weight_field(comparison)
    column = None if is_weight else comparison.columns[name]
    values: dict[Side, Float64Array] = {
        side: np.ones(comparison.rows[side]) if column is None else column.numbers(side) + column.offset
        for side in SIDES
    }
    present: dict[Side, BoolArray] = {side: ~np.isnan(values[side]) for side in SIDES}
    if comparison.aligned:
        origin = comparison.by_destination_row(np.arange(comparison.rows["source"]))
        present = without_few(present, groups, comparison.options.threshold, origin)
        values = {side: np.where(present[side], values[side], np.nan) for side in SIDES}
    hidden = withheld(present, groups, len(labels), comparison.options.threshold)
    found = {
        table.view: domain_totals(values[table.side], groups[table.side], len(labels), table)
        for table in tables
    }
    rows = []
    for index, label in enumerate(labels):
        empty = label == OTHERS and not any((groups[side][present[side]] == index).any() for side in SIDES)
        if hidden[index] or empty:
            continue
        row: dict[str, Any] = {"domain": label, "field": name}
        row |= {view: totals[index][0] for view, totals in found.items()}
        row["change"] = row["after"] - row["before"]
        if row["before"] != 0:
            row["change_percent"] = 100 * row["change"] / abs(row["before"])
        row |= {f"{view}_error": totals[index][1] for view, totals in found.items()}
        if row["before_error"] > 0:
            row["change_in_errors"] = row["change"] / row["before_error"]
        rows.append(row)
    return rows, sum(hidden)


MEASURE = Measure(
    key="domain_totals",
    title="Totals by domain",
    concerns="utility",
    goal="low",
    range="0 or more",
    formula="sum of w, and of w x for each field of numbers x, over the rows of each category of "
    "`domain_fields`; percent: mean over the domains and fields of 100 |T(Y) - T(X)| / |T(X)|; mean of "
    "|T(Y) - T(X)| / SE(T(X)). Variance of a total: sum over strata of n_h / (n_h - 1) sum (z_c - mean z)^2 "
    "over units c, z = w x in the domain and 0 outside. Of a domain that few rows, fewer than the threshold, "
    "joined or left, without these",
    source="Särndal, Swensson and Wretman 1992, doi:10.1007/978-1-4612-4378-6; Wolter 2007, "
    "doi:10.1007/978-0-387-35099-8",
    cost="O(n log n) for each field",
    find=_find,
    parts=(Part("percent"), Part("change_in_errors")),
    needs_each=("weight_fields", "domain_fields"),
    uses=("stratum_field", "cluster_field"),
    words={
        "percent": "mean absolute change in percent",
        "change_in_errors": "mean absolute change, in standard errors of the source",
        "totals": "totals by domain",
        "withheld": "totals that are not shown because they, or the change of one, are of few rows",
        "totals.change_percent": "change in percent",
        "totals.before_error": "standard error before",
        "totals.after_error": "standard error after",
        "totals.change_in_errors": "change in standard errors",
        "totals.after_source_weights": "after, with the source's weights",
        "totals.after_source_weights_error": "standard error with the source's weights",
    },
)
