"""All SQL about jobs and their blobs. Every function works within the caller's transaction."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cache
from hashlib import blake2b
from typing import Any, Literal, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session, undefer

from app.callers import THE_SERVICE, Caller
from app.store.models import Buffer, Job
from app.store.ownership import visible_to

Role = Literal["source", "destination"]
"""A table that a job was given: its source, or the destination that it judges."""

# What every job needs is written once: to build a statement takes longer than to run it.
_JOBS = cast(sa.Table, Job.__table__)
_FIRST = (
    sa.select(Job.id)
    .where(Job.state == "queued")
    .order_by(Job.ranked_at, Job.id)
    .limit(1)
    .with_for_update(skip_locked=True)
    .scalar_subquery()
)
_CLAIM = (
    sa.update(Job)
    .where(Job.id == _FIRST, Job.state == "queued")
    .values(
        state="running",
        started_at=sa.bindparam("claimed_at"),
        claimed_by=sa.bindparam("claimed_by_replica"),
        attempt=Job.attempt + 1,
    )
    .returning(Job)
    .options(undefer(Job.sealed_seed))
)
_ANY_QUEUED = sa.select(_JOBS.c.id).where(_JOBS.c.state == "queued").limit(1)
_BLOBS = (Job.source_blob, Job.destination_blob, Buffer.blob)
_EVERY_NAME = sa.union_all(*(sa.select(column).where(column.is_not(None)) for column in _BLOBS))
_AMONG: sa.BindParameter[list[str]] = sa.bindparam("among", expanding=True)
_NAMES_AMONG = sa.union_all(*(sa.select(column).where(column.in_(_AMONG)) for column in _BLOBS))


@cache
def _move(names: frozenset[str], at_claim: bool) -> sa.Update:
    """The change of a job's state together with the named columns."""
    columns = _JOBS.c
    change = sa.update(_JOBS).where(
        columns.id == sa.bindparam("moved_id"),
        columns.state.in_(sa.bindparam("moved_from", expanding=True)),
    )
    if at_claim:
        change = change.where(columns.attempt == sa.bindparam("moved_attempt"))
    return change.values({name: sa.bindparam(name) for name in ("state", *sorted(names))})


def insert(session: Session, job: Job) -> None:
    """Add the job."""
    session.add(job)
    session.flush()


def find(session: Session, job_id: str, *deferred: str, caller: Caller = THE_SERVICE) -> Job | None:
    """The job, with the named deferred columns; None where there is none that the caller may know of."""
    if "\0" in job_id:  # PostgreSQL would not even be asked
        return None
    options = [undefer(getattr(Job, name)) for name in deferred]
    query = sa.select(Job).where(Job.id == job_id, visible_to(caller, Job))
    return session.scalar(query.options(*options))


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


def claim_oldest(session: Session, replica: str, now: datetime) -> Job | None:
    """Take the queued job that counts as the oldest for this replica, with its sealed seed.

    What it counts as, `Job.ranked_at`, is its age and its priority together. See also `replicas.hold`.

    Rows that another claim has locked are passed over where the database has row locks.
    """
    return session.scalar(_CLAIM, {"claimed_at": now, "claimed_by_replica": replica})


def any_queued(session: Session) -> bool:
    """Whether there is a job to claim."""
    return session.scalar(_ANY_QUEUED) is not None


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
    given = {"moved_id": job_id, "moved_from": list(sources), "state": target, **values}
    if attempt is not None:
        given["moved_attempt"] = attempt
    result = session.execute(_move(frozenset(values), attempt is not None), given)
    assert isinstance(result, sa.CursorResult)
    return result.rowcount == 1


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


def overdue(session: Session, now: datetime) -> Sequence[Job]:
    """Queued jobs whose deadline has passed."""
    return session.scalars(sa.select(Job).where(Job.state == "queued", Job.deadline <= now)).all()


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


def release_old(session: Session, before: datetime) -> tuple[list[str], list[str]]:
    """Take the buffers off the jobs that ended before a moment: their ids, blobs that nothing names now."""
    held = sa.or_(Job.source_blob.is_not(None), Job.destination_blob.is_not(None))
    query = (
        sa.select(Job)
        .where(Job.finished_at < before, held)
        .order_by(Job.id)
        .with_for_update(skip_locked=True)
    )
    old = session.scalars(query).all()
    blobs = [blob for job in old for blob in (job.source_blob, job.destination_blob)]
    for job in old:
        job.source_blob = job.destination_blob = None
    session.flush()
    return [job.id for job in old], unnamed(session, blobs)


def delete_old(session: Session, before: datetime) -> tuple[list[str], list[str]]:
    """Remove the jobs that ended before a moment: their ids, the blobs that nothing names now."""
    old = sa.select(Job.id).where(Job.finished_at < before).with_for_update(skip_locked=True)
    gone = sa.delete(Job).where(Job.id.in_(old)).returning(Job.id, Job.source_blob, Job.destination_blob)
    rows = sorted(session.execute(gone).all(), key=lambda row: row.id)
    blobs = [blob for row in rows for blob in (row.source_blob, row.destination_blob)]
    return [row.id for row in rows], unnamed(session, blobs)


def unnamed(session: Session, blobs: Collection[str | None]) -> list[str]:
    """Those of the blobs that no row names any more: delete them once this has committed.

    The transaction has taken away one of their names, and after this does nothing but keep books
    (idempotency keys, the audit) and commit.

    In SQLite such transactions exclude each other. In PostgreSQL two things could go wrong, and locks
    keep them from it. A blob could be taken up anew from the very row that goes: but whoever takes one
    up reads its name under a lock (FOR SHARE), so that either the row's end waits for the new name, and
    the query below sees that, or the reader finds no row. And two transactions that take away the last
    two names could each see the other's name still standing, and nobody delete the blob: but each holds
    the lock of the blob itself while it looks and commits. Locks of blobs come after those of
    rows, in order, so that nobody waits in a ring.
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


def count_going(session: Session) -> tuple[dict[str, int], datetime | None]:
    """State -> jobs, of those that have not ended; when the one that is queued longest came."""
    counts = sa.select(Job.state, sa.func.count()).where(Job.state.in_(("queued", "running")))
    found = {state: int(count) for state, count in session.execute(counts.group_by(Job.state))}
    oldest = session.scalar(sa.select(sa.func.min(Job.created_at)).where(Job.state == "queued"))
    return {"queued": 0, "running": 0} | found, oldest


def all_named(session: Session) -> set[str]:
    """Every blob that a row names."""
    return _named(session, None)


def _named(session: Session, among: Collection[str] | None) -> set[str]:
    found = session.scalars(
        _EVERY_NAME if among is None else _NAMES_AMONG, {} if among is None else {"among": list(among)}
    )
    return {blob for blob in found if blob is not None}


def _changed(session: Session, statement: sa.Update | sa.Delete) -> bool:
    result = session.execute(statement.execution_options(synchronize_session=False))
    assert isinstance(result, sa.CursorResult)
    return result.rowcount == 1
