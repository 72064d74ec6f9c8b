"""Change of each field's distribution."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import Float64Array, Int32Array, Int64Array
from providers.measures.shared.columns import Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.levels import few_lost
from providers.measures.shared.measure import Measure, Part

QUARTILES = (0.25, 0.5, 0.75)


def kolmogorov_smirnov(source: Float64Array, destination: Float64Array) -> float:
    """Largest difference of the distribution functions of two samples, both sorted.

    It is 0 if both samples are empty and 1 if only one is.
    """
    if not len(source) or not len(destination):
        return float(len(source) != len(destination))
    both = np.concatenate([source, destination])
    below = np.searchsorted(source, both, side="right") / len(source)
    return float(np.abs(below - np.searchsorted(destination, both, side="right") / len(destination)).max())


def total_variation(source: Int32Array, destination: Int32Array) -> float:
    """Half the sum over the levels of the absolute difference of their shares.

    It is 0 if both tables have no rows and 1 if only one has none.
    """
    if not len(source) or not len(destination):
        return float(len(source) != len(destination))
    levels = int(max(source.max(), destination.max())) + 1
    shares = [np.bincount(codes, minlength=levels) / len(codes) for codes in (source, destination)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def marginal_of_numbers(
    source: Float64Array, destination: Float64Array, offset: float, threshold: int
) -> dict[str, Any]:
    """Distance between the distributions of a field of numbers, with means, deviations and quartiles.

    Parameters
    ----------
    source, destination : ndarray, shape (rows,)
        Numbers less the offset, NaN where missing.
    offset : float
    threshold : int
        Disclosure threshold: means and deviations need this many numbers, quartiles four times as many. They
        leave out the values that fewer rows have lost, and what took their place (`few_lost`).
    """
    both = source, destination
    ranked = [_present(side) for side in both]
    missing = [1 - len(present) / max(1, len(side)) for present, side in zip(ranked, both, strict=True)]
    found: dict[str, Any] = {
        "distance": max(kolmogorov_smirnov(*ranked), abs(missing[0] - missing[1])),
        "by": "Kolmogorov-Smirnov",
        "identical": len(source) == len(destination) and bool(np.array_equal(ranked[0], ranked[1])),
    }
    lost = few_lost({"source": source, "destination": destination}, threshold)
    if len(lost["source"]):
        found["distance"] = _share_lost(source, destination, lost)
        ranked = [
            _present(np.delete(source, lost["source"])),
            _present(np.delete(destination, lost["destination"])),
        ]
    if min(map(len, ranked)) >= max(2, threshold):
        found["mean"] = _before_and_after([float(side.mean()) + offset for side in ranked])
        found["sd"] = _before_and_after([float(side.std(ddof=1)) for side in ranked])
    if min(map(len, ranked)) >= 4 * threshold:
        quartiles = [[float(q) + offset for q in np.quantile(side, QUARTILES)] for side in ranked]
        found["quartiles"] = {"before": quartiles[0], "after": quartiles[1]}
    return found


def _present(numbers: Float64Array) -> Float64Array:
    return np.sort(numbers[~np.isnan(numbers)])


def _share_lost(
    source: npt.NDArray[Any], destination: npt.NDArray[Any], lost: Mapping[Side, Int64Array]
) -> float:
    """Share of the values that only one of the tables has: no distance of the distributions is larger."""
    return max(len(lost["source"]) / len(source), len(lost["destination"]) / max(1, len(destination)))


def _before_and_after(values: list[float]) -> dict[str, float]:
    return {"before": values[0], "after": values[1]}


def marginal_of_categories(source: Int32Array, destination: Int32Array, threshold: int) -> dict[str, Any]:
    """Distance between the distributions of a field of categories; ``threshold``: of disclosure."""
    levels = int(max(source.max(initial=0), destination.max(initial=0))) + 1
    counts = [np.bincount(codes, minlength=levels) for codes in (source, destination)]
    lost = few_lost({"source": source, "destination": destination}, threshold)
    few = len(lost["source"]) > 0
    return {
        "distance": _share_lost(source, destination, lost) if few else total_variation(source, destination),
        "by": "total variation",
        "identical": bool(np.array_equal(counts[0], counts[1])),
    }


def _find(comparison: Comparison) -> Finding:
    if not comparison.columns:
        raise NotApplicable("no field can be compared")
    by_field = {}
    threshold = comparison.options.threshold
    for done, (name, column) in enumerate(comparison.columns.items()):
        comparison.progress(done / len(comparison.columns), "measuring marginals")
        if column.kind == "category":
            codes = column.codes("source"), column.codes("destination")
            by_field[name] = marginal_of_categories(*codes, threshold)
        else:
            numbers = column.numbers("source"), column.numbers("destination")
            by_field[name] = marginal_of_numbers(*numbers, float(column.offset), threshold)
    return Finding(_over_fields(by_field), list(comparison.columns))


def _over_fields(by_field: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Share of the fields that kept their values as a multiset, mean distance, and all fields one by one."""
    fields = by_field.values()
    return {
        "identical": sum(one["identical"] for one in fields) / len(fields),
        "mean_distance": sum(one["distance"] for one in fields) / len(fields),
        "by_field": by_field,
    }


MEASURE = Measure(
    key="marginals",
    title="Marginal distributions",
    concerns="utility",
    goal="low",
    range="0 to 1",
    formula="per field: identical multiset? Kolmogorov-Smirnov distance (numbers; or the change of the share "
    "that is missing, if larger) or total variation (categories); means, deviations, quartiles. If the "
    "release has lost few values, fewer than the threshold: their share as the distance, which is no "
    "smaller, and means, deviations, quartiles of all others",
    source="Optim data privacy providers 11.3; Chamikara et al. 2019, 5.2.5",
    cost="O(n log n)",
    find=_find,
    parts=(Part("mean_distance"), Part("identical", goal="high")),
    words={
        "identical": "share of fields with the very same values",
        "mean_distance": "mean distance",
        "by_field.by": "kind of distance",
    },
)
