"""All SQL about buffers. Every function works within the caller's transaction."""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.callers import THE_SERVICE, Caller
from app.store.sql.jobs import annotated, unnamed
from app.store.sql.models import Buffer
from app.store.sql.pages import page_of
from app.store.sql.visibility import owned_by


def find(session: Session, buffer_id: str, now: datetime, caller: Caller = THE_SERVICE) -> Buffer | None:
    """Return the buffer; None if none is visible to the caller, or it has expired."""
    if "\0" in buffer_id:  # PostgreSQL's driver rejects the character
        return None
    query = sa.select(Buffer).where(Buffer.id == buffer_id, Buffer.expires_at > now)
    return session.scalar(query.where(owned_by(caller)))


def page(
    session: Session,
    now: datetime,
    limit: int,
    before: str | None,
    caller: Caller,
    name: str | None,
    label: str | None,
) -> tuple[Sequence[Buffer], str | None]:
    """Return up to ``limit`` visible buffers older than the buffer ``before``, newest first; see `page_of`.

    ``name``: part of their names, in which upper and lower case are equal. ``label``: their label.
    """
    query = sa.select(Buffer).where(Buffer.expires_at > now, owned_by(caller))
    query = query.where(*annotated(Buffer, name, label)).order_by(Buffer.id.desc())
    query = query if before is None else query.where(Buffer.id < before)
    return page_of(session, query, Buffer, limit)


def lend(session: Session, buffer_id: str, now: datetime, caller: Caller = THE_SERVICE) -> Buffer | None:
    """Return the buffer, locked until the transaction ends, for a job that will name its blob."""
    query = sa.select(Buffer).where(Buffer.id == buffer_id, Buffer.expires_at > now)
    return session.scalar(query.where(owned_by(caller)).with_for_update(read=True))


def delete(session: Session, buffer_id: str) -> list[str] | None:
    """Delete the buffer. Return the blobs that no row names any more; None if there is no such buffer.

    A job that still reads the table names its blob too, and keeps it.
    """
    gone = sa.delete(Buffer).where(Buffer.id == buffer_id).returning(Buffer.blob)
    blob = session.scalar(gone)
    return None if blob is None else unnamed(session, [blob])


def delete_expired(session: Session, now: datetime, most: int) -> tuple[list[str], list[str]]:
    """Delete up to ``most`` expired buffers. Return their ids, and the blobs that no row names any more."""
    expired = sa.select(Buffer.id).where(Buffer.expires_at <= now).order_by(Buffer.expires_at).limit(most)
    ids = session.scalars(expired.with_for_update(skip_locked=True)).all()
    gone = sa.delete(Buffer).where(Buffer.id.in_(ids)).returning(Buffer.id, Buffer.blob)
    rows = session.execute(gone).all()
    return [row.id for row in rows], unnamed(session, [row.blob for row in rows])


def count(session: Session, now: datetime) -> tuple[int, int]:
    """Return the number of buffers and their bytes."""
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(Buffer.byte_size), 0))
    number, size = session.execute(query.where(Buffer.expires_at > now)).one()
    return int(number), int(size)
