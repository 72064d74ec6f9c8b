"""What becomes of a regression: coefficients, R^2, and the row with the largest influence."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.measures.blocks import Blocks, spread
from providers.measures.measure import Measure, NotApplicable

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Regression:
    """Least squares of a standardised target on standardised fields, without an intercept."""

    coefficients: Float64Array
    r_squared: float
    cooks_distances: Float64Array
    """How far all fitted values move when a row is left out; NaN where that is undefined, the row fitting
    itself alone; shape (n,)."""


def regression(target: Float64Array, fields: Float64Array) -> Regression:
    """`regress` of numbers in memory; shapes (n,) and (n, fields)."""
    return regress(lambda: [np.column_stack([target, fields])], fields.shape[1])


def regress(blocks: Blocks, fields: int) -> Regression:
    """The target on the fields, each standardised within the table (ddof 1).

    Parameters
    ----------
    blocks : callable
        Gives matrices, block by block, whose first column is the target; nothing is missing.
    fields : int
        Columns after it. Of coefficients that fields which depend on each other, or are constant, leave
        open, those of the least norm are taken.

    Raises
    ------
    NotApplicable
        The target is constant, or the rows are too few.

    Notes
    -----
    By the QR decompositions of the blocks, one after the other, and a singular value decomposition of
    what is left: O(n p^2). Cook's distance of row i is e_i^2 h_i / (p s^2 (1 - h_i)^2), e the residuals,
    h the diagonal of the hat matrix, p its rank, s^2 = sum e^2 / (n - p) (Cook 1977, doi:10.2307/1268249).
    """
    of = spread(blocks, fields + 1)
    rows = int(of.count[0])
    scale = np.where(of.deviation > 0, of.deviation, 1.0)
    if rows < 2 or of.deviation[0] == 0:
        raise NotApplicable("the target is constant, or missing")
    triangle = np.zeros((0, fields + 1))
    for block in blocks():
        standard = (block - of.mean) / scale
        standard[:, of.deviation == 0] = 0.0  # what rounding leaves of a constant
        last = np.roll(standard, -1, axis=1)  # the target after the fields
        triangle = np.asarray(np.linalg.qr(np.concatenate([triangle, last]), mode="r"))
    left, sizes, right = np.linalg.svd(triangle[:, :fields], full_matrices=False)
    rank = int(np.count_nonzero(sizes > sizes.max(initial=0.0) * _DEPENDENT))
    if rows <= rank:
        raise NotApplicable(f"{rank} fields, levels of categories counted, need more than {rank} rows")
    whitening = right[:rank].T / sizes[:rank]
    coefficients = whitening @ (left[:, :rank].T @ triangle[:, fields])
    residuals, leverages = np.empty(rows), np.empty(rows)
    start = 0
    for block in blocks():
        standard = (block - of.mean) / scale
        standard[:, of.deviation == 0] = 0.0
        stop = start + len(block)
        residuals[start:stop] = standard[:, 0] - standard[:, 1:] @ coefficients
        leverages[start:stop] = ((standard[:, 1:] @ whitening) ** 2).sum(axis=1)
        start = stop
    squares = float(residuals @ residuals)
    variance = squares / (rows - rank)
    with np.errstate(all="ignore"):
        distances = residuals**2 / (max(rank, 1) * variance) * leverages / (1 - leverages) ** 2
    distances[leverages > 1 - _ALONE] = np.nan
    return Regression(coefficients, 1 - squares / (rows - 1), distances)


_DEPENDENT = 1e-10  # relative to the largest singular value
_ALONE = 1e-9


def il3(source: Regression, destination: Regression) -> float:
    """Mean absolute difference of the coefficients."""
    return float(np.abs(source.coefficients - destination.coefficients).mean())


def r_squared(source: Regression, destination: Regression) -> dict[str, float]:
    """The share of the target's variance that is explained, in both tables."""
    return {"before": source.r_squared, "after": destination.r_squared}


def outlier_exposure(source: Regression, destination: Regression) -> dict[str, Any]:
    """The largest Cook's distance in both tables, and whether the row of the same number has it.

    Raises
    ------
    NotApplicable
        A table has none, its target being explained exactly.
    """
    before, after = source.cooks_distances, destination.cooks_distances
    if np.isnan(before).all() or np.isnan(after).all():
        raise NotApplicable("the target is explained exactly, or every row fits itself alone")
    return {
        "before": float(np.nanmax(before)),
        "after": float(np.nanmax(after)),
        "same_row": int(np.nanargmax(before)) == int(np.nanargmax(after)),
    }


IL3 = Measure(
    key="il3",
    title="Change of regression coefficients",
    concerns="utility",
    goal="low",
    range="0 or more",
    formula="mean over the fields of |b(Y) - b(X)|, b the standardised coefficients of the target",
    source="Perry, Matloff and Tendick 2024, 9.4",
    cost="O(n p^2)",
    compute=il3,
)

R_SQUARED = Measure(
    key="r_squared",
    title="R squared",
    concerns="utility",
    goal="high",
    range="0 to 1",
    formula="1 - sum e^2 / sum y^2 of the target on the rest, standardised within each table",
    source="Perry, Matloff and Tendick 2024, 9.4",
    cost="O(n p^2)",
    compute=r_squared,
)

OUTLIER_EXPOSURE = Measure(
    key="outlier_exposure",
    title="Exposure of the most influential row",
    concerns="risk",
    goal="low",
    range="0 or more",
    formula="largest e_i^2 h_i / (p s^2 (1 - h_i)^2) of the target on the rest, in X and Y; same row?",
    source="Perry, Matloff and Tendick 2024, 9.3.2; Cook 1977, doi:10.2307/1268249",
    cost="O(n p^2)",
    compute=outlier_exposure,
)
