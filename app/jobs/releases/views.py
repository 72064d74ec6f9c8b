"""Parts of the ledger in memory, as owners see them. Not safe for threads.

Entries never change, so each is read once. What a part lacks is read by the ledger that keeps it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from app.jobs.releases.known_family import MOST_FAMILIES, KnownFamily
from app.store.sql import ledger
from app.store.sql.db import Transaction
from app.store.sql.models import Job

_MOST_SIZES = 16
"""Numbers of rows, of the jobs of an owner and project, whose newest entries are kept: up to 50 KB each."""

_MOST_VIEWS = 64
"""Number of owners and projects whose part of the ledger is kept in memory: the last users."""


class Newest:
    """Newest entries of an owner and of a project with about as many rows as a job."""

    def __init__(self, by: dict[str, Iterable[Any]]) -> None:
        """Keep the entries by the names ``owner`` and ``project``, newest first."""
        self._by: dict[str, dict[str, str]] = {
            name: {row.id: row.family for row in reversed(list(rows))} for name, rows in by.items()
        }
        """Id -> family, oldest first."""
        self._last = max((each for found in self._by.values() for each in found), default="")
        """Largest id."""

    def add(self, row: Any, job: Job) -> bool:
        """Add the newest entry, if it is of the job's owner or project; return whether its id is largest."""
        for name, found in self._by.items():
            if getattr(row, name) == getattr(job, name):
                found[row.id] = row.family
                if len(found) > ledger.MOST_CANDIDATES:
                    del found[next(iter(found))]
        last, self._last = self._last, max(self._last, row.id)
        return bool(row.id > last)

    def families(self) -> set[str]:
        """Return the families of the newest of all these entries."""
        found: dict[str, str] = {}
        for entries in self._by.values():
            found |= entries
        return {found[entry] for entry in sorted(found, reverse=True)[: ledger.MOST_CANDIDATES]}


def read_newest(session: Transaction, job: Job) -> Newest:
    """Read the newest entries with about as many rows as a job."""
    names = ("owner",) if job.project is None else ("owner", "project")
    return Newest({name: ledger.near_entries(session, job, name) for name in names})


def read_families(session: Transaction, job: Job, unknown: dict[str, KnownFamily]) -> None:
    """Read the visible entries of families, which have none yet."""
    for row in ledger.members(session, job, unknown) if unknown else ():
        unknown[row.family].add([row])


def newest_first(families: Iterable[KnownFamily]) -> list[KnownFamily]:
    """Sort families by their newest releases."""
    return sorted(families, key=lambda family: family.newest, reverse=True)


class View:
    """Part of the ledger that an owner, as a member of a project, sees, as far as it was read."""

    def __init__(self) -> None:
        self.families: OrderedDict[str, KnownFamily] = OrderedDict()
        """Families by id, those used last at the end."""
        self._newest: OrderedDict[int, Newest] = OrderedDict()
        """Number of rows of a job -> the newest entries with about as many."""

    def newest(self, job: Job) -> Newest | None:
        """Return the newest entries with about as many rows as the job; None if they were not read."""
        if job.row_count in self._newest:
            self._newest.move_to_end(job.row_count)
        return self._newest.get(job.row_count)

    def keep_newest(self, job: Job, newest: Newest) -> None:
        """Keep all of the part's newest entries with about as many rows as the job."""
        self._newest[job.row_count] = newest
        self._newest.move_to_end(job.row_count)
        if len(self._newest) > _MOST_SIZES:
            self._newest.popitem(last=False)

    def used(self, name: str) -> KnownFamily | None:
        """Return a family that a job is compared with; None if it was not read."""
        if name in self.families:
            self.families.move_to_end(name)
        return self.families.get(name)

    def add(self, rows: Sequence[Any], job: Job) -> None:
        """Add entries that were committed since the last read, oldest first, to all known entries."""
        by_family: dict[str, list[Any]] = {}
        for row in rows:
            by_family.setdefault(row.family, []).append(row)
            near = [each for count, each in self._newest.items() if ledger.is_near(count, row.row_count)]
            last = [each.add(row, job) for each in near]
            # The first release of a family: each other has recognised it, and is committed later. One that is
            # read again, from a restored copy, has no largest id.
            if near and all(last) and row.job_id == row.family:
                self.families[row.family] = KnownFamily(row.family)
        for name, added in by_family.items():
            known = self.families.get(name)
            if known is None:
                continue
            added.sort(key=lambda row: row.id)
            if added[0].id > known.newest:
                known.add(added)
            else:  # entries of two transactions at once need not be committed in the order of their ids
                del self.families[name]


_V = TypeVar("_V", bound=View)


class Views(Generic[_V]):
    """Parts of the owners and projects that asked last."""

    def __init__(self) -> None:
        self.kept: OrderedDict[tuple[str, str | None], _V] = OrderedDict()
        """Parts by owner and project, those used last at the end."""

    def of(self, job: Job) -> _V | None:
        """Return the part that the job's owner sees; None if there is none."""
        scope = job.owner, job.project
        if scope in self.kept:
            self.kept.move_to_end(scope)
        return self.kept.get(scope)

    def begin(self, job: Job, view: _V) -> _V:
        """Keep a new part, in place of an older one."""
        self.kept[job.owner, job.project] = view
        self.kept.move_to_end((job.owner, job.project))
        if len(self.kept) > _MOST_VIEWS:
            self.kept.popitem(last=False)
        return view

    def keep_families(self, view: _V, read: dict[str, KnownFamily]) -> None:
        """Keep families of a part."""
        view.families.update(read)
        self.forget()

    def forget(self) -> None:
        """Forget surplus families: those used longest ago, of the owner who asked longest ago first."""
        surplus = sum(len(each.families) for each in self.kept.values()) - MOST_FAMILIES
        while surplus > 0:
            scope, oldest = next(iter(self.kept.items()))
            if oldest.families:
                oldest.families.popitem(last=False)
                surplus -= 1
            else:
                del self.kept[scope]
