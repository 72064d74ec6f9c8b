"""All SQL about what callers have going. Every function works within the caller's transaction."""

from dataclasses import dataclass
from datetime import datetime
from typing import cast

import sqlalchemy as sa
import sqlalchemy.exc
from sqlalchemy.orm import Session

from app.store.models import Buffer, Caller, Job

# Written once: both are asked for by every call that makes something.
_CALLERS = cast(sa.Table, Caller.__table__)
_SEEN = sa.update(_CALLERS).where(_CALLERS.c.owner == sa.bindparam("seen_owner"))
_SEEN = _SEEN.values(seen_at=sa.bindparam("seen_at"))
_GOING = sa.select(
    sa.func.count(),
    sa.func.coalesce(sa.func.sum(Job.row_count), 0),
    sa.func.coalesce(sa.func.sum(Job.byte_size), 0),
).where(Job.owner == sa.bindparam("owner"), Job.state.in_(("queued", "running")))


@dataclass(frozen=True, slots=True)
class Going:
    """What one owner has going."""

    jobs: int
    """Jobs that are queued or run."""
    rows: int
    """Rows of their sources."""
    bytes: int
    """Bytes of the tables that they were given."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What one owner keeps."""

    bytes: int
    """Bytes of the buffers."""
    first_expiry: datetime | None
    """When the first of them goes."""


def lock(session: Session, owner: str, now: datetime) -> None:
    """Let no other transaction count for this owner until this one is over.

    SQLite has one writer at a time anyway; elsewhere the owner's row is locked by its change.
    """
    for _ in range(2):
        result = session.execute(_SEEN, {"seen_owner": owner, "seen_at": now})
        assert isinstance(result, sa.CursorResult)
        if result.rowcount == 1:
            return
        try:
            with session.begin_nested():
                session.execute(sa.insert(Caller).values(owner=owner, seen_at=now))
        except sqlalchemy.exc.IntegrityError:
            continue  # another transaction was first: wait for its row
        return


def going(session: Session, owner: str) -> Going:
    """What the owner has going."""
    jobs, rows, size = session.execute(_GOING, {"owner": owner}).one()
    return Going(jobs, int(rows), int(size))


def kept(session: Session, owner: str, now: datetime) -> Kept:
    """What the owner keeps."""
    query = sa.select(sa.func.coalesce(sa.func.sum(Buffer.byte_size), 0), sa.func.min(Buffer.expires_at))
    size, first_expiry = session.execute(query.where(Buffer.owner == owner, Buffer.expires_at > now)).one()
    return Kept(int(size), first_expiry)


def forget_unseen(session: Session, before: datetime) -> None:
    """Remove the rows of those who have asked for nothing since."""
    session.execute(sa.delete(Caller).where(Caller.seen_at < before))
