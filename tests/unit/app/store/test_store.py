"""The SQL of jobs and buffers, on a database that the migrations made."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, IntegrityError, StatementError
from sqlalchemy.orm import Session

from app.callers import THE_SERVICE, Caller
from app.errors import Unavailable
from app.ids import new_id
from app.job_kinds import Runs, own_runs
from app.settings import Settings
from app.store.sql import buffers, idempotency, jobs, pages
from app.store.sql import usage as callers
from app.store.sql import webhook_outbox as deliveries
from app.store.sql.audit.trail import AuditTrail
from app.store.sql.bindings import Role
from app.store.sql.db import Database, Transaction
from app.store.sql.models import HOLDING, AuditLine, IdempotencyKey, Job, Queue
from providers import PROVIDERS
from tests.unit.app.store.stored_rows import NOW, add, buffer, found, job


def kept_key(resource: str) -> IdempotencyKey:
    return IdempotencyKey(
        owner="anonymous", key="k", fingerprint="f", resource=resource, expires_at=NOW + timedelta(hours=24)
    )


def test_a_job_comes_back_as_it_was(database: Database) -> None:
    (job_id,) = add(database, job(events=[{"code": "x", "row": 1}], event_counts={"x": 2**40}))
    row = found(database, job_id, "sealed_seed", "sealed_report", "manifest")
    assert row.parameters == {"swap_fields": ["income"]}
    assert row.event_counts == {"x": 2**40}
    assert (row.sealed_seed, row.sealed_report, row.manifest) == (b"sealed", None, None)
    assert row.created_at == NOW
    assert not row.ended


def test_moments_lie_in_utc_and_need_a_zone(database: Database) -> None:
    dublin_summer = timezone(timedelta(hours=1))
    (job_id,) = add(database, job(created_at=NOW.astimezone(dublin_summer)))
    read = found(database, job_id).created_at
    assert (read, read.tzinfo) == (NOW, UTC)
    with pytest.raises(StatementError, match="needs a time zone"):
        add(database, job(created_at=NOW.replace(tzinfo=None)))


def test_a_state_that_is_none_is_refused(database: Database) -> None:
    with pytest.raises(IntegrityError, match="ck_jobs_state"):
        add(database, job(state="lost"))


def test_claims_take_the_oldest_first_and_each_job_once(database: Database) -> None:
    ids = add(database, *(job() for _ in range(20)))

    def claim(instance: str) -> list[str]:
        claimed: list[str] = []
        while True:
            with database.write() as session:
                row = jobs.claim_first(session, instance, NOW)
            if row is None:
                return claimed
            assert (row.state, row.attempt, row.claimed_by, row.sealed_seed) == (
                "running",
                1,
                instance,
                b"sealed",
            )
            claimed.append(row.id)

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(claim, "abcd"))
    assert sorted(job_id for result in results for job_id in result) == sorted(ids)
    assert all(result == sorted(result) for result in results)


def test_an_end_is_recorded_once_and_only_by_its_own_claim(database: Database) -> None:
    (job_id,) = add(database, job())
    with database.write() as session:
        jobs.claim_first(session, "one", NOW)
        assert jobs.move(session, job_id, ["running"], "queued", attempt=1)
        again = jobs.claim_first(session, "two", NOW)
        assert again is not None
        assert again.attempt == 2
    with database.write() as session:
        assert not jobs.move(session, job_id, ["running"], "succeeded", attempt=1)
        assert jobs.move(session, job_id, ["running"], "failed", attempt=2, finished_at=NOW)
        assert not jobs.move(session, job_id, ["running"], "succeeded", attempt=2)
    assert (found(database, job_id).state, found(database, job_id).ended) == ("failed", True)


def newest(
    session: Session, state: str | None, service: str | None, limit: int, before: str | None
) -> Sequence[Job]:
    return jobs.page(session, state, service, limit, before, THE_SERVICE, None, None)[0]


def test_pages_are_stable_while_jobs_come_in(database: Database) -> None:
    ids = add(database, *(job() for _ in range(5)))
    with database.read() as session:
        first = newest(session, None, None, 2, None)
    add(database, job(), job(service="CDSWAP"))
    with database.read() as session:
        second = newest(session, None, None, 9, first[-1].id)
        assert len(newest(session, None, "CDSWAP", 9, None)) == 1
        assert newest(session, "running", None, 9, None) == []
    assert [row.id for row in [*first, *second]] == ids[::-1]


WIDE = [{"name": f"field {number}", "type": "int64"} for number in range(100)]


def test_a_page_has_as_many_rows_as_its_json_permits(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 jobs of 100,000 fields took twelve gigabytes at once."""
    monkeypatch.setattr(pages, "MOST_CHARACTERS", 10_000)
    wide = {"source_fields": WIDE, "destination_fields": WIDE}
    ids = add(database, *(job(**(wide if number % 2 else {})) for number in range(9)), job(events=WIDE * 9))
    seen: list[list[str]] = []
    last: str | None = None
    while last is not None or not seen:
        with database.read() as session:
            rows, last = jobs.page(session, None, None, 5, last, THE_SERVICE, None, None)
        seen.append([row.id for row in rows])
    assert [*chain.from_iterable(seen)] == ids[::-1]
    assert [len(page) for page in seen] == [1, 3, 2, 2, 2]  # one job alone may be larger


def test_pages_of_small_rows_have_the_wanted_length(database: Database) -> None:
    ids = add(database, *(buffer() for _ in range(5)))
    with database.read() as session:
        first, last = buffers.page(session, NOW, 3, None, THE_SERVICE, None, None)
        second, end = buffers.page(session, NOW, 3, last, THE_SERVICE, None, None)
        assert buffers.page(session, NOW, 5, None, THE_SERVICE, None, None)[1] is None
        assert buffers.page(session, NOW, 5, None, THE_SERVICE, "none", None) == ([], None)
    assert [row.id for row in [*first, *second]] == ids[::-1]
    assert (len(first), last, end) == (3, ids[2], None)


def test_an_idempotency_key_is_taken_once(database: Database) -> None:
    with database.write() as session:
        idempotency.keep(session, kept_key("one"))
    with database.read() as session:
        known = idempotency.find(session, "anonymous", "k", NOW)
        assert known is not None
        assert (known.resource, known.fingerprint) == ("one", "f")
        assert idempotency.find(session, "somebody else", "k", NOW) is None
        assert idempotency.find(session, "anonymous", "k", NOW + timedelta(hours=24)) is None


def test_an_idempotency_key_is_used_again_when_its_time_is_over_or_its_job_gone(database: Database) -> None:
    with database.write() as session:
        idempotency.keep(session, kept_key("one"))
    with database.write() as session:
        idempotency.keep(session, kept_key("two"))
        found = idempotency.find(session, "anonymous", "k", NOW)
        assert found is not None
        assert found.resource == "two"
        idempotency.forget(session, ["two"])
        assert idempotency.find(session, "anonymous", "k", NOW) is None
        idempotency.keep(session, kept_key("three"))
    with database.write() as session:
        assert idempotency.delete_expired(session, NOW, 9) == 0
        assert idempotency.delete_expired(session, NOW + timedelta(hours=24), 9) == 1


def test_a_claim_takes_the_first_turn_up_to_a_limit(database: Database) -> None:
    """Equal turns start in the order of acceptance."""
    turns = {"third": 9, "first": 1, "second": 1, "last": 12}
    rows = [job(ranked_at=NOW + timedelta(seconds=turn)) for turn in turns.values()]
    names = dict(zip(add(database, *rows), turns, strict=True))

    def claimed(seconds: int | None) -> str | None:
        until = None if seconds is None else NOW + timedelta(seconds=seconds)
        with database.write() as session:
            row = jobs.claim_first(session, "one", NOW, None, until)
        return None if row is None else names[row.id]

    def clock() -> datetime | None:
        with database.read() as session:
            return callers.active(session, "anonymous", "normal").clock

    with database.write() as session:
        session.execute(sa.update(Queue).values(turn=NOW))
    found = [claimed(limit) for limit in (0, 1, 8, 8, 9)]
    assert found == [None, "first", "second", None, "third"]
    assert clock() == NOW + timedelta(seconds=9)
    with database.write() as session:
        jobs.advance(session, NOW)  # the virtual time never goes back
    assert clock() == NOW + timedelta(seconds=9)
    assert [claimed(None), claimed(None)] == ["last", None]


def plan(database: Database, statement: sa.Select[Any], **values: Any) -> str:
    """Plan of a statement, on PostgreSQL that of large tables."""
    with database.write() as session:
        compiled = statement.compile(session.connection())
        assert isinstance(compiled, sa.sql.compiler.SQLCompiler)
        given: Any = compiled.construct_params(values)
        if database.shared:
            for step in ("seqscan", "bitmapscan", "sort"):
                session.execute(sa.text(f"SET LOCAL enable_{step} = off"))
        else:
            given = tuple(given[name] for name in compiled.positiontup or ())
        explain = "EXPLAIN" if database.shared else "EXPLAIN QUERY PLAN"
        rows = session.connection().exec_driver_sql(f"{explain} {compiled}", given)
        return "\n".join(str(row[-1]) for row in rows)


def test_a_claim_of_messages_and_a_purge_read_by_indexes(database: Database) -> None:
    """None of them reads the other messages of an owner, or the jobs whose tables are gone."""
    heads = plan(database, deliveries._HEADS, most=8)
    assert heads.count("ix_deliveries_owner_receiver_due_at_id") >= 3, heads
    due = sa.select(Job.id).where(Job.finished_at < sa.bindparam("before"), sa.text(HOLDING))
    assert "ix_jobs_holding" in plan(database, due, before="2026-01-01")


def test_what_an_owner_has_going_and_keeps_is_counted(database: Database) -> None:
    add(
        database,
        job(byte_size=10),
        job(byte_size=20, state="running"),
        job(byte_size=40, state="failed"),
        job(byte_size=80, owner="somebody else"),
        buffer(byte_size=5),
        buffer(byte_size=7, expires_at=NOW),
        buffer(byte_size=9, owner="somebody else"),
    )
    with database.write() as session:
        callers.lock(session, "anonymous", NOW)
        callers.lock(session, "anonymous", NOW)
        active = callers.active(session, "anonymous", "normal")
        clock = active.clock
        assert active == callers.ActiveUsage(2, 6, 30, NOW, clock)
        assert callers.active(session, "anonymous", "high").own_turn is None
        assert callers.active(session, "nobody", "normal") == callers.ActiveUsage(0, 0, 0, None, clock)
        assert callers.stored(session, "anonymous", NOW) == callers.StoredUsage(5, NOW + timedelta(hours=1))
        assert callers.stored(session, "nobody", NOW) == callers.StoredUsage(0, None)


def test_a_shared_blob_is_free_when_its_last_name_is_gone(database: Database) -> None:
    shared, own = "s" * 32, "o" * 32
    first, second, uploaded = add(
        database,
        job(source_blob=shared, state="succeeded", destination_blob=own),
        job(source_blob=shared, state="succeeded"),
        buffer(blob=shared),
    )
    with database.write() as session:
        assert jobs.delete_ended(session, first)
        assert jobs.unnamed(session, [shared, own, None]) == [own]
        assert buffers.delete(session, uploaded) == []
        assert buffers.delete(session, uploaded) is None
    with database.write() as session:
        assert jobs.all_named(session) == {shared}
        assert jobs.delete_ended(session, second)
        assert jobs.unnamed(session, [shared]) == [shared]


def test_a_job_that_has_not_ended_is_not_deleted(database: Database) -> None:
    (job_id,) = add(database, job())
    with database.write() as session:
        assert not jobs.delete_ended(session, job_id)


def runs(choice: str = "7", /, **revisions: int) -> Runs:
    return Runs(frozenset(revisions.items()), choice)


def test_a_claim_takes_only_jobs_that_its_version_can_run(database: Database) -> None:
    """Two versions share one queue in a rolling upgrade."""
    chosen = {"candidates": {"count": 3, "by": "x"}, "choice_revision": "8"}
    old, new, newer_choice, plain = add(
        database,
        job(revision=1),
        job(revision=2),
        job(service="MEWS", revision=1, options=chosen),
        job(service="MEWS", revision=1, options={"measures": {}}),
    )
    other = add(database, job(service="LATER"))
    before, after = runs(DSWAP=1, MEWS=1), runs("8", DSWAP=2, MEWS=1)

    def claims(version: Runs) -> list[str]:
        found = []
        with database.write() as session:
            while (claimed := jobs.claim_first(session, "a" * 12, NOW, version)) is not None:
                found.append(claimed.id)
            assert not jobs.any_queued(session, version)
        return found

    with database.read() as session:
        assert [row.id for row in jobs.queued_for_nobody(session, [before, after])] == other
        assert {row.id for row in jobs.queued_for_nobody(session, [before])} == {new, newer_choice, *other}
        assert len(jobs.queued_for_nobody(session, [])) == 5
        assert jobs.any_queued(session, before)
    assert claims(before) == [old, plain]
    assert claims(after) == [new, newer_choice]
    assert Runs.from_document(after.document()) == after


def test_a_version_without_record_swapping_leaves_its_jobs_to_this_one(database: Database) -> None:
    """The version before runs the same revisions of the other services."""
    this = own_runs()
    before = Runs(frozenset(pair for pair in this.revisions if pair[0] != "RSWAP"), this.choice)
    (job_id,) = add(database, job(service="RSWAP", revision=PROVIDERS["RSWAP"].revision))
    with database.write() as session:
        assert jobs.claim_first(session, "a" * 12, NOW, before) is None
        assert jobs.queued_for_nobody(session, [before, this]) == []
        claimed = jobs.claim_first(session, "b" * 12, NOW, this)
        assert claimed is not None
        assert claimed.id == job_id


def test_a_look_at_a_job_shows_the_callers_it_is_visible_to_what_a_read_does(database: Database) -> None:
    (job_id,) = add(database, job(owner="ann", project="census", deadline=NOW, events=[{"code": "x"}]))
    callers = [
        Caller("ann", None, frozenset()),
        Caller("ben", "census", frozenset()),
        Caller("ben", None, frozenset()),
        Caller("ben", "other", frozenset()),
        THE_SERVICE,
    ]
    for caller in callers:
        with database.read() as session:
            read = jobs.find(session, job_id, caller=caller)
        looked = jobs.look(database, job_id, caller)
        assert (looked is None) == (read is None) == (caller in callers[2:4])
        if looked is not None:
            assert {name: getattr(read, name) for name in looked._fields} == looked._asdict()
    assert jobs.look(database, "no\0job", THE_SERVICE) is None


def test_a_look_sees_each_commit_and_holds_no_snapshot(database: Database) -> None:
    (job_id,) = add(database, job())
    for state in ("running", "succeeded"):
        looked = jobs.look(database, job_id, THE_SERVICE)
        assert looked is not None
        assert looked.state != state
        with database.write() as session:
            assert jobs.move(session, job_id, [looked.state], state)
    looked = jobs.look(database, job_id, THE_SERVICE)
    assert looked is not None
    assert looked.state == "succeeded"
    if not database.shared:
        database.truncate_log()  # no reader keeps the log
        assert Path(f"{database.engine.url.database}-wal").stat().st_size == 0


def test_the_log_is_truncated_without_waiting_for_readers(database: Database) -> None:
    """A reader keeps the log, and no transaction waits for it; the log is due until it is gone."""
    if database.shared:
        pytest.skip("a server has a log of its own")
    log = Path(f"{database.engine.url.database}-wal")
    add(database, job())
    assert database.log_is_due
    with database.read() as session:
        assert jobs.newest_state(session) == "queued"
        started = monotonic()
        add(database, job())
        database.truncate_log()
        add(database, job())
        assert monotonic() - started < 10
        assert database.log_is_due
        assert log.stat().st_size > 0
    database.truncate_log()
    assert not database.log_is_due
    assert log.stat().st_size == 0
    with database.engine.connect() as connection:  # the same one: it waits for locks again
        assert connection.scalar(sa.text("PRAGMA busy_timeout")) == 30_000


def test_a_new_embedded_database_is_its_users_only(tmp_path: Path) -> None:
    """Also in a folder that others may read; an existing file keeps its mode."""
    path = tmp_path / "rowveil.db"
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        for mode in (0o600, 0o640):
            database = Database(Settings(home=tmp_path, database_url=f"sqlite:///{path}"))
            with database.write() as session:
                session.execute(sa.text("CREATE TABLE IF NOT EXISTS filled (content BLOB)"))
                session.execute(sa.text("INSERT INTO filled VALUES ('x')"))
                files = [path, *(tmp_path / f"rowveil.db-{name}" for name in ("wal", "shm"))]
                assert {file.stat().st_mode & 0o777 for file in files} == {mode}
            database.close()
            path.chmod(0o640)
    finally:
        os.umask(before)


def test_the_log_of_an_embedded_database_is_copied_into_the_file(database: Database) -> None:
    """It holds more than SQLite's usual 4 MB, and not everything that was ever written."""
    if database.shared:
        pytest.skip("a server has a log of its own")
    log = Path(f"{database.engine.url.database}-wal")
    with database.write() as session:
        session.execute(sa.text("CREATE TABLE filled (content BLOB)"))
    sizes = []
    for _ in range(40):
        with database.write() as session:
            session.execute(sa.text("INSERT INTO filled VALUES (zeroblob(1000000))"))
        sizes.append(log.stat().st_size)
    assert sizes[9] > 2 * 4_000_000
    assert max(sizes) < 36_000_000


def test_a_look_that_fails_does_not_break_the_next(database: Database) -> None:
    (job_id,) = add(database, job())
    with pytest.raises((Unavailable, DatabaseError)):
        database.look(sa.select(sa.column("nothing")).select_from(Job), {})
    assert jobs.look(database, job_id, THE_SERVICE) is not None


def retained(
    session: Transaction, role: Role, job_id: str, now: datetime, caller: Caller = THE_SERVICE
) -> str | None:
    row = jobs.find(session, job_id)
    assert row is not None
    named = jobs.retained(session, role, row, now, caller)
    return None if named is None else named.blob


def test_a_source_is_retained_by_its_job_or_by_its_buffer(database: Database) -> None:
    uploaded = buffer()
    own, lent, none = add(
        database,
        job(source_blob="o" * 32),
        job(source_buffer=uploaded.id),
        job(),
    )
    add(database, uploaded)
    with database.write() as session:
        assert retained(session, "source", own, NOW) == "o" * 32
        assert retained(session, "source", lent, NOW) == uploaded.blob
        assert retained(session, "source", lent, NOW + timedelta(hours=1)) is None
        assert retained(session, "source", none, NOW) is None
        stranger = Caller("stranger")
        assert retained(session, "source", lent, NOW, stranger) is None


def test_a_judged_table_is_retained_like_a_source(database: Database) -> None:
    uploaded = buffer()
    own, lent = add(
        database,
        job(source_blob="o" * 32, destination_blob="d" * 32),
        job(source_blob="o" * 32, destination_buffer=uploaded.id),
    )
    add(database, uploaded)
    with database.write() as session:
        assert retained(session, "destination", own, NOW) == "d" * 32
        assert retained(session, "destination", lent, NOW) == uploaded.blob


def test_a_control_is_named_and_retained_like_the_other_tables(database: Database) -> None:
    """No sweep takes its blob, and the end of its retention releases it."""
    uploaded = buffer()
    own, lent = add(
        database,
        job(control_blob="c" * 32, state="succeeded", finished_at=NOW),
        job(control_buffer=uploaded.id),
    )
    add(database, uploaded)
    with database.write() as session:
        assert retained(session, "control", own, NOW) == "c" * 32
        assert retained(session, "control", lent, NOW) == uploaded.blob
        assert jobs.all_named(session) == {"c" * 32, uploaded.blob}
        assert jobs.release_old(session, NOW + timedelta(hours=1), 9) == ([own], ["c" * 32], NOW)
        assert jobs.all_named(session) == {uploaded.blob}


def test_a_buffer_is_gone_at_its_expiry(database: Database) -> None:
    (buffer_id,) = add(database, buffer())
    with database.write() as session:
        assert buffers.find(session, buffer_id, NOW) is not None
        assert buffers.find(session, buffer_id, NOW + timedelta(hours=1)) is None
        assert buffers.delete_expired(session, NOW, 9) == ([], [])
        assert buffers.delete_expired(session, NOW + timedelta(hours=1), 9) == ([buffer_id], ["b" * 32])


def test_old_results_are_released_and_their_jobs_stay(database: Database) -> None:
    old, young = add(
        database,
        job(state="succeeded", finished_at=NOW, destination_blob="d" * 32, source_blob="s" * 32),
        job(state="succeeded", finished_at=NOW + timedelta(days=8), destination_blob="e" * 32),
    )
    with database.write() as session:
        later = NOW + timedelta(seconds=1)
        assert jobs.release_old(session, NOW + timedelta(days=7), 9, later) == ([], [], later)
        assert jobs.release_old(session, NOW + timedelta(days=7), 9) == ([old], ["d" * 32, "s" * 32], NOW)
    assert found(database, old).destination_blob is None
    assert found(database, young).destination_blob == "e" * 32
    with database.write() as session:
        assert jobs.delete_old(session, NOW + timedelta(days=9), 9) == ([old, young], ["e" * 32])
    with database.read() as session:
        assert jobs.find(session, old) is None


def test_the_audit_is_only_added_to(database: Database) -> None:
    with database.write() as session:
        AuditTrail(bytes(32)).append(session, THE_SERVICE, "job.delete", "1", NOW)
    for change in (sa.delete(AuditLine), sa.update(AuditLine).values(action="nothing")):
        with pytest.raises(DatabaseError, match="only ever added to"), database.write() as session:
            session.execute(change)
    with database.read() as session:
        assert [line.action for line in session.scalars(sa.select(AuditLine))] == ["job.delete"]


def test_a_failed_transaction_leaves_nothing(database: Database) -> None:
    row = job()
    (taken,) = add(database, job())
    with pytest.raises(IntegrityError), database.write() as session:
        session.add_all([row, job(id=taken)])
    with database.read() as session:
        assert jobs.find(session, row.id) is None


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_database_keeps_what_it_promises(database: Database) -> None:
    """A commit is on the disk, readers do not wait for writers, and what is deleted is overwritten."""
    with database.engine.connect() as connection:
        said = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete", "busy_timeout")
        }
    assert said == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "secure_delete": 1,
        "busy_timeout": 30_000,
    }


def test_identifiers_come_in_the_order_of_their_making() -> None:
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == len(ids)
    assert [one[:18] for one in ids] == sorted(one[:18] for one in ids)
    assert all(one[14] == "7" and one[19] in "89ab" for one in ids)
