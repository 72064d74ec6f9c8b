"""Risk and utility measures of a release, each with its formula and its source."""

from collections.abc import Mapping
from types import MappingProxyType

from providers.measures.anonymity import MEAN_K, UNIQUE_COMBINATIONS
from providers.measures.association import ASSOCIATION
from providers.measures.bin_privacy import P_PRIVACY
from providers.measures.closeness import DCR, INTERVAL_SD, PSCR, RECORD_LINKAGE
from providers.measures.enumeration import ENUMERATION_ATTACK
from providers.measures.learning import CLUSTERING_ERROR, PREDICTION
from providers.measures.marginals import MARGINALS
from providers.measures.measure import Measure
from providers.measures.queries import QUERY_ERROR
from providers.measures.regression import IL3, OUTLIER_EXPOSURE, R_SQUARED
from providers.measures.relations import DELTA_RHO, IL2, TOTAL_CORRELATION
from providers.measures.risk import CHANGED_SHARE, INVERSION_BITS, PHI
from providers.measures.robust import INTERVAL_RMD
from providers.measures.utility import DISTORTION, ENTROPY_INCREASE, RELATIONS_KEPT

MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        measure.key: measure
        for measure in (
            CHANGED_SHARE,
            UNIQUE_COMBINATIONS,
            MEAN_K,
            PSCR,
            DCR,
            INTERVAL_SD,
            INTERVAL_RMD,
            RECORD_LINKAGE,
            OUTLIER_EXPOSURE,
            INVERSION_BITS,
            PHI,
            ENUMERATION_ATTACK,
            P_PRIVACY,
            MARGINALS,
            DELTA_RHO,
            ASSOCIATION,
            IL2,
            IL3,
            R_SQUARED,
            TOTAL_CORRELATION,
            DISTORTION,
            CLUSTERING_ERROR,
            QUERY_ERROR,
            PREDICTION,
            ENTROPY_INCREASE,
            RELATIONS_KEPT,
        )
    }
)
"""Key in the report -> measure."""
