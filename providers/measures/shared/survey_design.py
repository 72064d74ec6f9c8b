"""Sampling design of a table: its strata and clusters, and the linearised variance of a weighted estimate."""

from dataclasses import dataclass

import numpy as np

from providers.arrays import Float64Array, Int64Array
from providers.measures.shared.finding import BEYOND_FLOAT64, NotApplicable


@dataclass(frozen=True)
class Design:
    """Primary sampling units of a table, drawn with replacement within strata.

    Without a cluster field each row is a unit, and without a stratum field there is one stratum.
    """

    rows: int
    unit: Int64Array | None = None
    """Unit of each row, from 0 on; shape (rows,). None: the row itself."""
    stratum: Int64Array | None = None
    """Stratum of each unit, from 0 on; shape (units,). None: one stratum."""

    @property
    def units(self) -> int:
        """Number of primary sampling units."""
        if self.stratum is not None:
            return len(self.stratum)
        return self.rows if self.unit is None else int(self.unit.max(initial=-1)) + 1

    def variance(self, scores: Float64Array, rows: Int64Array | None = None) -> float:
        """Estimate the variance of the sum of the rows' scores; 0 for a single unit.

        Parameters
        ----------
        scores : ndarray of float64, shape (m,)
            Linearised values of the estimate, the weight included.
        rows : ndarray of int64, shape (m,), optional
            Row of each score; all other rows have the score 0. Default: one score for each row.

        Raises
        ------
        NotApplicable
            The squares of the scores are too large for float64.

        Notes
        -----
        sum over the strata h of n_h / (n_h - 1) sum over its units c of (z_c - mean of z in h)^2, z_c the
        sum of the scores of unit c. The single unit of a stratum, which shows no variance within it, enters
        by its deviation from the mean over all units. O(m + strata).

        References
        ----------
        Binder 1983, On the variances of asymptotically normal estimators from complex surveys, International
        Statistical Review 51, 279-292, doi:10.2307/1402588; Wolter 2007, Introduction to Variance
        Estimation, chapter 6, doi:10.1007/978-0-387-35099-8.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            variance = self._variance(scores, rows)
        if not np.isfinite(variance):
            raise NotApplicable(BEYOND_FLOAT64)
        return variance

    def _variance(self, scores: Float64Array, rows: Int64Array | None) -> float:
        """Return the variance, infinite or NaN where a square overflows."""
        units = self.units
        if units < 2:
            return 0.0
        if self.unit is None:
            occurring, sums = rows, scores
        else:
            codes = self.unit if rows is None else self.unit[rows]
            occurring, inverse = np.unique(codes, return_inverse=True)
            sums = np.bincount(inverse, weights=scores, minlength=len(occurring)).astype(np.float64)
        if self.stratum is None:
            mean = float(sums.sum()) / units
            squares = float(((sums - mean) ** 2).sum()) + (units - len(sums)) * (mean * mean)
            return squares * units / (units - 1)
        sizes = np.bincount(self.stratum)
        stratum = self.stratum if occurring is None else self.stratum[occurring]
        means = np.bincount(stratum, weights=sums, minlength=len(sizes)) / sizes
        means[sizes == 1] = float(sums.sum()) / units
        within = np.bincount(stratum, weights=(sums - means[stratum]) ** 2, minlength=len(sizes))
        squares_of = within + (sizes - np.bincount(stratum, minlength=len(sizes))) * means**2
        factors = np.where(sizes > 1, sizes / np.maximum(sizes - 1, 1), 1.0)
        return float((factors * squares_of).sum())

    def standard_error(self, scores: Float64Array, rows: Int64Array | None = None) -> float:
        """Return the square root of the variance."""
        return float(np.sqrt(self.variance(scores, rows)))


def design_of(rows: int, strata: Int64Array | None, clusters: Int64Array | None) -> Design:
    """Build the design of a table.

    Parameters
    ----------
    rows : int
    strata, clusters : ndarray of int, shape (rows,), or None
        Codes of the stratum and of the cluster of each row. A cluster code that occurs in two strata is two
        units.
    """
    if strata is None and clusters is None:
        return Design(rows)
    strata = None if strata is None else np.unique(strata, return_inverse=True)[1].astype(np.int64)
    if clusters is None:
        return Design(rows, None, strata)
    unit = np.unique(clusters, return_inverse=True)[1].astype(np.int64)
    if strata is None:
        return Design(rows, unit)
    crossed = unit * (int(strata.max(initial=0)) + 1) + strata
    _, first, unit = np.unique(crossed, return_index=True, return_inverse=True)
    return Design(rows, unit.astype(np.int64), strata[first])
