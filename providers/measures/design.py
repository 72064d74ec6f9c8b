"""Fields as columns of a regression: numbers, and for each category its levels, never all at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from providers.measures.case import BLOCK, Case
from providers.measures.columns import Float64Array, Int32Array, Side

MOST_LEVELS = 20
"""Levels of a category that have a column of their own: the most frequent; the others share one."""


@dataclass(frozen=True)
class Dummies:
    """A category's columns, the same in both tables."""

    name: str
    column_of: npt.NDArray[np.int64]
    """Code -> its column among the category's own; -1 for the reference, the most frequent level."""
    columns: int


def dummies(case: Case, name: str) -> Dummies:
    """The columns of a category by the source's most frequent levels, none below the threshold."""
    column = case.columns[name]
    counts = np.bincount(column.codes("source"), minlength=column.levels)
    frequent = [int(code) for code in np.argsort(-counts, kind="stable")[: MOST_LEVELS + 1]]
    frequent = [code for code in frequent if counts[code] >= max(2, case.options.threshold)]
    column_of = np.full(column.levels, len(frequent) - 1, np.int64)
    for at, code in enumerate(frequent):
        column_of[code] = at - 1
    return Dummies(name, column_of, len(frequent))


class Design:
    """The target and what explains it, of both tables in the same columns."""

    def __init__(self, case: Case, target: str, fields: Sequence[str]) -> None:
        self.case = case
        self.numeric = [target, *(name for name in fields if case.columns[name].kind != "category")]
        self.dummies = [dummies(case, name) for name in fields if case.columns[name].kind == "category"]
        self.columns = len(self.numeric) - 1 + sum(category.columns for category in self.dummies)

    def blocks(self, side: Side) -> Iterator[Float64Array]:
        """The target, the numbers, the categories' levels; rows with a missing number are left out."""
        rows = max(1, self.case.rows[side])
        for start, numbers in self._numbers(side):
            self.case.progress(start / rows, "explaining the target")
            kept = np.flatnonzero(~np.isnan(numbers).any(axis=1))
            block = np.zeros((len(kept), self.columns + 1))
            block[:, : len(self.numeric)] = numbers[kept]
            at = len(self.numeric)
            for category in self.dummies:
                codes: Int32Array = self.case.columns[category.name].codes(side)[start : start + BLOCK]
                places = category.column_of[codes[kept]]
                shown = np.flatnonzero(places >= 0)
                block[shown, at + places[shown]] = 1.0
                at += category.columns
            yield block

    def rows(self, side: Side) -> npt.NDArray[np.int64]:
        """The rows that are not left out."""
        kept = [
            start + np.flatnonzero(~np.isnan(numbers).any(axis=1)) for start, numbers in self._numbers(side)
        ]
        return np.concatenate(kept) if kept else np.zeros(0, np.int64)

    def _numbers(self, side: Side) -> Iterator[tuple[int, Float64Array]]:
        start = 0
        for numbers in self.case.blocks(side, self.numeric):
            yield start, numbers
            start += BLOCK
