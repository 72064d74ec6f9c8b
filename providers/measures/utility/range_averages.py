"""Error of range queries: the mean of one field over the rows with another field in a range."""

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import BEYOND_FLOAT64, Finding, NotApplicable
from providers.measures.shared.measure import Measure
from providers.measures.shared.query_errors import (
    ERROR_PARTS,
    ERROR_WORDS,
    errors_of_answers,
    intervals_of_errors,
    relative_errors,
)
from providers.measures.shared.sampling import uniforms

_BATCHES, _BATCH = 10, 100
"""Batches of random queries, and queries of each: every batch has its own random numbers."""
QUERIES = _BATCHES * _BATCH
"""Number of random queries. The names of their draws are those of the measure's first key, `query_error`."""
_NARROWEST, _WIDEST = 0.05, 0.5
"""Least and greatest share of the source's rows in the range of a query."""


class RangeAverages:
    """Averages of fields over ranges of one field, by prefix sums in the order of that field."""

    def __init__(self, range_field: Float64Array) -> None:
        present = ~np.isnan(range_field)
        self._order = np.flatnonzero(present)[np.argsort(range_field[present], kind="stable")]
        self._sorted = range_field[self._order]

    def range_at(self, start: float, width: float) -> tuple[float, float] | None:
        """Return the range that holds the share `width` of the rows; None if the field has no number.

        Its first row has the rank start * (1 - width), as a share of the rows.
        """
        if not len(self._sorted):
            return None
        last = len(self._sorted) - 1
        first_rank = start * (1 - width)
        low, high = int(first_rank * last), min(last, int((first_rank + width) * last))
        return float(self._sorted[low]), float(self._sorted[high])

    def averages(self, field: Float64Array, ranges: list[tuple[float, float]]) -> Float64Array:
        """Return the field's mean over the rows in each closed range; NaN if no row has a value.

        Raises NotApplicable if the sum of the field is too large for float64.
        """
        values = field[self._order]
        present = ~np.isnan(values)
        with np.errstate(over="ignore", invalid="ignore"):
            sums = np.concatenate([[0.0], np.cumsum(np.where(present, values, 0.0))])
        if not np.isfinite(sums[-1]):
            raise NotApplicable(BEYOND_FLOAT64)
        counts = np.concatenate([[0], np.cumsum(present)])
        low = np.searchsorted(self._sorted, [low for low, _ in ranges], side="left")
        high = np.searchsorted(self._sorted, [high for _, high in ranges], side="right")
        with np.errstate(all="ignore"):
            averages: Float64Array = (sums[high] - sums[low]) / (counts[high] - counts[low])
        return averages


def drawn_queries(numbers: Float64Array, fields: int) -> list[tuple[int, int, float, float]]:
    """Build queries (range field, averaged field, start, width) from uniform numbers; shape (queries, 4)."""
    queries = []
    for one, two, start, width in numbers:
        range_field = int(one * fields)
        other = int(two * (fields - 1))
        averaged = other + (other >= range_field)  # any field but the range field
        queries.append(
            (range_field, averaged, float(start), _NARROWEST + float(width) * (_WIDEST - _NARROWEST))
        )
    return queries


def _find(comparison: Comparison) -> Finding:
    """Take the errors of all queries, with intervals for the choice of queries."""
    fields = [name for name in comparison.numeric if comparison.columns[name].kind == "number"]
    if len(fields) < 2:
        raise NotApplicable("it needs two fields of numbers or more")
    comparison.need_rows()
    purposes = [f"query_error/{batch}" for batch in range(_BATCHES)]
    numbers = [uniforms(4 * _BATCH, comparison.stream, purpose).reshape(-1, 4) for purpose in purposes]
    queries = drawn_queries(np.concatenate(numbers), len(fields))
    errors = relative_errors(*_answers(comparison, fields, queries))
    value = errors_of_answers(errors)
    notes = {"queries": len(errors), "interval": intervals_of_errors(errors)}
    return Finding(value, fields, notes=notes)


def _answers(
    comparison: Comparison, fields: list[str], queries: list[tuple[int, int, float, float]]
) -> tuple[Float64Array, Float64Array]:
    """Answer each query in the source and in the destination; NaN if a table has no answer."""
    before, after = np.full(len(queries), np.nan), np.full(len(queries), np.nan)
    for done, range_field in enumerate(sorted({query[0] for query in queries})):
        comparison.progress(done / len(fields), "asking queries")
        column = comparison.columns[fields[range_field]]
        source = RangeAverages(column.numbers("source"))
        destination = RangeAverages(column.numbers("destination"))
        for averaged in sorted({query[1] for query in queries if query[0] == range_field}):
            indices = [i for i, query in enumerate(queries) if query[:2] == (range_field, averaged)]
            ranges = [source.range_at(*queries[i][2:]) for i in indices]
            known = [bounds for bounds in ranges if bounds is not None]
            if not known:  # the source has no number in the range field, so that no query has a range
                continue
            other = comparison.columns[fields[averaged]]
            offset = float(other.offset)
            before[indices] = source.averages(other.numbers("source"), known) + offset
            after[indices] = destination.averages(other.numbers("destination"), known) + offset
    return before, after


MEASURE = Measure(
    key="range_averages",
    title="Error of range averages",
    concerns="utility",
    goal="low",
    range="0 or more",
    formula=f"|b - a| / |a| over {QUERIES:,} random queries, a and b the source's and the destination's mean "
    "of one field over the rows in which another lies in a range that holds 5 to 50 % of the source's: "
    "quartiles and mean over the queries with a != 0, and bounded, the mean of the errors of at most 1; 95 % "
    "intervals of the quartiles by order statistics (David and Nagaraja 2003), none of the mean",
    source="after Xue, Karras, Raissi and Pung 2011, 5.3, whose own queries are those of `query_error`",
    cost="O(n log n) for each range field",
    find=_find,
    interval_of_draws=True,
    parts=ERROR_PARTS,
    words=ERROR_WORDS,
)
