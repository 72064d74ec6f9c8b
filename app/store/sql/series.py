"""All SQL about series and their pairs. Every function works within the caller's transaction.

A series has one name within its owner. Its pairs are append-only: each wave is written once, in the
transaction that ends the job which made it, in parts of bounded size. The row of the series is locked while
it is deleted, a job of it is rerun, or a wave is appended. The owner's usage is locked while it is deleted or
a new job of it is accepted. So a series cannot be deleted under a job, and of two jobs that read the same
waves only one adds the next wave.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, undefer

from app.callers import Caller
from app.ids import new_id
from app.store.crypto.key_files import KEY_BYTES
from app.store.crypto.sealing import Sealer
from app.store.sql.bindings import pairs_binding, series_binding
from app.store.sql.models import Job, Series, SeriesPart
from app.store.sql.visibility import visible_to
from providers.results import NewPairs
from providers.tables.series_pairs import PAIR_BYTES

_PART_BYTES = 8_192 * PAIR_BYTES
"""Bytes of the pairs in one row: rows are sealed and rotated one by one, a hundred at a time in memory."""


class SeriesMoved(Exception):
    """Another job has added the wave that this one would add: its pairs must be read first."""


@dataclass(frozen=True, slots=True)
class SeriesFigures:
    """Series with the number of its waves and units."""

    series: Series
    waves: int
    units: int


def join(session: Session, sealer: Sealer, job: Job, name: str, now: datetime) -> Series:
    """Return the series of the job's owner, created if there is none; note that it is used now.

    The owner's usage is locked: see `usage.lock`.
    """
    found = session.scalar(sa.select(Series).where(Series.owner == job.owner, Series.name == name))
    if found is None:
        found = Series(id=new_id(), owner=job.owner, project=job.project, name=name, created_at=now)
        found.sealed_key = sealer.seal(secrets.token_bytes(KEY_BYTES), series_binding(found))
        session.add(found)
    found.last_used_at = now
    session.flush()
    return found


def find(session: Session, series_id: str) -> Series | None:
    """Return the series of this id."""
    return session.get(Series, series_id)


def lock(session: Session, series_id: str) -> bool:
    """Lock the series until the transaction ends; False if there is none."""
    found = session.scalar(sa.select(Series.id).where(Series.id == series_id).with_for_update())
    return found is not None


def newest_wave(session: Session, series_id: str) -> int:
    """Return the number of the newest wave; 0 if there is none."""
    return (
        session.scalar(sa.select(sa.func.max(SeriesPart.wave)).where(SeriesPart.series_id == series_id)) or 0
    )


def pairs_until(session: Session, sealer: Sealer, series_id: str, wave: int) -> tuple[bytes, str | None]:
    """Return the pairs of the waves up to a number, and the type of their ids. Raises SealBroken."""
    query = sa.select(SeriesPart).where(SeriesPart.series_id == series_id, SeriesPart.wave <= wave)
    parts = session.scalars(query.order_by(SeriesPart.wave, SeriesPart.part)).all()
    pairs = b"".join(sealer.open(part.sealed_pairs, pairs_binding(part)) for part in parts)
    return pairs, parts[0].ids if parts else None


def wave_of_job(session: Session, series_id: str, job_id: str) -> int | None:
    """Return the wave that the job has stored; None if it has stored none."""
    found = sa.select(SeriesPart.wave).where(SeriesPart.series_id == series_id, SeriesPart.job_id == job_id)
    return session.scalar(found.limit(1))


def append(
    session: Session, sealer: Sealer, series_id: str, wave: int, job_id: str, new: NewPairs, now: datetime
) -> None:
    """Store the pairs of a new wave. Raises SeriesMoved: the wave exists."""
    lock(session, series_id)
    if newest_wave(session, series_id) != wave - 1:
        raise SeriesMoved
    for number, first in enumerate(range(0, len(new.pairs), _PART_BYTES)):
        pairs = new.pairs[first : first + _PART_BYTES]
        part = SeriesPart(
            id=new_id(),
            series_id=series_id,
            wave=wave,
            part=number,
            job_id=job_id,
            units=len(pairs) // PAIR_BYTES,
            ids=new.ids,
            created_at=now,
        )
        part.sealed_pairs = sealer.seal(pairs, pairs_binding(part))
        session.add(part)
    session.flush()


def page(session: Session, caller: Caller, limit: int, after: str | None) -> Sequence[SeriesFigures]:
    """Return up to ``limit`` visible series after the series ``after``, oldest first."""
    query = _figures().where(visible_to(caller, Series)).order_by(Series.id).limit(limit)
    if after is not None:
        query = query.where(Series.id > after)
    return [_with_figures(row) for row in session.execute(query)]


def named(session: Session, caller: Caller, owner: str, name: str) -> SeriesFigures | None:
    """Return the series of an owner by its name; None if none is visible to the caller."""
    if "\0" in owner + name:  # PostgreSQL's driver rejects the character
        return None
    query = _figures().where(visible_to(caller, Series), Series.owner == owner, Series.name == name)
    row = session.execute(query).one_or_none()
    return None if row is None else _with_figures(row)


def is_used(session: Session, series_id: str) -> bool:
    """Whether a job of the series is queued or running."""
    active = sa.select(Job.id).where(Job.series_id == series_id, Job.state.in_(("queued", "running")))
    return session.scalar(active.limit(1)) is not None


def jobs_of_owner(session: Session, found: Series, seed_fingerprint: str) -> Sequence[Job]:
    """Return the jobs of the series that its owner has submitted with this seed, with their sealed seeds."""
    query = sa.select(Job).where(Job.series_id == found.id, Job.owner == found.owner)
    query = query.where(Job.seed_fingerprint == seed_fingerprint)
    return session.scalars(query.options(undefer(Job.sealed_seed))).all()


def delete(session: Session, series_id: str) -> bool:
    """Delete the series with its key and pairs; False if it is gone."""
    session.execute(sa.delete(SeriesPart).where(SeriesPart.series_id == series_id))
    gone = session.execute(sa.delete(Series).where(Series.id == series_id).returning(Series.id))
    return gone.one_or_none() is not None


def _with_figures(row: sa.Row[Any]) -> SeriesFigures:
    return SeriesFigures(row.Series, row.waves, row.units)


def _figures() -> sa.Select[Any]:
    waves = sa.select(sa.func.coalesce(sa.func.max(SeriesPart.wave), 0))
    units = sa.select(sa.func.coalesce(sa.func.sum(SeriesPart.units), 0))
    own = SeriesPart.series_id == Series.id
    return sa.select(
        Series,
        waves.where(own).scalar_subquery().label("waves"),
        units.where(own).scalar_subquery().label("units"),
    )
