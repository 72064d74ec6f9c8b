"""Regression of the target on the other fields, in both tables; computed once for several measures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from providers.arrays import Float64Array, Int32Array, Int64Array
from providers.measures.models.linear_model import Regression, regress
from providers.measures.shared.columns import SIDES, Side
from providers.measures.shared.comparison import BLOCK_ROWS, Comparison
from providers.measures.shared.finding import NotApplicable

MOST_LEVELS = 20
"""Most frequent levels of a category that get an indicator column each; the others share one."""


@dataclass(frozen=True)
class TargetRegressions:
    """Regressions of the target in both tables."""

    source: Regression
    destination: Regression
    rows: dict[Side, Int64Array]
    """Indices of the rows that have no missing number; the others are left out."""
    fields: list[str]
    """The target, then the fields that explain it."""


def target_regressions(comparison: Comparison) -> TargetRegressions:
    """Regress the target on the other compared fields. Raises NotApplicable if that is impossible."""
    if comparison.target_regressions is None:
        try:
            comparison.target_regressions = _regress_both(comparison)
        except NotApplicable as reason:
            comparison.target_regressions = reason
    if isinstance(comparison.target_regressions, NotApplicable):
        raise comparison.target_regressions
    assert isinstance(comparison.target_regressions, TargetRegressions)  # noqa: S101 - one of the two
    return comparison.target_regressions


def explaining_fields(comparison: Comparison, target: str) -> list[str]:
    """Return the fields that may explain the target. Raises NotApplicable if there is none."""
    left_out = {target} | comparison.identifying
    fields = [name for name in comparison.compared if name not in left_out]
    if not fields:
        raise NotApplicable("there is no field to explain the target by")
    return fields


def _regress_both(comparison: Comparison) -> TargetRegressions:
    target = comparison.need_target()
    if comparison.columns[target].kind == "category":
        raise NotApplicable(f"the target '{target}' is a category; a regression explains numbers")
    fields = explaining_fields(comparison, target)
    design = DesignMatrix(comparison, target, fields)
    source, destination = (regress(partial(design.blocks, side), design.columns) for side in SIDES)
    rows = {side: design.rows(side) for side in SIDES}
    return TargetRegressions(source, destination, rows, [target, *fields])


@dataclass(frozen=True)
class Indicators:
    """Indicator columns of a category, the same in both tables."""

    name: str
    column_of: Int64Array
    """Code -> its indicator column; -1 for the reference, the most frequent level."""
    columns: int
    named: list[int]
    """Codes that have a column each, in the order of the columns; a further column is for all other codes."""


def indicators(comparison: Comparison, name: str) -> Indicators:
    """Build the indicators of a category from the source's most frequent levels, none below the threshold."""
    column = comparison.columns[name]
    counts = np.bincount(column.codes("source"), minlength=column.levels)
    frequent = [int(code) for code in np.argsort(-counts, kind="stable")[: MOST_LEVELS + 1]]
    frequent = [code for code in frequent if counts[code] >= max(2, comparison.options.threshold)]
    column_of = np.full(column.levels, len(frequent) - 1, np.int64)
    for rank, code in enumerate(frequent):
        column_of[code] = rank - 1
    has_rare_levels = len(frequent) < column.levels  # they share the last column
    return Indicators(name, column_of, max(0, len(frequent) - 1 + has_rare_levels), frequent[1:])


class DesignMatrix:
    """Target and explaining fields of both tables in the same columns: numbers first, then indicators.

    Attributes
    ----------
    numeric : list of str
        The target, then the fields of numbers, in the order of the columns.
    categories : list of Indicators
        Indicators of the categories, in the order of the columns after the numbers.
    columns : int
        Number of columns after the target.
    """

    def __init__(self, comparison: Comparison, target: str, fields: Sequence[str]) -> None:
        self._comparison = comparison
        kinds = {name: comparison.columns[name].kind for name in fields}
        self.numeric = [target, *(name for name in fields if kinds[name] != "category")]
        self.categories = [indicators(comparison, name) for name in fields if kinds[name] == "category"]
        self.columns = len(self.numeric) - 1 + sum(category.columns for category in self.categories)

    def blocks(self, side: Side) -> Iterator[Float64Array]:
        """Yield blocks of rows, the target in the first column; rows with a missing number are left out."""
        rows = max(1, self._comparison.rows[side])
        for start, numbers in self._numbers(side):
            self._comparison.progress(start / rows, "explaining the target")
            kept = np.flatnonzero(~np.isnan(numbers).any(axis=1))
            block = np.zeros((len(kept), self.columns + 1))
            block[:, : len(self.numeric)] = numbers[kept]
            first = len(self.numeric)
            for category in self.categories:
                column = self._comparison.columns[category.name]
                codes: Int32Array = column.codes(side)[start : start + BLOCK_ROWS]
                places = category.column_of[codes[kept]]
                not_reference = np.flatnonzero(places >= 0)
                block[not_reference, first + places[not_reference]] = 1.0
                first += category.columns
            yield block

    def rows(self, side: Side) -> Int64Array:
        """Indices of the rows that are not left out."""
        kept = [
            start + np.flatnonzero(~np.isnan(numbers).any(axis=1)) for start, numbers in self._numbers(side)
        ]
        return np.concatenate(kept) if kept else np.zeros(0, np.int64)

    def _numbers(self, side: Side) -> Iterator[tuple[int, Float64Array]]:
        start = 0
        for numbers in self._comparison.blocks(side, self.numeric):
            yield start, numbers
            start += BLOCK_ROWS
