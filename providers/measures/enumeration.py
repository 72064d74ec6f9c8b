"""The attack on PABIDOT that tries every transform: what an intruder with known marginals recovers."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from providers.measures.measure import Measure
from providers.provider import Progress, no_progress
from providers.rotation import ANGLES, rotations

Float64Array = npt.NDArray[np.float64]

GRID = (np.arange(200) + 0.5) / 200
"""The quantiles by which the intruder knows a field."""
_AT_ONCE = 8  # angles whose rotations are made together


@dataclass(frozen=True)
class Guess:
    """What the intruder believes."""

    theta: int
    """Degrees."""
    axis: int
    """The field, from 0, that was reflected."""
    values: Float64Array
    """z-scores; shape (n, fields)."""


def enumerate_transforms(
    released: Float64Array, quantiles: Float64Array, sigma: float, progress: Progress = no_progress
) -> Guess:
    """Try all 172 transforms a field, and take the one whose fields look most like the known marginals.

    Parameters
    ----------
    released : ndarray, shape (n, fields)
        The published rows in z-scores of the source's known means and deviations.
    quantiles : ndarray, shape (200, fields)
        The known marginals: the source's z-scores at `GRID`.
    sigma : float
        The noise, which is published.

    Notes
    -----
    The noise is taken off on average, the rotation undone, and the translation by centring; the order
    of the rows does not matter. O(n p^2 + n log n p) an angle.
    """
    quiet = np.sign(released) * np.maximum(np.abs(released) - sigma * math.sqrt(2 / math.pi), 0)
    least, best = math.inf, Guess(ANGLES[0], 0, quiet)
    for first in range(0, len(ANGLES), _AT_ONCE):
        angles = ANGLES[first : first + _AT_ONCE]
        progress(first / len(ANGLES), "trying transforms")
        for theta, matrix in zip(angles, rotations(released.shape[1], angles), strict=True):
            z = quiet @ matrix  # M^T y, for each row
            z -= z.mean(axis=0)
            deviation = z.std(axis=0, ddof=1)
            z /= np.where(deviation > 0, deviation, 1.0)
            found = np.quantile(z, GRID, axis=0)
            upright = ((found - quantiles) ** 2).sum(axis=0)
            mirrored = ((found[::-1] + quantiles) ** 2).sum(axis=0)
            distance = upright.sum() - upright + mirrored  # one field is mirrored
            axis = int(distance.argmin())
            if distance[axis] < least:
                least, best = distance[axis], Guess(theta, axis, z)
    best.values[:, best.axis] *= -1
    return best


def recovered(guess: Float64Array, truth: Float64Array) -> float:
    """R^2 of the z-scores that the intruder believes: 1 if all are right, 0 or less if he knows nothing."""
    return float(1 - ((guess - truth) ** 2).sum() / ((truth - truth.mean(axis=0)) ** 2).sum())


ENUMERATION_ATTACK = Measure(
    key="enumeration_attack",
    title="What trying every transform recovers",
    concerns="risk",
    goal="low",
    range="up to 1; 0 or less: nothing",
    formula="R^2 of the source's z-scores as recovered by the one of the 172 transforms a field after whose "
    "undoing the fields' quantiles are closest to the source's, which the intruder knows",
    source="Rowveil; the transforms of Chamikara et al. 2019, doi:10.1016/j.ins.2019.05.053",
    cost="O(n p^2 + p n log n) for each of 172 angles: on the sample",
    compute=enumerate_transforms,
)
