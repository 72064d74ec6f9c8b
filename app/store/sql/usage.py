"""All SQL about the current usage of each caller. Every function works within the caller's transaction."""

from dataclasses import dataclass
from datetime import datetime
from typing import cast

import sqlalchemy as sa
import sqlalchemy.exc
from sqlalchemy.orm import Session

from app.store.sql.connection.quick_statements import execute
from app.store.sql.models import Buffer, Caller, Job, Queue

# Built once: every request that creates something runs both.
_CALLERS = cast(sa.Table, Caller.__table__)

_SEEN = sa.update(_CALLERS).where(_CALLERS.c.owner == sa.bindparam("seen_owner"))

_SEEN = _SEEN.values(seen_at=sa.bindparam("seen_at"))

_JOBS = cast(sa.Table, Job.__table__)

_ACTIVE = sa.select(
    sa.func.count(),
    sa.func.coalesce(sa.func.sum(_JOBS.c.row_count), 0),
    sa.func.coalesce(sa.func.sum(_JOBS.c.byte_size), 0),
    sa.func.max(sa.case((_JOBS.c.priority == sa.bindparam("priority"), _JOBS.c.ranked_at))),
    sa.select(Queue.turn).scalar_subquery(),
).where(_JOBS.c.owner == sa.bindparam("owner"), sa.or_(_JOBS.c.state == "queued", _JOBS.c.state == "running"))


@dataclass(frozen=True, slots=True)
class ActiveUsage:
    """Active jobs of one owner: number, source rows, bytes; and the turns that a new job is placed by."""

    jobs: int
    """Number of queued and running jobs."""
    rows: int
    """Rows of their sources."""
    bytes: int
    """Bytes of the tables given to them."""
    own_turn: datetime | None = None
    """Last turn (`Job.ranked_at`) of the owner's active jobs of one priority."""
    clock: datetime | None = None
    """Virtual time of the queue."""


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """Stored buffers of one owner."""

    bytes: int
    """Bytes of the buffers."""
    first_expiry: datetime | None
    """Expiry of the buffer that expires first."""


def lock(session: Session, owner: str, now: datetime) -> None:
    """Lock the owner's usage until the transaction ends.

    SQLite has only one writer at a time; in PostgreSQL the update locks the owner's row.
    """
    for _ in range(2):
        _, changed = execute(session, _SEEN, {"seen_owner": owner, "seen_at": now})
        if changed == 1:
            return
        try:
            with session.begin_nested():
                session.execute(sa.insert(Caller).values(owner=owner, seen_at=now))
        except sqlalchemy.exc.IntegrityError:
            continue  # another transaction has inserted the row: update that one
        return


def active(session: Session, owner: str, priority: str) -> ActiveUsage:
    """Return the usage by the owner's active jobs, and the turns that a job of the priority is placed by."""
    given = {"owner": owner, "priority": priority}
    ((jobs, rows, size, *turns),), _ = execute(session, _ACTIVE, given)
    return ActiveUsage(jobs, int(rows), int(size), *turns)


def stored(session: Session, owner: str, now: datetime) -> StoredUsage:
    """Return the owner's stored buffers."""
    query = sa.select(sa.func.coalesce(sa.func.sum(Buffer.byte_size), 0), sa.func.min(Buffer.expires_at))
    size, first_expiry = session.execute(query.where(Buffer.owner == owner, Buffer.expires_at > now)).one()
    return StoredUsage(int(size), first_expiry)


def forget_unseen(session: Session, before: datetime, most: int) -> int:
    """Delete up to ``most`` rows of callers without a request since ``before``; return their number."""
    unseen = sa.select(Caller.owner).where(Caller.seen_at < before).limit(most)
    owners = session.scalars(unseen.with_for_update(skip_locked=True)).all()
    session.execute(sa.delete(Caller).where(Caller.owner.in_(owners)))
    return len(owners)
