"""Errors of the answers to random queries: means, quartiles, and their intervals."""

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.measure import Part
from providers.measures.shared.repeats import Interval, mean_interval, quantile_interval

_QUARTILES = {"q25": 0.25, "median": 0.5, "q75": 0.75}

ERROR_PARTS = (
    Part("bounded", words="mean of errors of at most 1"),
    Part("median"),
    Part("mean"),
    Part("q25"),
    Part("q75"),
)
"""Numbers by which runs are ranked, of a measure whose value is that of `errors_of_answers`."""

ERROR_WORDS = {part.path: part.words for part in ERROR_PARTS if part.words}
"""Words of these numbers in reports."""


def relative_errors(source: Float64Array, destination: Float64Array) -> Float64Array:
    """|b - a| / |a| for each query whose answer a in the source is neither 0 nor missing.

    If the destination has no answer b, the error is 1.
    """
    asked = ~np.isnan(source) & (source != 0)
    errors = np.abs(destination[asked] - source[asked]) / np.abs(source[asked])
    return np.where(np.isnan(errors), 1.0, errors)


def bounded(errors: Float64Array) -> Float64Array:
    """Return the errors with 1 for larger ones: such an answer is worth no more than none."""
    return np.minimum(errors, 1.0)


def errors_of_answers(errors: Float64Array) -> dict[str, float]:
    """Means and quartiles of the errors. Raises NotApplicable if there is none."""
    if not len(errors):
        raise NotApplicable("no query has an answer other than 0 in the source")
    quartiles = np.quantile(errors, list(_QUARTILES.values())).tolist()
    means = {"bounded": float(bounded(errors).mean()), "mean": float(errors.mean())}
    return means | dict(zip(_QUARTILES, quartiles, strict=True))


def intervals_of_errors(errors: Float64Array) -> dict[str, Interval]:
    """Confidence intervals (95 %) of the quartiles and of the mean bounded error, for the choice of queries.

    The mean has no interval. Its terms are divided by the true averages, so that one query whose true average
    is near 0 decides it; no interval of thousands of queries covers the mean of all possible queries. The
    mean of the bounded errors has an interval, and ranks runs, because the median is 0 if a run changes few
    fields.
    """
    found = {name: quantile_interval(errors, share) for name, share in _QUARTILES.items()}
    return found if len(errors) < 2 else {**found, "bounded": mean_interval(bounded(errors))}
