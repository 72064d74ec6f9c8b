"""Measures of tables and matrices that are given as a whole, and formulas of papers that no service needs."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.measures.models.linear_model import Regression, regress
from providers.measures.risk.dcr import dcr as dcr_of
from providers.measures.risk.interval_sd import deviation
from providers.measures.shared.block_sums import correlations
from providers.measures.shared.entropy import bin_count
from providers.measures.shared.interval_disclosure import IntervalDisclosure
from providers.measures.shared.record_distance import share_linked
from providers.measures.utility import total_correlation as measure
from providers.measures.utility.delta_rho import change_of_correlations
from providers.measures.utility.il2 import change_of_components, components
from providers.neighbours.closest_record import closest
from providers.neighbours.points import Points, encode
from providers.tables.columns import combined
from providers.tables.equality import equality_codes
from providers.tables.numbers import float_values
from tests.naive import ranks

Matrix = npt.NDArray[np.float64]


def paired_points(
    source: pa.Table, destination: pa.Table, fields: Sequence[str], categorical: Sequence[str] = ()
) -> tuple[Points, Points]:
    """Encode the rows of both tables as points of one space, scaled by the source's ranges."""
    columns = [
        pa.chunked_array(
            [*source.column(name).chunks, *destination.column(name).chunks], source.field(name).type
        )
        for name in fields
    ]
    rows = source.num_rows
    both = encode(pa.table(columns, names=list(fields)), fields, categorical, fitted_on=rows)
    return both.slice(0, rows), both.slice(rows, len(both.numbers))


def pscr(source: Points, destination: Points) -> float:
    """Share of rows whose own row is the closest one of the destination."""
    return share_linked(closest(source, destination))


def linked_share(before: Matrix, after: Matrix, unit_of_row: Sequence[int]) -> float:
    """Share of rows that an intruder finds by the closest row, which may be any row of the same unit.

    The columns are scaled by their ranges before (Perry, Matloff and Tendick 2024, 9.1.3).
    """
    low, high = before.min(axis=0), before.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    found = 0.0
    for row, known in enumerate(before):
        distances = np.sqrt(((((after - low) - (known - low)) / span) ** 2).sum(axis=1))
        closest_rows = np.flatnonzero(distances <= distances.min() * (1 + 1e-9))
        found += sum(unit_of_row[other] == unit_of_row[row] for other in closest_rows.tolist()) / len(
            closest_rows
        )
    return found / len(before)


def linked_by_best_fields(
    before: Matrix, after: Matrix, unit_of_row: Sequence[int]
) -> tuple[float, list[int]]:
    """Greatest share of the intruders who leave out what differs in many rows, and their columns."""
    changed = (before != after).mean(axis=0)
    all_columns = list(range(before.shape[1]))
    best = (linked_by_columns(before, after, unit_of_row), all_columns)
    for most in (0.5, 0.05, 0.0):
        columns = [column for column, share in enumerate(changed) if share <= most]
        if columns:
            share = linked_by_columns(before[:, columns], after[:, columns], unit_of_row)
            if share > best[0]:
                best = (share, columns)
    return best


def linked_by_columns(before: Matrix, after: Matrix, unit_of_row: Sequence[int]) -> float:
    """Greater `linked_share` by numbers and, if the range of a column is stretched, by ranks before."""
    by_numbers = linked_share(before, after, unit_of_row)
    if not any(ranks.range_is_stretched(column.tolist()) for column in before.T):
        return by_numbers
    ranked = [
        np.array([[ranks.rank(column.tolist(), number) for number in side] for side in (column, moved)])
        for column, moved in zip(before.T, after.T, strict=True)
    ]
    before_ranks, after_ranks = np.array(ranked).transpose(1, 2, 0)
    return max(by_numbers, linked_share(before_ranks, after_ranks, unit_of_row))


def dcr(source: Points, destination: Points) -> dict[str, float]:
    """Distance to the closest record."""
    return dcr_of(closest(source, destination).distances)


def interval_sd(source: Matrix, destination: Matrix, k: float = 1.0) -> dict[str, Any]:
    """Interval disclosure of matrices, shape (n, fields)."""
    disclosure = IntervalDisclosure(len(source))
    for before, after in zip(source.T, destination.T, strict=True):
        disclosure.add(before, after, k * deviation(after[~np.isnan(after)]))
    return {"share": disclosure.share, "by_field": disclosure.by_field}


def _correlations(table: Matrix) -> Matrix:
    return correlations(lambda: [table], table.shape[1])


def delta_rho(source: Matrix, destination: Matrix) -> dict[str, float]:
    """Change of correlations (IL1) of matrices, shape (n, fields)."""
    return change_of_correlations(_correlations(source), _correlations(destination))


def loadings(table: Matrix) -> tuple[Matrix, Matrix]:
    """Principal components of a matrix, shape (n, fields), and their shares of the variance."""
    return components(_correlations(table))


def il2(source: Matrix, destination: Matrix) -> list[float]:
    """Change of the first two principal components of matrices, shape (n, fields)."""
    return change_of_components(_correlations(source), _correlations(destination))


def total_correlation(table: pa.Table, fields: Sequence[str], categorical: Sequence[str] = ()) -> float:
    """Total correlation of a table of at least one row, in nats; all fields but categories are numbers."""
    bins = bin_count(table.num_rows)
    return measure.total_correlation(
        equality_codes(combined(table.column(name)))
        if name in categorical
        else measure.binned(float_values(table.column(name)), bins)
        for name in fields
    )


def total_correlations(
    source: pa.Table, destination: pa.Table, fields: Sequence[str], categorical: Sequence[str] = ()
) -> dict[str, float]:
    """Total correlation of both tables, and its absolute change."""
    before, after = (total_correlation(table, fields, categorical) for table in (source, destination))
    return {"before": before, "after": after, "change": abs(after - before)}


def regression(target: Matrix, fields: Matrix) -> Regression:
    """Least squares of a target, shape (n,), on fields, shape (n, fields)."""
    return regress(lambda: [np.column_stack([target, fields])], fields.shape[1])


def phi(correlation: Matrix, matrix: Matrix, axis: int) -> float:
    """Least variance, over the fields, of the difference that a reflection and rotation make.

    With F = diag(1, ..., -1 at the axis, ..., 1) the least of C_ii + (M F C F M')_ii - 2 (C F M')_ii, in
    units of the fields' variances; translation and noise are left out, as in Chamikara et al. 2019.

    Parameters
    ----------
    correlation : ndarray, shape (fields, fields)
        C, of the source.
    matrix : ndarray, shape (fields, fields)
        M, the rotation.
    axis : int
        Index of the field that is reflected first, from 0.
    """
    signs = np.ones(len(correlation))
    signs[axis] = -1.0
    turned = matrix * signs
    own = np.diag(correlation)
    return float(np.min(own + np.diag(turned @ correlation @ turned.T) - 2 * np.diag(correlation @ turned.T)))


# ----------------------------------------------------------- P of a binormal sample, Li and Shen 2010

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)

_CORNER = 2.0  # Table 1: the square ends at two standard deviations


def p_mews_binormal(rows: int, rho: float, widest: float) -> float | None:
    """P of a standard binormal sample, as in Table 1; None if less than one row is expected.

    The paper's estimate: minimal depths 2, 3, ..., q, the number of rows expected in the corner of the
    square, and the sum of 1 / (N* - 1) by its logarithm, so that P = ln(q) / q with
    q = floor(rows * integral of the binormal density over [2 - widest, 2] squared).

    Parameters
    ----------
    rows : int
    rho : float
        Correlation, between -1 and 1, exclusive.
    widest : float
        Widest cell that the intruder considers possible, in standard deviations.
    """
    count = math.floor(rows * binormal_square(_CORNER - widest, _CORNER, rho))
    return math.log(count) / count if count else None


def binormal_square(low: float, high: float, rho: float) -> float:
    """Probability that two standard normals with correlation `rho` are both in [low, high].

    The inner integral is the error function, the outer one Gauss-Legendre quadrature on panels no wider
    than half the scale of the inner one, sqrt(1 - rho^2).
    """
    spread = math.sqrt(1.0 - rho * rho)
    panels = max(1, math.ceil(2.0 * (high - low) / spread))
    edges = np.linspace(low, high, panels + 1)
    half = (high - low) / (2 * panels)
    total = 0.0
    for middle in (edges[1:] + edges[:-1]) / 2:
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            x = middle + half * node
            inner = _normal_below((high - rho * x) / spread) - _normal_below((low - rho * x) / spread)
            total += weight * half * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * inner
    return float(total)


def _normal_below(x: float) -> float:
    return math.erfc(-x / math.sqrt(2.0)) / 2.0
