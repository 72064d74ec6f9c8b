"""Releases of one source, as a worker compares a job's source with them."""

import pickle
from array import array
from collections.abc import Iterable
from typing import Any

from app.worker.digest_sets import has_draw, packed_digest
from app.worker.tasks import EarlierSource
from providers.swapping.composition import UNKNOWN_FIELDS, RunEpsilon
from providers.tables.digest import DigestForm, form_of
from providers.tables.sketches import packed

MOST_FAMILIES = 1000
"""Families kept in memory, those used last: about 2 KB each of small tables."""


class KnownFamily:
    """Entries of one family in the ledger, as far as they were read."""

    def __init__(self, family_id: str) -> None:
        self.id = family_id
        self.count = 0
        """Number of the entries."""
        self.newest = ""
        """Largest id among them."""
        self.sketches: dict[str, bytes] = {}
        """Digest of each different source -> its sketch, packed."""
        self._rows: dict[str, int] = {}
        """Digest of each different source -> its number of rows."""
        self.forms: set[DigestForm] = set()
        """Forms of these digests."""
        self._released: set[str] = set()
        """Digest of each different destination."""
        self._destinations = b""
        """These digests, packed."""
        self._epsilons: dict[str, RunEpsilon | None] = {}
        """Fingerprint of the draws of each release, or its id or destination without one -> epsilon."""
        self._shared: dict[RunEpsilon | None, RunEpsilon | None] = {}
        """The same objects by their values: a pickle has each of them once."""
        self._draws = b""
        """These fingerprints, packed."""
        self._streams = b""
        """Fingerprints of the different seeds of these draws, packed."""
        self._dependent = 0
        """Number of these draws that have the seed of another one."""
        self._finite = 0
        """Number of these epsilons that are finite."""
        self._last_released_at = ""
        self._sent: tuple[bytes, bytes, bytes] | None = None

    def add(self, rows: Iterable[Any]) -> None:
        """Add entries, oldest first."""
        for row in rows:
            self.count += 1
            self.newest = max(self.newest, row.id)
            if row.source_digest not in self.sketches:
                self.sketches[row.source_digest] = packed(row.sketch)
            self._rows[row.source_digest] = row.row_count
            self.forms.add(form_of(row.source_digest))
            if row.destination_digest not in self._released:
                self._released.add(row.destination_digest)
                self._destinations += packed_digest(row.destination_digest)
            self._add_epsilon(row)
            self._last_released_at = row.released_at.isoformat(timespec="seconds")
            self._sent = None

    def _add_epsilon(self, row: Any) -> None:
        """Count the epsilon of an entry, unless its draws were counted.

        Other draws may give the same bytes and reveal as much again. An entry of an older version does not
        have the fingerprint of its draws, or not its fields; those of the same run again are its fields, too.
        Without an epsilon, one entry of each destination is enough.
        """
        stated = row.epsilon or {}
        draw = stated.get("draw")
        release = draw or (row.id if stated else row.destination_digest)
        found = RunEpsilon.read(stated)
        if release in self._epsilons:
            if self._epsilons[release] == UNKNOWN_FIELDS:
                self._epsilons[release] = self._shared.setdefault(found, found)
            return
        if draw is not None:
            self._draws += bytes.fromhex(draw)
            self._add_stream(stated.get("stream"))
        self._epsilons[release] = self._shared.setdefault(found, found)
        self._finite += found is not None

    def _add_stream(self, stream: str | None) -> None:
        """Add the fingerprint of the seed of new draws; None: it is unknown."""
        if stream is None:
            return
        if has_draw(self._streams, stream):
            self._dependent += 1
        else:
            self._streams += bytes.fromhex(stream)

    def sent(self) -> tuple[bytes, bytes, bytes]:
        """Return the family's data for workers: the pickle of an `EarlierSource`, sketches and sizes.

        The sketches are end to end; the sizes are int64.
        """
        if self._sent is None:
            source = EarlierSource(
                family=self.id,
                destinations=self._destinations,
                releases=len(self._released),
                last_released_at=self._last_released_at,
                epsilons=tuple(self._epsilons.values()) if self._finite else (),
                draws=self._draws,
                streams=self._streams,
                dependent=self._dependent,
            )
            sketches = self.sketches.values()
            sizes = array("q", map(len, sketches)).tobytes()
            self._sent = pickle.dumps(source, pickle.HIGHEST_PROTOCOL), b"".join(sketches), sizes
        return self._sent

    def digests(self, form: DigestForm, rows: int) -> list[str]:
        """Return the digests in a form of the sources with that many rows."""
        begin = f"{form.value}:"
        return [digest for digest, count in self._rows.items() if count == rows and digest.startswith(begin)]
