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


Queue: TypeAlias = tuple[str, str]
"""Owner of pending messages, and class of their receiver."""

_MOST_QUEUES = 20_000
"""Maximum number of queues that a claim considers, those with the messages due first."""


def _heads() -> sa.Select[Any]:
    """Build the query of the queues with pending messages, and of the time at which the first one is due.

    The recursions step through the index from owner to owner and from receiver to receiver, past all other
    messages of each.
    """
    first = sa.func.min(Delivery.owner)
    owners = sa.select(first.label("owner")).where(_PENDING).cte("owners", recursive=True)
    following = sa.select(first).where(_PENDING, Delivery.owner > owners.c.owner).scalar_subquery()
    owners = owners.union_all(sa.select(following).where(owners.c.owner.is_not(None)))
    first = sa.func.min(Delivery.receiver)
    receiver = sa.select(first).where(_PENDING, Delivery.owner == owners.c.owner).scalar_subquery()
    lowest = sa.select(owners.c.owner, receiver.label("receiver")).where(owners.c.owner.is_not(None))
    queues = lowest.cte("queues", recursive=True)
    of_owner = sa.select(first).where(_PENDING, Delivery.owner == queues.c.owner)
    following = of_owner.where(Delivery.receiver > queues.c.receiver).scalar_subquery()
    is_queue = queues.c.receiver.is_not(None)
    queues = queues.union_all(sa.select(queues.c.owner, following).where(is_queue))
    earliest = sa.select(sa.func.min(Delivery.due_at)).where(
        _PENDING, Delivery.owner == queues.c.owner, Delivery.receiver == queues.c.receiver
    )
    heads = sa.select(queues.c.owner, queues.c.receiver, earliest.scalar_subquery().label("due_at"))
    ordered = heads.where(queues.c.receiver.is_not(None)).order_by("due_at", "owner", "receiver")
    return ordered.limit(sa.bindparam("most"))


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
    active: Mapping[Queue, int],
    turns: Mapping[Queue, int],
) -> Sequence[Delivery]:
    """Claim due messages by postponing each to ``again_at``; owners and their receivers take turns.

    Owners with the fewest active messages come first, then owners whose last turn is longest ago. The age of
    a message is no criterion, because an owner whose receivers do not answer always has the oldest messages.
    The same holds for such a receiver among the receivers of an owner. For each receiver, the messages due
    first are claimed. Only these are read, by an index: the number of due messages makes no difference.

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
        Queue -> number of its messages that this replica is delivering.
    turns
        Queue -> number of its last turn at this replica; one without comes first.
    """
    heads = session.execute(_HEADS, {"most": _MOST_QUEUES})  # the database has sorted them by time
    taken = _take_turns(
        [(head.owner, head.receiver) for head in heads if head.due_at <= now], most, quota, active, turns
    )
    if not taken:
        return []
    first = [_first_due(*queue, count, now) for queue, count in taken.items()]
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


def _take_turns(
    due: Sequence[Queue], most: int, quota: int, active: Mapping[Queue, int], turns: Mapping[Queue, int]
) -> Counter[Queue]:
    """Return the number of messages to claim of each queue.

    ``due``: queues with due messages, those with the earliest first. Other parameters as for `claim_due`.
    """
    active_of_owner: Counter[str] = Counter()
    for (owner, _), count in active.items():
        active_of_owner[owner] += count
    turn_of_owner: dict[str, int] = {}
    for (owner, _), turn in turns.items():
        turn_of_owner[owner] = max(turn, turn_of_owner.get(owner, 0))
    receivers: dict[str, list[Queue]] = {}
    for queue in sorted(due, key=lambda queue: turns.get(queue, 0)):
        receivers.setdefault(queue[0], []).append(queue)
    owners = sorted(dict.fromkeys(owner for owner, _ in due), key=lambda owner: turn_of_owner.get(owner, 0))
    places = sorted(
        (count, turn, owner)
        for turn, owner in enumerate(owners)
        for count in range(active_of_owner[owner], quota)
    )[:most]
    taken: Counter[Queue] = Counter()
    for _, _, owner in places:
        taken[min(receivers[owner], key=lambda queue: active.get(queue, 0) + taken[queue])] += 1
    return taken


def _first_due(owner: str, receiver: str, most: int, now: datetime) -> sa.Select[tuple[str]]:
    """Build the query of the first due messages of a queue."""
    own = sa.select(Delivery.id).where(Delivery.owner == owner, Delivery.receiver == receiver, *_due(now))
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
