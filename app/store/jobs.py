"""All SQL about jobs and their blobs. Every function works within the caller's transaction."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
import sqlalchemy.exc
from sqlalchemy.orm import Session, undefer

from app.callers import THE_SERVICE, Caller
from app.store.models import Buffer, Job
from app.store.ownership import visible_to

Role = Literal["source", "destination"]
"""A table that a job was given: its source, or the destination that it judges."""


class IdempotencyKeyTaken(Exception):
    """Another job was accepted under this idempotency key."""


def insert(session: Session, job: Job) -> None:
    """Add the job. Raises IdempotencyKeyTaken; the transaction is over then."""
    session.add(job)
    try:
        session.flush()
    except sqlalchemy.exc.IntegrityError as error:
        if job.idempotency_key is None:
            raise
        raise IdempotencyKeyTaken from error


def find(session: Session, job_id: str, *deferred: str, caller: Caller = THE_SERVICE) -> Job | None:
    """The job, with the named deferred columns; None where there is none that the caller may know of."""
    options = [undefer(getattr(Job, name)) for name in deferred]
    query = sa.select(Job).where(Job.id == job_id, visible_to(caller, Job))
    return session.scalar(query.options(*options))


def find_by_idempotency_key(session: Session, key: str) -> Job | None:
    """The job that was accepted under this key."""
    return session.scalar(sa.select(Job).where(Job.idempotency_key == key))


def newest(
    session: Session,
    state: str | None,
    service: str | None,
    limit: int,
    before: str | None,
    caller: Caller = THE_SERVICE,
) -> Sequence[Job]:
    """Up to ``limit`` jobs older than the job ``before`` that the caller may know of, newest first."""
    query = sa.select(Job).where(visible_to(caller, Job)).order_by(Job.id.desc()).limit(limit)
    if state is not None:
        query = query.where(Job.state == state)
    if service is not None:
        query = query.where(Job.service == service)
    if before is not None:
        query = query.where(Job.id < before)
    return session.scalars(query).all()


def claim_oldest(session: Session, instance: str, now: datetime) -> Job | None:
    """Take the oldest queued job for this run of the service, with its sealed seed.

    Rows that another claim has locked are passed over where the database has row locks.
    """
    oldest = (
        sa.select(Job.id)
        .where(Job.state == "queued")
        .order_by(Job.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    claimed = (
        sa.update(Job)
        .where(Job.id == oldest, Job.state == "queued")
        .values(state="running", started_at=now, claimed_by=instance, attempt=Job.attempt + 1)
        .returning(Job)
        .options(undefer(Job.sealed_seed))
    )
    return session.scalar(claimed)


def any_queued(session: Session) -> bool:
    """Whether there is a job to claim."""
    return session.scalar(sa.select(Job.id).where(Job.state == "queued").limit(1)) is not None


def move(
    session: Session,
    job_id: str,
    sources: Collection[str],
    target: str,
    attempt: int | None = None,
    **values: Any,
) -> bool:
    """Change the state, and what goes with it, if the job is still in one of ``sources``.

    ``attempt``: and if it is still at this claim. Whoever comes second changes nothing.
    """
    change = sa.update(Job).where(Job.id == job_id, Job.state.in_(sources))
    if attempt is not None:
        change = change.where(Job.attempt == attempt)
    return _changed(session, change.values(state=target, **values))


def left_running(session: Session, instance: str) -> Sequence[Job]:
    """Jobs that another run of the service had claimed."""
    mine = Job.claimed_by == instance
    return session.scalars(sa.select(Job).where(Job.state == "running", sa.not_(mine))).all()


def delete_ended(session: Session, job_id: str) -> bool:
    """Remove the row of a job that has ended."""
    gone = sa.delete(Job).where(Job.id == job_id, Job.state.not_in(("queued", "running")))
    return _changed(session, gone)


def retained(session: Session, role: Role, job_id: str, now: datetime) -> str | None:
    """The blob of a table that the job was given: the job itself may have kept it, or its buffer."""
    if role == "source":
        blob, buffer = Job.source_blob, Job.source_buffer
    else:
        blob, buffer = Job.destination_blob, Job.destination_buffer
    own = session.scalar(sa.select(blob).where(Job.id == job_id))
    if own is not None:
        return own
    of_buffer = sa.select(Buffer.blob).join(Job, buffer == Buffer.id)
    return session.scalar(of_buffer.where(Job.id == job_id, Buffer.expires_at > now))


def release_old(session: Session, before: datetime) -> tuple[list[str], list[str]]:
    """Take the buffers off jobs that ended before a moment: which jobs, and blobs that nothing names now."""
    held = sa.or_(Job.source_blob.is_not(None), Job.destination_blob.is_not(None))
    old = session.scalars(sa.select(Job).where(Job.finished_at < before, held)).all()
    blobs = [blob for job in old for blob in (job.source_blob, job.destination_blob)]
    for job in old:
        job.source_blob = job.destination_blob = None
    session.flush()
    return [job.id for job in old], unnamed(session, blobs)


def unnamed(session: Session, blobs: Collection[str | None]) -> list[str]:
    """Those of the blobs that no row names any more: delete them once this has committed.

    A blob comes to be shared in a transaction that reads one of its names, so among transactions
    that exclude each other nobody can take up a name that this one saw vanish.
    """
    candidates = {blob for blob in blobs if blob is not None}
    if not candidates:
        return []
    return sorted(candidates - _named(session, candidates))


def all_named(session: Session) -> set[str]:
    """Every blob that a row names."""
    return _named(session, None)


def _named(session: Session, among: Collection[str] | None) -> set[str]:
    queries = []
    for column in (Job.source_blob, Job.destination_blob, Buffer.blob):
        query = sa.select(column).where(column.is_not(None))
        queries.append(query if among is None else query.where(column.in_(among)))
    return {blob for blob in session.scalars(sa.union_all(*queries)) if blob is not None}


def _changed(session: Session, statement: sa.Update | sa.Delete) -> bool:
    result = session.execute(statement.execution_options(synchronize_session=False))
    assert isinstance(result, sa.CursorResult)
    return result.rowcount == 1
