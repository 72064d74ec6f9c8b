"""Random rotation perturbation (RP) and geometric perturbation (GP), written plainly.

Both draw several rotations and keep the one with the largest guarantee: the least standard deviation, over
fields and attacks, of the difference between the true values and those that an attack finds. RP is tried
against a naive guess and against independent components; GP adds a translation and noise, and is also tried
against known rows.

References
----------
Chen and Liu 2005, A random rotation perturbation approach to privacy preserving data classification, ICDM.
Chen and Liu 2011, Geometric data perturbation for privacy preserving outsourced data mining, Knowledge and
Information Systems 29, doi:10.1007/s10115-010-0362-4.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from providers.attacks.methods.ica import independent_components, match_components
from providers.attacks.methods.known_io import least_squares

Matrix = npt.NDArray[np.float64]
ITERATIONS = 10
"""Rotations that are tried: the setting of Chamikara et al. 2019, section 5.3.1."""
NOISE = 0.3
"""Standard deviation of GP's noise, in the same place."""
FITTED_ROWS = 2000
"""Rows from which independent components are estimated at most."""
KNOWN = 0.1
"""Share of the rows that the attack on GP knows."""


def random_orthogonal(fields: int, generator: np.random.Generator) -> Matrix:
    """Return an orthogonal matrix from the uniform (Haar) distribution, shape (fields, fields)."""
    q, r = np.linalg.qr(generator.standard_normal((fields, fields)))
    orthogonal: Matrix = q * np.sign(np.diag(r))
    return orthogonal


def spreads(truth: Matrix, guess: Matrix) -> Matrix:
    """Return the standard deviation of each field's difference, shape (fields,)."""
    deviations: Matrix = (truth - guess).std(axis=0, ddof=1)
    return deviations


def _guarantee(z: Matrix, released: Matrix, known_rows: bool, seed: int, fitted_rows: int) -> float:
    rows = np.arange(len(z))
    fitted = rows if len(z) <= fitted_rows else np.random.default_rng(seed).choice(rows, fitted_rows, False)
    components = independent_components(released, fitted, seed)
    least = min(
        spreads(z, released).min(), spreads(z, match_components(components, rows, z)).min()
    )  # the owner matches components with all true values: the worst case
    if known_rows:
        known = np.random.default_rng(seed).choice(len(z), max(3, round(KNOWN * len(z))), replace=False)
        least = min(least, spreads(z, least_squares(released, known, z[known])).min())
    return float(least)


def _best(
    z: Matrix,
    perturb: Callable[[Matrix], Matrix],
    known_rows: bool,
    seed: int,
    iterations: int,
    fitted_rows: int,
) -> Matrix:
    generator = np.random.default_rng(seed)
    best, least = z, -1.0
    for iteration in range(iterations):
        released = perturb(random_orthogonal(z.shape[1], generator))
        found = _guarantee(z, released, known_rows, seed + iteration, fitted_rows)
        if found > least:
            best, least = released, found
    return best


def random_rotation(
    z: Matrix, seed: int, iterations: int = ITERATIONS, fitted_rows: int = FITTED_ROWS
) -> Matrix:
    """Perturb z-scores by RP: Y = Z R'.

    Parameters
    ----------
    z : ndarray of float64, shape (rows, fields)
        z-scores of the source.
    seed : int
    iterations : int
        Rotations that are tried.
    fitted_rows : int
        Rows from which independent components are estimated at most.

    Returns
    -------
    ndarray of float64, shape (rows, fields)
        Rows in the order of the source.
    """
    return _best(z, lambda rotation: np.asarray(z @ rotation.T), False, seed, iterations, fitted_rows)


def geometric(
    z: Matrix,
    seed: int,
    iterations: int = ITERATIONS,
    fitted_rows: int = FITTED_ROWS,
    noise: float = NOISE,
) -> Matrix:
    """Perturb z-scores by GP: Y = Z R' + t + noise, t uniform on [0, 1]; see `random_rotation`."""
    generator = np.random.default_rng([seed, 1])

    def perturb(rotation: Matrix) -> Matrix:
        moved: Matrix = z @ rotation.T + generator.random(z.shape[1])
        moved += generator.normal(0, noise, z.shape)
        return moved

    return _best(z, perturb, True, seed, iterations, fitted_rows)
