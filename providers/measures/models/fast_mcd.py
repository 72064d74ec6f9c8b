"""FAST-MCD: search for the rows whose covariance matrix has the least determinant.

Starts grow in five random subsets of 300 rows; only the best of them are continued on more rows.

References
----------
Rousseeuw and Van Driessen 1999, doi:10.1080/00401706.1999.10485670: section 3, and figure 6 for large n.
"""

from dataclasses import dataclass

import numpy as np

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.measures.shared.sampling import uniforms
from providers.randomness.chacha20 import Stream

_STARTS = 500
SUBSET = 300
"""Rows of a subset in which starts grow; tables of fewer than two subsets are not divided.

Fields are fewer: a start has a row more than there are fields.
"""
_MOST_SUBSETS = 5
_FIRST_STEPS = 2
"""C-steps of each start, in its subset and again on the merged subsets."""
_BEST = 10
"""Candidates that are continued, of each subset and of the merged subsets."""
_MOST_STEPS = 100
"""C-steps on all rows; the determinant falls at each and usually stops falling after about ten."""
_SAME = 1e-12
"""Fall of the log determinant below which a candidate has converged."""
_FLAT = 1e-12
"""Least variance along an axis, as a share of the greatest."""
_BATCH = 1 << 21
"""Numbers of a batch of candidates: all of them are computed at once if the rows are few."""


@dataclass(frozen=True)
class _Candidates:
    """Fits that compete; the smaller the determinant, the better."""

    means: Float64Array
    """Shape (candidates, fields)."""
    covariances: Float64Array
    """Shape (candidates, fields, fields)."""
    log_determinants: Float64Array
    """Logarithms of the determinants; -inf where a covariance is singular. Shape (candidates,)."""

    def best(self, count: int) -> "_Candidates":
        """Return the `count` best, of equally good ones the first."""
        return self[np.argsort(self.log_determinants, kind="stable")[:count]]

    def __getitem__(self, index: Int64Array | slice) -> "_Candidates":
        """Select candidates."""
        return _Candidates(self.means[index], self.covariances[index], self.log_determinants[index])


def least_determinant(x: Float64Array, size: int, stream: Stream) -> Int64Array:
    """Return the `size` rows, ascending, whose covariance has the least determinant that the search finds.

    Parameters
    ----------
    x : ndarray, shape (n, fields)
        At least two fields; `size` < n.
    size : int
        More than half of the rows.
    stream : Stream
        Randomness of the subsets and of the starts.

    Notes
    -----
    Up to 599 rows, 500 starts of fields + 1 random rows make two C-steps each, and the ten best converge.
    Otherwise the starts are divided among two to five random subsets of 300 rows, the ten best of each
    make two C-steps on the merged subsets, and the ten best of these converge on all rows. So the cost is
    O(n fields^2) for each of about a hundred C-steps, whatever the number of starts.

    A C-step takes the `size` rows that are closest by the Mahalanobis distance of a fit, and fits them; it
    never increases the determinant (theorem 1). A row outside the plane of a singular fit is far from it, so
    that a plane that holds `size` rows is found: there the determinant is 0.
    """
    rows = len(x)
    subsets = min(_MOST_SUBSETS, rows // SUBSET)
    if subsets < 2:
        return _support(x, size, _converged(x, size, _from_starts(x, size, _STARTS, stream, "all")))
    order = uniforms(rows, stream, "subsets").argsort(kind="stable")[: subsets * SUBSET]
    found = []
    for index in range(subsets):
        part = x[order[index * SUBSET : (index + 1) * SUBSET]]
        found.append(_from_starts(part, _share(size, rows, SUBSET), _STARTS // subsets, stream, str(index)))
    candidates = _Candidates(
        np.concatenate([each.means for each in found]),
        np.concatenate([each.covariances for each in found]),
        np.concatenate([each.log_determinants for each in found]),
    )
    merged = x[order]
    for _ in range(_FIRST_STEPS):
        candidates = _c_step(merged, _share(size, rows, len(merged)), candidates)
    return _support(x, size, _converged(x, size, candidates.best(_BEST)))


def continued(x: Float64Array, size: int, rows: BoolArray) -> Int64Array:
    """Return what `least_determinant` does, by C-steps from the fit of some rows alone, without a search.

    Parameters
    ----------
    x : ndarray, shape (n, fields)
    size : int
        Number of rows wanted, less than n.
    rows : ndarray of bool, shape (n,)
        Rows of the fit, such as those found in a table that differs by few rows.

    References
    ----------
    Willems and Van Aelst 2005, doi:10.1016/j.csda.2004.02.006: a fast bootstrap for the MCD estimator.
    """
    return _support(x, size, _converged(x, size, _fit(x[np.newaxis, rows])))


def _share(size: int, rows: int, part: int) -> int:
    """Rows of a part of the table that correspond to `size` of all rows."""
    return -(-part * size // rows)


def _from_starts(x: Float64Array, size: int, count: int, stream: Stream, purpose: str) -> _Candidates:
    """Fit `count` starts of fields + 1 random rows each, and return the best after two C-steps."""
    rows, fields = x.shape
    drawn = uniforms(count * rows, stream, f"starts/{purpose}").reshape(count, rows)
    chosen = np.argpartition(drawn, fields, axis=1)[:, : fields + 1]
    candidates = _fit(x[np.sort(chosen, axis=1)])
    for _ in range(_FIRST_STEPS):
        candidates = _c_step(x, size, candidates)
    return candidates.best(_BEST)


def _converged(x: Float64Array, size: int, candidates: _Candidates) -> _Candidates:
    """Make C-steps until the determinants stop falling, and return the best candidate alone."""
    done = []
    last = np.full(len(candidates.means), np.inf)  # theirs may be those of other rows
    for _ in range(_MOST_STEPS):
        stepped = _c_step(x, size, candidates)
        falling = stepped.log_determinants < last - _SAME
        ended = np.flatnonzero(~falling)
        done += [stepped[ended[index : index + 1]] for index in range(len(ended))]
        candidates = stepped[np.flatnonzero(falling)]
        last = candidates.log_determinants
        if not len(candidates.means):
            break
    done += [candidates[index : index + 1] for index in range(len(candidates.means))]
    return min(done, key=lambda each: float(each.log_determinants[0]))


def _support(x: Float64Array, size: int, fit: _Candidates) -> Int64Array:
    """Return the `size` rows closest to a single fit, ascending."""
    return np.sort(_closest(x, size, fit)[0])


def _c_step(x: Float64Array, size: int, candidates: _Candidates) -> _Candidates:
    """Fit the `size` rows that are closest to each candidate."""
    at_once = max(1, _BATCH // x.size)
    steps = []
    for start in range(0, len(candidates.means), at_once):
        batch = candidates[slice(start, start + at_once)]
        steps.append(_fit(x[_closest(x, size, batch)]))
    return _Candidates(
        np.concatenate([each.means for each in steps]),
        np.concatenate([each.covariances for each in steps]),
        np.concatenate([each.log_determinants for each in steps]),
    )


def _closest(x: Float64Array, size: int, candidates: _Candidates) -> Int64Array:
    """Return the `size` rows closest to each candidate; shape (candidates, size)."""
    variances, axes = np.linalg.eigh(candidates.covariances)
    least = np.maximum(_FLAT * variances[:, -1:], np.finfo(np.float64).tiny)
    axes /= np.sqrt(np.maximum(variances, least))[:, np.newaxis]
    scores = (x - candidates.means[:, np.newaxis]) @ axes
    squares = np.einsum("cij,cij->ci", scores, scores)
    return np.argpartition(squares, size - 1, axis=1)[:, :size].astype(np.int64)


def _fit(rows: Float64Array) -> _Candidates:
    """Mean and covariance of each set of rows; shape (candidates, rows, fields)."""
    means = rows.mean(axis=1)
    centred = rows - means[:, np.newaxis]
    covariances = centred.transpose(0, 2, 1) @ centred / (rows.shape[1] - 1)
    return _Candidates(means, covariances, np.linalg.slogdet(covariances)[1])
