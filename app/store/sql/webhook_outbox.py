"""All SQL about messages to webhooks. Every function works within the caller's transaction."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.store.sql.models import PENDING, Delivery

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

_PENDING = sa.text(PENDING)
"""Condition of the index of pending messages, as text: a parameter hides from the databases that it holds."""


_MOST_OWNERS = 10_000
"""Maximum number of owners that a claim considers, those with the messages due first."""


def _heads() -> sa.Select[tuple[str, datetime]]:
    """Build the query of the owners with pending messages, and of the time at which the first one is due.

    The recursion steps from owner to owner through the index, past all other messages of each.
    """
    first = sa.func.min(Delivery.owner)
    owners = sa.select(first.label("owner")).where(_PENDING).cte("owners", recursive=True)
    following = sa.select(first).where(_PENDING, Delivery.owner > owners.c.owner).scalar_subquery()
    owners = owners.union_all(sa.select(following).where(owners.c.owner.is_not(None)))
    earliest = sa.select(sa.func.min(Delivery.due_at)).where(_PENDING, Delivery.owner == owners.c.owner)
    heads = sa.select(owners.c.owner, earliest.scalar_subquery().label("due_at"))
    return heads.where(owners.c.owner.is_not(None)).order_by("due_at", "owner").limit(sa.bindparam("most"))


_HEADS = _heads()

_OF_JOBS = sa.select(*_SHOWN).where(Delivery.job_id.in_(sa.bindparam("about", expanding=True)))


def insert(session: Session, delivery: Delivery) -> None:
    """Insert a message to deliver."""
    session.add(delivery)


def claim_due(
    session: Session,
    now: datetime,
    again_at: datetime,
    most: int,
    quota: int,
    active: Mapping[str, int],
    turns: Mapping[str, int],
) -> Sequence[Delivery]:
    """Claim due messages by postponing each to ``again_at``; the owners take turns.

    Those with the fewest active messages come first, then those whose last turn is longest ago. The age of a
    message is no criterion: an owner whose receivers do not answer always has the oldest ones. Of each owner
    the messages due first are claimed. Only these are read, by an index: the number of due messages makes no
    difference.

    If the claiming replica dies, the messages are due again at that time. Rows that another claim has locked
    are skipped if the database has row locks.

    Parameters
    ----------
    now, again_at
        Times.
    most
        Maximum number of messages.
    quota
        Maximum number of messages of one owner, those in ``active`` included.
    active
        Owner -> number of messages that this replica is delivering.
    turns
        Owner -> number of its last turn at this replica; an owner without one comes first.
    """
    heads = session.execute(_HEADS, {"most": _MOST_OWNERS})
    due = sorted(
        (head.owner for head in heads if head.due_at <= now), key=lambda owner: turns.get(owner, 0)
    )  # the database has sorted them by time
    places = sorted(
        (count, turn, owner) for turn, owner in enumerate(due) for count in range(active.get(owner, 0), quota)
    )[:most]
    taken = Counter(owner for _, _, owner in places)
    if not taken:
        return []
    first = [_first_due(owner, count, now) for owner, count in taken.items()]
    found = (
        sa.select(Delivery.id)
        .where(Delivery.id.in_(sa.select(sa.union_all(*first).subquery().c.id)), *_due(now))
        .order_by(Delivery.due_at, Delivery.id)
        .with_for_update(skip_locked=True)
    )
    ids = session.scalars(found).all()
    claimed = (
        sa.update(Delivery)
        .where(Delivery.id.in_(ids), *_due(now))
        .values(due_at=again_at, attempts=Delivery.attempts + 1)
        .returning(Delivery)
    )
    return list(session.scalars(claimed)) if ids else []


def _first_due(owner: str, most: int, now: datetime) -> sa.Select[tuple[str]]:
    """Build the query of the owner's first due messages."""
    own = sa.select(Delivery.id).where(Delivery.owner == owner, *_due(now))
    return sa.select(own.order_by(Delivery.due_at, Delivery.id).limit(most).subquery().c.id)


def _due(now: datetime) -> tuple[sa.TextClause, sa.ColumnElement[bool]]:
    return _PENDING, Delivery.due_at <= now


def record(session: Session, delivery_id: str, attempt: int, **values: Any) -> bool:
    """Update a pending message, if ``attempt`` is still its current claim; return whether it was."""
    change = sa.update(Delivery).where(
        Delivery.id == delivery_id, Delivery.attempts == attempt, Delivery.state == "pending"
    )
    result = session.execute(change.values(**values).execution_options(synchronize_session=False))
    assert isinstance(result, sa.CursorResult)
    return result.rowcount == 1


def make_due(session: Session, now: datetime, longest: timedelta) -> None:
    """Make messages due now that a clock which was ahead has postponed by more than the ``longest`` pause."""
    postponed = sa.update(Delivery).where(_PENDING, Delivery.due_at > now + longest)
    session.execute(postponed.values(due_at=now).execution_options(synchronize_session=False))


def of_jobs(session: Session, job_ids: Collection[str]) -> Sequence[DeliveryRow]:
    """Return the state of the messages about these jobs; a job has one at most."""
    return list(session.execute(_OF_JOBS, {"about": list(job_ids)}))


def next_due(session: Session) -> datetime | None:
    """Return the time at which the next message is due; None if none is pending."""
    head = session.execute(_HEADS, {"most": 1}).first()
    return None if head is None else head.due_at


def count_pending(session: Session) -> int:
    """Return the number of pending messages."""
    count = session.scalar(sa.select(sa.func.count()).select_from(Delivery).where(_PENDING))
    return int(count or 0)


def delete_old(session: Session, before: datetime, most: int) -> int:
    """Delete up to ``most`` messages that were delivered or given up before a time; return their number."""
    old = sa.select(Delivery.id).where(Delivery.ended_at < before).limit(most)
    ids = session.scalars(old.with_for_update(skip_locked=True)).all()
    session.execute(sa.delete(Delivery).where(Delivery.id.in_(ids)))
    return len(ids)
