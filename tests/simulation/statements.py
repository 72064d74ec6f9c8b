"""The statements of `app.store.sql` on the server in memory, each with the signature of the real one.

`test_statements.py` runs the same calls on both and compares what they return and leave.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import cache, wraps
from typing import Any

from app.callers import THE_SERVICE, Caller
from app.errors import Unavailable
from app.job_kinds import Runs, own_runs
from app.store.sql.bindings import ROLES, NamedBlob, Role, blob_of_buffer, table_binding
from app.store.sql.jobs import LONG_AGO, Released
from app.store.sql.models import IdempotencyKey, Job, Replica
from app.store.sql.replicas import LeaseLost
from app.store.sql.usage import ActiveUsage
from tests.simulation.database import BEGIN, MOST_LOCKS, Mode, Row, Session, SimulatedDatabase

_ACTIVE = ("queued", "running")

_BLOBS = tuple(f"{role}_blob" for role in ROLES)

_SMALL = tuple(f"sealed_{role}" for role in ROLES)


class Found:
    """A row as a statement returns it, with the attributes of the model."""

    def __init__(self, row: Row) -> None:
        self.__dict__.update(row)

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self.__dict__["finished_at"] is not None


def time_of(seconds: float) -> datetime:
    """Return the database's time at a virtual time."""
    return BEGIN + timedelta(seconds=seconds)


def moment(session: Session) -> datetime:
    """See `app.store.sql.replicas.moment`."""
    return time_of(session.server.scheduler.now)


def _statement(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let others run before the statement."""

    @wraps(function)
    def run(session: Session, *args: Any, **kwargs: Any) -> Any:
        session.step()
        return function(session, *args, **kwargs)

    return run


# ------------------------------------------------------------------------------------------------ jobs


@cache
def _defaults(model: Any) -> Row:
    """Return the default of each column of a model; None where it has none."""
    return {
        column.name: None if column.default is None else column.default.arg
        for column in model.__table__.columns
    }


def _columns(job: Any, model: Any) -> Row:
    # Only the columns that were given are in the dictionary of a new row.
    given = {name: value for name, value in vars(job).items() if value is not None}
    defaults = _defaults(model)
    return {name: given.get(name, default) for name, default in defaults.items()}


def _claimable(runs: Runs) -> Callable[[Row], bool]:
    def claimable(row: Row) -> bool:
        if row["state"] != "queued" or (row["service"], row["revision"]) not in runs.revisions:
            return False
        options = row["options"] or {}
        return "candidates" not in options or options.get("choice_revision", "1") == runs.choice

    return claimable


def _visible(caller: Caller) -> Callable[[Row], bool]:
    def visible(row: Row) -> bool:
        return (
            caller.sees_all
            or row["owner"] == caller.owner
            or (caller.project is not None and row["project"] == caller.project)
        )

    return visible


def _owned(caller: Caller) -> Callable[[Row], bool]:
    return lambda row: caller.sees_all or row["owner"] == caller.owner


@_statement
def insert(session: Session, job: Job) -> None:
    row = _columns(job, Job)
    for name, default in _defaults(Job).items():
        if default is not None and getattr(job, name) is None:
            setattr(job, name, default)
    session.insert("jobs", job.id, row)


@_statement
def find(session: Session, job_id: str, *deferred: str, caller: Caller = THE_SERVICE) -> Found | None:
    row = session.row("jobs", job_id)
    return None if row is None or not _visible(caller)(row) else Found(row)


@_statement
def claim_first(
    session: Session,
    replica: str,
    now: datetime,
    runs: Runs | None = None,
    until_turn: datetime | None = None,
) -> Found | None:
    fits = _claimable(runs or own_runs())

    def claimable(row: Row) -> bool:
        return fits(row) and (until_turn is None or row["ranked_at"] <= until_turn)

    first = session.matching(
        "jobs", claimable, Mode.UPDATE, True, lambda row: (row["ranked_at"], row["id"]), 1
    )
    for key, row in first:
        values = {"state": "running", "started_at": now, "claimed_by": replica, "attempt": row["attempt"] + 1}
        session.update("jobs", lambda row: row["state"] == "queued", [key], **values)
        advance(session, row["ranked_at"])
        return Found(row | values)
    return None


@_statement
def advance(session: Session, turn: datetime) -> None:
    session.update("queue", lambda row: row["turn"] < turn, [1], turn=turn)


@_statement
def any_queued(session: Session, runs: Runs | None = None) -> bool:
    claimable = _claimable(runs or own_runs())
    return any(claimable(row) for _, row in session.rows("jobs"))


@_statement
def queued_for_nobody(session: Session, living: Collection[Runs]) -> Sequence[Found]:
    tests = [_claimable(runs) for runs in living]
    rows = [row for _, row in session.rows("jobs") if row["state"] == "queued"]
    return [Found(row) for row in rows if not any(test(row) for test in tests)]


@_statement
def move(
    session: Session,
    job_id: str,
    sources: Collection[str],
    target: str,
    attempt: int | None = None,
    **values: Any,
) -> bool:
    states = {str(state) for state in sources}

    def movable(row: Row) -> bool:
        return row["state"] in states and (attempt is None or row["attempt"] == attempt)

    return session.update("jobs", movable, [job_id], state=str(target), **values) == 1


@_statement
def request_cancel(session: Session, job_id: str) -> None:
    session.update("jobs", lambda row: row["state"] == "running", [job_id], cancel_requested=True)


def _claimed_by(replica: str) -> Callable[[Row], bool]:
    return lambda row: row["state"] == "running" and row["claimed_by"] == replica


@_statement
def claimed(session: Session, replica: str) -> Sequence[Found]:
    return [Found(row) for _, row in session.matching("jobs", _claimed_by(replica))]


@_statement
def to_cancel(session: Session, replica: str) -> Sequence[str]:
    found = session.matching("jobs", _claimed_by(replica))
    return [row["id"] for _, row in found if row["cancel_requested"]]


def any_news(database: SimulatedDatabase, replica: str) -> bool:
    with database.read() as session:
        return any_queued(session) or bool(to_cancel(session, replica))


def any_overdue(database: SimulatedDatabase) -> bool:
    with database.read() as session:
        return bool(overdue(session, moment(session)))


@_statement
def claims_and_ends(session: Session, job_ids: Collection[str]) -> dict[str, tuple[int, bool]]:
    rows = {job_id: session.row("jobs", job_id) for job_id in job_ids}
    return {
        job_id: (row["attempt"], row["finished_at"] is not None)
        for job_id, row in rows.items()
        if row is not None
    }


@_statement
def running(session: Session) -> set[tuple[str, int]]:
    return {(row["id"], row["attempt"]) for _, row in session.rows("jobs") if row["state"] == "running"}


@_statement
def overdue(session: Session, now: datetime) -> Sequence[Found]:
    def late(row: Row) -> bool:
        return row["state"] == "queued" and row["deadline"] is not None and row["deadline"] <= now

    return [Found(row) for _, row in session.matching("jobs", late)]


@_statement
def delete_ended(session: Session, job_id: str) -> bool:
    return bool(session.delete("jobs", [job_id], lambda row: row["state"] not in _ACTIVE))


@_statement
def retained(session: Session, role: Role, job: Any, now: datetime, caller: Caller) -> NamedBlob | None:
    session.lock("jobs", job.id, Mode.SHARE)
    own = session.row("jobs", job.id)
    if own is not None and own[f"{role}_blob"] is not None:
        return NamedBlob(own[f"{role}_blob"], own[f"sealed_{role}_key"], table_binding(job, role))
    buffer = lend(session, getattr(job, f"{role}_buffer"), now, caller)
    return None if buffer is None else blob_of_buffer(buffer)


@_statement
def retained_table(session: Session, role: Role, job_id: str) -> bytes | None:
    row = session.row("jobs", job_id)
    return None if row is None else row[f"sealed_{role}"]


@_statement
def sealed_webhook(session: Session, job_id: str) -> bytes | None:
    row = session.row("jobs", job_id)
    return None if row is None else row["sealed_webhook"]


@_statement
def release_old(session: Session, before: datetime, most: int, since: datetime = LONG_AGO) -> Released:
    def old(row: Row) -> bool:
        held = any(row[column] is not None for column in (*_BLOBS, *_SMALL))
        return _ended_before(row, before) and row["finished_at"] >= since and held

    found = session.matching(
        "jobs", old, Mode.UPDATE, True, lambda row: (row["finished_at"], row["id"]), most
    )
    ids = [key for key, _ in found]
    columns = (*_BLOBS, *_SMALL, *(f"{column}_key" for column in _SMALL))
    session.update("jobs", lambda row: True, ids, **dict.fromkeys(columns))
    blobs = unnamed(session, [row[column] for _, row in found for column in _BLOBS])
    return Released(ids, blobs, found[-1][1]["finished_at"] if found else since)


@_statement
def delete_old(session: Session, before: datetime, most: int) -> tuple[list[str], list[str]]:
    def old(row: Row) -> bool:
        return _ended_before(row, before)

    found = session.matching("jobs", old, Mode.UPDATE, True, lambda row: row["finished_at"], most)
    gone = session.delete("jobs", [key for key, _ in found])
    gone.sort(key=lambda row: row["id"])
    blobs = [blob for row in gone for blob in (row[column] for column in _BLOBS)]
    return [row["id"] for row in gone], unnamed(session, blobs)


def _ended_before(row: Row, before: datetime) -> bool:
    return row["finished_at"] is not None and row["finished_at"] < before


@_statement
def unnamed(session: Session, blobs: Collection[str | None]) -> list[str]:
    candidates = {blob for blob in blobs if blob is not None}
    if not candidates:
        return []
    lock_blobs(session, candidates)
    return sorted(candidates - _named(session))


@_statement
def lock_blobs(session: Session, blobs: Collection[str]) -> None:
    for blob in sorted(blobs):
        if session.server.blob_locks >= MOST_LOCKS:
            raise Unavailable("out of shared memory")
        session.lock("blob locks", blob, Mode.UPDATE)


@_statement
def all_named(session: Session) -> set[str]:
    return _named(session)


def _named(session: Session) -> set[str]:
    names = {row["blob"] for _, row in session.rows("buffers")}
    for _, row in session.rows("jobs"):
        names |= {row[column] for column in _BLOBS}
    return names - {None}


# -------------------------------------------------------------------------------------------- replicas


@_statement
def register(
    session: Session, replica: Replica, seconds: float, key_ids: Collection[str], schema: str = ""
) -> None:
    until = moment(session) + timedelta(seconds=seconds)
    session.insert("replicas", replica.id, _columns(replica, Replica) | {"lease_until": until})


@_statement
def renew(session: Session, replica_id: str, seconds: float) -> bool:
    until = moment(session) + timedelta(seconds=seconds)
    return session.update("replicas", lambda row: True, [replica_id], lease_until=until) == 1


def _has_id(name: str) -> Callable[[Row], bool]:
    return lambda row: row["id"] == name


@_statement
def hold(session: Session, replica_ids: Collection[str]) -> None:
    for name in sorted(replica_ids):
        if not session.matching("replicas", _has_id(name), Mode.KEY_SHARE):
            raise LeaseLost("this replica's lease expired; it stops its jobs and restarts")


@_statement
def remove(session: Session, replica_id: str) -> None:
    session.delete("replicas", [replica_id])


@_statement
def remove_expired(session: Session, but: str, now: datetime | None = None) -> Sequence[str]:
    read_at = now or moment(session)

    def expired(row: Row) -> bool:
        return bool(row["lease_until"] < read_at and row["id"] != but)

    ended = [key for key, _ in session.matching("replicas", expired, Mode.UPDATE, True)]
    session.delete("replicas", ended)
    return ended


@_statement
def alive(session: Session) -> set[str]:
    return {key for key, _ in session.rows("replicas")}


@_statement
def living_runs(session: Session) -> list[Runs] | None:
    documents = [row["runs"] for _, row in session.rows("replicas")]
    known = [Runs.from_document(document) for document in documents if document is not None]
    return known if len(known) == len(documents) else None


@_statement
def jobs_without_lease(session: Session) -> Sequence[tuple[str, int]]:
    now = moment(session)
    held = {key for key, row in session.rows("replicas") if row["lease_until"] >= now}
    rows = [row for _, row in session.rows("jobs") if row["state"] == "running"]
    return sorted((row["id"], row["attempt"]) for row in rows if row["claimed_by"] not in held)


@_statement
def stalled_jobs(session: Session) -> Sequence[Found]:
    living = {key for key, _ in session.rows("replicas")}

    def stalled(row: Row) -> bool:
        return row["state"] == "running" and row["claimed_by"] not in living

    found = session.matching("jobs", stalled, Mode.UPDATE, True, lambda row: row["id"])
    return [Found(row) for _, row in found]


# --------------------------------------------------------------------------- buffers, callers, keys, messages


@_statement
def find_buffer(
    session: Session, buffer_id: str, now: datetime, caller: Caller = THE_SERVICE
) -> Found | None:
    row = session.row("buffers", buffer_id)
    return Found(row) if row is not None and row["expires_at"] > now and _owned(caller)(row) else None


@_statement
def lend(session: Session, buffer_id: str, now: datetime, caller: Caller = THE_SERVICE) -> Found | None:
    def lent(row: Row) -> bool:
        return row["id"] == buffer_id and row["expires_at"] > now and _owned(caller)(row)

    found = session.matching("buffers", lent, Mode.SHARE)
    return Found(found[0][1]) if found else None


@_statement
def delete_expired_buffers(session: Session, now: datetime, most: int) -> tuple[list[str], list[str]]:
    def expired(row: Row) -> bool:
        return bool(row["expires_at"] <= now)

    found = session.matching("buffers", expired, Mode.UPDATE, True, lambda row: row["expires_at"], most)
    gone = session.delete("buffers", [key for key, _ in found])
    return [row["id"] for row in gone], unnamed(session, [row["blob"] for row in gone])


@_statement
def lock_usage(session: Session, owner: str, now: datetime) -> None:
    session.lock("callers", owner, Mode.UPDATE)
    session.written["callers", owner] = {"owner": owner, "seen_at": now}


@_statement
def active(session: Session, owner: str, priority: str) -> ActiveUsage:
    own = [row for _, row in session.rows("jobs") if row["owner"] == owner and row["state"] in _ACTIVE]
    turns = [row["ranked_at"] for row in own if row["priority"] == priority]
    queue = session.row("queue", 1)
    assert queue is not None
    rows, size = sum(row["row_count"] for row in own), sum(row["byte_size"] for row in own)
    return ActiveUsage(len(own), rows, size, max(turns, default=None), queue["turn"])


@_statement
def forget_unseen(session: Session, before: datetime, most: int) -> int:
    unseen = session.matching("callers", lambda row: row["seen_at"] < before, Mode.UPDATE, True, None, most)
    return len(session.delete("callers", [key for key, _ in unseen]))


@_statement
def find_key(session: Session, owner: str, key: str, now: datetime) -> Found | None:
    row = session.row("keys", (owner, key))
    return Found(row) if row is not None and row["expires_at"] > now else None


@_statement
def keep_key(session: Session, key: IdempotencyKey) -> None:
    session.delete("keys", [(key.owner, key.key)])
    session.lock("keys", (key.owner, key.key), Mode.UPDATE)
    session.written["keys", (key.owner, key.key)] = _columns(key, IdempotencyKey)


@_statement
def forget_keys(session: Session, resources: Sequence[str]) -> None:
    keys = [name for name, row in session.rows("keys") if row["resource"] in resources]
    session.delete("keys", keys)


@_statement
def delete_expired_keys(session: Session, now: datetime, most: int) -> int:
    found = session.matching(
        "keys", lambda row: row["expires_at"] <= now, Mode.UPDATE, True, lambda row: row["expires_at"], most
    )
    return len(session.delete("keys", [key for key, _ in found]))


@_statement
def insert_message(session: Session, delivery: Any) -> None:
    session.insert("deliveries", delivery.id, {"job_id": delivery.job_id, "ended_at": None})


@_statement
def delete_old_messages(session: Session, before: datetime, most: int) -> int:
    found = session.matching(
        "deliveries",
        lambda row: row["ended_at"] is not None and row["ended_at"] < before,
        Mode.UPDATE,
        True,
        None,
        most,
    )
    return len(session.delete("deliveries", [key for key, _ in found]))


STATEMENTS: dict[str, dict[str, Callable[..., Any]]] = {
    "app.store.sql.jobs": {
        function.__name__: function
        for function in (
            insert,
            find,
            claim_first,
            advance,
            any_queued,
            queued_for_nobody,
            move,
            request_cancel,
            claimed,
            to_cancel,
            any_news,
            any_overdue,
            claims_and_ends,
            running,
            overdue,
            delete_ended,
            retained,
            retained_table,
            sealed_webhook,
            release_old,
            delete_old,
            unnamed,
            lock_blobs,
            all_named,
        )
    },
    "app.store.sql.replicas": {
        function.__name__: function
        for function in (
            moment,
            register,
            renew,
            hold,
            remove,
            remove_expired,
            alive,
            living_runs,
            jobs_without_lease,
            stalled_jobs,
        )
    },
    "app.store.sql.buffers": {"find": find_buffer, "lend": lend, "delete_expired": delete_expired_buffers},
    "app.store.sql.usage": {"lock": lock_usage, "active": active, "forget_unseen": forget_unseen},
    "app.store.sql.idempotency": {
        "find": find_key,
        "keep": keep_key,
        "forget": forget_keys,
        "delete_expired": delete_expired_keys,
    },
    "app.store.sql.webhook_outbox": {"insert": insert_message, "delete_old": delete_old_messages},
}
"""Module -> name -> the statement that takes its place."""
