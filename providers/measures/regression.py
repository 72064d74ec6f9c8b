"""What becomes of a regression: coefficients, R^2, and the row with the largest influence."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.measures.measure import Measure

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Regression:
    """Least squares of a standardised target on standardised fields, without an intercept."""

    coefficients: Float64Array
    r_squared: float
    cooks_distances: Float64Array
    """How far all fitted values move when a row is left out; shape (n,)."""


def regression(target: Float64Array, fields: Float64Array) -> Regression:
    """The target on the fields, each standardised within the table (ddof 1).

    Parameters
    ----------
    target : ndarray, shape (n,)
    fields : ndarray, shape (n, p)
        None of them constant, nor a combination of others; n over p.

    Notes
    -----
    By QR: O(n p^2). Cook's distance of row i is e_i^2 h_i / (p s^2 (1 - h_i)^2), e the residuals,
    h the diagonal of the hat matrix, s^2 = sum e^2 / (n - p) (Cook 1977, doi:10.2307/1268249).
    """
    y = (target - target.mean()) / target.std(ddof=1)
    x = (fields - fields.mean(axis=0)) / fields.std(axis=0, ddof=1)
    q, r = np.linalg.qr(x)
    coefficients = np.linalg.solve(r, q.T @ y)
    residuals = y - x @ coefficients
    leverages = (q * q).sum(axis=1)
    rows, p = x.shape
    variance = float(residuals @ residuals) / (rows - p)
    with np.errstate(divide="ignore", invalid="ignore"):  # a row of leverage 1 fits itself alone
        distances = residuals**2 / (p * variance) * leverages / (1 - leverages) ** 2
    r_squared = 1 - float(residuals @ residuals) / float(y @ y)
    return Regression(coefficients, r_squared, np.nan_to_num(distances, nan=np.inf))


def il3(source: Regression, destination: Regression) -> float:
    """Mean absolute difference of the coefficients."""
    return float(np.abs(source.coefficients - destination.coefficients).mean())


def r_squared(source: Regression, destination: Regression) -> dict[str, float]:
    """The share of the target's variance that is explained, in both tables."""
    return {"before": source.r_squared, "after": destination.r_squared}


def outlier_exposure(source: Regression, destination: Regression) -> dict[str, Any]:
    """The largest Cook's distance in both tables, and whether the same row has it."""
    before, after = source.cooks_distances, destination.cooks_distances
    return {
        "before": float(before.max()),
        "after": float(after.max()),
        "same_row": int(before.argmax()) == int(after.argmax()),
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
