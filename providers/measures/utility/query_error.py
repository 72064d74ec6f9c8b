"""Error of aggregate queries: averages of a field over rows beyond two thresholds, in some categories."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from providers.arrays import Float64Array, Int64Array
from providers.measures.shared.aggregate_queries import Instances, averages, drawn_instances
from providers.measures.shared.columns import Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Measure
from providers.measures.shared.query_errors import (
    ERROR_PARTS,
    ERROR_WORDS,
    errors_of_answers,
    intervals_of_errors,
    relative_errors,
)
from providers.measures.shared.sampling import uniforms

INSTANCES = 2000
"""Random instances of each query."""

_MOST_CATEGORIES = 1000
"""Most categories of the fourth field; the sums of each are in memory for all thresholds."""


def _find(comparison: Comparison) -> Finding:
    """Take the errors of the three queries, and of all of them together."""
    named = comparison.options.query_fields
    if not named:
        raise NotApplicable("name three fields of numbers and a category in 'query_fields'")
    *numbers, category = named
    for name in named:
        if name not in comparison.columns:
            raise NotApplicable(f"'{name}' is not measured: {comparison.left_out.get(name, 'unknown')}")
    comparison.need_rows()
    domain = _categories(comparison, category)
    errors: dict[str, Float64Array] = {}
    for query, average in enumerate(numbers):
        comparison.progress(query / len(numbers), "asking queries")
        others = [name for name in numbers if name != average]
        drawn = uniforms(INSTANCES * (3 + len(domain)), comparison.stream, f"aggregate queries/{query}")
        domains = [_domain(comparison.columns[name].numbers("source"), name) for name in others]
        asked = drawn_instances(drawn.reshape(INSTANCES, -1), domains, len(domain))
        before, after = (
            _answers(comparison, side, average, others, category, domain, asked)
            for side in ("source", "destination")
        )
        errors[average] = relative_errors(before, after)
    every = np.concatenate(list(errors.values()))
    by_field = {name: errors_of_answers(found) for name, found in errors.items() if len(found)}
    notes = {"queries": len(every), "interval": intervals_of_errors(every) if len(every) else {}}
    return Finding({**errors_of_answers(every), "by_field": by_field}, list(named), notes=notes)


def _categories(comparison: Comparison, name: str) -> Int64Array:
    """Return the codes of the categories that the source has, without null."""
    column = comparison.columns[name]
    codes = np.delete(column.codes("source"), column.missing("source"))
    found: Int64Array = np.unique(codes).astype(np.int64)
    if not len(found):
        raise NotApplicable(f"'{name}' is empty in the source")
    if len(found) > _MOST_CATEGORIES:
        raise NotApplicable(f"'{name}' has more than {_MOST_CATEGORIES:,} categories: name a coarser field")
    return found


def _domain(numbers: Float64Array, name: str) -> tuple[float, float]:
    """Return the least and the greatest number of the source."""
    present = numbers[~np.isnan(numbers)]
    if not len(present):
        raise NotApplicable(f"'{name}' has no number in the source")
    return float(present.min()), float(present.max())


def _answers(
    comparison: Comparison,
    side: Side,
    average: str,
    others: Sequence[str],
    category: str,
    domain: Int64Array,
    asked: Instances,
) -> Float64Array:
    """Answer the instances in one of the tables."""
    averaged, first, second = (comparison.columns[name].numbers(side) for name in (average, *others))
    codes: npt.NDArray[np.int32] = comparison.columns[category].codes(side)
    number_of = np.full(max(int(codes.max(initial=-1)), int(domain[-1])) + 1, -1, np.int32)
    number_of[domain] = np.arange(len(domain))
    offset = float(comparison.columns[average].offset)
    return averages(averaged, first, second, number_of[codes], asked) + offset


MEASURE = Measure(
    key="query_error",
    title="Error of aggregate queries",
    concerns="utility",
    goal="low",
    range="0 or more",
    formula=f"|b - a| / |a| over {INSTANCES:,} random instances of each of three queries, a and b the "
    "answers of the source and of the destination: the average of one of three fields of numbers over the "
    "rows in which the other two exceed thresholds, uniform on the source's ranges, and a category is in a "
    "random set of random size. Quartiles and mean over the instances with a != 0, of all queries together "
    "and of each, and bounded, the mean of the errors of at most 1; 95 % intervals of the quartiles by order "
    "statistics (David and Nagaraja 2003), none of the mean",
    source="Xue, Karras, Raissi and Pung 2011, 5.3",
    cost="O((n + q c) log q), q instances and c categories, after sorting the rows",
    find=_find,
    interval_of_draws=True,
    parts=ERROR_PARTS,
    needs=("query_fields",),
    words={
        **ERROR_WORDS,
        **{f"by_field.{name}": words for name, words in ERROR_WORDS.items()},
        "by_field": "by averaged field",
    },
)
