"""All SQL about jobs and their blobs. Functions that take a session work within the caller's transaction."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session, undefer
from sqlalchemy.sql.schema import ScalarElementColumnDefault

from app.callers import THE_SERVICE, Caller
from app.job_kinds import Runs, own_runs
from app.store.sql.bindings import NamedBlob, Role, blob_of_buffer, table_binding
from app.store.sql.connection.quick_statements import execute
from app.store.sql.db import Database
from app.store.sql.models import HOLDING, Buffer, Job, Queue
from app.store.sql.pages import page_of
from app.store.sql.visibility import owned_by, visible_to

JobRow: TypeAlias = sa.Row[Any]
"""Columns of a job, with the attributes of `Job`."""

_JOB_CLASS = sa.inspect(Job).class_manager

# Statements that every job needs are built once: building one takes longer than running it.
_JOBS = cast(sa.Table, Job.__table__)


def _fits(runs: Runs) -> sa.ColumnElement[bool]:
    """Build the condition that a version which runs these revisions can run the job.

    The revisions are text: SQLAlchemy would look at every element of a larger expression at each execution.
    """
    if not runs.revisions:
        return sa.false()
    pairs = (f"({_quoted(name)}, {int(number)})" for name, number in sorted(runs.revisions))
    revision = sa.literal_column(f"(jobs.service, jobs.revision) IN (VALUES {', '.join(pairs)})", sa.Boolean)
    options = _JOBS.c.options
    # As `app.jobs.requests.choice_revision_of`.
    without_choice = options["candidates"].as_string().is_(None)
    chosen_by = sa.func.coalesce(options["choice_revision"].as_string(), "1")
    return sa.and_(revision, sa.or_(without_choice, chosen_by == runs.choice))


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


@cache
def _claim(runs: Runs, until_turn: bool) -> sa.UpdateBase:
    first = (
        sa.select(_JOBS.c.id)
        .where(_JOBS.c.state == "queued", _fits(runs))
        .where(_JOBS.c.ranked_at <= sa.bindparam("until_turn") if until_turn else sa.true())
        .order_by(_JOBS.c.ranked_at, _JOBS.c.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    claim = sa.update(_JOBS).where(_JOBS.c.id == first, _JOBS.c.state == "queued")
    return claim.values(
        state="running",
        started_at=sa.bindparam("claimed_at"),
        claimed_by=sa.bindparam("claimed_by_replica"),
        attempt=_JOBS.c.attempt + 1,
    ).returning(*_JOBS.c)


@cache
def _any_queued(runs: Runs) -> sa.Select[Any]:
    return sa.select(_JOBS.c.id).where(_JOBS.c.state == "queued", _fits(runs)).limit(1)


@cache
def _news(runs: Runs) -> sa.Select[Any]:
    of_replica = _JOBS.c.claimed_by == sa.bindparam("replica")
    to_cancel = sa.select(_JOBS.c.id).where(_JOBS.c.state == "running", _JOBS.c.cancel_requested, of_replica)
    return sa.select(sa.or_(sa.exists(to_cancel), sa.exists(_any_queued(runs))).label("found"))


def _any_overdue(now: sa.ColumnElement[datetime]) -> sa.Select[Any]:
    return sa.select(_JOBS.c.id).where(_JOBS.c.state == "queued", _JOBS.c.deadline <= now).limit(1)


_ANY_OVERDUE = _any_overdue(sa.bindparam("now", type_=_JOBS.c.deadline.type))

_ANY_OVERDUE_AT_SERVER = _any_overdue(sa.func.now())

_QUEUE = cast(sa.Table, Queue.__table__)

_ADVANCE = (
    sa.update(_QUEUE)
    .where(_QUEUE.c.turn < sa.bindparam("started_turn"))
    .values(turn=sa.bindparam("started_turn"))
)

_INSERT = sa.insert(_JOBS)

_COLUMNS = frozenset(_JOBS.c.keys())

_DEFAULTS = {
    name: column.default.arg
    for name, column in _JOBS.c.items()
    if isinstance(column.default, ScalarElementColumnDefault)
}

_TABLE_BLOBS = (Job.source_blob, Job.destination_blob, Job.control_blob)

_SMALL_TABLES = (Job.sealed_source, Job.sealed_destination, Job.sealed_control)

_BLOBS = (*_TABLE_BLOBS, Buffer.blob)

_EVERY_NAME = sa.union_all(*(sa.select(column).where(column.is_not(None)) for column in _BLOBS))

_AMONG: sa.BindParameter[list[str]] = sa.bindparam("among", expanding=True)

_IDS: sa.BindParameter[list[str]] = sa.bindparam("ids", expanding=True)

_ENDED_BEFORE = Job.finished_at < sa.bindparam("before")

_HOLDING = (
    sa.select(Job.id, Job.finished_at, *_TABLE_BLOBS)
    .where(Job.finished_at >= sa.bindparam("since"), _ENDED_BEFORE, sa.text(HOLDING))
    .order_by(Job.finished_at, Job.id)
    .limit(sa.bindparam("most"))
    .with_for_update(skip_locked=True)
)
"""Jobs that ended before a time and hold tables. Statements of purges are built once: they run in batches."""

_RELEASE = (
    sa.update(Job)
    .where(Job.id.in_(_IDS))
    .values(
        dict.fromkeys(
            [
                *(table.key for table in _TABLE_BLOBS),
                *(f"{table.key}{suffix}" for table in _SMALL_TABLES for suffix in ("", "_key")),
            ]
        )
    )
    .execution_options(synchronize_session=False)
)

_OLD = (
    sa.select(Job.id)
    .where(_ENDED_BEFORE)
    .order_by(Job.finished_at)
    .limit(sa.bindparam("most"))
    .with_for_update(skip_locked=True)
)

_DELETE = (
    sa.delete(Job)
    .where(Job.id.in_(_IDS))
    .returning(Job.id, *_TABLE_BLOBS)
    .execution_options(synchronize_session=False)
)

_NAMES_AMONG = sa.union_all(*(sa.select(column).where(column.in_(_AMONG)) for column in _BLOBS))


_LOCK_NUMBERS = sa.text(
    "SELECT pg_advisory_xact_lock(number) FROM unnest(CAST(:numbers AS bigint[])) AS number"
)
"""Takes the locks in the order of the array, by one statement."""


@cache
def _move(names: frozenset[str], sources: frozenset[str], at_claim: bool) -> sa.Update:
    """Build the statement that changes a job's state, if it is one of ``sources``, and the named columns."""
    columns = _JOBS.c
    state = sa.or_(sa.false(), *(columns.state == source for source in sorted(sources)))
    change = sa.update(_JOBS).where(columns.id == sa.bindparam("moved_id"), state)
    if at_claim:
        change = change.where(columns.attempt == sa.bindparam("moved_attempt"))
    return change.values({name: sa.bindparam(name) for name in ("state", *sorted(names))})


def insert(session: Session, job: Job) -> None:
    """Add the job. It is not loaded from the database, because it holds exactly the stored values."""
    for name, value in _DEFAULTS.items():
        if getattr(job, name) is None:
            setattr(job, name, value)
    values = {name: value for name, value in vars(job).items() if name in _COLUMNS}
    execute(session, _INSERT, values)


def find(session: Session, job_id: str, *deferred: str, caller: Caller = THE_SERVICE) -> Job | None:
    """Return the job with the named deferred columns; None if none is visible to the caller."""
    if "\0" in job_id:  # PostgreSQL's driver rejects the character
        return None
    options = [undefer(getattr(Job, name)) for name in deferred]
    query = sa.select(Job).where(Job.id == job_id, visible_to(caller, Job))
    return session.scalar(query.options(*options))


_LOOKED_AT = tuple(column.expression for column in sa.inspect(Job).column_attrs if not column.deferred)


class _Looks(NamedTuple):
    """Queries of a job's columns for callers who see all jobs, their own, or also those of a project."""

    of_all: sa.Select[Any]
    own: sa.Select[Any]
    in_project: sa.Select[Any]


def _looks(*columns: Any) -> _Looks:
    query = sa.select(*columns).where(_JOBS.c.id == sa.bindparam("job_id"))
    own = _JOBS.c.owner == sa.bindparam("owner")
    in_project = sa.or_(own, _JOBS.c.project == sa.bindparam("project"))
    return _Looks(query, query.where(own), query.where(in_project))


_LOOK_AT_ALL = _looks(*_LOOKED_AT)

_LOOK_AT_END = _looks(_JOBS.c.finished_at)


def look(database: Database, job_id: str, caller: Caller) -> JobRow | None:
    """Return the job's columns that are not deferred; None if none is visible to the caller.

    It needs neither a transaction (see `Database.look`) nor an object, which takes longer than the query.
    """
    return _looked(database, _LOOK_AT_ALL, job_id, caller)


def look_at_end(database: Database, job_id: str, caller: Caller) -> JobRow | None:
    """Return only ``finished_at`` of the job; None if none is visible to the caller."""
    return _looked(database, _LOOK_AT_END, job_id, caller)


def _looked(database: Database, looks: _Looks, job_id: str, caller: Caller) -> JobRow | None:
    if "\0" in job_id:
        return None
    if caller.sees_all:
        return database.look(looks.of_all, {"job_id": job_id})
    given = {"job_id": job_id, "owner": caller.owner}
    if caller.project is None:
        return database.look(looks.own, given)
    return database.look(looks.in_project, {**given, "project": caller.project})


def newest_state(session: Session) -> str | None:
    """Return the state of the newest job; None if there is none. Other columns may take megabytes."""
    return session.scalar(sa.select(Job.state).order_by(Job.id.desc()).limit(1))


def page(
    session: Session,
    state: str | None,
    service: str | None,
    limit: int,
    before: str | None,
    caller: Caller,
    name: str | None,
    label: str | None,
) -> tuple[Sequence[Job], str | None]:
    """Return up to ``limit`` visible jobs older than the job ``before``, newest first; see `page_of`.

    ``name``: part of their names, in which upper and lower case are equal. ``label``: their label.
    """
    query = _newest(state, service, before, caller).where(*annotated(Job, name, label))
    return page_of(session, query, Job, limit)


def _newest(state: str | None, service: str | None, before: str | None, caller: Caller) -> sa.Select[Any]:
    query = sa.select(Job).where(visible_to(caller, Job)).order_by(Job.id.desc())
    if state is not None:
        query = query.where(Job.state == state)
    if service is not None:
        query = query.where(Job.service == service)
    return query if before is None else query.where(Job.id < before)


def annotated(
    model: type[Job] | type[Buffer], name: str | None, label: str | None
) -> list[sa.ColumnElement[bool]]:
    """Build the conditions that a name contains ``name``, and that a label is ``label``; None: any."""
    conditions: list[sa.ColumnElement[bool]] = []
    if name is not None:
        conditions.append(model.name.regexp_match(_in_any_case(name)))
    if label is not None:
        conditions.append(model.label == label)
    return conditions


def _in_any_case(text: str) -> str:
    """Return a regular expression for the text in which each letter is in upper or lower case.

    The databases' own comparisons know other letters than those of ASCII only in some locales of PostgreSQL,
    and never in SQLite. The expression means the same to both.
    """
    return "".join(map(_either_case, text))


def _either_case(character: str) -> str:
    cases = {character, *character.lower(), *character.upper(), *character.upper().lower()}
    if "Σ" in cases:  # it has another lower case at the end of a word
        cases |= {"\N{GREEK SMALL LETTER SIGMA}", "\N{GREEK SMALL LETTER FINAL SIGMA}"}
    if character.isalpha() and all(len(case) == 1 for case in (character.lower(), character.upper())):
        return f"[{''.join(sorted(cases))}]"
    return rf"\{character}" if character.isascii() and not character.isalnum() else character


def annotate(
    session: Session, model: type[Job] | type[Buffer], row_id: str, changes: Mapping[str, str | None]
) -> bool:
    """Set the name, the label or the notes of a job or a buffer; False if there is no such row."""
    return _changed(session, sa.update(model).where(model.id == row_id).values(dict(changes)))


def claim_first(
    session: Session,
    replica: str,
    now: datetime,
    runs: Runs | None = None,
    until_turn: datetime | None = None,
) -> Job | None:
    """Claim the queued job with the smallest `Job.ranked_at` for this replica; loads all columns.

    Only a job of ``runs`` is claimed, by default of those that this version can run: in a rolling upgrade
    replicas of two versions share a queue. See also `replicas.hold`. Rows that another claim has locked are
    skipped if the database has row locks.

    Parameters
    ----------
    session
        The caller's transaction.
    replica
        This replica.
    now
        The database's time.
    runs
        Revisions that may be claimed.
    until_turn
        Largest `Job.ranked_at` of a job to claim; None: any.
    """
    given: dict[str, Any] = {"claimed_at": now, "claimed_by_replica": replica}
    if until_turn is not None:
        given["until_turn"] = until_turn
    claim = _claim(runs or own_runs(), until_turn is not None)
    rows, _ = execute(session, claim, given)
    if not rows:
        return None
    (row,) = rows
    advance(session, row.ranked_at)
    # As a loaded object: `Job(...)` records a change of each column, which takes thirty times as long.
    job = _JOB_CLASS.new_instance()
    vars(job).update(row._asdict())
    return job


def advance(session: Session, turn: datetime) -> None:
    """Set the virtual time of the queue to a turn that has started, unless it is later already."""
    execute(session, _ADVANCE, {"started_turn": turn})


def any_queued(session: Session, runs: Runs | None = None) -> bool:
    """Whether there is a job to claim."""
    found, _ = execute(session, _any_queued(runs or own_runs()), {})
    return bool(found)


def any_news(database: Database, replica: str) -> bool:
    """Whether there is a job to claim, or a cancel request for a job of the replica: see `Database.look`."""
    found = database.look(_news(own_runs()), {"replica": replica})
    return found is not None and bool(found.found)


def any_overdue(database: Database) -> bool:
    """Whether the deadline of a queued job has passed: see `Database.look`."""
    if database.shared:
        return database.look(_ANY_OVERDUE_AT_SERVER, {}) is not None
    return database.look(_ANY_OVERDUE, {"now": datetime.now(UTC)}) is not None


def queued_for_nobody(session: Session, living: Collection[Runs]) -> Sequence[Job]:
    """Return queued jobs that no version of ``living`` can run."""
    fits = sa.or_(sa.false(), *(_fits(runs) for runs in living))
    return session.scalars(sa.select(Job).where(Job.state == "queued", sa.not_(fits))).all()


def move(
    session: Session,
    job_id: str,
    sources: Collection[str],
    target: str,
    attempt: int | None = None,
    **values: Any,
) -> bool:
    """Move a job to another state, if it is still in one of ``sources``; return whether it was.

    Of several concurrent moves exactly one succeeds.

    Parameters
    ----------
    job_id
        The job.
    sources, target
        States before and after the move.
    attempt
        Claim that must still be the job's current one; None: any.
    **values
        Further columns to set.
    """
    given = {"moved_id": job_id, "state": target, **values}
    if attempt is not None:
        given["moved_attempt"] = attempt
    change = _move(frozenset(values), frozenset(str(state) for state in sources), attempt is not None)
    _, changed = execute(session, change, given)
    return changed == 1


def request_cancel(session: Session, job_id: str) -> None:
    """Ask the replica that works on the job to stop it."""
    change = sa.update(Job).where(Job.id == job_id, Job.state == "running")
    session.execute(change.values(cancel_requested=True))


def claimed(session: Session, replica: str) -> Sequence[Job]:
    """Return the jobs that the replica runs."""
    return session.scalars(sa.select(Job).where(Job.state == "running", Job.claimed_by == replica)).all()


def to_cancel(session: Session, replica: str) -> Sequence[str]:
    """Return the replica's running jobs with a cancel request."""
    requested = sa.select(Job.id).where(Job.state == "running", Job.cancel_requested)
    return session.scalars(requested.where(Job.claimed_by == replica)).all()


def claims_and_ends(session: Session, job_ids: Collection[str]) -> dict[str, tuple[int, bool]]:
    """Map each job to its number of claims and whether it has ended."""
    if not job_ids:
        return {}
    query = sa.select(Job.id, Job.attempt, Job.finished_at.is_not(None)).where(Job.id.in_(job_ids))
    return {job_id: (attempt, ended) for job_id, attempt, ended in session.execute(query)}


def running(session: Session) -> set[tuple[str, int]]:
    """Return id and attempt of each running job."""
    query = sa.select(Job.id, Job.attempt).where(Job.state == "running")
    return {(job_id, attempt) for job_id, attempt in session.execute(query)}


def overdue(session: Session, now: datetime) -> Sequence[Job]:
    """Return queued jobs whose deadline has passed."""
    return session.scalars(sa.select(Job).where(Job.state == "queued", Job.deadline <= now)).all()


def delete_ended(session: Session, job_id: str) -> bool:
    """Delete the row of a job that has ended; False if there is none."""
    gone = sa.delete(Job).where(Job.id == job_id, Job.state.not_in(("queued", "running")))
    return _changed(session, gone)


def retained(session: Session, role: Role, job: Job, now: datetime, caller: Caller) -> NamedBlob | None:
    """Return the blob of a table of the job, if the job or the buffer that it came from still names it.

    The buffer must be visible to the caller. The row that names the blob is locked until the transaction
    ends: see `unnamed`.
    """
    blob, key = getattr(Job, f"{role}_blob"), getattr(Job, f"sealed_{role}_key")
    own = session.execute(sa.select(blob, key).where(Job.id == job.id).with_for_update(read=True)).first()
    if own is not None and own[0] is not None:
        return NamedBlob(own[0], own[1], table_binding(job, role))
    buffer_id = getattr(job, f"{role}_buffer")
    lent = sa.select(Buffer).where(Buffer.id == buffer_id, Buffer.expires_at > now)
    buffer = session.scalar(lent.where(owned_by(caller)).with_for_update(read=True))
    return None if buffer is None else blob_of_buffer(buffer)


def retained_table(session: Session, role: Role, job_id: str) -> bytes | None:
    """Return the small sealed table of the job, if its row still holds it."""
    sealed: bytes | None = session.scalar(sa.select(getattr(Job, f"sealed_{role}")).where(Job.id == job_id))
    return sealed


def sealed_webhook(session: Session, job_id: str) -> bytes | None:
    """Return the sealed webhook of the job as it is stored now."""
    sealed: bytes | None = session.scalar(sa.select(Job.sealed_webhook).where(Job.id == job_id))
    return sealed


class Released(NamedTuple):
    """Jobs whose tables were released."""

    ids: list[str]
    unnamed: list[str]
    """Blobs that no row names now."""
    last: datetime
    """Time at which the last of the jobs ended; without any, the time from which they were looked for."""


LONG_AGO = datetime.min.replace(tzinfo=UTC)


def release_old(session: Session, before: datetime, most: int, since: datetime = LONG_AGO) -> Released:
    """Release the tables of up to ``most`` jobs that ended before a time, the earliest first.

    ``since``: `Released.last` of a previous call, so that a call does not pass the jobs before it again.
    """
    old = session.execute(_HOLDING, {"since": since, "before": before, "most": most}).all()
    ids = [row.id for row in old]
    session.execute(_RELEASE, {"ids": ids})
    blobs = [blob for row in old for blob in row[2:]]
    return Released(ids, unnamed(session, blobs), old[-1].finished_at if old else since)


def delete_old(session: Session, before: datetime, most: int) -> tuple[list[str], list[str]]:
    """Delete up to ``most`` jobs that ended before a time. Return their ids, and blobs no row names now."""
    ids = session.scalars(_OLD, {"before": before, "most": most}).all()
    rows = sorted(session.execute(_DELETE, {"ids": ids}).all(), key=lambda row: row.id)
    blobs = [blob for row in rows for blob in row[1:]]
    return [row.id for row in rows], unnamed(session, blobs)


def unnamed(session: Session, blobs: Collection[str | None]) -> list[str]:
    """Return the blobs that no row names any more; delete their files after the commit.

    The transaction has removed a name of each blob. After this call it only writes idempotency keys and the
    audit log, and commits.

    In SQLite such transactions exclude each other. In PostgreSQL locks prevent two races. First, a
    transaction could name a blob again from the row that is being deleted. It reads the name under a lock
    (FOR SHARE), so either the deletion waits and the query below sees the new name, or the reader finds no
    row. Second, two transactions that remove the last two names could each still see the other's name, and
    neither would delete the blob. Each holds the lock of the blob itself from its query to its commit. Locks
    of blobs are taken after locks of rows, and in sorted order, so that there is no deadlock.
    """
    candidates = {blob for blob in blobs if blob is not None}
    if not candidates:
        return []
    lock_blobs(session, candidates)
    return sorted(candidates - _named(session, candidates))


def lock_blobs(session: Session, blobs: Collection[str]) -> None:
    """Lock the blobs against `unnamed` of other transactions until this transaction has ended.

    This also holds if the response to the commit is lost: a later call of `unnamed` for a new blob waits
    until the fate of that commit is decided.
    """
    if blobs and session.get_bind().dialect.name == "postgresql":
        numbers = [
            int.from_bytes(blake2b(blob.encode(), digest_size=8).digest(), "big", signed=True)
            for blob in sorted(blobs)
        ]
        session.execute(_LOCK_NUMBERS, {"numbers": numbers})


def count_active(session: Session) -> tuple[dict[str, int], datetime | None]:
    """Count queued and running jobs by state; return also the creation time of the oldest queued job."""
    counts = sa.select(Job.state, sa.func.count()).where(Job.state.in_(("queued", "running")))
    found = {state: int(count) for state, count in session.execute(counts.group_by(Job.state))}
    oldest = session.scalar(sa.select(sa.func.min(Job.created_at)).where(Job.state == "queued"))
    return {"queued": 0, "running": 0} | found, oldest


def all_named(session: Session) -> set[str]:
    """Return every blob that a row names."""
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
