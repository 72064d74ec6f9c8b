"""All SQL about replicas: their leases, and the jobs of dead replicas.

A replica holds a lease and renews it. While the lease holds, the replica owns its running jobs and the blobs
that it has made and no row names yet. A replica that finds an expired lease of another one ends it and takes
over its jobs, in one transaction. A replica that was only late notices this at its next renewal. Nothing that
it does under the old lease has an effect: the end of a job is rejected by the job's attempt, the name of a
blob by `hold`.

Leases are measured by the database's clock only, so that no replica's clock can end or extend one.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.job_kinds import Runs
from app.store.sql.connection.quick_statements import execute
from app.store.sql.migration import NEWEST_REVISION
from app.store.sql.models import Job, Replica, SchemaSupport

_REPLICAS = cast(sa.Table, Replica.__table__)

# FOR KEY SHARE: a renewal of the lease does not wait for it, its end does.
_HELD = sa.select(_REPLICAS.c.id).with_for_update(read=True, key_share=True)

_NOW = sa.select(sa.func.clock_timestamp())

_HELD_ONE = _HELD.where(_REPLICAS.c.id == sa.bindparam("replica"))

_HELD_MANY = _HELD.where(_REPLICAS.c.id.in_(sa.bindparam("replicas", expanding=True)))


KEY_IDS = "keys"
"""Name of the ids of a replica's master keys in `Replica.runs`, where older versions ignore them."""

LEASE_SECONDS = "lease_seconds"
"""Name of the length of a replica's lease in `Replica.runs`, in seconds."""

SIGNER = "signer"
"""Name of the id of a replica's signing key in `Replica.runs`."""


class LeaseLost(Exception):
    """The replica's lease expired, and another replica has ended it."""


class ReplicasDiffer(Exception):
    """Another replica has different keys or a different shared folder, or has changed the tables."""


def moment(session: Session) -> datetime:
    """Return the database's time in UTC; for SQLite, the time of this machine."""
    if session.get_bind().dialect.name == "sqlite":
        return datetime.now(UTC)
    ((now,),), _ = execute(session, _NOW, {})
    assert isinstance(now, datetime)
    return now.astimezone(UTC)  # PostgreSQL gives it in the time zone of the server


def register(
    session: Session,
    replica: Replica,
    seconds: float,
    key_ids: Collection[str],
    schema: str = NEWEST_REVISION,
) -> None:
    """Begin a lease of ``seconds`` seconds.

    ``key_ids`` are the ids of the replica's master keys; ``schema`` is the revision of the tables that this
    version was made for. Raises ReplicasDiffer.
    """
    if session.get(SchemaSupport, schema) is None:  # such as after a pause that a migration fell into
        raise ReplicasDiffer(
            f"the tables have changed, and this version ({schema}) cannot work with them: start the newer one"
        )
    for other in session.scalars(sa.select(Replica).where(Replica.lease_until > moment(session))):
        if other.key_id not in key_ids:
            raise ReplicasDiffer(
                f"another replica seals with the master key {other.key_id}, which is not among those given: "
                "give all replicas the same ROWVEIL_KEY_FILE and ROWVEIL_SIGNING_KEY_FILE"
            )
        known = (other.runs or {}).get(KEY_IDS)  # older versions do not say
        if known is not None and replica.key_id not in known:
            raise ReplicasDiffer(
                f"another replica does not have the master key {replica.key_id}, with which this one would "
                "seal: first give every replica the new key after the old one, and restart it; then put the "
                "new key first. (The lease of a killed replica expires after ROWVEIL_LEASE_SECONDS)"
            )
        signer = (other.runs or {}).get(SIGNER)  # older versions do not say
        if signer is not None and signer != (replica.runs or {}).get(SIGNER, signer):
            raise ReplicasDiffer(
                f"another replica signs manifests with the key {signer}, and this one would with another: "
                "give all replicas the same ROWVEIL_SIGNING_KEY_FILE, which by default is in the home of "
                "each; to change that key, stop all replicas"
            )
        if other.folder_id != replica.folder_id:
            raise ReplicasDiffer(
                "another replica on this database keeps its buffers in another folder: give all of them the "
                "same ROWVEIL_SHARED_FOLDER"
            )
    if replica.runs is not None:
        replica.runs = {**replica.runs, KEY_IDS: sorted(key_ids), LEASE_SECONDS: seconds}
    replica.lease_until = moment(session) + timedelta(seconds=seconds)
    session.add(replica)
    session.flush()


def renew(session: Session, replica_id: str, seconds: float) -> bool:
    """Extend the lease to ``seconds`` seconds from now; False if it has been ended."""
    until = moment(session) + timedelta(seconds=seconds)
    change = sa.update(Replica).where(Replica.id == replica_id).values(lease_until=until)
    return session.scalar(change.returning(Replica.id)) is not None


def hold(session: Session, replica_ids: Collection[str]) -> None:
    """Prevent the end of the replicas' leases until this transaction has ended. Raises LeaseLost.

    So the rows that the transaction writes are visible before another replica can take over.
    """
    if not replica_ids:
        return
    if len(replica_ids) == 1:
        (replica,) = replica_ids
        found, _ = execute(session, _HELD_ONE, {"replica": replica})
    else:
        found = list(session.connection().execute(_HELD_MANY, {"replicas": list(replica_ids)}))
    if {held for (held,) in found} != set(replica_ids):
        raise LeaseLost("this replica's lease expired; it stops its jobs and restarts")


def remove(session: Session, replica_id: str) -> None:
    """End the lease."""
    session.execute(sa.delete(Replica).where(Replica.id == replica_id))


def remove_expired(session: Session, but: str, now: datetime | None = None) -> Sequence[str]:
    """End expired leases except that of the replica ``but``; leases that a transaction holds are skipped.

    ``now``: time at which the caller has read the clock, if it must not have jumped since; None: the
    database's.
    """
    now = now or moment(session)
    shorten_leases(session, but, now)
    expired = sa.select(Replica.id).where(Replica.lease_until < now, Replica.id != but)
    ended = session.scalars(expired.with_for_update(skip_locked=True)).all()
    session.execute(sa.delete(Replica).where(Replica.id.in_(ended)))
    return ended


def shorten_leases(session: Session, but: str, now: datetime) -> None:
    """Shorten a lease that was renewed by a clock which was ahead, and is right again.

    A living replica renews its lease in time. The lease of a dead replica would hold, and its jobs would
    wait, for as long as the clock was ahead. A lease of up to twice its usual length is left alone, because
    it may have been renewed since ``now``.
    """
    held = sa.select(Replica.id, Replica.lease_until, Replica.runs)
    held = held.where(Replica.lease_until > now, Replica.id != but).order_by(Replica.id)
    for name, until, runs in session.execute(held).all():
        seconds = (runs or {}).get(LEASE_SECONDS)  # older versions do not say
        if seconds is not None and until > now + 2 * timedelta(seconds=seconds):
            change = sa.update(Replica).where(Replica.id == name, Replica.lease_until == until)
            session.execute(change.values(lease_until=now + timedelta(seconds=seconds)))


def remove_all(session: Session) -> None:
    """End every lease; for an embedded database, which no other process can have open."""
    session.execute(sa.delete(Replica))


def alive(session: Session) -> set[str]:
    """Return the replicas whose lease has not been ended."""
    return set(session.scalars(sa.select(Replica.id)))


def working(session: Session) -> dict[str, datetime]:
    """Return the replicas whose lease has not expired -> the time until which it holds, in UTC."""
    held = sa.select(Replica.id, Replica.lease_until).where(Replica.lease_until > moment(session))
    return {name: until.astimezone(UTC) for name, until in session.execute(held)}


def other_keys(session: Session, key_id: str) -> list[str]:
    """Return the ids of the master keys that replicas with a valid lease seal with, except ``key_id``."""
    found = sa.select(Replica.key_id).where(Replica.lease_until > moment(session), Replica.key_id != key_id)
    return sorted(set(session.scalars(found)))


def others_may_have(session: Session, replica_id: str, key_id: str) -> bool:
    """Whether another replica with a valid lease has a master key, or does not say which ones it has."""
    others = sa.select(Replica.runs).where(Replica.lease_until > moment(session), Replica.id != replica_id)
    return any(
        runs is None or KEY_IDS not in runs or key_id in runs[KEY_IDS] for runs in session.scalars(others)
    )


def living_runs(session: Session) -> list[Runs] | None:
    """Return the revisions that replicas with a lease can run; None if a replica does not list them."""
    documents = session.scalars(sa.select(Replica.runs)).all()
    known = [Runs.from_document(document) for document in documents if document is not None]
    return known if len(known) == len(documents) else None


def folder_ids(session: Session) -> set[str]:
    """Return the ids of the folders that leases name, expired ones included."""
    return set(session.scalars(sa.select(Replica.folder_id)))


def jobs_without_lease(session: Session) -> Sequence[tuple[str, int]]:
    """Return id and attempt of running jobs whose replica's lease has expired or was ended."""
    held = sa.exists().where(Replica.id == Job.claimed_by, Replica.lease_until >= moment(session))
    found = sa.select(Job.id, Job.attempt).where(Job.state == "running", sa.not_(held)).order_by(Job.id)
    return [(row.id, row.attempt) for row in session.execute(found)]


def stalled_jobs(session: Session) -> Sequence[Job]:
    """Return running jobs without a lease, locked; jobs that another transaction is moving are skipped."""
    without_lease = sa.not_(sa.exists().where(Replica.id == Job.claimed_by))
    stalled = sa.select(Job).where(Job.state == "running", without_lease).order_by(Job.id)
    return session.scalars(stalled.with_for_update(skip_locked=True)).all()
