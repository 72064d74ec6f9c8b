"""What becomes of the relations between fields: correlations, principal components, total correlation."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.equality import equality_codes
from providers.measures.measure import Measure
from providers.numeric import float_values
from providers.table import combined

Float64Array = npt.NDArray[np.float64]


def delta_rho(source: Float64Array, destination: Float64Array) -> dict[str, float]:
    """Absolute change of the pairwise Pearson correlations: mean (the paper's IL1) and standard deviation.

    Parameters
    ----------
    source, destination : ndarray, shape (n, fields)
        At least two fields, none of them constant in either table.
    """
    changes = np.abs(np.corrcoef(destination, rowvar=False) - np.corrcoef(source, rowvar=False))
    pairs = changes[np.triu_indices(source.shape[1], 1)]
    return {"mean": float(pairs.mean()), "sd": float(pairs.std())}


def loadings(table: Float64Array) -> tuple[Float64Array, Float64Array]:
    """The principal components of the standardised fields, and each one's share of the variance.

    Returns
    -------
    ndarray, shape (fields, fields)
        A component a row, of the largest variance first.
    ndarray, shape (fields,)
    """
    variances, vectors = np.linalg.eigh(np.corrcoef(table, rowvar=False))
    return vectors.T[::-1], variances[::-1] / variances.sum()


def il2(source: Float64Array, destination: Float64Array) -> list[float]:
    """Mean absolute difference of the loadings of the first and of the second principal component.

    A component's sign is arbitrary: it is taken as that which makes the difference least.
    """
    one, two = loadings(source)[0], loadings(destination)[0]
    return [
        float(min(np.abs(one[at] - two[at]).mean(), np.abs(one[at] + two[at]).mean()))
        for at in range(min(2, len(one)))
    ]


def total_correlation(table: pa.Table, fields: Sequence[str], categorical: Sequence[str] = ()) -> float:
    """Sum of the fields' entropies less that of their combination, in nats.

    Parameters
    ----------
    table : pa.Table
        At least one row.
    fields : sequence of str
        Numbers without nulls, and categories.
    categorical : sequence of str
        Which of them are categories.

    Notes
    -----
    Numbers are put in floor(n^(1/3)) bins of equal width over the table's own range. O(n log n).
    """
    rows = table.num_rows
    bins = math.floor(round(rows ** (1 / 3), 9))  # the cube root of a cube is whole
    total = 0.0
    together = np.zeros(rows, np.int64)
    for name in fields:
        column = table.column(name)
        if name in categorical:
            codes = equality_codes(combined(column))
        else:
            codes = _binned(float_values(column), bins)
        _, codes = np.unique(codes, return_inverse=True)
        total += _entropy(codes)
        _, together = np.unique(together * (int(codes.max()) + 1) + codes, return_inverse=True)
    return total - _entropy(together)


def _binned(values: Float64Array, bins: int) -> npt.NDArray[np.int64]:
    low, high = values.min(), values.max()
    if low == high:
        return np.zeros(len(values), np.int64)
    bin_numbers = np.floor((values - low) / ((high - low) / bins))
    return np.asarray(np.minimum(bin_numbers, bins - 1), np.int64)


def _entropy(codes: npt.NDArray[np.int64]) -> float:
    shares = np.bincount(codes) / len(codes)
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


def total_correlations(
    source: pa.Table, destination: pa.Table, fields: Sequence[str], categorical: Sequence[str] = ()
) -> dict[str, float]:
    """`total_correlation` of both tables."""
    return {
        "before": total_correlation(source, fields, categorical),
        "after": total_correlation(destination, fields, categorical),
    }


DELTA_RHO = Measure(
    key="delta_rho",
    title="Change of correlations",
    concerns="utility",
    goal="low",
    range="0 to 2",
    formula="|rho_ij(Y) - rho_ij(X)| over the pairs i < j: mean (IL1) and standard deviation",
    source="Li and Shen 2010, 5.2; Perry, Matloff and Tendick 2024, 9.4",
    cost="O(n) for each pair of fields",
    compute=delta_rho,
)

IL2 = Measure(
    key="il2",
    title="Change of principal components",
    concerns="utility",
    goal="low",
    range="0 to 2",
    formula="mean over the fields of |loading in Y - in X|, for the first two components, signs aligned",
    source="Perry, Matloff and Tendick 2024, 9.4",
    cost="O(n) for each pair of fields",
    compute=il2,
)

TOTAL_CORRELATION = Measure(
    key="total_correlation",
    title="Total correlation",
    concerns="utility",
    goal="high",
    range="0 or more, in nats",
    formula="sum over fields of H(f) - H(all fields), numbers in floor(n^(1/3)) bins of equal width",
    source="Perry, Matloff and Tendick 2024, 9.5; Watanabe 1960, doi:10.1147/rd.41.0066",
    cost="O(n log n)",
    compute=total_correlations,
)
