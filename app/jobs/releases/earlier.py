"""Earlier releases with which the source of a new job is compared, kept in memory between jobs.

No release is missed: the database shows in each query what was added. A source that was
released before under the same digest needs no comparison: its family alone is sent to the worker, with the
sketch that the ledger has of it.
"""

from array import array
from collections.abc import Sequence
from threading import Lock
from typing import Any

from app.jobs.releases.known_family import KnownFamily
from app.jobs.releases.numbered_ledger import NumberedLedger
from app.jobs.releases.server_ledger import ServerLedger
from app.store.sql import ledger
from app.store.sql.db import Database, Transaction
from app.store.sql.models import Job
from app.worker.tasks import EarlierSources
from providers.tables.digest import form_of, other_form
from providers.tables.sketches import unpacked


class EarlierReleases:
    """Families of releases that callers' jobs were compared with. Called from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbered = NumberedLedger()
        self._server = ServerLedger(self._lock)

    def find(self, database: Database, job: Job) -> tuple[EarlierSources, dict[str, Any] | None]:
        """Return the sources that may be the job's, and the sketch of its source if its digest is known.

        With a sketch, the only source returned is the job's, without sketches.
        """
        if database.shared:
            found = self._server.find(database, job)
            with self._lock:
                if found.known:
                    return _known(found.families[0], job)
                return _sent(found.families, job, str(found.snapshot)), None
        with database.read() as session:
            return self.of(session, job)

    def of(self, session: Transaction, job: Job) -> tuple[EarlierSources, dict[str, Any] | None]:
        """Return the same within a transaction of SQLite."""
        family_id = ledger.family_id_of_source(session, job)
        with self._lock:
            if family_id is not None:
                return _known(self._numbered.family(session, job, family_id), job)
            families, newest = self._numbered.near_families(session, job)
            return _sent(families, job, str(newest)), None


def _known(family: KnownFamily, job: Job) -> tuple[EarlierSources, dict[str, Any]]:
    """Return the family of a source whose digest is known, and the sketch of that source."""
    return EarlierSources((family.sent()[0],)), unpacked(family.sketches[job.source_digest])


def _sent(families: Sequence[KnownFamily], job: Job, seen: str) -> EarlierSources:
    """Return the families' data for the job's worker, found in the state ``seen`` of the ledger."""
    if not families:
        return EarlierSources(seen=seen)
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
        seen=seen,
    )
