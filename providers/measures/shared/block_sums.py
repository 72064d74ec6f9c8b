"""Means, deviations and correlations of a matrix that is read block by block.

A block is float64, shape (rows, columns), NaN where a value is missing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.finding import BEYOND_FLOAT64, NotApplicable

Blocks = Callable[[], Iterable[Float64Array]]
"""Callable that starts a new pass over the blocks."""


@dataclass(frozen=True)
class Spread:
    """Count, mean and standard deviation of each column; shape (columns,)."""

    count: Float64Array
    """Number of values that are not missing."""
    mean: Float64Array
    deviation: Float64Array
    """Sample standard deviation (divisor n - 1); 0 for fewer than two values."""


def spread(blocks: Blocks, columns: int) -> Spread:
    """Compute count, mean and standard deviation of each column in two passes.

    Raises NotApplicable if the sum or the squares of a column are too large for float64.
    """
    count, total = np.zeros(columns), np.zeros(columns)
    lowest, highest = np.full(columns, np.inf), np.full(columns, -np.inf)
    for block in blocks():
        present = ~np.isnan(block)
        count += present.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            total += np.where(present, block, 0.0).sum(axis=0)
        lowest = np.fmin(lowest, np.where(present, block, np.inf).min(axis=0, initial=np.inf))
        highest = np.fmax(highest, np.where(present, block, -np.inf).max(axis=0, initial=-np.inf))
    mean = total / np.maximum(count, 1)
    squares = np.zeros(columns)
    with np.errstate(over="ignore", invalid="ignore"):
        for block in blocks():
            squares += np.nansum((block - mean) ** 2, axis=0)
    if not np.isfinite(mean + squares).all():
        raise NotApplicable(BEYOND_FLOAT64)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    deviation[lowest >= highest] = 0.0  # a constant column, without the rounding errors of its squares
    return Spread(count, mean, deviation)


def correlations(blocks: Blocks, columns: int) -> Float64Array:
    """Pearson correlation of each pair of columns over the rows that have both; NaN if undefined.

    Raises NotApplicable if a column is too large for float64, as `spread` does.

    Notes
    -----
    O(rows columns^2): products of the z-scores, 0 where missing, and of the masks of present values.
    """
    columnwise = spread(blocks, columns)
    scale = np.where(columnwise.deviation > 0, columnwise.deviation, 1.0)
    products, sums, squares, counts = (np.zeros((columns, columns)) for _ in range(4))
    for block in blocks():
        present = ~np.isnan(block)
        z = np.where(present, (block - columnwise.mean) / scale, 0.0)
        products += z.T @ z
        if present.all():
            sums += z.sum(axis=0)[:, np.newaxis]
            squares += (z * z).sum(axis=0)[:, np.newaxis]
            counts += len(block)
        else:
            mask = present.astype(np.float64)
            sums += z.T @ mask
            squares += (z * z).T @ mask
            counts += mask.T @ mask
    with np.errstate(all="ignore"):
        # [i, j]: n times the variance of column i over the rows that have column j too
        variances = squares - sums**2 / counts
        found = (products - sums * sums.T / counts) / np.sqrt(variances * variances.T)
    tiny = 1e-12 * np.maximum(counts, 1)
    undefined = (counts < 2) | (variances <= tiny) | (tiny >= variances.T)
    found = np.clip(found, -1.0, 1.0)
    found[undefined] = np.nan
    np.fill_diagonal(found, np.where(np.isnan(np.diag(found)), np.nan, 1.0))
    return found
