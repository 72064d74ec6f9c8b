"""Kinds of jobs: a run of a service, a measurement of two tables, or a comparison of runs."""

from enum import StrEnum

from providers import PROVIDERS
from providers.measures.run_figures import MEASURES_REVISION
from providers.params import StrictModel
from providers.selection.frontier import FRONTIER_REVISION

MEASURES = "measures"
"""The `service` of a job that measures a table against its source. Providers have upper-case names."""

FRONTIER = "frontier"
"""The `service` of a job that compares runs of several services and parameters."""


class Kind(StrEnum):
    """Kind of a job. A swap has a destination buffer and a report, the others have a report only."""

    SWAP = "swap"
    MEASURES = "measures"
    FRONTIER = "frontier"

    @property
    def has_rows(self) -> bool:
        """Whether the job makes a destination buffer."""
        return self is Kind.SWAP


def kind_of(service: str) -> Kind:
    """Return the kind of the jobs of a service."""
    return Kind(service) if service in (MEASURES, FRONTIER) else Kind.SWAP


def revision_of(service: str) -> int | None:
    """Return the revision of the service in this version of Rowveil; None if it has no such service."""
    own = {MEASURES: MEASURES_REVISION, FRONTIER: FRONTIER_REVISION}
    return own[service] if service in own else PROVIDERS[service].revision if service in PROVIDERS else None


class MeasureParameters(StrictModel):
    """Parameters of a measures job."""

    aligned: bool
    """Whether row i of the destination corresponds to row i of the source."""
