"""Earlier releases that a new job's source is compared with, kept in memory between jobs.

No release is missed: the database says in each transaction whether some were added. A source that was
released before under the same digest needs no comparison: its family alone is sent to the worker, with the
sketch that the ledger has of it.
"""

from array import array
from collections.abc import Sequence
from threading import Lock
from typing import Any

from app.jobs.releases.counted_ledger import CountedLedger
from app.jobs.releases.known_family import KnownFamily
from app.jobs.releases.numbered_ledger import NumberedLedger
from app.store.sql import ledger
from app.store.sql.db import Transaction
from app.store.sql.models import Job
from app.worker.tasks import EarlierSources
from providers.tables.digest import form_of, other_form
from providers.tables.sketches import unpacked


class EarlierReleases:
    """Families of releases that callers' jobs were compared with. Called from any thread."""

    def __init__(self) -> None:
        self._numbered = NumberedLedger()
        self._counted = CountedLedger()
        self._lock = Lock()

    def of(self, session: Transaction, job: Job) -> tuple[EarlierSources, dict[str, Any] | None]:
        """Return the sources that may be the job's, and the sketch of its source if its digest is known.

        With a sketch, the only source returned is the job's, without sketches.
        """
        with self._lock:
            known = self._numbered if ledger.numbers_rows(session) else self._counted
            family = known.family_of_source(session, job)
            if family is None:
                return _sent(known.near_families(session, job), job), None
            sketch = unpacked(family.sketches[job.source_digest])
            return EarlierSources((family.sent()[0],)), sketch


def _sent(families: Sequence[KnownFamily], job: Job) -> EarlierSources:
    """Return what the job's worker needs of the families."""
    if not families:
        return EarlierSources()
    other = other_form(form_of(job.source_digest))
    sources, sketches, sizes = zip(*[family.sent() for family in families], strict=True)
    return EarlierSources(
        sources=sources,
        sketches=b"".join(sketches),
        sizes=b"".join(sizes),
        counts=array("q", [len(family.sketches) for family in families]).tobytes(),
        other_digests={
            digest: number
            for number, family in enumerate(families)
            if other in family.forms
            for digest in family.digests(other, job.row_count)
        },
    )
