"""All SQL about API keys. Every function but `find` works within the caller's transaction."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.store.sql.db import Database
from app.store.sql.models import ApiKey

KeyRow: TypeAlias = sa.Row[Any]
"""Row of a key, with the attributes of `ApiKey`."""

_KEYS = cast(sa.Table, ApiKey.__table__)

# Every request runs one of them.
_FIND = sa.select(_KEYS).where(_KEYS.c.id == sa.bindparam("key_id"))
_FIND_AND_TIME = _FIND.add_columns(sa.func.clock_timestamp().label("now"))


def insert(session: Session, key: ApiKey) -> None:
    """Add the key."""
    session.add(key)


def find(database: Database, key_id: str) -> tuple[KeyRow | None, datetime]:
    """Return the key's row, None if there is none, and the database's time as `replicas.moment`.

    It needs no transaction: see `Database.look`.
    """
    given = {"key_id": key_id}
    if not database.shared:
        return database.look(_FIND, given), datetime.now(UTC)
    row = database.look(_FIND_AND_TIME, given)
    return row, datetime.now(UTC) if row is None else row.now


def list_all(session: Session) -> Sequence[ApiKey]:
    """Return all keys, newest first."""
    return session.scalars(sa.select(ApiKey).order_by(ApiKey.created_at.desc(), ApiKey.id)).all()


def revoke(session: Session, key_id: str, now: datetime) -> bool:
    """Revoke the key; False if there is none, or if it was revoked before."""
    change = sa.update(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None))
    result = session.execute(change.values(revoked_at=now))
    assert isinstance(result, sa.CursorResult)
    return result.rowcount == 1


def record_use(session: Session, key_id: str, now: datetime) -> None:
    """Record the time of the key's last use."""
    session.execute(sa.update(ApiKey).where(ApiKey.id == key_id).values(last_used_at=now))
