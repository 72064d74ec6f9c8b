"""Pairs of a series in the database: parts, order, rotation of keys, renamed owners."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.settings import Settings
from app.store.crypto.sealing import SealBroken, Sealer
from app.store.sql import series
from app.store.sql.bindings import series_binding
from app.store.sql.db import Database
from app.store.sql.key_rotation import reseal_rows
from app.store.sql.migration import migrate
from app.store.sql.models import Job, Series, SeriesPart
from app.store.sql.reseal import Renamer
from app.store.sql.series import SeriesMoved
from providers.results import NewPairs
from providers.tables.series_pairs import PAIR_BYTES

NOW = datetime(2026, 11, 25, tzinfo=UTC)
OLD, NEW = bytes(range(32)), bytes(range(1, 33))
PAIRS = bytes(range(200)) * PAIR_BYTES


def new_pairs(pairs: bytes = PAIRS) -> NewPairs:
    return NewPairs(pairs, "integers", len(pairs) // PAIR_BYTES)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    settings = Settings(home=tmp_path)
    migrate(settings)
    opened = Database(settings)
    yield opened
    opened.close()


def joined(database: Database, sealer: Sealer, owner: str = "ada") -> str:
    with database.write() as session:
        return series.join(session, sealer, Job(owner=owner, project="census"), "panel", NOW).id


def test_pairs_come_back_in_parts_and_waves(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.store.sql.series._PART_BYTES", 64 * PAIR_BYTES)
    sealer = Sealer([OLD])
    series_id = joined(database, sealer)
    assert joined(database, sealer) == series_id != joined(database, sealer, "ben")
    with database.write() as session:
        series.append(session, sealer, series_id, 1, "job-1", new_pairs(), NOW)
        series.append(session, sealer, series_id, 2, "job-2", new_pairs(PAIRS[:PAIR_BYTES]), NOW)
    with database.read() as session:
        assert series.pairs_until(session, sealer, series_id, 0) == (b"", None)
        assert series.pairs_until(session, sealer, series_id, 1) == (PAIRS, "integers")
        assert series.pairs_until(session, sealer, series_id, 2) == (PAIRS + PAIRS[:PAIR_BYTES], "integers")
        parts = session.scalars(sa.select(SeriesPart).where(SeriesPart.wave == 1)).all()
        assert sorted((part.part, part.units) for part in parts) == [(0, 64), (1, 64), (2, 64), (3, 8)]
        assert not any(PAIRS[:PAIR_BYTES] in part.sealed_pairs for part in parts)


@pytest.mark.parametrize("wave", [1, 3])
def test_a_wave_follows_the_newest_one(database: Database, wave: int) -> None:
    """Nothing is written if another job has added the wave, or if one is missing."""
    sealer = Sealer([OLD])
    series_id = joined(database, sealer)
    with database.write() as session:
        series.append(session, sealer, series_id, 1, "job-1", new_pairs(), NOW)
    with pytest.raises(SeriesMoved), database.write() as session:
        series.append(session, sealer, series_id, wave, "job-2", new_pairs(), NOW)
    with database.read() as session:
        assert series.newest_wave(session, series_id) == 1


def test_a_rotation_seals_key_and_pairs_again(database: Database) -> None:
    old, new = Sealer([OLD]), Sealer([NEW])
    series_id = joined(database, old)
    with database.write() as session:
        series.append(session, old, series_id, 1, "job-1", new_pairs(), NOW)
        found = series.find(session, series_id)
        assert found is not None
        key = old.open(found.sealed_key, series_binding(found))
    assert reseal_rows(database, Sealer([NEW, OLD])) == 2
    with database.read() as session:
        found = series.find(session, series_id)
        assert found is not None
        assert new.open(found.sealed_key, series_binding(found)) == key
        assert series.pairs_until(session, new, series_id, 1)[0] == PAIRS
        with pytest.raises(SealBroken, match="not among the keys"):
            series.pairs_until(session, old, series_id, 1)


def test_a_renamed_owner_keeps_the_series(database: Database) -> None:
    """Owners of tokens get the prefix of their issuer; the pairs open as before."""
    sealer = Sealer([OLD])
    series_id = joined(database, sealer, "oidc:ada")
    with database.write() as session:
        series.append(session, sealer, series_id, 1, "job-1", new_pairs(), NOW)
    renamer = Renamer(database, sealer, "oidc:", "oidc-0123456789abcdef:")
    assert renamer.is_needed()
    assert renamer.run().rows == 1
    with database.read() as session:
        found = session.scalars(sa.select(Series)).one()
        assert found.owner == "oidc-0123456789abcdef:ada"
        assert len(sealer.open(found.sealed_key, series_binding(found))) == 32
        assert series.pairs_until(session, sealer, series_id, 1)[0] == PAIRS
