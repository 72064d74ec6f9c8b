"""Measures of section 9 as plain numpy code."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import rankdata

from benchmarks.papers.runs import Matrix


@dataclass(frozen=True, slots=True)
class Fit:
    """Least-squares fit with an intercept."""

    coefficients: Matrix
    """Intercept, then one coefficient a column; shape (columns + 1,)."""
    errors: Matrix
    """Standard errors of the coefficients; shape (columns + 1,)."""
    r_squared: float
    influence: Matrix
    """Cook's distances; shape (rows,)."""


def fit(target: Matrix, columns: Matrix) -> Fit:
    """Regress a target, shape (rows,), on columns, shape (rows, columns)."""
    design = np.column_stack([np.ones(len(target)), columns])
    orthogonal, _ = np.linalg.qr(design)
    inverse = np.linalg.pinv(design)
    coefficients = inverse @ target
    residuals = target - design @ coefficients
    free = len(target) - design.shape[1]
    variance = float(residuals @ residuals) / free
    leverage = (orthogonal**2).sum(axis=1)
    influence = residuals**2 * leverage / (design.shape[1] * variance * (1 - leverage) ** 2)
    errors = np.sqrt(variance * (inverse**2).sum(axis=1))
    deviations = target - target.mean()
    return Fit(
        coefficients, errors, 1 - float(residuals @ residuals) / float(deviations @ deviations), influence
    )


def standardised(values: Matrix) -> Matrix:
    """Return z-scores of each column."""
    scores: Matrix = (values - values.mean(axis=0)) / values.std(axis=0, ddof=1)
    return scores


def standardised_fit(target: Matrix, columns: Matrix) -> Fit:
    """Regress the standardised target on the standardised columns, without the intercept's coefficient."""
    found = fit(standardised(target[:, None])[:, 0], standardised(columns))
    return Fit(found.coefficients[1:], found.errors[1:], found.r_squared, found.influence)


def upper_correlations(values: Matrix) -> Matrix:
    """Return the correlations of all pairs of columns, shape (pairs,)."""
    correlations = np.asarray(np.corrcoef(values.T))
    pairs: Matrix = correlations[np.triu_indices(values.shape[1], 1)]
    return pairs


def components(values: Matrix) -> tuple[Matrix, Matrix]:
    """Return the principal axes of the scaled columns, one a row, and their shares of the variance."""
    variances, vectors = np.linalg.eigh(np.corrcoef(values.T))
    return vectors.T[::-1], variances[::-1] / variances.sum()


def first_scores(values: Matrix) -> Matrix:
    """Return the scores of the first two components, shape (rows, 2), which grow with the fields' sum."""
    axes, _ = components(values)
    signs = np.sign(axes[:2].sum(axis=1))
    scores: Matrix = standardised(values) @ (axes[:2] * signs[:, None]).T
    return scores


def loading_changes(source: Matrix, destination: Matrix) -> tuple[float, float]:
    """Return IL2 of the first two components; the sign of an axis is arbitrary."""
    one, other = components(source)[0], components(destination)[0]
    first, second = (
        min(float(np.abs(one[axis] - sign * other[axis]).mean()) for sign in (-1, 1)) for axis in (0, 1)
    )
    return first, second


def ranks(values: Matrix, reference: Matrix) -> Matrix:
    """Return each value's mid-rank among the reference's values of its column, as a share of its rows."""
    columns = [
        (np.searchsorted(known, column, "left") + np.searchsorted(known, column, "right")) / (2 * len(known))
        for column, known in zip(values.T, np.sort(reference, axis=0).T, strict=True)
    ]
    return np.column_stack(columns)


def closest_distances(source: Matrix, destination: Matrix) -> Matrix:
    """Return the distance of each source row to its closest row of the destination, shape (rows,)."""
    distances: Matrix = cdist(source, destination).min(axis=1)
    return distances


def self_closest(source: Matrix, destination: Matrix) -> float:
    """Return the share of rows whose own released row is closest; ties share the credit."""
    distances = cdist(source, destination)
    tied = distances <= distances.min(axis=1, keepdims=True) * (1 + 1e-12)
    return float((np.diag(tied) / tied.sum(axis=1)).mean())


def within_deviations(source: Matrix, destination: Matrix, width: float = 1.0) -> float:
    """Return the share of rows with every value within `width` deviations of the released one."""
    near = np.abs(source - destination) <= width * destination.std(axis=0, ddof=1)
    return float(near.all(axis=1).mean())


def within_ranks(source: Matrix, destination: Matrix) -> float:
    """Return the share of values within p % of the ranks around the released one, mean of p = 1, ..., 10."""
    rows = len(source)
    both = np.vstack([source, destination])
    ordered = rankdata(both, axis=0) / 2
    moved = np.abs(ordered[:rows] - ordered[rows:]) / rows
    return float(np.mean([(moved <= share / 100).mean() for share in range(1, 11)]))
