"""The ledger on SQLite, which numbers rows in the order in which they are committed.

What was read of it is kept with the number of the newest row, so that later only the rows after that are
read. Entries never change.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from app.jobs.releases.known_family import MOST_FAMILIES, KnownFamily
from app.store.sql import ledger
from app.store.sql.db import Transaction
from app.store.sql.models import Job

_MOST_SIZES = 16
"""Numbers of rows, of the jobs of an owner and project, whose newest entries are kept: up to 50 KB each."""

_MOST_VIEWS = 64
"""Owners and projects whose part of the ledger is kept in memory, those that asked last."""

_MOST_BEHIND = 1000
"""Rows added since the ledger was read, from which on what was read is forgotten."""

_Scope = tuple[str, str | None]
"""Owner and project that entries are visible to."""


class _Newest:
    """Newest entries of an owner, or of a project, with about as many rows as a job."""

    def __init__(self, rows: Iterable[Any]) -> None:
        """Keep the entries, newest first."""
        self._found: dict[str, str] = {row.id: row.family for row in reversed(list(rows))}
        """Id -> family, oldest first."""

    def add(self, row: Any) -> None:
        """Add the newest entry."""
        self._found[row.id] = row.family
        if len(self._found) > ledger.MOST_CANDIDATES:
            del self._found[next(iter(self._found))]

    def entries(self) -> dict[str, str]:
        """Return the family of each entry, by its id."""
        return self._found


class _View:
    """Part of the ledger that an owner, as a member of a project, sees, as far as it was read."""

    def __init__(self, mark: int) -> None:
        self.mark = mark
        """Number of the ledger's newest row when it was read last."""
        self.families: OrderedDict[str, KnownFamily] = OrderedDict()
        """Families by id, those used last at the end."""
        self._near: OrderedDict[int, list[tuple[str, _Newest]]] = OrderedDict()
        """Number of rows -> the newest entries with about as many, of the owner, and of the project."""

    def near(self, session: Transaction, job: Job, keep: bool) -> Iterable[str]:
        """Return the families of the newest entries with about as many rows. ``keep``: in memory, too."""
        near = self._near.get(job.row_count)
        if near is None:
            names = ("owner",) if job.project is None else ("owner", "project")
            near = [(name, _Newest(ledger.near_entries(session, job, name))) for name in names]
            if keep:
                self._near[job.row_count] = near
                if len(self._near) > _MOST_SIZES:
                    self._near.popitem(last=False)
        else:
            self._near.move_to_end(job.row_count)
        found: dict[str, str] = {}
        for _, newest in near:
            found |= newest.entries()
        return {found[entry] for entry in sorted(found, reverse=True)[: ledger.MOST_CANDIDATES]}

    def add(self, rows: Sequence[Any], job: Job, mark: int) -> None:
        """Add the entries after the mark, in the order of their numbers. ``mark``: the new one."""
        by_family: dict[str, list[Any]] = {}
        for row in rows:
            by_family.setdefault(row.family, []).append(row)
        for name, added in by_family.items():
            known = self.families.get(name)
            if known is None:
                continue
            added.sort(key=lambda row: row.id)
            if added[0].id > known.newest:
                known.add(added)
            else:  # entries of two transactions at once need not be committed in the order of their ids
                del self.families[name]
        for count, near in self._near.items():
            for row in rows:
                for of, newest in near:
                    if getattr(row, of) == getattr(job, of) and ledger.is_near(count, row.row_count):
                        newest.add(row)
        self.mark = mark


class NumberedLedger:
    """Families of releases that callers' jobs were compared with. Not safe for threads."""

    def __init__(self) -> None:
        self._views: OrderedDict[_Scope, _View] = OrderedDict()

    def family(self, session: Transaction, job: Job, family_id: str) -> KnownFamily:
        """Return a family of which the job's owner sees an entry."""
        view, newest = self._view(session, job)
        return self._families(session, job, view, [family_id], newest)[0]

    def near_families(self, session: Transaction, job: Job) -> list[KnownFamily]:
        """Return the families of the newest visible releases with about as many rows, newest first."""
        view, newest = self._view(session, job)
        near = view.near(session, job, newest)
        found = self._families(session, job, view, near, newest)
        return sorted(found, key=lambda family: family.newest, reverse=True)

    def _view(self, session: Transaction, job: Job) -> tuple[_View, bool]:
        """Return what the job's owner sees, with all that this transaction sees.

        And whether this transaction sees all of it: another one may have seen more. What is read by one that
        does not would lack entries, and must not be kept.
        """
        scope = job.owner, job.project
        newest = ledger.newest_row(session)
        view = self._views.get(scope)
        if view is None or newest - view.mark > _MOST_BEHIND:
            view = self._views[scope] = _View(newest)
            if len(self._views) > _MOST_VIEWS:
                self._views.popitem(last=False)
        elif newest > view.mark:
            view.add(ledger.added_after(session, job, view.mark), job, newest)
        self._views.move_to_end(scope)
        return view, newest == view.mark

    def _families(
        self, session: Transaction, job: Job, view: _View, names: Iterable[str], keep: bool
    ) -> list[KnownFamily]:
        """Return the families by their ids; read those that are missing. ``keep``: in memory, too."""
        found, unknown = [], {}
        for name in names:
            known = view.families.get(name)
            if known is None:
                known = unknown[name] = KnownFamily(name)
            else:
                view.families.move_to_end(name)
            found.append(known)
        for row in ledger.members(session, job, unknown) if unknown else ():
            unknown[row.family].add([row])
        if keep:
            view.families.update(unknown)
            self._forget()
        return found

    def _forget(self) -> None:
        """Forget surplus families: those used longest ago, of the owner who asked longest ago first."""
        surplus = sum(len(view.families) for view in self._views.values()) - MOST_FAMILIES
        while surplus > 0:
            scope, view = next(iter(self._views.items()))
            if view.families:
                view.families.popitem(last=False)
                surplus -= 1
            else:
                del self._views[scope]
