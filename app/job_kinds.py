"""Kinds of jobs: a run of a service, a measurement of two tables, a comparison of runs, or attacks."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from providers import PROVIDERS
from providers.attacks.options import AttackOptions
from providers.attacks.suite import ATTACKS_REVISION
from providers.measures.run_figures import MEASURES_REVISION
from providers.params import StrictModel
from providers.selection.candidates import CHOICE_REVISION
from providers.selection.frontier import FRONTIER_REVISION
from providers.tables.digest import DigestForm

MEASURES = "measures"
"""The `service` of a job that measures a table against its source. Providers have upper-case names."""

FRONTIER = "frontier"
"""The `service` of a job that compares runs of several services and parameters."""


ATTACKS = "attacks"
"""The `service` of a job that attacks a release of its source."""

_REVISIONS = {MEASURES: MEASURES_REVISION, FRONTIER: FRONTIER_REVISION, ATTACKS: ATTACKS_REVISION}


class Kind(StrEnum):
    """Kind of a job. A swap has a destination buffer and a report, the others have a report only."""

    SWAP = "swap"
    MEASURES = "measures"
    FRONTIER = "frontier"
    ATTACKS = "attacks"

    @property
    def has_rows(self) -> bool:
        """Whether the job makes a destination buffer."""
        return self is Kind.SWAP

    @property
    def reads_destination(self) -> bool:
        """Whether the job is given a destination, as it is given a source."""
        return self in (Kind.MEASURES, Kind.ATTACKS)


def kind_of(service: str) -> Kind:
    """Return the kind of the jobs of a service."""
    return Kind(service) if service in _REVISIONS else Kind.SWAP


def revision_of(service: str) -> int | None:
    """Return the revision of the service in this version of Rowveil; None if it has no such service."""
    return (
        _REVISIONS[service]
        if service in _REVISIONS
        else PROVIDERS[service].revision
        if service in PROVIDERS
        else None
    )


@dataclass(frozen=True, slots=True)
class Runs:
    """Jobs that one version of Rowveil can run."""

    revisions: frozenset[tuple[str, int]]
    """Pairs of a service and its revision."""
    choice: str
    """Revision of the choice among candidates."""
    digests: frozenset[str] = frozenset({DigestForm.WHOLE.value})
    """Forms of digests that it knows."""

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON; `from_document` reads that."""
        return {
            "revisions": dict(sorted(self.revisions)),
            "choice": self.choice,
            "digests": sorted(self.digests),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Runs":
        """Return what another replica has written."""
        known = document.get("digests", [DigestForm.WHOLE.value])  # older versions do not say
        return cls(frozenset(document["revisions"].items()), document["choice"], frozenset(known))


def common_digest_form(living: Sequence[Runs] | None) -> DigestForm:
    """Return the form of new digests: by parts if all living replicas know it; None: one does not say."""
    known = living is not None and all(DigestForm.PARTS in runs.digests for runs in living)
    return DigestForm.PARTS if known else DigestForm.WHOLE


@cache
def own_runs() -> Runs:
    """Return the jobs that this version of Rowveil can run."""
    services = (*PROVIDERS, *_REVISIONS)
    found = ((service, revision_of(service)) for service in services)
    pairs = frozenset((service, revision) for service, revision in found if revision is not None)
    return Runs(pairs, CHOICE_REVISION, frozenset(form.value for form in DigestForm))


class MeasureParameters(StrictModel):
    """Parameters of a measures job."""

    aligned: bool
    """Whether row i of the destination corresponds to row i of the source."""


class MethodOfRelease(StrictModel):
    """Service and parameters that a release was made with."""

    service: str
    parameters: dict[str, Any]


class AttackParameters(AttackOptions):
    """Parameters of an attacks job."""

    aligned: bool
    """Whether row i of the destination corresponds to row i of the source."""
    job: str | None = None
    """Job whose release is attacked; None: the destination was given."""
    method: MethodOfRelease | None = None
    """Method of that job; None: unknown."""
