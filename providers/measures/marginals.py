"""What becomes of each field by itself."""

from typing import Any

import numpy as np
import numpy.typing as npt

from providers.measures.measure import Measure

Float64Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

QUARTILES = (0.25, 0.5, 0.75)


def kolmogorov_smirnov(source: Float64Array, destination: Float64Array) -> float:
    """The largest difference of the distribution functions of two samples, both sorted; 0 of none.

    One where a single sample has no number.
    """
    if not len(source) or not len(destination):
        return float(len(source) != len(destination))
    both = np.concatenate([source, destination])
    below = np.searchsorted(source, both, side="right") / len(source)
    return float(np.abs(below - np.searchsorted(destination, both, side="right") / len(destination)).max())


def total_variation(source: Codes, destination: Codes) -> float:
    """Half the sum over the levels of the difference of their shares; of no rows as for the above."""
    if not len(source) or not len(destination):
        return float(len(source) != len(destination))
    levels = int(max(source.max(), destination.max())) + 1
    shares = [np.bincount(codes, minlength=levels) / len(codes) for codes in (source, destination)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def marginal_of_numbers(
    source: Float64Array, destination: Float64Array, offset: float, threshold: int
) -> dict[str, Any]:
    """How far a field of numbers (NaN where missing) is from what it was.

    Parameters
    ----------
    source, destination : ndarray, shape (rows,)
    offset : float
        What was taken off the numbers.
    threshold : int
        Means and deviations of fewer numbers, and quartiles that fewer lie beyond, are not told.
    """
    both = source, destination
    sorted_ = [np.sort(side[~np.isnan(side)]) for side in both]
    missing = [1 - len(there) / max(1, len(side)) for there, side in zip(sorted_, both, strict=True)]
    distance = max(kolmogorov_smirnov(*sorted_), abs(missing[0] - missing[1]))
    told: dict[str, Any] = {
        "distance": distance,
        "by": "Kolmogorov-Smirnov",
        "identical": len(source) == len(destination) and bool(np.array_equal(sorted_[0], sorted_[1])),
    }
    if min(map(len, sorted_)) >= max(2, threshold):
        told["mean"] = _before_and_after([float(side.mean()) + offset for side in sorted_])
        told["sd"] = _before_and_after([float(side.std(ddof=1)) for side in sorted_])
    if min(map(len, sorted_)) >= 4 * threshold:
        quartiles = [[float(q) + offset for q in np.quantile(side, QUARTILES)] for side in sorted_]
        told["quartiles"] = {"before": quartiles[0], "after": quartiles[1]}
    return told


def _before_and_after(values: list[float]) -> dict[str, float]:
    return {"before": values[0], "after": values[1]}


def marginal_of_categories(source: Codes, destination: Codes) -> dict[str, Any]:
    """How far a field of categories is from what it was."""
    levels = int(max(source.max(initial=0), destination.max(initial=0))) + 1
    counts = [np.bincount(codes, minlength=levels) for codes in (source, destination)]
    return {
        "distance": total_variation(source, destination),
        "by": "total variation",
        "identical": bool(np.array_equal(counts[0], counts[1])),
    }


def together(by_field: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The share of fields that kept their values as a multiset, the mean distance, and field by field."""
    fields = by_field.values()
    return {
        "identical": sum(one["identical"] for one in fields) / len(fields),
        "mean_distance": sum(one["distance"] for one in fields) / len(fields),
        "by_field": by_field,
    }


MARGINALS = Measure(
    key="marginals",
    title="Marginal distributions",
    concerns="utility",
    goal="low",
    range="0 to 1",
    formula="per field: identical multiset? Kolmogorov-Smirnov distance (numbers; or the change of the share "
    "that is missing, if larger) or total variation (categories); means, deviations, quartiles",
    source="Optim data privacy providers 11.3; Chamikara et al. 2019, 5.2.5",
    cost="O(n log n)",
    compute=together,
)
