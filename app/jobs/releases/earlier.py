"""Earlier releases that a new job's source is compared with, kept in memory between jobs.

Entries of the ledger never change, so a family is read once, and later only what was added to it. The
database says in each transaction whether something was added, so that no release is missed. A source that was
released before under the same digest needs no comparison: its family alone is sent to the worker, with the
sketch that the ledger has of it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any

from app.store.sql import ledger
from app.store.sql.db import Transaction
from app.store.sql.ledger import Family
from app.store.sql.models import Job
from app.worker.digest_sets import packed_digest
from app.worker.tasks import EarlierSource
from providers.tables.digest import form_of, other_form
from providers.tables.sketches import packed, unpacked

_MOST_FAMILIES = 1000
"""Families kept in memory, those used last: about 2 KB each of small tables."""

_MOST_BEHIND = 1000
"""Entries of all families since a family was read, after which it is read as a whole again."""

_Key = tuple[str, str | None, str]
"""Owner and project that the entries are visible to, and the id of the family."""


class _Known:
    """Entries of one family that were read before."""

    def __init__(self) -> None:
        self.mark = 0
        """`Family.mark` up to which the entries are known. Where it is their number, `add` counts them."""
        self.newest = ""
        """Largest id among them."""
        self.sketches: dict[str, bytes] = {}
        """Digest of each different source -> its sketch, packed."""
        self._rows: dict[str, int] = {}
        """Digest of each different source -> its number of rows."""
        self._released: set[str] = set()
        """Digest of each different destination."""
        self._destinations = b""
        """These digests, packed."""
        self._epsilons: dict[str, float | None] = {}
        """Fingerprint of the draws of each release, or its id or destination without one -> epsilon."""
        self._draws = b""
        """These fingerprints, packed."""
        self._finite = 0
        """Number of these epsilons that are finite."""
        self._last_released_at = ""
        self._sent: EarlierSource | None = None

    def add(self, rows: Iterable[Any]) -> None:
        """Add entries, oldest first."""
        for row in rows:
            self.mark += 1
            self.newest = max(self.newest, row.id)
            if row.source_digest not in self.sketches:
                self.sketches[row.source_digest] = packed(row.sketch)
            self._rows[row.source_digest] = row.row_count
            if row.destination_digest not in self._released:
                self._released.add(row.destination_digest)
                self._destinations += packed_digest(row.destination_digest)
            self._add_epsilon(row)
            self._last_released_at = row.released_at.isoformat(timespec="seconds")
            self._sent = None

    def _add_epsilon(self, row: Any) -> None:
        """Count the epsilon of an entry, unless its draws were counted.

        Other draws may give the same bytes and reveal as much again. An entry of an older version does not
        have the fingerprint of its draws. Without an epsilon, one entry of each destination is enough.
        """
        stated = row.epsilon or {}
        draw = stated.get("draw")
        release = draw or (row.id if stated else row.destination_digest)
        if release in self._epsilons:
            return
        if draw is not None:
            self._draws += bytes.fromhex(draw)
        self._epsilons[release] = stated.get("epsilon")
        self._finite += stated.get("epsilon") is not None

    def sent(self, family: str, job: Job) -> EarlierSource:
        """Return what the job's worker needs of the family."""
        other = f"{other_form(form_of(job.source_digest)).value}:"
        digests = (digest for digest, rows in self._rows.items() if rows == job.row_count)
        found = tuple(digest for digest in digests if digest.startswith(other))
        common = self._common(family)
        return common._replace(other_digests=found) if found else common

    def _common(self, family: str) -> EarlierSource:
        if self._sent is None:
            self._sent = EarlierSource(
                family=family,
                sketches=tuple(self.sketches.values()),
                destinations=self._destinations,
                releases=len(self._released),
                last_released_at=self._last_released_at,
                epsilons=tuple(self._epsilons.values()) if self._finite else (),
                draws=self._draws,
            )
        return self._sent


class EarlierReleases:
    """Families of releases that callers' jobs were compared with. Called from any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, _Known] = OrderedDict()
        self._lock = Lock()

    def of(self, session: Transaction, job: Job) -> tuple[tuple[EarlierSource, ...], dict[str, Any] | None]:
        """Return the sources that may be the job's, and the sketch of its source if its digest is known.

        With a sketch, the only source returned is the job's, without sketches.
        """
        family = ledger.family_of_source(session, job)
        families = ledger.near_families(session, job) if family is None else [family]
        with self._lock:
            found = self._read(session, job, families)
            sent = [known.sent(each.id, job) for known, each in zip(found, families, strict=True)]
            sketch = None if family is None else found[0].sketches[job.source_digest]
        if sketch is None:
            return tuple(sent), None
        return (sent[0]._replace(sketches=()),), unpacked(sketch)

    def _read(self, session: Transaction, job: Job, families: Sequence[Family]) -> list[_Known]:
        """Return the entries of the families; read those that are missing.

        Entries are only added. So the entries in memory are at least those that this transaction sees if
        their mark is that of the family; another transaction may have seen more.
        """
        found, unknown = [], {}
        owner, project = job.owner, job.project
        numbered = ledger.numbers_rows(session)
        added = self._added(session, job, families) if numbered else {}
        for family in families:
            key = owner, project, family.id
            known = self._known.get(key)
            if known is not None and known.mark < family.mark:
                if not numbered:
                    known.add(ledger.members(session, job, [family.id], known.newest))
                elif family.mark - known.mark <= _MOST_BEHIND:
                    rows = [row for row in added.get(family.id, ()) if row.number > known.mark]
                    if not rows or rows[0].id > known.newest:
                        known.add(rows)
                        known.mark = family.mark
            # Entries of two transactions at once need not be committed in the order of their ids.
            if known is None or known.mark < family.mark:
                known = self._known[key] = unknown[family.id] = _Known()
            self._known.move_to_end(key)
            found.append(known)
        for row in ledger.members(session, job, unknown) if unknown else ():
            unknown[row.family].add([row])
        for family in families:
            if numbered and family.id in unknown:
                unknown[family.id].mark = family.mark
        while len(self._known) > _MOST_FAMILIES:
            self._known.popitem(last=False)
        return found

    def _added(self, session: Transaction, job: Job, families: Sequence[Family]) -> dict[str, list[Any]]:
        """Return the entries by family that one of the families may not have yet, oldest first."""
        known = [(family, self._known.get((job.owner, job.project, family.id))) for family in families]
        behind = [
            one.mark
            for family, one in known
            if one is not None and 0 < family.mark - one.mark <= _MOST_BEHIND
        ]
        added: dict[str, list[Any]] = {}
        for row in ledger.added_after(session, job, min(behind)) if behind else ():
            added.setdefault(row.family, []).append(row)
        return added
