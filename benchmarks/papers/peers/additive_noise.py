"""Random perturbation: uniform noise on [-alpha, alpha], whose alpha is matched to a given distortion.

References
----------
Agrawal and Srikant 2000, Privacy-preserving data mining, SIGMOD, doi:10.1145/342009.335438: value distortion.
Xue, Karras, Raissi and Pung 2011, CIKM: equation 6 and section 5.2.
"""

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


def distortion(source: Matrix, destination: Matrix) -> float:
    """Mean relative change of the cells, equation 6; cells at zero are left out."""
    present = source != 0
    return float(np.mean(np.abs((destination - source)[present] / source[present])))


def matched_noise(source: Matrix, target: float, generator: np.random.Generator) -> Matrix:
    """Add uniform noise whose distortion is the target.

    Parameters
    ----------
    source : ndarray of float64, shape (rows, fields)
    target : float
        Distortion of the result, at least 0.
    generator : numpy.random.Generator

    Returns
    -------
    ndarray of float64, shape (rows, fields)
        The source plus noise on [-alpha r, alpha r] in each field, r the field's range and alpha the same
        for all. The distortion of given draws is linear in alpha, so that one division finds it.
    """
    ranges = source.max(axis=0) - source.min(axis=0)
    noise = generator.uniform(-1, 1, source.shape) * ranges
    alpha = target / distortion(source, source + noise)
    perturbed: Matrix = source + alpha * noise
    return perturbed
