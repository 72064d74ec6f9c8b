"""Leases, and what two transactions at once can do to each other, on a real PostgreSQL where it takes two."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.callers import THE_SERVICE
from app.errors import InvalidRequest, Unavailable
from app.settings import Settings
from app.store.sql import buffers, jobs, replicas
from app.store.sql.connection.errors import DatabaseAway, DatabaseUnusable
from app.store.sql.db import Database, Transaction
from app.store.sql.migration import migrate
from app.store.sql.models import Job, Replica
from tests.postgres import Postgres
from tests.unit.app.store.stored_rows import NOW, add, buffer, found, job

KEYS = {"key"}
PATIENCE = 30.0


shared = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
"""Transactions here do not exclude each other by themselves."""


def register(database: Database, name: str, seconds: float = 60.0, key: str = "key") -> None:
    with database.write() as session:
        replicas.register(session, Replica(id=name, key_id=key, folder_id="folder"), seconds, KEYS)


def run_out(database: Database, name: str) -> None:
    with database.write() as session:
        past = replicas.moment(session) - timedelta(seconds=1)
        session.execute(sa.update(Replica).where(Replica.id == name).values(lease_until=past))


class TwoAtOnce:
    """A transaction that stops before its commit, and another one that comes meanwhile."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._threads = ThreadPoolExecutor(2)
        self._go_on = threading.Event()

    def first(self, does: Callable[[Transaction], object]) -> Future[object]:
        """Return when the first has done it, and has not committed."""
        done = threading.Event()

        def run() -> object:
            with self._database.write() as session:
                result = does(session)
                done.set()
                assert self._go_on.wait(PATIENCE)
            return result

        running = self._threads.submit(run)
        assert done.wait(PATIENCE)
        return running

    def second(self, does: Callable[[Transaction], object]) -> Future[object]:
        """Begin the second; the first goes on as soon as that has ended, or waits for a lock."""

        def run() -> object:
            with self._database.write() as session:
                return does(session)

        running = self._threads.submit(run)
        blocked = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        while not running.done():
            with self._database.read() as session:
                if session.scalar(blocked):
                    break
        self._go_on.set()
        return running


def test_a_lease_is_renewed_until_it_was_ended(database: Database) -> None:
    register(database, "a" * 12)
    with database.write() as session:
        assert replicas.renew(session, "a" * 12, 60)
        assert replicas.remove_expired(session, "b" * 12) == []
        assert replicas.alive(session) == {"a" * 12}
    run_out(database, "a" * 12)
    with database.write() as session:
        assert replicas.remove_expired(session, "a" * 12) == []  # nobody ends his own
        replicas.hold(session, ["a" * 12])  # it holds as long as nobody has ended it
        assert replicas.remove_expired(session, "b" * 12) == ["a" * 12]
        assert not replicas.renew(session, "a" * 12, 60)
        with pytest.raises(replicas.LeaseLost):
            replicas.hold(session, ["a" * 12])


def test_a_lease_by_a_clock_that_was_ahead_ends_in_time(database: Database) -> None:
    """Once the clock is right again: else the jobs of a dead replica waited for as long as it was ahead."""
    for name, runs in (("a" * 12, {}), ("b" * 12, None)):  # the second is of a version that does not say
        with database.write() as session:
            replica = Replica(id=name, key_id="key", folder_id="folder", runs=runs)
            replicas.register(session, replica, 60, KEYS)
    with database.write() as session:
        now = replicas.moment(session)
        ahead = now + timedelta(hours=3)
        session.execute(sa.update(Replica).values(lease_until=ahead))
        assert replicas.remove_expired(session, "c" * 12, now) == []
        assert replicas.remove_expired(session, "c" * 12, now + timedelta(seconds=59)) == []
        assert replicas.remove_expired(session, "c" * 12, now + timedelta(seconds=61)) == ["a" * 12]
        assert replicas.remove_expired(session, "c" * 12, ahead + timedelta(seconds=1)) == ["b" * 12]


def test_a_lease_that_was_renewed_since_the_clock_was_read_stays_as_it_is(database: Database) -> None:
    with database.write() as session:
        replica = Replica(id="a" * 12, key_id="key", folder_id="folder", runs={})
        replicas.register(session, replica, 60, KEYS)
        until = replica.lease_until
        assert replicas.remove_expired(session, "b" * 12, until - timedelta(seconds=119)) == []
        assert session.scalar(sa.select(Replica.lease_until)) == until


def test_jobs_are_stalled_when_their_replica_has_no_lease(database: Database) -> None:
    register(database, "a" * 12)
    running = {"state": "running"}
    covered, alone, nobodys = add(
        database,
        job(claimed_by="a" * 12, **running),
        job(claimed_by="b" * 12, **running),
        job(**running),
    )
    add(database, job(), job(state="succeeded", finished_at=NOW))
    with database.write() as session:
        assert [row.id for row in replicas.stalled_jobs(session)] == [alone, nobodys]
        assert [row.id for row in jobs.claimed(session, "a" * 12)] == [covered]
        replicas.remove(session, "a" * 12)
        assert [row.id for row in replicas.stalled_jobs(session)] == [covered, alone, nobodys]


def test_a_cancel_is_seen_by_who_works_on_the_job(database: Database) -> None:
    mine, others, queued = add(
        database,
        job(claimed_by="a" * 12, state="running"),
        job(claimed_by="b" * 12, state="running"),
        job(),
    )
    with database.write() as session:
        for job_id in (mine, others, queued):
            jobs.request_cancel(session, job_id)
        assert jobs.to_cancel(session, "a" * 12) == [mine]
    assert not found(database, queued).cancel_requested


def test_a_replica_is_refused_that_would_seal_with_a_key_which_a_live_one_does_not_have(
    database: Database,
) -> None:
    """Such as after a change of the master key in one step: the other would take its jobs for altered."""

    def register_with(name: str, *keys: str) -> None:
        replica = Replica(id=name * 12, key_id=keys[0], folder_id="folder", runs={"revisions": {}})
        with database.write() as session:
            replicas.register(session, replica, 60, set(keys))

    register_with("a", "old")
    with pytest.raises(replicas.ReplicasDiffer, match="does not have the master key new"):
        register_with("b", "new", "old")
    for name in "bc":
        register_with(name, "old", "new")
    with database.write() as session:
        assert replicas.other_keys(session, "old") == []
        assert replicas.other_keys(session, "new") == ["old"]
        replicas.remove(session, "a" * 12)
    register_with("d", "new", "old")
    with database.write() as session:
        assert replicas.other_keys(session, "old") == ["new"]
        for name in "bc":
            replicas.remove(session, name * 12)
    register_with("e", "new")
    with database.write() as session:  # a version that does not say which keys it has
        session.execute(sa.update(Replica).values(runs=None))
    register_with("f", "newer", "new")


def test_replicas_of_another_signing_key_are_refused(database: Database) -> None:
    """Manifests of one service would have two keys. An older version does not say which one it has."""

    def register_with(name: str, runs: dict[str, Any]) -> None:
        with database.write() as session:
            replica = Replica(id=name * 12, key_id="key", folder_id="folder", runs=runs)
            replicas.register(session, replica, 60, KEYS)

    register_with("a", {})
    register_with("b", {replicas.SIGNER: "one"})
    register_with("c", {replicas.SIGNER: "one"})
    with pytest.raises(replicas.ReplicasDiffer, match=r"the key one, .* the same ROWVEIL_SIGNING_KEY_FILE"):
        register_with("d", {replicas.SIGNER: "two"})


def test_replicas_of_other_keys_or_another_folder_are_refused(database: Database) -> None:
    register(database, "a" * 12)
    with (
        pytest.raises(replicas.ReplicasDiffer, match="the same ROWVEIL_KEY_FILE"),
        database.write() as session,
    ):
        replicas.register(session, Replica(id="b" * 12, key_id="k2", folder_id="folder"), 60, {"k2"})
    other = Replica(id="b" * 12, key_id="key", folder_id="elsewhere")
    with pytest.raises(replicas.ReplicasDiffer, match="ROWVEIL_SHARED_FOLDER"), database.write() as session:
        replicas.register(session, other, 60, KEYS)
    run_out(database, "a" * 12)
    with database.write() as session:  # a dead one's word does not count
        replicas.register(session, Replica(id="c" * 12, key_id="k2", folder_id="folder"), 60, {"k2"})


@shared
def test_the_last_two_names_of_a_blob_go_at_once(database: Database) -> None:
    """Exactly one of them finds that nobody names it any more: not none, and not both."""
    blob = "s" * 32
    ended = {"source_blob": blob, "state": "succeeded", "finished_at": NOW}
    one, other = add(database, job(**ended), job(**ended))
    two = TwoAtOnce(database)

    def delete(job_id: str) -> Callable[[Transaction], object]:
        def run(session: Transaction) -> object:
            assert jobs.delete_ended(session, job_id)
            return jobs.unnamed(session, [blob])

        return run

    first, second = two.first(delete(one)), two.second(delete(other))
    assert sorted([first.result(PATIENCE), second.result(PATIENCE)], key=str) == [["s" * 32], []]


@shared
def test_a_blob_that_is_taken_up_is_not_free(database: Database) -> None:
    """Whichever comes first: the buffer is lent and stays named, or it is gone and is not lent."""
    lent, gone = add(database, buffer(blob="b" * 32), buffer(blob="c" * 32))

    def take_up(buffer_id: str) -> Callable[[Transaction], object]:
        def run(session: Transaction) -> object:
            row = buffers.lend(session, buffer_id, NOW)
            if row is not None:
                jobs.insert(session, job(source_blob=row.blob))
            return row is not None

        return run

    two = TwoAtOnce(database)
    taken = two.first(take_up(lent))
    deleted = two.second(lambda session: buffers.delete(session, lent))
    assert (taken.result(PATIENCE), deleted.result(PATIENCE)) == (True, [])

    two = TwoAtOnce(database)
    deleted = two.first(lambda session: buffers.delete(session, gone))
    taken = two.second(take_up(gone))
    assert (deleted.result(PATIENCE), taken.result(PATIENCE)) == (["c" * 32], False)


@shared
def test_a_lease_is_not_ended_while_something_is_named_under_it(database: Database) -> None:
    """And what comes later than its end is refused; a renewal waits for nobody."""
    register(database, "a" * 12)
    run_out(database, "a" * 12)
    two = TwoAtOnce(database)
    held = two.first(lambda session: replicas.hold(session, ["a" * 12]))
    passed_over = two.second(lambda session: replicas.remove_expired(session, "b" * 12))
    assert (held.result(PATIENCE), passed_over.result(PATIENCE)) == (None, [])

    two = TwoAtOnce(database)
    held = two.first(lambda session: replicas.hold(session, ["a" * 12]))
    renewed = two.second(lambda session: replicas.renew(session, "a" * 12, 60))
    assert renewed.result(PATIENCE) is True
    held.result(PATIENCE)

    run_out(database, "a" * 12)
    two = TwoAtOnce(database)
    ended = two.first(lambda session: replicas.remove_expired(session, "b" * 12))
    late = two.second(lambda session: replicas.hold(session, ["a" * 12]))
    assert ended.result(PATIENCE) == ["a" * 12]
    with pytest.raises(replicas.LeaseLost):
        late.result(PATIENCE)


@shared
def test_who_asks_for_a_new_blob_waits_for_a_commit_that_was_not_announced(database: Database) -> None:
    two = TwoAtOnce(database)

    def name(session: Transaction) -> None:
        jobs.lock_blobs(session, ["n" * 32])
        jobs.insert(session, job(source_blob="n" * 32))

    named = two.first(name)
    unnamed = two.second(lambda session: jobs.unnamed(session, ["n" * 32]))
    named.result(PATIENCE)
    assert unnamed.result(PATIENCE) == []


@shared
def test_claims_pass_over_what_is_being_claimed(database: Database) -> None:
    first_job, second_job = add(database, job(), job())
    two = TwoAtOnce(database)

    def claim(session: Transaction) -> object:
        row = jobs.claim_first(session, "a" * 12, NOW)
        return None if row is None else row.id

    first, second = two.first(claim), two.second(claim)
    assert (first.result(PATIENCE), second.result(PATIENCE)) == (first_job, second_job)


def test_a_database_that_is_away_is_unavailable(postgres: Postgres, tmp_path: Path) -> None:
    """Any transaction may find out; the replica then recovers without help."""
    settings = Settings(home=tmp_path, database_url=postgres.new_database())
    migrate(settings)
    database = Database(settings)
    with database.write() as session:
        session.add(job())
    postgres.kill()
    try:
        for transaction in (database.read, database.write):
            with pytest.raises(Unavailable), transaction() as session:
                session.scalar(sa.select(Job.id))
    finally:
        postgres.start()
    with database.read() as session:
        assert session.scalar(sa.select(sa.func.count(Job.id))) == 1
    database.close()


@pytest.mark.parametrize(
    "address", ["mysql://me:secret@host/x", "postgresql+asyncpg://me:secret@host/x", "secret"]
)
def test_an_address_that_is_none_is_refused_and_not_quoted(address: str, tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusable, match="postgresql://user:password@host/rowveil") as caught:
        Database(Settings(home=tmp_path, database_url=address))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:secret@127.0.0.1:1/x?sslpassword=secret&password=secret", "me@127.0.0.1:1/x"),
        ("postgresql://me:secret@secret@127.0.0.1:1/x", "me@127.0.0.1:1/x"),
        ("postgresql://me:secret@secret/secret@127.0.0.1:1/x", "me@/127.0.0.1%3A1/x"),
    ],
)
def test_a_database_that_is_away_is_named_without_a_password(
    address: str, shown: str, tmp_path: Path
) -> None:
    """Neither one in the query nor the rest of one with an @ or a slash that is not escaped."""
    with pytest.raises(DatabaseAway) as caught:
        migrate(Settings(home=tmp_path, database_url=address))
    assert f"the database postgresql+psycopg://{shown} cannot be opened" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_name_that_the_database_cannot_keep_is_the_callers_fault(
    postgres: Postgres, tmp_path: Path
) -> None:
    """A job of such an id is not there; anything else that is asked for with it is refused."""
    settings = Settings(home=tmp_path, database_url=postgres.new_database())
    migrate(settings)
    database = Database(settings)
    with database.read() as session:
        assert jobs.find(session, "a\0b") is None
        assert buffers.find(session, "a\0b", NOW) is None
    with pytest.raises(InvalidRequest, match=r"U\+0000"), database.read() as session:
        jobs.page(session, None, "a\0b", 1, None, THE_SERVICE, None, None)
    database.close()
