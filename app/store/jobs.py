"""All SQL about jobs, their blobs and the audit. Every function works within the caller's transaction."""

from collections.abc import Collection, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal

import sqlalchemy as sa
import sqlalchemy.exc
from sqlalchemy.orm import Session, undefer

from app.store.models import AuditLine, Buffer, Job

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


def find(session: Session, job_id: str, *deferred: str) -> Job | None:
    """The job, with the named deferred columns; None where there is none."""
    if "\0" in job_id:  # PostgreSQL would not even be asked
        return None
    options = [undefer(getattr(Job, name)) for name in deferred]
    return session.scalar(sa.select(Job).where(Job.id == job_id).options(*options))


def find_by_idempotency_key(session: Session, key: str) -> Job | None:
    """The job that was accepted under this key."""
    return session.scalar(sa.select(Job).where(Job.idempotency_key == key))


def newest(
    session: Session, state: str | None, service: str | None, limit: int, before: str | None
) -> Sequence[Job]:
    """Up to ``limit`` jobs older than the job ``before``, newest first."""
    query = sa.select(Job).order_by(Job.id.desc()).limit(limit)
    if state is not None:
        query = query.where(Job.state == state)
    if service is not None:
        query = query.where(Job.service == service)
    if before is not None:
        query = query.where(Job.id < before)
    return session.scalars(query).all()


def claim_oldest(session: Session, replica: str, now: datetime) -> Job | None:
    """Take the oldest queued job for this replica, with its sealed seed. See also `replicas.hold`.

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
        .values(state="running", started_at=now, claimed_by=replica, attempt=Job.attempt + 1)
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


def request_cancel(session: Session, job_id: str) -> None:
    """Ask the replica that works on the job to stop it."""
    change = sa.update(Job).where(Job.id == job_id, Job.state == "running")
    session.execute(change.values(cancel_requested=True))


def claimed(session: Session, replica: str) -> Sequence[Job]:
    """The jobs that the replica works on."""
    return session.scalars(sa.select(Job).where(Job.state == "running", Job.claimed_by == replica)).all()


def to_cancel(session: Session, replica: str) -> Sequence[str]:
    """The jobs of the replica that somebody wants to stop."""
    wanted = sa.select(Job.id).where(Job.state == "running", Job.cancel_requested)
    return session.scalars(wanted.where(Job.claimed_by == replica)).all()


def standing(session: Session, job_ids: Collection[str]) -> dict[str, tuple[int, bool]]:
    """How often each of the jobs was claimed, and whether it has ended."""
    if not job_ids:
        return {}
    query = sa.select(Job.id, Job.attempt, Job.finished_at.is_not(None)).where(Job.id.in_(job_ids))
    return {job_id: (attempt, ended) for job_id, attempt, ended in session.execute(query)}


def running(session: Session) -> set[tuple[str, int]]:
    """Each running job and its attempt."""
    query = sa.select(Job.id, Job.attempt).where(Job.state == "running")
    return {(job_id, attempt) for job_id, attempt in session.execute(query)}


def delete_ended(session: Session, job_id: str) -> bool:
    """Remove the row of a job that has ended."""
    gone = sa.delete(Job).where(Job.id == job_id, Job.state.not_in(("queued", "running")))
    return _changed(session, gone)


def retained(session: Session, role: Role, job_id: str, now: datetime) -> str | None:
    """The blob of a table that the job was given: the job itself may have kept it, or its buffer.

    The row that names it stays until the transaction ends: see `unnamed`.
    """
    if role == "source":
        blob, buffer = Job.source_blob, Job.source_buffer
    else:
        blob, buffer = Job.destination_blob, Job.destination_buffer
    own = session.scalar(sa.select(blob).where(Job.id == job_id).with_for_update(read=True))
    if own is not None:
        return own
    of_buffer = sa.select(Buffer.blob).join(Job, buffer == Buffer.id)
    lent = of_buffer.where(Job.id == job_id, Buffer.expires_at > now)
    return session.scalar(lent.with_for_update(read=True, of=Buffer))


def release_old(session: Session, before: datetime) -> list[str]:
    """Take the buffers off the jobs that ended before a moment; the blobs that nothing names now."""
    held = sa.or_(Job.source_blob.is_not(None), Job.destination_blob.is_not(None))
    query = sa.select(Job).where(Job.finished_at < before, held)
    old = session.scalars(query.with_for_update(skip_locked=True)).all()
    blobs = [blob for job in old for blob in (job.source_blob, job.destination_blob)]
    for job in old:
        job.source_blob = job.destination_blob = None
    session.flush()
    return unnamed(session, blobs)


def unnamed(session: Session, blobs: Collection[str | None]) -> list[str]:
    """Those of the blobs that no row names any more: delete them once this has committed.

    The transaction has taken away one of their names, and does nothing after this but commit.

    In SQLite such transactions exclude each other. In PostgreSQL two things could go wrong, and locks
    keep them from it. A blob could be taken up anew from the very row that goes: but whoever takes one
    up reads its name under a lock (FOR SHARE), so that either the row's end waits for the new name, and
    the query below sees that, or the reader finds no row. And two transactions that take away the last
    two names could each see the other's name still standing, and nobody delete the blob: but each holds
    the lock of the blob itself while it looks and commits. Locks of blobs come last, in order, so that
    nobody waits in a ring.
    """
    candidates = {blob for blob in blobs if blob is not None}
    if not candidates:
        return []
    lock_blobs(session, candidates)
    return sorted(candidates - _named(session, candidates))


def lock_blobs(session: Session, blobs: Collection[str]) -> None:
    """Let nobody else decide about the blobs before the transaction has ended, however it ends.

    That holds where its end is not told as well: who asks `unnamed` whether a new blob was named
    after all, its connection having broken at the commit, waits for what became of that.
    """
    if session.get_bind().dialect.name == "postgresql":
        for blob in sorted(blobs):
            number = int.from_bytes(blake2b(blob.encode(), digest_size=8).digest(), "big", signed=True)
            session.execute(sa.select(sa.func.pg_advisory_xact_lock(number)))


def all_named(session: Session) -> set[str]:
    """Every blob that a row names."""
    return _named(session, None)


def audit(session: Session, action: str, subject: str, at: datetime) -> None:
    """Write one line of the audit."""
    session.add(AuditLine(at=at, action=action, subject=subject))


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
