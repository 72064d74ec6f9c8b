"""The ledger on PostgreSQL, whose transactions are not committed in the order of their numbers.

PostgreSQL writes the number of its transaction into each entry, and shows in each query which transactions
the query sees: its snapshot. Entries that were read are kept with the newest snapshot in which they were
read, so that later only newer entries are read. Entries never change.

An entry that was restored from a copy of another server has the number of a transaction there. It was read
before, or is read once more when this server has come to that number.
"""

from collections.abc import Iterable
from threading import Lock
from typing import NamedTuple

from app.jobs.releases.known_family import KnownFamily
from app.jobs.releases.views import Newest, View, Views, newest_first, read_families, read_newest
from app.store.sql import ledger
from app.store.sql.db import Database, Transaction
from app.store.sql.ledger import MOST_NEWS, News, Snapshot
from app.store.sql.models import Job


class _ServerView(View):
    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot
        """Newest snapshot that entries were read in."""

    def can_follow(self, news: News) -> bool:
        """Whether a query has read all new entries, from the server from which the part was read."""
        return news.snapshot.server == self.snapshot.server and len(news.entries) <= MOST_NEWS

    def compared(self, names: Iterable[str], news: News, job: Job) -> dict[str, KnownFamily | None]:
        """Return the families by name; None for each that was not read.

        One with the digest of the source, but without its sketch, lacks an entry that was restored just now.
        """
        found = {name: self.used(name) for name in names}
        if news.family is not None:
            known = found[news.family]
            if known is not None and job.source_digest not in known.sketches:
                found[news.family] = None
        return found

    def update(self, news: News, job: Job) -> None:
        """Add what a query has read, which the part can follow. Other threads may have added more."""
        added = [row for row in news.entries if not self.snapshot.sees(row.written_in)]
        if added:
            self.add(sorted(added, key=lambda row: row.id), job)
        if news.snapshot.newer_than(self.snapshot):
            self.snapshot = news.snapshot


class Found(NamedTuple):
    """Families that a job's source is compared with."""

    known: bool
    """Whether the digest of the source is known: then there is one family, which has it."""
    families: list[KnownFamily]
    """Newest first."""
    snapshot: Snapshot
    """Snapshot of the query that has found them."""


class ServerLedger:
    """Families of releases that callers' jobs were compared with.

    Called from any thread. Nobody waits for the server with the lock.
    """

    def __init__(self, lock: Lock) -> None:
        """``lock``: of the families, too, which other threads change."""
        self._lock = lock
        self._views: Views[_ServerView] = Views()

    def find(self, database: Database, job: Job) -> Found:
        """Return the families that a job's source is compared with.

        Usually one query outside of a transaction shows that memory has them.
        """
        with self._lock:
            view = self._views.of(job)
        if view is not None:
            news = ledger.look_at_news(database, job, view.snapshot)
            if view.can_follow(news):
                with self._lock:
                    view.update(news, job)
                    found = _in_memory(view, job, news)
                    self._views.forget()
                if found is not None:
                    return found
        with database.read() as session:
            return self.read(session, job)

    def read(self, session: Transaction, job: Job) -> Found:
        """Return the same within a transaction that sees one snapshot; read what memory lacks."""
        with self._lock:
            view = self._views.of(job)
        news = ledger.news(session, job, None if view is None else view.snapshot)
        with self._lock:
            if view is None or not view.can_follow(news):
                view = self._views.begin(job, _ServerView(news.snapshot))
            else:
                view.update(news, job)
            newest = view.newest(job) if news.family is None else None
        read_now = None
        if news.family is None and newest is None:
            newest = read_now = read_newest(session, job)
        with self._lock:
            found = view.compared(_names(news, newest), news, job)
        unknown = {name: KnownFamily(name) for name, known in found.items() if known is None}
        read_families(session, job, unknown)
        with self._lock:
            # What this transaction reads lacks entries if another thread has seen more.
            if news.snapshot == view.snapshot:
                if read_now is not None:
                    view.keep_newest(job, read_now)
                self._views.keep_families(view, unknown)
        families = [known or unknown[name] for name, known in found.items()]
        # Another thread may have added a family that this transaction does not see.
        newest_families = newest_first(each for each in families if each.count)
        return Found(news.family is not None, newest_families, news.snapshot)


def _in_memory(view: _ServerView, job: Job, news: News) -> Found | None:
    """Return the families; None if memory lacks some."""
    newest = view.newest(job) if news.family is None else None
    if news.family is None and newest is None:
        return None
    found = view.compared(_names(news, newest), news, job)
    families = [known for known in found.values() if known is not None]
    if len(families) < len(found):
        return None
    return Found(news.family is not None, newest_first(families), news.snapshot)


def _names(news: News, newest: Newest | None) -> set[str]:
    """Return the family of the source, or those of the newest entries with about as many rows."""
    if news.family is not None:
        return {news.family}
    assert newest is not None
    return newest.families()
