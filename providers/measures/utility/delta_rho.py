"""Change of the correlations of pairs of fields (IL1), and of their rank correlations.

One extreme value decides Pearson's correlations of its field, whatever happened to all others. It is one rank
among all for Spearman's.
"""

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Extremes, Measure, Part


def change_of_correlations(source: Float64Array, destination: Float64Array) -> dict[str, float]:
    """Mean (the paper's IL1) and standard deviation of the absolute changes of correlations.

    Parameters
    ----------
    source, destination : ndarray, shape (fields, fields)
        Correlations. A pair that is undefined in the source is left out. A pair that is undefined only in
        the destination, because a field became constant or missing, counts as uncorrelated.

    Raises
    ------
    NotApplicable
        No pair is defined in the source.
    """
    pairs = np.triu_indices(len(source), 1)
    before, after = source[pairs], np.nan_to_num(destination[pairs], nan=0.0)
    changes = np.abs(after - before)[~np.isnan(before)]
    if not len(changes):
        raise NotApplicable("no two fields of numbers vary together in the source")
    return {"mean": float(changes.mean()), "sd": float(changes.std())}


def _find(comparison: Comparison) -> Finding:
    found = change_of_correlations(*comparison.correlations)
    ranks = change_of_correlations(*comparison.rank_correlations)
    return Finding(found | {"ranks": ranks}, comparison.numeric)


_RANKS_WORDS = "of ranks"


MEASURE = Measure(
    key="delta_rho",
    title="Change of correlations",
    concerns="utility",
    goal="low",
    range="0 to 2",
    formula="|rho_ij(Y) - rho_ij(X)| over the pairs i < j: mean (IL1) and standard deviation; ranks: the "
    "same of Spearman's rank correlations, equal numbers with the mean of their ranks",
    source="Li and Shen 2010, 5.2; Perry, Matloff and Tendick 2024, 9.4; Spearman 1904, doi:10.2307/1412159",
    cost="O(n) for each pair of fields, O(n log n) for each field",
    find=_find,
    jackknife="smooth",
    parts=(
        Part("mean"),
        Part("sd"),
        Part("ranks.mean", words=f"{_RANKS_WORDS}, mean"),
        Part("ranks.sd", words=f"{_RANKS_WORDS}, standard deviation"),
    ),
    words={"ranks": _RANKS_WORDS},
    extremes=Extremes("squares", instead="`ranks`"),
)
