"""The ledger on PostgreSQL, which does not number rows in the order in which they are committed.

Entries never change, so a family is read once. Its number of visible entries, which the database counts in
each transaction, shows whether some were added.
"""

from collections import OrderedDict
from collections.abc import Iterable

from app.jobs.releases.known_family import MOST_FAMILIES, KnownFamily
from app.store.sql import ledger
from app.store.sql.db import Transaction
from app.store.sql.models import Job

_Key = tuple[str, str | None, str]
"""Owner and project that the entries are visible to, and the id of the family."""


class CountedLedger:
    """Families of releases that callers' jobs were compared with. Not safe for threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, KnownFamily] = OrderedDict()

    def in_memory(self, job: Job, family: ledger.Family) -> KnownFamily | None:
        """Return the entries of a family; None if some are missing."""
        known = self._known.get((job.owner, job.project, family.id))
        if known is None or known.count < family.entries:
            return None
        self._known.move_to_end((job.owner, job.project, family.id))
        return known

    def families(
        self, session: Transaction, job: Job, families: Iterable[ledger.Family]
    ) -> list[KnownFamily]:
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
        while len(self._known) > MOST_FAMILIES:
            self._known.popitem(last=False)
        return found
