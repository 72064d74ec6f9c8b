"""What pictures of a release are made of, without a count of cells that would disclose."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from providers.measures.case import Case
from providers.measures.columns import Column, Float64Array, Side
from providers.measures.measure import NotApplicable
from providers.measures.utility_findings import correlations_of

MOST_FIELDS = 40
_MOST_BINS = 20
_MOST_LEVELS = 12
_QUANTILES = 20

_SIDES: tuple[Side, Side] = ("source", "destination")


def pictures_of(case: Case, measures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The data of the pictures, as plain JSON. What does not apply is not in it."""
    shares: dict[str, float] = dict(measures.get("changed_share", {}).get("value", {}))
    most_changed = sorted(case.columns, key=lambda name: -shares.get(name, 0.0))[:MOST_FIELDS]
    pictures: dict[str, Any] = {"threshold": case.options.threshold, "fields": []}
    for at, name in enumerate(most_changed):
        case.progress(at / (len(most_changed) + 1), f"drawing {name}")
        pictures["fields"].append(_field(case.columns[name], case.options.threshold))
    if len(case.columns) > MOST_FIELDS:
        pictures["fields_left_out"] = len(case.columns) - MOST_FIELDS
    with contextlib.suppress(NotApplicable):
        pictures["correlations"] = _correlations(case, most_changed)
    if shares:
        shown = sorted(shares, key=lambda name: -shares[name])[:MOST_FIELDS]
        pictures["changed"] = {"fields": shown, "share": [shares[name] for name in shown]}
    if "dcr" in measures:
        pictures["dcr"] = _distances(case)
    point = _risk_utility(measures)
    if point:
        pictures["risk_utility"] = point
    return pictures


# ------------------------------------------------------------------------------------- field by field


def _field(column: Column, threshold: int) -> dict[str, Any]:
    return _category(column, threshold) if column.kind == "category" else _number(column, threshold)


def shown(counts: Sequence[int], threshold: int) -> list[int | None]:
    """Counts of the cells of one table, whose sum is known: null where one could disclose.

    A cell that counts fewer rows than the threshold, but not none, is not shown. Where the others and the
    sum would tell it, what is not shown being a single cell or below the threshold altogether, the next
    smallest cells are not shown either, empty ones last.
    """
    hidden = {at for at, count in enumerate(counts) if 0 < count < threshold}
    if hidden:
        others = (at for at in range(len(counts)) if at not in hidden)
        for at in sorted(others, key=lambda at: (counts[at] == 0, counts[at], at)):
            if len(hidden) > 1 and sum(counts[one] for one in hidden) >= threshold:
                break
            hidden.add(at)
    return [None if at in hidden else int(count) for at, count in enumerate(counts)]


def _number(column: Column, threshold: int) -> dict[str, Any]:
    numbers = {side: column.numbers(side) for side in _SIDES}
    there = {side: values[~np.isnan(values)] for side, values in numbers.items()}
    edges, beyond = round_edges(list(there.values()), column.offset, threshold, column.is_whole)
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
    for side in _SIDES:
        cuts = [edge - column.offset for edge in edges]
        counts = np.histogram(np.clip(there[side], cuts[0], cuts[-1]), cuts)[0].tolist() if cuts else []
        cells = shown([*counts, len(numbers[side]) - len(there[side])], threshold)
        picture[side], missing[side] = cells[:-1], cells[-1]
    return picture | {"missing": missing}


def round_edges(
    sides: Sequence[Float64Array], offset: int, threshold: int, whole: bool
) -> tuple[list[float], list[bool]]:
    """At most 21 round numbers, evenly apart, between which the numbers lie; and whether some lie beyond.

    The range is that of the numbers but for the `threshold` - 1 least and greatest of each side: those
    are counted in the first and last cell, so that no extreme, nor how far away it is, can be seen. None
    of too few numbers, nor of such that float64 has none to cut them.

    Parameters
    ----------
    sides : sequence of ndarray
        The numbers of the tables, less the offset.
    offset : int
    threshold : int
    whole : bool
        Whether the numbers are whole: then the edges are.
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
    least = 1e-9 * max(abs(low), abs(high))  # finer edges would not be round
    step = _nice(max((high - low) / _MOST_BINS, least, 1.0 if whole else 0.0))
    if not 0 < step < math.inf:  # beyond float64, at either end
        return [], [False, False]
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 1)
    edges = [_tidy(at * step) for at in range(first, last + 1)]
    if not all(math.isfinite(edge) for edge in edges):
        return [], [False, False]
    beyond = [
        any(bool((numbers < edges[0] - offset).any()) for numbers in sides),
        any(bool((numbers > edges[-1] - offset).any()) for numbers in sides),
    ]
    return edges, beyond


def _nice(step: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not less."""
    if step <= 0 or not math.isfinite(step):
        return 1.0 if step <= 0 else step
    power = 10.0 ** math.floor(math.log10(step))
    return next((_tidy(nice * power) for nice in (1, 2, 5) if nice * power >= step), _tidy(10 * power))


def _tidy(value: float) -> float:
    """Without what binary rounding adds to a round number."""
    return float(f"{value:.12g}")


_OTHERS = "(others)"


def _category(column: Column, threshold: int) -> dict[str, Any]:
    counts = {side: np.bincount(column.codes(side), minlength=column.levels) for side in _SIDES}
    missing = {side: column.missing(side) for side in _SIDES}
    for side in _SIDES:
        if len(missing[side]):
            counts[side][column.codes(side)[missing[side][0]]] = 0
    both = np.minimum(counts["source"], counts["destination"])
    frequent = [int(code) for code in np.argsort(-counts["source"], kind="stable") if both[code] >= threshold]
    named = frequent[:_MOST_LEVELS]
    rest = {side: int(counts[side].sum() - counts[side][named].sum()) for side in _SIDES}
    while named and any(0 < rest[side] < threshold for side in _SIDES):
        last = named.pop()  # the others are to be as many as the threshold, or none
        rest = {side: rest[side] + int(counts[side][last]) for side in _SIDES}
    picture: dict[str, Any] = {
        "field": column.name,
        "kind": "category",
        "labels": [*column.labels(named), _OTHERS],
    }
    hidden = {}
    for side in _SIDES:
        cells = [int(counts[side][code]) for code in named]
        told = shown([*cells, rest[side], len(missing[side])], threshold)
        picture[side], hidden[side] = told[:-1], told[-1]
    return picture | {"missing": hidden}


# ---------------------------------------------------------------------------------------- all together


def _correlations(case: Case, fields: Sequence[str]) -> dict[str, Any]:
    matrices = correlations_of(case)
    kept = [at for at, name in enumerate(case.numeric) if name in fields]
    before, after = (matrix[np.ix_(kept, kept)] for matrix in matrices)
    return {
        "fields": [case.numeric[at] for at in kept],
        "source": _rounded(before),
        "destination": _rounded(after),
        "difference": _rounded(after - before),
    }


def _rounded(matrix: Float64Array) -> list[list[float | None]]:
    return [[None if math.isnan(value) else round(value, 6) for value in row] for row in matrix.tolist()]


def _distances(case: Case) -> dict[str, Any]:
    share = [round(at / _QUANTILES, 4) for at in range(_QUANTILES + 1)]
    distances = case.closest.distances
    picture = {"share": share, "distance": np.quantile(distances, share).tolist()}
    return picture | {"sample": len(distances)}


def _risk_utility(measures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if "pscr" not in measures or "delta_rho" not in measures:
        return {}
    return {
        "risk": {"key": "pscr", "value": measures["pscr"]["value"]},
        "utility": {"key": "delta_rho", "value": measures["delta_rho"]["value"]["mean"]},
    }
