"""Weighted least squares of the target on the other fields, with linearised standard errors."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import BEYOND_FLOAT64, NotApplicable
from providers.measures.shared.levels import OTHERS, null_code
from providers.measures.shared.target_regression import DesignMatrix, explaining_fields
from providers.measures.shared.weights import WeightedTable, surveyed_fields

INTERCEPT = "(intercept)"

_DEPENDENT = 1e-9
"""A column whose part that the columns before it do not explain is below this share of it is left out."""

_SCORES = 1 << 24
"""Numbers of the matrix of scores that are held at a time (128 MB)."""


@dataclass(frozen=True)
class WeightedRegression:
    """Fit of the target, in its own units, to the fields in theirs, with an intercept."""

    coefficients: Float64Array
    """Intercept and coefficients of all columns, NaN if a column depends on those before it."""
    errors: Float64Array
    """Standard errors of the coefficients, NaN like these."""
    r_squared: float


class WeightedModel:
    """Target and explaining fields of both tables, and the terms of the regression."""

    def __init__(self, comparison: Comparison) -> None:
        target = comparison.need_target()
        if comparison.columns[target].kind == "category":
            raise NotApplicable(f"the target '{target}' is a category; a regression explains numbers")
        fields = surveyed_fields(comparison, explaining_fields(comparison, target))
        if not fields:
            raise NotApplicable("there is no field to explain the target by")
        self.fields = [target, *fields]
        self._comparison = comparison
        self._design = DesignMatrix(comparison, target, fields)
        numeric = self._design.numeric
        self._offsets = np.zeros(self._design.columns + 1)
        self._offsets[: len(numeric)] = [float(comparison.columns[name].offset) for name in numeric]
        self.terms = [INTERCEPT, *numeric[1:], *self._indicator_terms()]

    def _indicator_terms(self) -> Iterator[str]:
        """Yield the names of the indicator columns: field and level."""
        for category in self._design.categories:
            column = self._comparison.columns[category.name]
            missing = null_code(column)
            labels = ["(missing)" if code == missing else label for code, label in
                      zip(category.named, column.labels(category.named), strict=True)]  # fmt: skip
            labels += [OTHERS] * (category.columns - len(labels))
            yield from (f"{category.name}: {label}" for label in labels)

    def fit(self, table: WeightedTable) -> WeightedRegression:
        """Fit the regression to one table with its weights.

        Raises
        ------
        NotApplicable
            The target is constant, there are too few rows, or the numbers are too large, or too close to each
            other, for float64.

        Notes
        -----
        The coefficients minimise the sum of w e^2. The scores of their standard errors are A^-1 w x e, A the
        sum of w x x', over the rows that have all numbers (Binder 1983). Columns are centred by their
        weighted means and scaled, decomposed block after block (QR), and transformed back: O(n p^2).
        """
        mean, scale, rows = self._spread(table)
        columns = len(scale)
        triangle = np.zeros((0, columns + 1))
        for block, weights, _ in self._blocks(table):
            part = np.sqrt(weights)[:, np.newaxis] * _standard(block, mean, scale)
            triangle = np.asarray(np.linalg.qr(np.concatenate([triangle, part]), mode="r"))
        if len(triangle) < columns + 1:
            raise NotApplicable(f"{columns} coefficients need more than {rows} rows with a weight")
        squares = float((triangle[:, columns] ** 2).sum())
        if not np.isfinite(triangle).all() or squares == 0:
            raise NotApplicable(BEYOND_FLOAT64)
        kept = _independent(triangle[:, :columns])
        if rows <= int(kept.sum()):
            raise NotApplicable(f"{int(kept.sum())} coefficients need more than {rows} rows with a weight")
        reduced = np.asarray(np.linalg.qr(triangle[:, [*np.flatnonzero(kept), columns]], mode="r"))
        count = int(kept.sum())
        inverse = np.linalg.inv(reduced[:count, :count])
        standard = inverse @ reduced[:count, count]
        residual = float((reduced[count:, count] ** 2).sum())
        back = self._back(mean, scale, kept)
        centre = np.zeros(count)
        centre[0] = mean[0] + self._offsets[0]
        coefficients, errors = np.full(columns, np.nan), np.full(columns, np.nan)
        coefficients[kept] = back @ standard + centre
        errors[kept] = self._errors(table, (mean, scale, kept), standard, back @ inverse @ inverse.T)
        return WeightedRegression(coefficients, errors, 1 - residual / squares)

    def _spread(self, table: WeightedTable) -> tuple[Float64Array, Float64Array, int]:
        """Weighted mean and scale of the target and each column, and the rows with a weight.

        The first entry is that of the target. The scale of a constant column is 0.
        """
        columns = self._design.columns + 1
        total, sums = 0.0, np.zeros(columns)
        lowest, highest = np.full(columns, np.inf), np.full(columns, -np.inf)
        rows = 0
        for block, weights, _ in self._blocks(table):
            counted = block[weights > 0]
            rows += len(counted)
            total += float(weights.sum())
            sums += weights @ block
            lowest = np.minimum(lowest, counted.min(axis=0, initial=np.inf))
            highest = np.maximum(highest, counted.max(axis=0, initial=-np.inf))
        if rows < 2 or lowest[0] >= highest[0]:
            raise NotApplicable("the target is constant, or missing")
        mean, squares = sums / total, np.zeros(columns)
        for block, weights, _ in self._blocks(table):
            squares += weights @ (block - mean) ** 2
        if not np.isfinite(mean + squares).all():
            raise NotApplicable(BEYOND_FLOAT64)
        scale = np.sqrt(squares / total)
        scale[lowest >= highest] = 0.0
        return mean, scale, rows

    def _blocks(self, table: WeightedTable) -> Iterator[tuple[Float64Array, Float64Array, Int64Array]]:
        """Yield matrices of complete rows, the target first, with the rows' weights and numbers."""
        rows, start = self._design.rows(table.side), 0
        for block in self._design.blocks(table.side):
            indices = rows[start : start + len(block)]
            start += len(block)
            yield block, table.weights[indices], indices

    def _back(self, mean: Float64Array, scale: Float64Array, kept: BoolArray) -> Float64Array:
        """Matrix from standardised coefficients to those in the fields' units; shape (kept, kept)."""
        unit = np.where(scale > 0, scale, 1.0)
        back = np.diag(np.concatenate(([1.0], 1.0 / unit[1:]))[kept])
        # the intercept is that at 0 of every column, not at the means
        back[0, 1:] = -((mean + self._offsets)[1:] / unit[1:])[kept[1:]]
        return np.asarray(back * unit[0], np.float64)

    def _errors(
        self,
        table: WeightedTable,
        standardised: tuple[Float64Array, Float64Array, BoolArray],
        coefficients: Float64Array,
        transform: Float64Array,
    ) -> Float64Array:
        """Return the standard errors of the coefficients in the fields' units; shape (kept,)."""
        mean, scale, kept = standardised
        rows = self._design.rows(table.side)
        at_once = max(1, _SCORES // max(1, len(rows)))
        found = []
        for first in range(0, len(transform), at_once):
            some, start = transform[first : first + at_once], 0
            scores = np.empty((len(rows), len(some)))
            for block, weights, _ in self._blocks(table):
                standard = _standard(block, mean, scale)
                explaining = standard[:, :-1][:, kept]
                residuals = standard[:, -1] - explaining @ coefficients
                scores[start : start + len(block)] = (
                    (weights * residuals)[:, np.newaxis] * explaining
                ) @ some.T
                start += len(block)
            found += [table.design.standard_error(scores[:, index], rows) for index in range(len(some))]
        return np.array(found)


def _independent(matrix: Float64Array) -> BoolArray:
    """Mask of the columns that do not depend on the columns before them (Gram and Schmidt, twice)."""
    basis = np.zeros((len(matrix), 0))
    kept = np.zeros(matrix.shape[1], np.bool_)
    for index, column in enumerate(matrix.T):
        rest = column - basis @ (basis.T @ column)
        rest -= basis @ (basis.T @ rest)
        size = float(np.linalg.norm(rest))
        kept[index] = size > _DEPENDENT * float(np.linalg.norm(column))
        if kept[index]:
            basis = np.column_stack([basis, rest / size])
    return kept


def _standard(block: Float64Array, mean: Float64Array, scale: Float64Array) -> Float64Array:
    """Return the intercept, the standardised columns and, last, the standardised target."""
    standard = (block - mean) / np.where(scale > 0, scale, 1.0)
    standard[:, scale == 0] = 0.0  # without the rounding errors of a constant column
    return np.concatenate([np.ones((len(block), 1)), standard[:, 1:], standard[:, :1]], axis=1)
