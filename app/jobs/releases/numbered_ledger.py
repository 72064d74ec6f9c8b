"""The ledger on SQLite, which numbers rows in the order in which they are committed.

Rows that were read are kept with the number of the newest one, so that later only newer rows are read.
Entries never change.
"""

from collections.abc import Iterable

from app.jobs.releases.known_family import KnownFamily
from app.jobs.releases.views import View, Views, newest_first, read_families, read_newest
from app.store.sql import ledger
from app.store.sql.db import Transaction
from app.store.sql.models import Job

_MOST_BEHIND = 1000
"""Number of rows added since the ledger was read, from which on the rows in memory are forgotten."""


class _NumberedView(View):
    def __init__(self, mark: int) -> None:
        super().__init__()
        self.mark = mark
        """Number of the ledger's newest row when it was read last."""


class NumberedLedger:
    """Families of releases that callers' jobs were compared with. Not safe for threads."""

    def __init__(self) -> None:
        self._views: Views[_NumberedView] = Views()

    def family(self, session: Transaction, job: Job, family_id: str) -> KnownFamily:
        """Return a family of which the job's owner sees an entry."""
        view, row = self._view(session, job)
        return self._families(session, job, view, [family_id], row == view.mark)[0]

    def near_families(self, session: Transaction, job: Job) -> tuple[list[KnownFamily], int]:
        """Return the families of the newest visible releases with about as many rows, newest first.

        And the number of the ledger's newest row that this transaction sees.
        """
        view, row = self._view(session, job)
        whole = row == view.mark
        newest = view.newest(job)
        if newest is None:
            newest = read_newest(session, job)
            if whole:
                view.keep_newest(job, newest)
        return newest_first(self._families(session, job, view, newest.families(), whole)), row

    def _view(self, session: Transaction, job: Job) -> tuple[_NumberedView, int]:
        """Return the releases that the job's owner sees, read by this transaction, and the newest row.

        Another transaction may have seen more rows. The rows of a transaction that has seen fewer would lack
        entries, and must not be kept.
        """
        newest = ledger.newest_row(session)
        view = self._views.of(job)
        if view is None or newest - view.mark > _MOST_BEHIND:
            view = self._views.begin(job, _NumberedView(newest))
        elif newest > view.mark:
            view.add(ledger.added_after(session, job, view.mark), job)
            view.mark = newest
            self._views.forget()
        return view, newest

    def _families(
        self, session: Transaction, job: Job, view: _NumberedView, names: Iterable[str], keep: bool
    ) -> list[KnownFamily]:
        """Return the families by their ids; read missing families. ``keep``: in memory, too."""
        found, unknown = [], {}
        for name in names:
            known = view.used(name)
            if known is None:
                known = unknown[name] = KnownFamily(name)
            found.append(known)
        read_families(session, job, unknown)
        if keep:
            self._views.keep_families(view, unknown)
        return found
