"""Risk and utility measures of a release, each with its formula and its source."""

from collections.abc import Mapping
from types import MappingProxyType

from providers.measures.anonymity import MEAN_K
from providers.measures.bin_privacy import P_PRIVACY
from providers.measures.closeness import DCR, INTERVAL_SD, PSCR
from providers.measures.measure import Measure
from providers.measures.regression import IL3, OUTLIER_EXPOSURE, R_SQUARED
from providers.measures.relations import DELTA_RHO, IL2, TOTAL_CORRELATION
from providers.measures.risk import CHANGED_SHARE, INVERSION_BITS, PHI
from providers.measures.utility import DISTORTION, RELATIONS_KEPT

MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        measure.key: measure
        for measure in (
            CHANGED_SHARE,
            INVERSION_BITS,
            MEAN_K,
            PSCR,
            DCR,
            INTERVAL_SD,
            OUTLIER_EXPOSURE,
            P_PRIVACY,
            PHI,
            DELTA_RHO,
            IL2,
            IL3,
            R_SQUARED,
            TOTAL_CORRELATION,
            DISTORTION,
            RELATIONS_KEPT,
        )
    }
)
"""Key in the report -> measure."""
