"""Attack on PABIDOT by an intruder who knows the marginal distributions and tries every transform."""

import math
from dataclasses import dataclass

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Measure
from providers.measures.shared.repeats import jackknife_interval
from providers.progress import Progress, no_progress
from providers.rotation.transform import ANGLES, rotations

GRID = (np.arange(200) + 0.5) / 200
"""Levels of the quantiles of each field that the intruder knows."""
_BATCH = 8
"""Number of angles whose rotations are computed together."""
_FEWEST = 10
"""Least number of rotated rows on which the attack is tried."""
_GROUPS = 10
"""Groups of rows of the jackknife; at most `_FEWEST`."""


@dataclass(frozen=True)
class Guess:
    """Transform and source values that the intruder believes to be true."""

    theta: int
    """Angle in degrees."""
    axis: int
    """Index of the reflected field, from 0."""
    values: Float64Array
    """z-scores of the source; shape (n, fields)."""


def quantiles_of(values: Float64Array) -> Float64Array:
    """Quantiles of each column at `GRID`; shape (200, columns).

    They equal `np.quantile`, which takes five times as long: it selects each quantile, while numpy sorts a
    column in vector registers.
    """
    ordered = np.sort(values, axis=0)
    place = (len(values) - 1) * GRID
    below = np.floor(place).astype(np.intp)
    low, high = ordered[below], ordered[np.minimum(below + 1, len(values) - 1)]
    share = (place - below)[:, np.newaxis]
    step = high - low
    return np.asarray(np.where(share < 0.5, low + step * share, high - step * (1 - share)))


def enumerate_transforms(
    released: Float64Array, quantiles: Float64Array, sigma: float, progress: Progress = no_progress
) -> Guess:
    """Try all 172 transforms per field, and take the one after which the marginals fit best.

    Parameters
    ----------
    released : ndarray, shape (n, fields)
        Published rows, as z-scores by the source's known means and deviations.
    quantiles : ndarray, shape (200, fields)
        Known marginals: quantiles of the source's z-scores at `GRID`.
    sigma : float
        Noise parameter, which is published.

    Notes
    -----
    The mean absolute noise is removed, the rotation inverted, and the translation removed by centring.
    The order of the rows does not matter. O(n p^2 + n log n p) per angle.
    """
    # E|noise| of normal noise with deviation sigma is sigma sqrt(2 / pi)
    quiet = np.sign(released) * np.maximum(np.abs(released) - sigma * math.sqrt(2 / math.pi), 0)
    least, best = math.inf, Guess(ANGLES[0], 0, quiet)
    for first in range(0, len(ANGLES), _BATCH):
        angles = ANGLES[first : first + _BATCH]
        progress(first / len(ANGLES), "trying transforms")
        for theta, matrix in zip(angles, rotations(released.shape[1], angles), strict=True):
            z = quiet @ matrix  # M^T y of each row
            z -= z.mean(axis=0)
            deviation = z.std(axis=0, ddof=1)
            z /= np.where(deviation > 0, deviation, 1.0)
            found = quantiles_of(z)
            upright = ((found - quantiles) ** 2).sum(axis=0)
            mirrored = ((found[::-1] + quantiles) ** 2).sum(axis=0)
            distance = upright.sum() - upright + mirrored  # with one field mirrored: all axes at once
            axis = int(distance.argmin())
            if distance[axis] < least:
                least, best = distance[axis], Guess(theta, axis, z)
    best.values[:, best.axis] *= -1
    return best


def recovered(guess: Float64Array, truth: Float64Array) -> float:
    """R^2 of the guessed z-scores: 1 if all are right, 0 or less if the guess has no information."""
    return float(1 - ((guess - truth) ** 2).sum() / ((truth - truth.mean(axis=0)) ** 2).sum())


def _interval(guess: Float64Array, truth: Float64Array) -> dict[str, float]:
    """Confidence interval (95 %) of `recovered` for rows like these."""
    groups = np.arange(len(truth)) % _GROUPS
    without = [recovered(guess[groups != group], truth[groups != group]) for group in range(_GROUPS)]
    return jackknife_interval(recovered(guess, truth), without, (-math.inf, 1.0))


def _sampled(comparison: Comparison, name: str) -> tuple[Float64Array, Float64Array]:
    """Return the numbers of a rotated field in the sample, before and after."""
    column, sample = comparison.named_column(name), comparison.sample
    return column.numbers("source")[sample.source], column.numbers("destination")[sample.destination]


def _find(comparison: Comparison) -> Finding:
    parameters = comparison.release.parameters
    if comparison.release.service != "PABIDOT" or parameters is None:
        raise NotApplicable("it is an attack on PABIDOT")
    # All rotated fields, also a weight, or one that `fields` leaves out: without it no transform fits.
    fields = list(getattr(parameters, "fields", ()))
    pairs = [_sampled(comparison, name) for name in fields]
    varying = [index for index, (x, _) in enumerate(pairs) if len(np.unique(x[~np.isnan(x)])) > 1]
    if len(varying) < 2:
        raise NotApplicable("fewer than two of the rotated fields vary")
    before, after = (np.column_stack([pairs[index][side] for index in varying]) for side in range(2))
    complete = ~np.isnan(before).any(axis=1) & ~np.isnan(after).any(axis=1)
    before, after = before[complete], after[complete]
    if len(before) < _FEWEST:
        raise NotApplicable("it needs 10 rows that were rotated")
    mean, deviation = before.mean(axis=0), before.std(axis=0, ddof=1)
    if not (deviation > 0).all():
        raise NotApplicable("a field is constant among the rows that were rotated")
    truth = (before - mean) / deviation
    quantiles = quantiles_of(truth)
    sigma = float(getattr(parameters, "sigma", 0.0))
    guess = enumerate_transforms((after - mean) / deviation, quantiles, sigma, comparison.progress)
    rows = comparison.sample.size
    notes = {} if rows is None else {"interval": _interval(guess.values, truth)}
    return Finding(recovered(guess.values, truth), [fields[index] for index in varying], rows, notes)


MEASURE = Measure(
    key="enumeration_attack",
    title="Values recovered by trying every transform",
    concerns="risk",
    goal="low",
    range="up to 1; 0 or less: nothing",
    formula="R^2 of the source's z-scores as recovered by the one of the 172 transforms a field after whose "
    "undoing the fields' quantiles are closest to the source's, which the intruder knows",
    source="Rowveil; the transforms of Chamikara et al. 2019, doi:10.1016/j.ins.2019.05.053",
    cost="O(n p^2 + p n log n) for each of 172 angles: on the sample",
    find=_find,
)
