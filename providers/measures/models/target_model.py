"""Least squares of the target on the other fields, with standard errors for a design or independent rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.measures.models.target_regression import DesignMatrix, explaining_fields
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import BEYOND_FLOAT64, NotApplicable
from providers.measures.shared.levels import OTHERS, null_code
from providers.measures.shared.weights import NORMAL_95, View, WeightedTable

INTERCEPT = "(intercept)"

COEFFICIENT_WORDS = {
    "change_in_errors": "mean change, in standard errors of the source",
    "overlap": "mean overlap of the 95 % intervals",
    "not_defined": "terms that depend on others",
    "coefficients": "coefficients",
    "coefficients.change": "change",
    "coefficients.before_error": "standard error before",
    "coefficients.after_error": "standard error after",
    "coefficients.change_in_errors": "change in standard errors",
}
"""Words of the parts of a value that `coefficient_changes` and `mean_changes` make."""

ChooseFields = Callable[[Comparison, list[str]], list[str]]
"""(comparison, fields that may explain the target) -> fields that explain it."""

_DEPENDENT = 1e-9
"""A column whose part that the columns before it do not explain is below this share of it is left out."""

_SCORES = 1 << 24
"""Numbers of the matrix of scores that are held at a time (128 MB)."""


@dataclass(frozen=True)
class TargetFit:
    """Fit of the target, in its own units, to the fields in theirs, with an intercept."""

    coefficients: Float64Array
    """Intercept and coefficients of all columns, NaN if a column depends on those before it."""
    errors: Float64Array
    """Standard errors of the coefficients, NaN like these."""
    r_squared: float


class TargetModel:
    """Target and explaining fields of both tables, and the terms of the regression.

    Attributes
    ----------
    fields : list of str
        The target, then the fields that explain it.
    terms : list of str
        Names of the coefficients: the intercept, a field of numbers, or a category and its level.
    field_of_term : list of str
        Field of each term; empty for the intercept.
    """

    def __init__(self, comparison: Comparison, choose: ChooseFields) -> None:
        target = comparison.need_target()
        if comparison.columns[target].kind == "category":
            raise NotApplicable(f"the target '{target}' is a category; a regression explains numbers")
        fields = choose(comparison, explaining_fields(comparison, target))
        if not fields:
            raise NotApplicable("there is no field to explain the target by")
        self.fields = [target, *fields]
        self._comparison = comparison
        self._design = DesignMatrix(comparison, target, fields)
        numeric = self._design.numeric
        self._offsets = np.zeros(self._design.columns + 1)
        self._offsets[: len(numeric)] = [float(comparison.columns[name].offset) for name in numeric]
        self.terms = [INTERCEPT, *numeric[1:], *self._indicator_terms()]
        categories = self._design.categories
        self.field_of_term = [
            "",
            *numeric[1:],
            *(each.name for each in categories for _ in range(each.columns)),
        ]

    def _indicator_terms(self) -> Iterator[str]:
        """Yield the names of the indicator columns: field and level."""
        for category in self._design.categories:
            column = self._comparison.columns[category.name]
            missing = null_code(column)
            labels = ["(missing)" if code == missing else label for code, label in
                      zip(category.named, column.labels(category.named), strict=True)]  # fmt: skip
            labels += [OTHERS] * (category.columns - len(labels))
            yield from (f"{category.name}: {label}" for label in labels)

    def fit(self, table: WeightedTable, independent: bool = False) -> TargetFit:
        """Fit the regression to one table with its weights.

        Parameters
        ----------
        table : WeightedTable
        independent : bool
            Whether the standard errors are those of independent residuals of one variance; its weights must
            all be 1. Otherwise they are linearised for the table's design.

        Raises
        ------
        NotApplicable
            The target is constant, there are too few rows, or the numbers are too large, or too close to each
            other, for float64.

        Notes
        -----
        The coefficients minimise the sum of w e^2. The scores of their standard errors are A^-1 w x e, A the
        sum of w x x', over the rows that have all numbers (Binder 1983); or the roots of the diagonal of
        s^2 A^-1, s^2 the sum of e^2 divided by the rows less the coefficients. Columns are centred by their
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
        if independent:
            variance = residual / (rows - count)
            errors[kept] = np.sqrt(variance * ((back @ inverse) ** 2).sum(axis=1))
        else:
            errors[kept] = self._errors(table, (mean, scale, kept), standard, back @ inverse @ inverse.T)
        return TargetFit(coefficients, errors, 1 - residual / squares)

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


# -------------------------------------------------------------------- coefficients of two tables compared


def interval_overlap(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Mean share of two 95 % intervals that lies in the other one; below 0 if they do not meet.

    Parameters
    ----------
    before, after : tuple of two floats
        Estimate and standard error; the interval has a width (`has_width`).

    References
    ----------
    Karr, Kohnen, Oganian, Reiter and Sanil 2006, A framework for evaluating the utility of data altered to
    protect confidentiality, The American Statistician 60, 224-232, doi:10.1198/000313006X124640.
    """
    low, high = [], []
    for estimate, error in (before, after):
        low.append(estimate - NORMAL_95 * error)
        high.append(estimate + NORMAL_95 * error)
    common = min(high) - max(low)
    return (common / (high[0] - low[0]) + common / (high[1] - low[1])) / 2


def has_width(estimate: float, error: float) -> bool:
    """Whether the 95 % interval of an estimate has two different ends in float64."""
    return estimate + NORMAL_95 * error > estimate - NORMAL_95 * error


def coefficient_changes(
    model: TargetModel, fits: Mapping[View, TargetFit], chosen: Iterable[int]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare the chosen coefficients of the fits, with their standard errors.

    Parameters
    ----------
    model : TargetModel
    fits : mapping
        `before` and `after`, and further views that are shown alone.
    chosen : iterable of int
        Indices of the terms.

    Returns
    -------
    list of dict
        For each term its coefficients, their change, and their standard errors; if the intervals have a
        width, also the change in standard errors of the source and the overlap.
    list of str
        Terms that are not defined in each table, because they depend on others.
    """
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    for index in chosen:
        term = model.terms[index]
        estimates = {view: float(fit.coefficients[index]) for view, fit in fits.items()}
        if any(np.isnan(estimate) for estimate in estimates.values()):
            left_out.append(term)
            continue
        errors = {view: float(fit.errors[index]) for view, fit in fits.items()}
        row: dict[str, Any] = {"term": term} | dict(estimates.items())
        row["change"] = estimates["after"] - estimates["before"]
        row |= {f"{view}_error": error for view, error in errors.items()}
        if all(has_width(estimates[view], errors[view]) for view in ("before", "after")):
            row["change_in_errors"] = row["change"] / errors["before"]
            both = [(estimates[view], errors[view]) for view in ("before", "after")]
            row["overlap"] = interval_overlap(both[0], both[1])
        rows.append(row)
    return rows, left_out


def mean_changes(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean change in standard errors and the mean overlap, without the intercept.

    Raises NotApplicable if no other coefficient has standard errors in both tables.
    """
    compared = [row for row in rows if row["term"] != INTERCEPT and "overlap" in row]
    if not compared:
        raise NotApplicable("no coefficient is defined, with a standard error, in both tables")
    return {
        "change_in_errors": float(np.mean([abs(row["change_in_errors"]) for row in compared])),
        "overlap": float(np.mean([row["overlap"] for row in compared])),
    }
