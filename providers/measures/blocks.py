"""Sums over the rows of a matrix that is given block by block, and never as a whole.

A block is float64, shape (rows, columns), NaN where a value is missing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
Blocks = Callable[[], Iterable[Float64Array]]
"""Gives the blocks anew each time it is called."""


@dataclass(frozen=True)
class Spread:
    """Of each column; shape (columns,)."""

    count: Float64Array
    """Values that are there."""
    mean: Float64Array
    deviation: Float64Array
    """With n - 1; 0 of fewer than two values."""


def spread(blocks: Blocks, columns: int) -> Spread:
    """Count, mean and standard deviation of each column, by two passes."""
    count, total = np.zeros(columns), np.zeros(columns)
    lowest, highest = np.full(columns, np.inf), np.full(columns, -np.inf)
    for block in blocks():
        there = ~np.isnan(block)
        count += there.sum(axis=0)
        total += np.where(there, block, 0.0).sum(axis=0)
        lowest = np.fmin(lowest, np.where(there, block, np.inf).min(axis=0, initial=np.inf))
        highest = np.fmax(highest, np.where(there, block, -np.inf).max(axis=0, initial=-np.inf))
    mean = total / np.maximum(count, 1)
    squares = np.zeros(columns)
    for block in blocks():
        squares += np.nansum((block - mean) ** 2, axis=0)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    deviation[lowest >= highest] = 0.0  # rounding aside, a constant has none
    return Spread(count, mean, deviation)


def correlations(blocks: Blocks, columns: int) -> Float64Array:
    """Pearson correlations of each pair of columns over the rows that have both; NaN where undefined.

    Notes
    -----
    O(rows columns^2), as products of matrices: z-scores with 0 where missing, and what is there.
    """
    of = spread(blocks, columns)
    scale = np.where(of.deviation > 0, of.deviation, 1.0)
    products, sums, squares, counts = (np.zeros((columns, columns)) for _ in range(4))
    for block in blocks():
        there = ~np.isnan(block)
        z = np.where(there, (block - of.mean) / scale, 0.0)
        products += z.T @ z
        if there.all():
            sums += z.sum(axis=0)[:, np.newaxis]
            squares += (z * z).sum(axis=0)[:, np.newaxis]
            counts += len(block)
        else:
            mask = there.astype(np.float64)
            sums += z.T @ mask
            squares += (z * z).T @ mask
            counts += mask.T @ mask
    with np.errstate(all="ignore"):
        variances = squares - sums**2 / counts  # of column i over the rows that have column j too
        together = (products - sums * sums.T / counts) / np.sqrt(variances * variances.T)
    tiny = 1e-12 * np.maximum(counts, 1)
    undefined = (counts < 2) | (variances <= tiny) | (tiny >= variances.T)
    together = np.clip(together, -1.0, 1.0)
    together[undefined] = np.nan
    diagonal = np.where(np.isnan(np.diag(together)), np.nan, 1.0)
    np.fill_diagonal(together, diagonal)
    return together
