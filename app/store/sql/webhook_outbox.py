"""All SQL about messages to webhooks. Every function works within the caller's transaction."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.store.sql.models import Delivery, Job

DeliveryRow: TypeAlias = sa.Row[Any]
"""State of a message, with the attributes of `Delivery` that are neither sealed nor sent."""

_SHOWN = (
    Delivery.job_id,
    Delivery.state,
    Delivery.attempts,
    Delivery.problem,
    Delivery.due_at,
    Delivery.ended_at,
)

_OF_JOBS = sa.select(*_SHOWN).where(Delivery.job_id.in_(sa.bindparam("about", expanding=True)))


def insert(session: Session, delivery: Delivery) -> None:
    """Insert a message to deliver."""
    session.add(delivery)


def claim_due(
    session: Session, now: datetime, again_at: datetime, most: int, quota: int, active: Mapping[str, int]
) -> Sequence[tuple[Delivery, str]]:
    """Claim due messages by postponing each to ``again_at``. Return them with the owners of their jobs.

    If the claiming replica dies, the messages are due again at that time. Rows that another claim has locked
    are skipped if the database has row locks.

    Parameters
    ----------
    now, again_at
        Times.
    most
        Maximum number of messages.
    quota
        Maximum number of messages of one owner, those in ``active`` included. All messages whose jobs are
        deleted count as those of one owner, named "".
    active
        Owner -> number of messages that this replica is delivering.
    """
    owner = sa.func.coalesce(Job.owner, "")
    taken = sa.case(*((owner == name, number) for name, number in active.items()), else_=0) if active else 0
    place = sa.func.row_number().over(partition_by=owner, order_by=(Delivery.due_at, Delivery.id))
    is_due = sa.and_(Delivery.state == "pending", Delivery.due_at <= now)
    ranked = (
        sa.select(Delivery.id, owner.label("owner"), (place + taken).label("place"))
        .join(Job, Job.id == Delivery.job_id, isouter=True)
        .where(is_due)
        .subquery()
    )
    due = (
        sa.select(Delivery.id, ranked.c.owner)
        .join(ranked, ranked.c.id == Delivery.id)
        .where(is_due, ranked.c.place <= quota)
        .order_by(Delivery.due_at)
        .limit(most)
        .with_for_update(skip_locked=True, of=Delivery)
    )
    ids = {row.id: row.owner for row in session.execute(due)}
    claimed = (
        sa.update(Delivery)
        .where(Delivery.id.in_(ids), Delivery.state == "pending", Delivery.due_at <= now)
        .values(due_at=again_at, attempts=Delivery.attempts + 1)
        .returning(Delivery)
    )
    return [(delivery, ids[delivery.id]) for delivery in session.scalars(claimed)] if ids else []


def record(session: Session, delivery_id: str, attempt: int, **values: Any) -> bool:
    """Update a pending message, if ``attempt`` is still its current claim; return whether it was."""
    change = sa.update(Delivery).where(
        Delivery.id == delivery_id, Delivery.attempts == attempt, Delivery.state == "pending"
    )
    result = session.execute(change.values(**values).execution_options(synchronize_session=False))
    assert isinstance(result, sa.CursorResult)
    return result.rowcount == 1


def of_jobs(session: Session, job_ids: Collection[str]) -> Sequence[DeliveryRow]:
    """Return the state of the messages about these jobs; a job has one at most."""
    return list(session.execute(_OF_JOBS, {"about": list(job_ids)}))


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
