"""Key of a measure -> the function that takes it of a `Case`; what is not here only a run can give."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from providers.measures.case import Case, Finding
from providers.measures.risk_findings import RISK
from providers.measures.utility_findings import UTILITY

FINDERS: Mapping[str, Callable[[Case], Finding]] = MappingProxyType({**RISK, **UTILITY})
