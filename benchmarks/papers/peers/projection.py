"""Random projection, written plainly: rows are projected onto fewer random directions.

References
----------
Liu, Kargupta and Ryan 2006, Random projection-based multiplicative data perturbation for privacy preserving
distributed data mining, IEEE Transactions on Knowledge and Data Engineering 18, doi:10.1109/TKDE.2006.14.
"""

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


def random_projection(z: Matrix, seed: int) -> Matrix:
    """Project z-scores onto half as many fields: Y = Z R' / sqrt(k), R with standard normal entries.

    Inner products and squared distances of rows are kept in expectation.

    Parameters
    ----------
    z : ndarray of float64, shape (rows, fields)
        z-scores of the source, with two fields or more.
    seed : int

    Returns
    -------
    ndarray of float64, shape (rows, fields // 2)
    """
    fields = z.shape[1]
    kept = fields // 2
    directions = np.random.default_rng(seed).standard_normal((kept, fields))
    projected: Matrix = z @ directions.T / np.sqrt(kept)
    return projected
