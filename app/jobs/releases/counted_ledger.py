"""The ledger on PostgreSQL, which does not number rows in the order in which they are committed.

Entries never change, so a family is read once. Its number of visible entries, which the database counts in
each transaction, shows whether some were added.
"""

from collections import OrderedDict

from app.jobs.releases.known_family import KnownFamily
from app.store.sql import ledger
from app.store.sql.db import Transaction
from app.store.sql.models import Job

_MOST_FAMILIES = 1000
"""Families kept in memory, those used last: about 2 KB each of small tables."""

_Key = tuple[str, str | None, str]
"""Owner and project that the entries are visible to, and the id of the family."""


class CountedLedger:
    """Families of releases that callers' jobs were compared with. Not safe for threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, KnownFamily] = OrderedDict()

    def family_of_source(self, session: Transaction, job: Job) -> KnownFamily | None:
        """Return the family of the newest visible release with the digest of the job's source; or None."""
        found = ledger.family_of_source(session, job)
        return None if found is None else self._read(session, job, [found])[0]

    def near_families(self, session: Transaction, job: Job) -> list[KnownFamily]:
        """Return the families of the newest visible releases with about as many rows, newest first."""
        return self._read(session, job, ledger.near_families(session, job))

    def _read(self, session: Transaction, job: Job, families: list[ledger.Family]) -> list[KnownFamily]:
        """Return the entries of the families; read those that are missing.

        Entries are only added. So the entries in memory are at least those that this transaction sees if
        there are as many; another transaction may have seen more.
        """
        found, unknown = [], {}
        for family in families:
            key = job.owner, job.project, family.id
            known = self._known.get(key)
            if known is not None and known.count < family.entries:
                known.add(ledger.members(session, job, [family.id], known.newest))
            # Entries of two transactions at once need not be committed in the order of their ids.
            if known is None or known.count < family.entries:
                known = self._known[key] = unknown[family.id] = KnownFamily(family.id)
            self._known.move_to_end(key)
            found.append(known)
        for row in ledger.members(session, job, unknown) if unknown else ():
            unknown[row.family].add([row])
        while len(self._known) > _MOST_FAMILIES:
            self._known.popitem(last=False)
        return found
