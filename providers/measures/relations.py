"""What becomes of the relations between fields: correlations, principal components, total correlation."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.equality import equality_codes
from providers.measures.blocks import correlations
from providers.measures.measure import Measure, NotApplicable
from providers.numeric import float_values
from providers.table import combined

Float64Array = npt.NDArray[np.float64]


def correlation_matrix(table: Float64Array) -> Float64Array:
    """The correlations of the fields of a matrix, shape (n, fields); NaN where missing or undefined."""
    return correlations(lambda: [table], table.shape[1])


def change_of_correlations(source: Float64Array, destination: Float64Array) -> dict[str, float]:
    """Absolute change of the correlations of pairs of fields: mean (the paper's IL1) and deviation.

    Parameters
    ----------
    source, destination : ndarray, shape (fields, fields)
        Correlations. A pair that is undefined in the source is left out; one that the destination has
        lost, a field being constant or missing, counts as uncorrelated.

    Raises
    ------
    NotApplicable
        There is no pair.
    """
    pairs = np.triu_indices(len(source), 1)
    before, after = source[pairs], np.nan_to_num(destination[pairs], nan=0.0)
    changes = np.abs(after - before)[~np.isnan(before)]
    if not len(changes):
        raise NotApplicable("no two fields of numbers vary together in the source")
    return {"mean": float(changes.mean()), "sd": float(changes.std())}


def delta_rho(source: Float64Array, destination: Float64Array) -> dict[str, float]:
    """`change_of_correlations` of two matrices; shape (n, fields)."""
    return change_of_correlations(correlation_matrix(source), correlation_matrix(destination))


def components(matrix: Float64Array) -> tuple[Float64Array, Float64Array]:
    """The principal components of the standardised fields, and each one's share of the variance.

    Parameters
    ----------
    matrix : ndarray, shape (fields, fields)
        Correlations; undefined ones count as 0.

    Returns
    -------
    ndarray, shape (fields, fields)
        A component a row, of the largest variance first.
    ndarray, shape (fields,)
    """
    complete = np.nan_to_num(matrix, nan=0.0)
    np.fill_diagonal(complete, 1.0)
    variances, vectors = np.linalg.eigh(complete)
    return vectors.T[::-1], variances[::-1] / variances.sum()


def loadings(table: Float64Array) -> tuple[Float64Array, Float64Array]:
    """The `components` of a matrix, shape (n, fields)."""
    return components(correlation_matrix(table))


def change_of_components(source: Float64Array, destination: Float64Array) -> list[float]:
    """Mean absolute difference of the loadings of the first and of the second principal component.

    A component's sign is arbitrary: it is taken as that which makes the difference least.
    """
    one, two = components(source)[0], components(destination)[0]
    return [
        float(min(np.abs(one[at] - two[at]).mean(), np.abs(one[at] + two[at]).mean()))
        for at in range(min(2, len(one)))
    ]


def il2(source: Float64Array, destination: Float64Array) -> list[float]:
    """`change_of_components` of two matrices; shape (n, fields)."""
    return change_of_components(correlation_matrix(source), correlation_matrix(destination))


def total_correlation(table: pa.Table, fields: Sequence[str], categorical: Sequence[str] = ()) -> float:
    """`information_shared` by the fields of a table of at least one row.

    Parameters
    ----------
    table : pa.Table
    fields : sequence of str
        Numbers and categories.
    categorical : sequence of str
        Which of them are categories.
    """
    bins = bins_of(table.num_rows)
    return information_shared(
        equality_codes(combined(table.column(name)))
        if name in categorical
        else binned(float_values(table.column(name)), bins)
        for name in fields
    )


def bins_of(rows: int) -> int:
    """floor(rows^(1/3)): the bins into which numbers are put."""
    return max(1, math.floor(round(math.cbrt(rows), 9)))  # the cube root of a cube is whole


def information_shared(fields: Iterable[npt.NDArray[np.signedinteger[Any]]]) -> float:
    """Sum of the fields' entropies less that of their combination, in nats. O(n log n) a field.

    Parameters
    ----------
    fields : iterable of ndarray of int, shape (n,)
        Codes of equal values; at least one row.
    """
    total = 0.0
    together = np.zeros(1, np.int64)
    for codes in fields:
        own = _recoded(codes)
        total += entropy_of(own)
        together = _recoded(together * (int(own.max()) + 1) + own)
    return total - entropy_of(together)


def binned(values: Float64Array, bins: int) -> npt.NDArray[np.int64]:
    """The bin of each number over the numbers' own range; NaN has one of its own, the last."""
    there = ~np.isnan(values)
    numbers = np.full(len(values), bins, np.int64)
    if not there.any():
        return numbers
    low, high = values[there].min(), values[there].max()
    numbers[there] = equal_widths(values[there], float(low), float(high), bins)
    return numbers


def equal_widths(values: Float64Array, low: float, high: float, bins: int) -> npt.NDArray[np.int64]:
    """Which of so many bins of equal width, from `low` to `high`, each value between them lies in."""
    if low == high:
        return np.zeros(len(values), np.int64)
    if math.isinf(high - low):  # the range of two huge numbers: halved, it is one
        values, low, high = values / 2, low / 2, high / 2
    width = (high - low) / bins or high - low  # what is too small to be divided
    return np.asarray(np.minimum(np.floor((values - low) / width), bins - 1), np.int64)


_COUNTED = 1 << 24  # codes below it are told apart by counting, not by sorting


def _recoded(codes: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.int64]:
    """The codes as 0, 1, 2, ... in their order."""
    codes = codes - codes.min()
    if int(codes.max()) >= min(_COUNTED, 8 * len(codes) + 1024):
        return np.asarray(np.unique(codes, return_inverse=True)[1], np.int64)
    occurs = np.bincount(codes) > 0
    return np.asarray((np.cumsum(occurs) - 1)[codes], np.int64)


def entropy_of(codes: npt.NDArray[np.int64]) -> float:
    """The entropy of the codes (0 or more), in nats."""
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
