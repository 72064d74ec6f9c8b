"""Interval disclosure whose intervals are the wider, the farther a row lies from the others."""

import warnings

import numpy as np
import numpy.typing as npt

from providers.measures.measure import Measure, NotApplicable

Float64Array = npt.NDArray[np.float64]

_SINGULAR = "the covariance of the rows that lie together is singular"
_WIDTH = 0.01 * 0.05  # sdcMicro's k, and the factor that it puts on the distances


def interval_rmd(source: Float64Array, destination: Float64Array, random_state: int) -> dict[str, float]:
    """Share of rows of which any value lies within the row's own interval: by two scales.

    Parameters
    ----------
    source, destination : ndarray, shape (n, fields)
        Numbers, none missing; no field of the source constant.
    random_state : int
        Where the search for the minimum covariance determinant starts.

    Returns
    -------
    dict
        ``own``: each table's z-scores by its own mean and standard deviation, as dRiskRMD, which hides
        unmodified cells wherever a field's mean or deviation has changed; ``source``: both by the
        source's.

    Raises
    ------
    NotApplicable
        The covariance of the rows that lie together is singular.

    Notes
    -----
    The distance of a row is from the mean, as in dRiskRMD, by the covariance of FAST-MCD. O(n p^2).

    References
    ----------
    Rousseeuw and Van Driessen 1999, doi:10.1080/00401706.1999.10485670.
    Templ and Meindl 2008, Robust statistics meets SDC, doi:10.1007/978-3-540-87471-3_10.
    """
    from sklearn.covariance import MinCovDet  # a second to import, for this report only

    mean, deviation = source.mean(axis=0), source.std(axis=0, ddof=1)
    x = (source - mean) / deviation
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a singular covariance, which is looked for below
        try:
            covariance = MinCovDet(random_state=random_state).fit(x).covariance_
        except ValueError as error:  # too few rows lie apart
            raise NotApplicable(_SINGULAR) from error
    if np.linalg.matrix_rank(covariance, hermitian=True) < len(covariance):
        raise NotApplicable(_SINGULAR)
    distances = np.sqrt(np.einsum("ij,ij->i", x @ np.linalg.inv(covariance), x))
    reach = (_WIDTH * distances)[:, np.newaxis]
    own_deviation = destination.std(axis=0, ddof=1)
    own_deviation[own_deviation == 0] = 1.0
    own = (destination - destination.mean(axis=0)) / own_deviation
    by_source = (destination - mean) / deviation
    return {
        "own": float((np.abs(own - x) < reach).any(axis=1).mean()),
        "source": float((np.abs(by_source - x) < reach).any(axis=1).mean()),
    }


INTERVAL_RMD = Measure(
    key="interval_rmd",
    title="Interval disclosure by robust Mahalanobis distances",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="share of rows i with |y_if - x_if| < .01 x .05 x RMD_i for any field f, on z-scores: by each "
    "table's own mean and deviation, and by the source's",
    source="sdcMicro, dRiskRMD (Templ and Meindl 2008); covariance by FAST-MCD (Rousseeuw and Van Driessen "
    "1999)",
    cost="O(n p^2) many times over: on the sample",
    compute=interval_rmd,
)
