"""Risk and utility measures of a release, each with its formula and its source."""

from collections.abc import Mapping
from types import MappingProxyType

from providers.measures.bin_privacy import P_PRIVACY
from providers.measures.measure import Measure
from providers.measures.risk import CHANGED_SHARE, INVERSION_BITS, PHI

MEASURES: Mapping[str, Measure] = MappingProxyType(
    {measure.key: measure for measure in (CHANGED_SHARE, INVERSION_BITS, P_PRIVACY, PHI)}
)
"""Key in the report -> measure."""
