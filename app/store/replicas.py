"""All SQL about replicas: who is alive, and what the dead have left.

A replica holds a lease, which it renews; all that it works on, jobs and blobs that no row names
yet, is its own for as long. Whoever finds a lease run out ends it, and takes what was under it, in
one transaction. A replica that was only late learns of it by its next renewal, and nothing that it
does under the old name counts any more: a job's end by the job's attempt, a blob's name by `hold`.

Leases are measured by the database's clock alone: no replica's own can end or prolong one.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.store.models import Job, Replica

# A key share: a renewal does not wait for it, an end does.
_HELD = (
    sa.select(Replica.id)
    .where(Replica.id.in_(sa.bindparam("replicas", expanding=True)))
    .with_for_update(read=True, key_share=True)
)


class LeaseLost(Exception):
    """The replica was taken for dead."""


class ReplicasDiffer(Exception):
    """Another replica has other keys, or another folder."""


def moment(session: Session) -> datetime:
    """The database's time, which for SQLite is this machine's."""
    if session.get_bind().dialect.name == "sqlite":
        return datetime.now(UTC)
    told = session.scalar(sa.select(sa.func.clock_timestamp()))
    assert isinstance(told, datetime)
    return told


def register(session: Session, replica: Replica, seconds: float, key_ids: Collection[str]) -> None:
    """Begin a lease of so many seconds.

    ``key_ids``: the master keys that this replica can open with. Raises ReplicasDiffer.
    """
    for other in session.scalars(sa.select(Replica).where(Replica.lease_until > moment(session))):
        if other.key_id not in key_ids:
            raise ReplicasDiffer(
                f"another replica seals with the master key {other.key_id}, which is not among those given: "
                "give all replicas the same ROWVEIL_KEY_FILE and ROWVEIL_SIGNING_KEY_FILE"
            )
        if other.folder_id != replica.folder_id:
            raise ReplicasDiffer(
                "another replica on this database keeps its buffers in another folder: give all of them the "
                "same ROWVEIL_SHARED_FOLDER"
            )
    replica.lease_until = moment(session) + timedelta(seconds=seconds)
    session.add(replica)
    session.flush()


def renew(session: Session, replica_id: str, seconds: float) -> bool:
    """Prolong the lease to so many seconds from now; False where it was ended."""
    until = moment(session) + timedelta(seconds=seconds)
    change = sa.update(Replica).where(Replica.id == replica_id).values(lease_until=until)
    return session.scalar(change.returning(Replica.id)) is not None


def hold(session: Session, replica_ids: Collection[str]) -> None:
    """Keep the replicas' leases from being ended before this transaction has ended. Raises LeaseLost.

    What the transaction writes is there before anybody can take up what was under the lease.
    """
    if not replica_ids:
        return
    if set(session.scalars(_HELD, {"replicas": list(replica_ids)})) != set(replica_ids):
        raise LeaseLost("this replica was taken for dead, and begins anew")


def remove(session: Session, replica_id: str) -> None:
    """End the lease."""
    session.execute(sa.delete(Replica).where(Replica.id == replica_id))


def remove_expired(session: Session, but: str) -> Sequence[str]:
    """End the leases that have run out, but for one's own; one that is in use is passed over."""
    expired = sa.select(Replica.id).where(Replica.lease_until < moment(session), Replica.id != but)
    found = session.scalars(expired.with_for_update(skip_locked=True)).all()
    session.execute(sa.delete(Replica).where(Replica.id.in_(found)))
    return found


def remove_all(session: Session) -> None:
    """End every lease, of a database that nobody else can have open."""
    session.execute(sa.delete(Replica))


def alive(session: Session) -> set[str]:
    """The replicas whose lease was not ended."""
    return set(session.scalars(sa.select(Replica.id)))


def stalled_jobs(session: Session) -> Sequence[Job]:
    """Running jobs whose replica's lease was ended, locked; those that are being moved are passed over."""
    alone = sa.not_(sa.exists().where(Replica.id == Job.claimed_by))
    stalled = sa.select(Job).where(Job.state == "running", alone).order_by(Job.id)
    return session.scalars(stalled.with_for_update(skip_locked=True)).all()
