"""What a job can be: a run of a service, or one of the two that compare and judge."""

from enum import StrEnum
from typing import TYPE_CHECKING

from providers import PROVIDERS
from providers.choosing.frontier import FRONTIER_REVISION
from providers.measures.runs import MEASURES_REVISION

if TYPE_CHECKING:  # a worker, which needs no database, does not load what talks to one
    from app.store.models import Job

MEASURES = "measures"
"""The `service` of a job that judges a table beside its source. No provider is called in small letters."""
FRONTIER = "frontier"
"""The `service` of a job that compares services and parameters."""


class Kind(StrEnum):
    """What a job gives: a destination buffer and a report, or a report alone."""

    SWAP = "swap"
    MEASURES = "measures"
    FRONTIER = "frontier"

    @property
    def has_rows(self) -> bool:
        """Whether a destination buffer comes out."""
        return self is Kind.SWAP


def kind_of(service: str) -> Kind:
    """What a job of this service is."""
    return Kind(service) if service in (MEASURES, FRONTIER) else Kind.SWAP


def revision_of(service: str) -> int | None:
    """The revision that this version of Rowveil runs; None where it has no such service."""
    own = {MEASURES: MEASURES_REVISION, FRONTIER: FRONTIER_REVISION}
    return own[service] if service in own else PROVIDERS[service].revision if service in PROVIDERS else None


def tables_given(job: "Job") -> dict[str, str | None]:
    """``source``, and of a job that judges a table ``destination`` -> the blob in which it is kept."""
    given = {"source": job.source_blob}
    if kind_of(job.service) is Kind.MEASURES:
        given["destination"] = job.destination_blob
    return given
