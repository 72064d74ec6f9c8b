"""All SQL about messages to webhooks. Every function works within the caller's transaction."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.store.models import Delivery


def insert(session: Session, delivery: Delivery) -> None:
    """Add a message that is to be delivered."""
    session.add(delivery)


def claim_due(session: Session, now: datetime, again_at: datetime, most: int) -> Sequence[Delivery]:
    """Take up to so many messages that are due, and put each off until ``again_at``.

    Whoever claims and then dies leaves them to whoever looks after that moment. Rows that another claim
    has locked are passed over where the database has row locks.
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
    """Change a message that is pending still, by the claim of that number; False for a claim outlived."""
    mine = sa.update(Delivery).where(
        Delivery.id == delivery_id, Delivery.attempts == attempt, Delivery.state == "pending"
    )
    result = session.execute(mine.values(**values).execution_options(synchronize_session=False))
    assert isinstance(result, sa.CursorResult)
    return result.rowcount == 1


def next_due(session: Session) -> datetime | None:
    """When the next message is due; None where none is pending."""
    return session.scalar(sa.select(sa.func.min(Delivery.due_at)).where(Delivery.state == "pending"))


def count_pending(session: Session) -> int:
    """How many are to be delivered."""
    count = session.scalar(sa.select(sa.func.count()).where(Delivery.state == "pending"))
    return int(count or 0)


def delete_old(session: Session, before: datetime) -> int:
    """Remove those that arrived or were given up before a moment, and say how many they were."""
    result = session.execute(sa.delete(Delivery).where(Delivery.ended_at < before))
    assert isinstance(result, sa.CursorResult)
    return result.rowcount
