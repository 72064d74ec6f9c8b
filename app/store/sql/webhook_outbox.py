"""All SQL about messages to webhooks. Every function works within the caller's transaction."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.store.sql.models import Delivery


def insert(session: Session, delivery: Delivery) -> None:
    """Insert a message to deliver."""
    session.add(delivery)


def claim_due(session: Session, now: datetime, again_at: datetime, most: int) -> Sequence[Delivery]:
    """Claim up to ``most`` due messages by postponing each to ``again_at``.

    If the claiming replica dies, the messages are due again at that time. Rows that another claim has locked
    are skipped if the database has row locks.
    """
    due = (
        sa.select(Delivery.id)
        .where(Delivery.state == "pending", Delivery.due_at <= now)
        .order_by(Delivery.due_at)
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    ids = session.scalars(due).all()
    claimed = (
        sa.update(Delivery)
        .where(Delivery.id.in_(ids), Delivery.state == "pending", Delivery.due_at <= now)
        .values(due_at=again_at, attempts=Delivery.attempts + 1)
        .returning(Delivery)
    )
    return session.scalars(claimed).all() if ids else []


def record(session: Session, delivery_id: str, attempt: int, **values: Any) -> bool:
    """Update a pending message, if ``attempt`` is still its current claim; return whether it was."""
    change = sa.update(Delivery).where(
        Delivery.id == delivery_id, Delivery.attempts == attempt, Delivery.state == "pending"
    )
    result = session.execute(change.values(**values).execution_options(synchronize_session=False))
    assert isinstance(result, sa.CursorResult)
    return result.rowcount == 1


def next_due(session: Session) -> datetime | None:
    """Return the time at which the next message is due; None if none is pending."""
    return session.scalar(sa.select(sa.func.min(Delivery.due_at)).where(Delivery.state == "pending"))


def count_pending(session: Session) -> int:
    """Return the number of pending messages."""
    count = session.scalar(sa.select(sa.func.count()).where(Delivery.state == "pending"))
    return int(count or 0)


def delete_old(session: Session, before: datetime, most: int) -> int:
    """Delete up to ``most`` messages that were delivered or given up before a time; return their number."""
    old = sa.select(Delivery.id).where(Delivery.ended_at < before).limit(most)
    ids = session.scalars(old.with_for_update(skip_locked=True)).all()
    session.execute(sa.delete(Delivery).where(Delivery.id.in_(ids)))
    return len(ids)
