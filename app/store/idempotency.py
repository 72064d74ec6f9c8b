"""All SQL about idempotency keys. Every function works within the caller's transaction."""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.store.models import IdempotencyKey


def find(session: Session, owner: str, key: str, now: datetime) -> IdempotencyKey | None:
    """What was made under the key; None where nothing was, or the key's time is over."""
    query = sa.select(IdempotencyKey).where(
        IdempotencyKey.owner == owner, IdempotencyKey.key == key, IdempotencyKey.expires_at > now
    )
    return session.scalar(query)


def keep(session: Session, key: IdempotencyKey) -> None:
    """Keep what was made under the key, in place of what was made under it in a time that is over.

    The caller holds the lock of the key's owner (`app.store.callers`): no two do this at once.
    """
    over = sa.delete(IdempotencyKey).where(IdempotencyKey.owner == key.owner, IdempotencyKey.key == key.key)
    session.execute(over)
    session.add(key)


def forget(session: Session, resources: Sequence[str]) -> None:
    """Let the keys of what is there no more be used anew."""
    session.execute(sa.delete(IdempotencyKey).where(IdempotencyKey.resource.in_(resources)))


def delete_expired(session: Session, now: datetime) -> int:
    """Remove the keys whose time is over, and say how many they were."""
    result = session.execute(sa.delete(IdempotencyKey).where(IdempotencyKey.expires_at <= now))
    assert isinstance(result, sa.CursorResult)
    return result.rowcount
