"""Risk and utility measures of a release.

Each measure is one module of `risk` or `utility`, named by its key, and is listed here. The modules next to
this one are shared: `comparison` (both tables as the measures read them), `measure` (the declaration) and
`assessment`, which takes all measures of a release.
"""

from collections.abc import Mapping
from types import MappingProxyType

from providers.measures.risk import (
    changed_share,
    dcr,
    entropy_increase,
    enumeration_attack,
    interval_ranks,
    interval_rmd,
    interval_sd,
    inversion_bits,
    k_anonymity,
    l_diversity,
    mean_k,
    outlier_exposure,
    p_privacy,
    phi,
    population_uniques,
    pscr,
    record_linkage,
    suda,
    t_closeness,
    unique_combinations,
)
from providers.measures.shared.measure import Measure
from providers.measures.utility import (
    association,
    clustering_error,
    delta_rho,
    distortion,
    domain_totals,
    il2,
    il3,
    marginals,
    prediction,
    query_error,
    r_squared,
    range_averages,
    regression,
    relations_kept,
    total_correlation,
    weighted_correlations,
    weighted_marginals,
    weighted_regression,
)

_LISTED = (
    changed_share,
    unique_combinations,
    mean_k,
    k_anonymity,
    l_diversity,
    t_closeness,
    suda,
    population_uniques,
    pscr,
    dcr,
    interval_sd,
    interval_ranks,
    interval_rmd,
    record_linkage,
    outlier_exposure,
    inversion_bits,
    phi,
    enumeration_attack,
    p_privacy,
    entropy_increase,
    marginals,
    delta_rho,
    association,
    il2,
    il3,
    regression,
    r_squared,
    total_correlation,
    distortion,
    clustering_error,
    query_error,
    range_averages,
    prediction,
    relations_kept,
    weighted_marginals,
    weighted_correlations,
    weighted_regression,
    domain_totals,
)

MEASURES: Mapping[str, Measure] = MappingProxyType({each.MEASURE.key: each.MEASURE for each in _LISTED})
"""Key in the report -> measure, in the order of reports."""
