"""Pairs of a series: units of earlier tables and the units whose values they get, by hashes of their ids."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from providers.arrays import IndexArray, Int64Array
from providers.errors import SourceError
from providers.results import NewPairs
from providers.tables.households import plain_ids

IDENTITY_BYTES = 16
"""Bytes of a unit's keyed hash: among a billion units two share one with probability 2**-69."""

PAIR_BYTES = 2 * IDENTITY_BYTES
"""Bytes of a stored pair: the hash of the unit, then that of its partner."""


@dataclass(frozen=True, slots=True)
class SeriesPairs:
    """Pairs of a series before a run."""

    name: str
    wave: int
    """Number of the wave that this run makes if it pairs new units, from 1."""
    key: bytes = field(repr=False)
    """Secret of the series, by which ids are hashed; 32 bytes."""
    pairs: bytes = field(repr=False)
    """Pairs of the waves before, `PAIR_BYTES` each; each unit has one."""
    ids: str | None = None
    """Type of the ids of the waves before, ``integers`` or ``text``; None: there is no wave before."""

    @property
    def units(self) -> pa.Array:
        """Hashes of the units."""
        return self._column(0)

    @property
    def partners(self) -> pa.Array:
        """Hashes of the units whose values they get."""
        return self._column(1)

    def _column(self, index: int) -> pa.Array:
        pairs = np.frombuffer(self.pairs, np.uint8).reshape(-1, 2, IDENTITY_BYTES)
        return _hashes(pairs[:, index].tobytes())

    def digest(self) -> str:
        """Return the SHA-256 of the pairs, which does not depend on their order."""
        pairs = np.sort(np.frombuffer(self.pairs, np.dtype((np.void, PAIR_BYTES))))
        return f"sha256:{hashlib.sha256(pairs.tobytes()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Identities:
    """Keyed hashes of the ids of a table's units."""

    kind: str
    """Type of the ids, ``integers`` or ``text``."""
    hashes: pa.Array
    """Hash of each unit, of `IDENTITY_BYTES` bytes."""

    @classmethod
    def of(cls, ids: pa.ChunkedArray, series: SeriesPairs) -> Identities:
        """Hash the ids; raise SourceError if the series has ids of another type.

        The type is part of the hash: the integer 1 and the text "1" are different units.
        """
        ids = plain_ids(ids)
        kind = "integers" if pa.types.is_integer(ids.type) else "text"
        if series.ids is not None and series.ids != kind:
            raise SourceError(
                f"the ids of this table are {kind}, and those of series '{series.name}' are {series.ids}: no "
                "unit would be found again; convert the field, or start another series",
                "/parameters/unit_id",
            )
        person = kind.encode()
        hashes = b"".join(
            hashlib.blake2b(
                str(value).encode(), digest_size=IDENTITY_BYTES, key=series.key, person=person
            ).digest()
            for value in ids.to_pylist()
        )
        return cls(kind, _hashes(hashes))

    def new_pairs(self, units: IndexArray, partners: IndexArray) -> NewPairs:
        """Return the pairs of units of this table, by their numbers."""
        hashes = np.frombuffer(self.hashes.buffers()[1], np.uint8).reshape(-1, IDENTITY_BYTES)
        return NewPairs(np.stack([hashes[units], hashes[partners]], axis=1).tobytes(), self.kind, len(units))


def positions(values: pa.Array, among: pa.Array) -> Int64Array:
    """Return the position of each hash in an array of different hashes, -1 if it is not there."""
    found: Int64Array = pc.fill_null(pc.index_in(values, value_set=among), -1).to_numpy().astype(np.int64)
    return found


def _hashes(joined: bytes) -> pa.Array:
    kind = pa.binary(IDENTITY_BYTES)
    return pa.Array.from_buffers(kind, len(joined) // IDENTITY_BYTES, [None, pa.py_buffer(joined)])
