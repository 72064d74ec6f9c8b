"""Data for the charts of a report; small counts are withheld."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import Float64Array
from providers.measures.shared.columns import SIDES, Column, Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.levels import OTHERS, few_lost, named_levels, null_code, shown

MOST_FIELDS = 40
"""Maximum number of fields that are drawn; the most changed ones are."""
_MOST_BINS = 20
_MOST_LEVELS = 12
_QUANTILES = 20


def chart_data(comparison: Comparison, measures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Collect the data of all charts that apply, as plain JSON.

    Parameters
    ----------
    comparison : Comparison
    measures : mapping
        Key -> report of every measure that was taken.
    """
    shares: dict[str, float] = dict(measures.get("changed_share", {}).get("value", {}))
    most_changed = sorted(comparison.columns, key=lambda name: -shares.get(name, 0.0))[:MOST_FIELDS]
    threshold = comparison.options.threshold
    pictures: dict[str, Any] = {"threshold": threshold, "fields": []}
    for done, name in enumerate(most_changed):
        comparison.progress(done / (len(most_changed) + 1), f"drawing {name}")
        column = comparison.columns[name]
        pictures["fields"].append(_field(column, threshold))
    if len(comparison.columns) > MOST_FIELDS:
        pictures["fields_left_out"] = len(comparison.columns) - MOST_FIELDS
    with contextlib.suppress(NotApplicable):
        pictures["correlations"] = _correlations(comparison, most_changed)
    if shares:
        by_share = sorted(shares, key=lambda name: -shares[name])[:MOST_FIELDS]
        pictures["changed"] = {"fields": by_share, "share": [shares[name] for name in by_share]}
    if "dcr" in measures:
        pictures["dcr"] = _distances(comparison)
    if "weighted_correlations" in measures:
        pictures["survey_correlations"] = _weighted_correlations(measures["weighted_correlations"])
    if "domain_totals" in measures:
        pictures["survey_totals"] = measures["domain_totals"]["value"]["totals"]
    point = _risk_utility(measures)
    if point:
        pictures["risk_utility"] = point
    return pictures


# ------------------------------------------------------------------------------------- field by field


def _field(column: Column, threshold: int) -> dict[str, Any]:
    """Return the counts of one field, without the values that few rows have lost."""
    of_numbers = column.kind != "category"
    values: dict[Side, npt.NDArray[Any]] = {
        side: column.numbers(side) if of_numbers else column.codes(side) for side in SIDES
    }
    left_out = few_lost(values, threshold)
    kept = {side: np.delete(values[side], left_out[side]) for side in SIDES}
    picture = (_number if of_numbers else _category)(column, threshold, kept)
    return picture | {"suppressed_left_out": True} if len(left_out["source"]) else picture


def _number(column: Column, threshold: int, numbers: Mapping[Side, npt.NDArray[Any]]) -> dict[str, Any]:
    present = {side: values[~np.isnan(values)] for side, values in numbers.items()}
    edges, beyond = round_edges(list(present.values()), column.offset, threshold, column.is_whole)
    picture: dict[str, Any] = {
        "field": column.name,
        "kind": "number",
        "edges": edges,
        "open_ends": beyond,
    }
    labels = column.as_text(edges)
    if labels is not None:
        picture["edge_labels"] = labels
    missing = {}
    for side in SIDES:
        cuts = [edge - column.offset for edge in edges]
        counts = np.histogram(np.clip(present[side], cuts[0], cuts[-1]), cuts)[0].tolist() if cuts else []
        cells = shown([*counts, len(numbers[side]) - len(present[side])], threshold)
        picture[side], missing[side] = cells[:-1], cells[-1]
    return picture | {"missing": missing}


def round_edges(
    sides: Sequence[Float64Array], offset: int, threshold: int, whole: bool
) -> tuple[list[float], list[bool]]:
    """Choose at most 21 equidistant round numbers as edges of histogram cells.

    The range leaves out the `threshold` - 1 least and greatest numbers of each table. They are counted in
    the first and last cell, so that the chart shows no extreme value.

    Parameters
    ----------
    sides : sequence of ndarray
        Numbers of the tables, less the offset.
    offset : int
    threshold : int
    whole : bool
        Whether the numbers are whole; if so, the edges are too.

    Returns
    -------
    list of float
        Edges; empty if there are too few numbers, or if float64 cannot represent the edges.
    list of bool
        Whether numbers are below the first edge, and above the last one.
    """
    lows, highs = [], []
    for numbers in sides:
        if len(numbers) >= 2 * threshold:
            ranked = np.partition(numbers, [threshold - 1, len(numbers) - threshold])
            lows.append(float(ranked[threshold - 1]))
            highs.append(float(ranked[len(numbers) - threshold]))
    if not lows:
        return [], [False, False]
    low, high = min(lows) + offset, max(highs) + offset
    least = 1e-9 * max(abs(low), abs(high))  # finer edges would need more digits than `_tidy` keeps
    step = _nice(max((high - low) / _MOST_BINS, least, 1.0 if whole else 0.0))
    if not 0 < step < math.inf:  # overflow or underflow
        return [], [False, False]
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 1)
    edges = [_tidy(multiple * step) for multiple in range(first, last + 1)]
    if not all(math.isfinite(edge) for edge in edges):
        return [], [False, False]
    beyond = [
        any(bool((numbers < edges[0] - offset).any()) for numbers in sides),
        any(bool((numbers > edges[-1] - offset).any()) for numbers in sides),
    ]
    return edges, beyond


def _nice(step: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    if step <= 0 or not math.isfinite(step):
        return 1.0 if step <= 0 else step
    power = 10.0 ** math.floor(math.log10(step))
    return next((_tidy(nice * power) for nice in (1, 2, 5) if nice * power >= step), _tidy(10 * power))


def _tidy(value: float) -> float:
    """Remove binary rounding errors of a round number."""
    return float(f"{value:.12g}")


def _category(column: Column, threshold: int, codes: Mapping[Side, npt.NDArray[Any]]) -> dict[str, Any]:
    counts = {side: np.bincount(codes[side], minlength=column.levels) for side in SIDES}
    null = null_code(column)
    missing = dict.fromkeys(SIDES, 0)
    if null is not None:
        for side in SIDES:
            missing[side], counts[side][null] = int(counts[side][null]), 0
    named, rest = named_levels(counts, threshold, _MOST_LEVELS)
    picture: dict[str, Any] = {
        "field": column.name,
        "kind": "category",
        "labels": [*column.labels(named), OTHERS],
        "categories": {side: int(np.count_nonzero(counts[side])) for side in SIDES},
    }
    missing_shown = {}
    for side in SIDES:
        cells = [int(counts[side][code]) for code in named]
        counts_shown = shown([*cells, rest[side], missing[side]], threshold)
        picture[side], missing_shown[side] = counts_shown[:-1], counts_shown[-1]
    return picture | {"missing": missing_shown}


# ---------------------------------------------------------------------------------------- whole tables


def _correlations(comparison: Comparison, fields: Sequence[str]) -> dict[str, Any]:
    kept = [index for index, name in enumerate(comparison.numeric) if name in fields]
    before, after = (matrix[np.ix_(kept, kept)] for matrix in comparison.correlations)
    return {
        "fields": [comparison.numeric[index] for index in kept],
        "source": _rounded(before),
        "destination": _rounded(after),
        "difference": _rounded(after - before),
        "source_ranks": _rounded(comparison.rank_correlations[0][np.ix_(kept, kept)]),
    }


def _weighted_correlations(report: Mapping[str, Any]) -> dict[str, Any]:
    """Weighted correlations as matrices, from the measure's pairs; None where a pair is undefined."""
    fields = list(report["fields"])
    index_of = {name: index for index, name in enumerate(fields)}
    picture: dict[str, Any] = {"fields": fields}
    for key, view in (("source", "before"), ("destination", "after"), ("difference", "change")):
        matrix = np.full((len(fields), len(fields)), np.nan)
        np.fill_diagonal(matrix, 0.0 if view == "change" else 1.0)
        for pair in report["value"]["pairs"]:
            one, other = index_of[pair["field"]], index_of[pair["with"]]
            matrix[one, other] = matrix[other, one] = pair[view]
        picture[key] = _rounded(matrix)
    return picture


def _rounded(matrix: Float64Array) -> list[list[float | None]]:
    return [[None if math.isnan(value) else round(value, 6) for value in row] for row in matrix.tolist()]


def _distances(comparison: Comparison) -> dict[str, Any]:
    share = [round(index / _QUANTILES, 4) for index in range(_QUANTILES + 1)]
    distances = comparison.closest.distances
    picture = {"share": share, "distance": np.quantile(distances, share).tolist()}
    return picture | {"sample": len(distances)}


def _risk_utility(measures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if "pscr" not in measures or "delta_rho" not in measures:
        return {}
    return {
        "risk": {"key": "pscr", "value": measures["pscr"]["value"]},
        "utility": {"key": "delta_rho.ranks.mean", "value": measures["delta_rho"]["value"]["ranks"]["mean"]},
    }
