"""Purges: in batches, each step by itself, also of what has been due for days."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from app.errors import Unavailable
from app.jobs.maintenance.retention import BLOB_ROWS, Retention
from app.jobs.maintenance.sweep import MOST_FILES
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.sql import jobs
from app.store.sql.audit.verification import verify
from app.store.sql.db import Transaction
from app.store.sql.models import Delivery
from app.store.sql.replicas import moment
from app.telemetry.metrics import Metrics
from app.webhooks.delivery import LONGEST_PAUSE
from tests.conftest import DATABASES, settings_on
from tests.postgres import Postgres, running_postgres
from tests.unit.app.store.stored_rows import NOW, add, buffer, delivery, job

FEW_LOCKS = {"max_locks_per_transaction": "10", "max_connections": "30"}
"""Configuration of a server with room for 1,800 locks; the defaults of PostgreSQL give many times as many."""

DUE = 3_000
"""Jobs that are due. One transaction over all of them needs more locks than that server has room for."""

FINISHED = """
INSERT INTO jobs (id, owner, service, revision, state, parameters, sealed_seed, seed_fingerprint, seed_bits,
    created_at, ranked_at, finished_at, row_count, source_digest, source_fields, source_blob,
    inline, retain_source, report_level, attempt, crashes)
SELECT 'job-' || n, 'somebody', 'DSWAP', 1, 'succeeded', '{}', '', '0000000000000000', 128,
    now() - interval '90 days', now() - interval '90 days', now() - interval '90 days', 1, 'sha256:1', '[]',
    md5('source' || n), false, false, 'none', 1, 0
FROM generate_series(1, :due) AS n
"""


def sample(metrics: Metrics, name: str, what: str) -> float:
    metrics.refresh()
    value = metrics.registry.get_sample_value(name, {"what": what})
    assert value is not None
    return value


def count(stores: Stores, table: str, condition: str = "1 = 1", **values: str) -> int:
    with stores.database.read() as session:
        query = sa.text(f"SELECT count(*) FROM {table} WHERE {condition}")
        return int(session.execute(query, values).scalar_one())


def lines(stores: Stores, action: str) -> int:
    return count(stores, "audit_lines", "action = :action", action=action)


@pytest.fixture(params=DATABASES)
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    opened = Stores.open(settings_on(request.param, request, tmp_path))
    yield opened
    opened.close()


@pytest.fixture
def few_locks() -> Iterator[Postgres]:
    """A PostgreSQL that runs out of locks soon."""
    with running_postgres(options=FEW_LOCKS) as server:
        yield server


@pytest.mark.slow
@pytest.mark.usefixtures("new_tables")
def test_more_due_jobs_than_locks_are_purged_on_postgresql(few_locks: Postgres, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=few_locks.new_database())
    stores, metrics = Stores.open(settings), Metrics()
    locks = sa.text("SELECT pg_advisory_xact_lock(n) FROM generate_series(1, :due) AS n")
    with pytest.raises(Unavailable), stores.database.write() as session:
        session.execute(locks, {"due": DUE})
    with stores.database.write() as session:
        session.execute(sa.text(FINISHED), {"due": DUE})
    Retention(settings, stores, metrics).run()
    assert sample(metrics, "rowveil_purged_total", "job") == DUE
    assert count(stores, "jobs") == 0
    assert (lines(stores, "result.purge"), lines(stores, "job.purge")) == (DUE, DUE)
    with stores.database.read() as session:
        assert verify(session, stores.audit.key, stores.signer).fault == ""
    stores.close()


def test_no_transaction_takes_more_than_a_batch(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is killed after its commit leaves no more blobs than the next sweep takes."""
    add(stores.database, *(buffer(blob=f"{number:032x}") for number in range(2 * BLOB_ROWS + 1)))
    finished = {"state": "succeeded", "finished_at": NOW}
    both = (
        {"source_blob": f"{number:032d}", "destination_blob": f"d{number:031d}"}
        for number in range(BLOB_ROWS)
    )
    add(stores.database, *(job(**finished, **blobs) for blobs in both))
    taken, real = [], jobs.unnamed

    def watched(session: Transaction, blobs: list[str | None]) -> list[str]:
        taken.append(len([blob for blob in blobs if blob is not None]))
        return real(session, blobs)

    for module in ("jobs", "buffers"):
        monkeypatch.setattr(f"app.store.sql.{module}.unnamed", watched)
    Retention(Settings(home=stores.progress_folder.parent), stores, Metrics()).run()
    assert sorted(number for number in taken if number) == [1, BLOB_ROWS, BLOB_ROWS, 2 * BLOB_ROWS]
    assert 2 * BLOB_ROWS <= MOST_FILES // 2
    assert (count(stores, "buffers"), count(stores, "jobs")) == (0, 0)


def test_texts_of_an_expired_buffer_leave_the_log_of_the_database(stores: Stores) -> None:
    if stores.database.shared:
        pytest.skip("a server has a log of its own")
    add(stores.database, buffer(notes="a note"))
    log = Path(f"{stores.database.engine.url.database}-wal")
    assert b"a note" in log.read_bytes()
    Retention(Settings(home=stores.progress_folder.parent), stores, Metrics()).run()
    assert count(stores, "buffers") == 0
    assert b"a note" not in log.read_bytes()


def failing(*_: object) -> tuple[int, list[str]]:
    raise Unavailable("the database is temporarily not available; try again")


def test_a_step_that_fails_does_not_keep_the_others_from_running(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted and logged, and its lag grows until it succeeds."""
    add(stores.database, job(state="succeeded", finished_at=NOW, source_blob="s" * 32), buffer())
    clock = [1000.0]
    monkeypatch.setattr("app.jobs.maintenance.retention.time", SimpleNamespace(monotonic=lambda: clock[0]))
    metrics = Metrics()
    retention = Retention(Settings(home=stores.progress_folder.parent), stores, metrics)
    with monkeypatch.context() as broken:
        broken.setattr("app.store.sql.buffers.delete_expired", failing)
        clock[0] += 4000
        retention.run()
    lag: Callable[[str], float] = lambda what: sample(metrics, "rowveil_purge_lag_seconds", what)  # noqa: E731
    assert (lag("buffer"), lag("job"), lag("result")) == (4000, 0, 0)
    assert sample(metrics, "rowveil_purge_failures_total", "buffer") == 1
    assert "purging (buffer) failed: Unavailable" in caplog.text
    assert count(stores, "jobs") == 0
    assert count(stores, "buffers") == 1
    retention.run()
    assert lag("buffer") == 0
    assert count(stores, "buffers") == 0


def test_a_clock_that_jumps_ahead_deletes_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The lag grows, which fires an alert. When the clock is right again, purges go on."""
    with stores.database.read() as session:
        now = moment(session)
    add(stores.database, job(state="succeeded", finished_at=now, source_blob="s" * 32))
    retention = Retention(Settings(home=stores.progress_folder.parent), stores, Metrics())
    retention.run()
    with monkeypatch.context() as wrong:
        wrong.setattr(
            "app.jobs.maintenance.retention.moment", lambda session: moment(session) + timedelta(days=400)
        )
        retention.run()
    assert count(stores, "jobs", "source_blob IS NOT NULL") == 1
    assert caplog.text.count("the clock of the database jumped ahead") == 1
    add(stores.database, buffer())
    retention.run()
    assert (count(stores, "jobs"), count(stores, "buffers")) == (1, 0)


def test_messages_that_a_clock_ahead_has_postponed_are_due_again(stores: Stores) -> None:
    """They would wait until that clock's time. A regular pause stays."""
    with stores.database.read() as session:
        now = moment(session)
    later = now + LONGEST_PAUSE
    with stores.database.write() as session:
        session.add_all([delivery(id="regular", due_at=later), delivery(due_at=now + timedelta(days=400))])
    Retention(Settings(home=stores.progress_folder.parent), stores, Metrics()).run()
    with stores.database.read() as session:
        due = {found.id: found.due_at for found in session.scalars(sa.select(Delivery))}
    assert due.pop("regular") == later
    (again,) = due.values()
    assert now <= again < later


def test_a_stopped_purge_ends_after_its_batch(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that stops does not wait for days of due rows."""
    add(stores.database, *(buffer(blob=f"{number:032x}") for number in range(2 * BLOB_ROWS)))
    retention = Retention(Settings(home=stores.progress_folder.parent), stores, Metrics())
    real = Stores.delete_blobs_patiently

    def stopping(self: Stores, blobs: list[str]) -> None:
        retention.stop()
        real(self, blobs)

    monkeypatch.setattr(Stores, "delete_blobs_patiently", stopping)
    retention.run()
    assert count(stores, "buffers") == BLOB_ROWS


def test_callers_that_were_not_seen_for_long_are_forgotten(stores: Stores) -> None:
    with stores.database.write() as session:
        seen = moment(session) - timedelta(days=400)
        session.execute(sa.text("INSERT INTO callers (owner, seen_at) VALUES ('x', :seen)"), {"seen": seen})
    Retention(Settings(home=stores.progress_folder.parent), stores, Metrics()).run()
    assert count(stores, "callers") == 0
