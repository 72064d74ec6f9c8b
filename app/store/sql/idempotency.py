"""All SQL about idempotency keys. Every function works within the caller's transaction."""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.store.sql.models import IdempotencyKey


def find(session: Session, owner: str, key: str, now: datetime) -> IdempotencyKey | None:
    """Return the key's row; None if there is none, or if it has expired."""
    query = sa.select(IdempotencyKey).where(
        IdempotencyKey.owner == owner, IdempotencyKey.key == key, IdempotencyKey.expires_at > now
    )
    return session.scalar(query)


def keep(session: Session, key: IdempotencyKey) -> None:
    """Store the key; it replaces a row of the same key that has expired, or whose buffer has.

    The caller holds the owner's lock (`app.store.sql.usage.lock`), so no two transactions do this at once.
    """
    over = sa.delete(IdempotencyKey).where(IdempotencyKey.owner == key.owner, IdempotencyKey.key == key.key)
    session.execute(over)
    session.add(key)


def forget(session: Session, resources: Sequence[str]) -> None:
    """Delete the keys of deleted jobs or buffers, so that they can be used again."""
    session.execute(sa.delete(IdempotencyKey).where(IdempotencyKey.resource.in_(resources)))


def delete_expired(session: Session, now: datetime, most: int) -> int:
    """Delete up to ``most`` expired keys and return their number."""
    name = sa.tuple_(IdempotencyKey.owner, IdempotencyKey.key)
    expired = sa.select(IdempotencyKey.owner, IdempotencyKey.key).where(IdempotencyKey.expires_at <= now)
    expired = expired.order_by(IdempotencyKey.expires_at).limit(most).with_for_update(skip_locked=True)
    names = [tuple(row) for row in session.execute(expired)]
    session.execute(sa.delete(IdempotencyKey).where(name.in_(names)))
    return len(names)
