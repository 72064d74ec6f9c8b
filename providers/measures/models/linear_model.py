"""Least squares of a matrix that is read block by block, with Cook's distances."""

from dataclasses import dataclass

import numpy as np

from providers.arrays import BoolArray, Float64Array
from providers.measures.shared.block_sums import Blocks, spread
from providers.measures.shared.finding import BEYOND_FLOAT64, NotApplicable

_DEPENDENT = 1e-10
"""Singular values below this share of the largest one count as 0."""

_SATURATED = 1e-9
"""A row whose leverage is within this of 1 is fitted by itself alone."""


@dataclass(frozen=True)
class Regression:
    """Least-squares fit of a standardised target to standardised fields, without an intercept."""

    coefficients: Float64Array
    """Standardised coefficients in the order of the columns, 0 for a constant one; shape (columns,)."""
    varies: BoolArray
    """Mask of the columns that are not constant; shape (columns,)."""
    r_squared: float
    cooks_distances: Float64Array
    """Cook's distance of each row; NaN for a row that is fitted by itself alone; shape (n,)."""


def regress(blocks: Blocks, fields: int) -> Regression:
    """Fit the target to the fields, each standardised within the table (ddof 1).

    Parameters
    ----------
    blocks : callable
        Matrices without missing values, block by block; the first column is the target.
    fields : int
        Number of columns after the target. If some depend on each other or are constant, the solution of
        least norm is taken.

    Raises
    ------
    NotApplicable
        The target is constant, there are too few rows, or the numbers are too large for float64.

    Notes
    -----
    QR decomposition of block after block, then a singular value decomposition of the triangle:
    O(n p^2). Cook's distance of row i is e_i^2 h_i / (p s^2 (1 - h_i)^2), e the residuals, h the diagonal
    of the hat matrix, p its rank, s^2 = sum e^2 / (n - p) (Cook 1977, doi:10.2307/1268249).
    """
    columnwise = spread(blocks, fields + 1)
    constant = columnwise.deviation == 0
    rows = int(columnwise.count[0])
    scale = np.where(columnwise.deviation > 0, columnwise.deviation, 1.0)
    if rows < 2 or constant[0]:
        raise NotApplicable("the target is constant, or missing")
    triangle = np.zeros((0, fields + 1))
    for block in blocks():
        standard = (block - columnwise.mean) / scale
        standard[:, constant] = 0.0  # without the rounding errors of a constant column
        target_last = np.roll(standard, -1, axis=1)
        triangle = np.asarray(np.linalg.qr(np.concatenate([triangle, target_last]), mode="r"))
    if not (np.isfinite(scale).all() and np.isfinite(triangle).all()):
        raise NotApplicable(BEYOND_FLOAT64)
    left, sizes, right = np.linalg.svd(triangle[:, :fields], full_matrices=False)
    rank = int(np.count_nonzero(sizes > sizes.max(initial=0.0) * _DEPENDENT))
    if rows <= rank:
        raise NotApplicable(f"{rank} fields, levels of categories counted, need more than {rank} rows")
    whitening = right[:rank].T / sizes[:rank]
    coefficients = whitening @ (left[:, :rank].T @ triangle[:, fields])
    residuals, leverages = np.empty(rows), np.empty(rows)
    start = 0
    for block in blocks():
        standard = (block - columnwise.mean) / scale
        standard[:, constant] = 0.0
        stop = start + len(block)
        residuals[start:stop] = standard[:, 0] - standard[:, 1:] @ coefficients
        leverages[start:stop] = ((standard[:, 1:] @ whitening) ** 2).sum(axis=1)
        start = stop
    squares = float(residuals @ residuals)
    variance = squares / (rows - rank)
    with np.errstate(all="ignore"):
        distances = residuals**2 / (max(rank, 1) * variance) * leverages / (1 - leverages) ** 2
    distances[leverages > 1 - _SATURATED] = np.nan
    return Regression(coefficients, columnwise.deviation[1:] > 0, 1 - squares / (rows - 1), distances)
