"""What becomes of averages over ranges: the mean of one field where another lies between two values."""

import numpy as np
import numpy.typing as npt

from providers.measures.measure import Measure, NotApplicable

Float64Array = npt.NDArray[np.float64]

QUERIES = 200
_NARROWEST, _WIDEST = 0.05, 0.5  # of the source's rows, by the rank of the range field


class RangeAverages:
    """Averages of fields over ranges of one field, each in the time of two look-ups."""

    def __init__(self, range_field: Float64Array) -> None:
        there = ~np.isnan(range_field)
        self._order = np.flatnonzero(there)[np.argsort(range_field[there], kind="stable")]
        self._sorted = range_field[self._order]

    def range_at(self, start: float, width: float) -> tuple[float, float] | None:
        """The values between which such a share of the rows lies, from such a share on; None of none."""
        if not len(self._sorted):
            return None
        last = len(self._sorted) - 1
        begin = start * (1 - width)
        ends = int(begin * last), min(last, int((begin + width) * last))
        return float(self._sorted[ends[0]]), float(self._sorted[ends[1]])

    def averages(self, field: Float64Array, ranges: list[tuple[float, float]]) -> Float64Array:
        """The field's mean over the rows within each closed range; NaN where no row has a value."""
        values = field[self._order]
        there = ~np.isnan(values)
        sums = np.concatenate([[0.0], np.cumsum(np.where(there, values, 0.0))])
        counts = np.concatenate([[0], np.cumsum(there)])
        low = np.searchsorted(self._sorted, [low for low, _ in ranges], side="left")
        high = np.searchsorted(self._sorted, [high for _, high in ranges], side="right")
        with np.errstate(all="ignore"):
            averages: Float64Array = (sums[high] - sums[low]) / (counts[high] - counts[low])
        return averages


def relative_errors(source: Float64Array, destination: Float64Array) -> Float64Array:
    """|b - a| / |a| for each query; 1 where the destination has no answer; none where a is 0 or missing."""
    asked = ~np.isnan(source) & (source != 0)
    errors = np.abs(destination[asked] - source[asked]) / np.abs(source[asked])
    return np.where(np.isnan(errors), 1.0, errors)


def query_error(errors: Float64Array) -> dict[str, float]:
    """Mean and quartiles of the errors. Raises NotApplicable of none."""
    if not len(errors):
        raise NotApplicable("no query has an answer other than 0 in the source")
    quartiles = np.quantile(errors, [0.25, 0.5, 0.75]).tolist()
    return {"mean": float(errors.mean()), "q25": quartiles[0], "median": quartiles[1], "q75": quartiles[2]}


def drawn_queries(uniforms: Float64Array, fields: int) -> list[tuple[int, int, float, float]]:
    """(range field, averaged field, start, width) of each query, of uniform numbers; shape (queries, 4)."""
    queries = []
    for one, two, start, width in uniforms:
        range_field = int(one * fields)
        other = int(two * (fields - 1))
        averaged = other + (other >= range_field)
        queries.append(
            (range_field, averaged, float(start), _NARROWEST + float(width) * (_WIDEST - _NARROWEST))
        )
    return queries


QUERY_ERROR = Measure(
    key="query_error",
    title="Error of range averages",
    concerns="utility",
    goal="low",
    range="0 or more",
    formula=f"|b - a| / |a| over {QUERIES} random queries, a and b the source's and the destination's mean "
    "of one field over the rows in which another lies in a range that holds 5 to 50 % of the source's: mean, "
    "quartiles",
    source="Xue, Karras, Raissi and Pung 2011, 5.3",
    cost="O(n log n) for each range field",
    compute=query_error,
)
