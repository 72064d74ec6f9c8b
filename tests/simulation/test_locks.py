"""The simulated server locks rows as PostgreSQL does: one transaction stays open while another one runs."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from app.callers import Caller
from app.errors import Unavailable
from app.settings import Settings
from app.store.sql import buffers, jobs, replicas, usage
from app.store.sql.db import Database
from app.store.sql.migration import migrate
from app.store.sql.models import Job, Queue, Replica
from tests.postgres import Postgres
from tests.simulation import statements
from tests.simulation.database import Server, SimulatedDatabase
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.statements import time_of
from tests.unit.app.store.stored_rows import buffer, job

WAITS = "waits"

ANNA = Caller("anna")

NOW = time_of(100)

Call = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]

HOLD: Call = (replicas.hold, statements.hold, (["aaaaaaaaaaaa"],))
RENEW: Call = (replicas.renew, statements.renew, ("aaaaaaaaaaaa", 10.0))
REMOVE: Call = (replicas.remove, statements.remove, ("aaaaaaaaaaaa",))
END_EXPIRED: Call = (replicas.remove_expired, statements.remove_expired, ("bbbbbbbbbbbb",))
STALLED: Call = (replicas.stalled_jobs, statements.stalled_jobs, ())
CLAIM: Call = (jobs.claim_first, statements.claim_first, ("aaaaaaaaaaaa", NOW))
ADVANCE: Call = (jobs.advance, statements.advance, (time_of(1000),))
END: Call = (jobs.move, statements.move, ("job-2", ["running"], "failed"))
CANCEL: Call = (jobs.request_cancel, statements.request_cancel, ("job-2",))
DELETE: Call = (jobs.delete_ended, statements.delete_ended, ("job-3",))
RETAIN: Call = (jobs.retained, statements.retained, ("source", Job(id="job-3"), NOW, ANNA))
RELEASE: Call = (jobs.release_old, statements.release_old, (time_of(90), 10))
PURGE: Call = (jobs.delete_old, statements.delete_old, (time_of(90), 10))
LEND: Call = (buffers.lend, statements.lend, ("buffer-1", time_of(0), ANNA))
PURGE_BUFFERS: Call = (buffers.delete_expired, statements.delete_expired_buffers, (NOW, 10))
NAME_BLOB: Call = (jobs.lock_blobs, statements.lock_blobs, (["b" * 32],))
UNNAMED: Call = (jobs.unnamed, statements.unnamed, (["b" * 32],))
LOCK_ANNA: Call = (usage.lock, statements.lock_usage, ("anna", NOW))
LOCK_BEN: Call = (usage.lock, statements.lock_usage, ("ben", NOW))

CASES: dict[str, tuple[Call, Call, Any]] = {
    "a renewal does not wait for a transaction that holds the lease": (HOLD, RENEW, True),
    "two transactions hold one lease": (HOLD, HOLD, None),
    "a lease that is held does not end": (HOLD, END_EXPIRED, []),
    "a lease that is held is not removed": (HOLD, REMOVE, WAITS),
    "a lease that is being ended cannot be held": (END_EXPIRED, HOLD, WAITS),
    "two claims take two jobs": (CLAIM, CLAIM, "job-1"),
    "the virtual time moves for one claim at a time": (ADVANCE, ADVANCE, WAITS),
    "an end waits for a takeover": (STALLED, END, WAITS),
    "a takeover skips a job that ends": (END, STALLED, []),
    "a request to cancel waits for the end": (END, CANCEL, WAITS),
    "a job whose table is retained is not deleted": (RETAIN, DELETE, WAITS),
    "a table is retained twice": (RETAIN, RETAIN, "c" * 32),
    "a purge skips a job whose table is retained": (RETAIN, RELEASE, ([], [], jobs.LONG_AGO)),
    "two purges do not wait for each other": (RELEASE, PURGE, ([], [])),
    "a buffer that is lent does not expire": (LEND, PURGE_BUFFERS, ([], [])),
    "a buffer that expires is not lent": (PURGE_BUFFERS, LEND, WAITS),
    "a blob is not named and deleted at once": (NAME_BLOB, UNNAMED, WAITS),
    "the usage of one caller is locked": (LOCK_ANNA, LOCK_ANNA, WAITS),
    "the usage of another caller is not": (LOCK_ANNA, LOCK_BEN, None),
}

_ROWS: list[Any] = [
    job(id="job-0", owner="anna", created_at=NOW, ranked_at=time_of(-900)),
    job(id="job-1", owner="anna", created_at=NOW, ranked_at=time_of(-800)),
    job(id="job-2", owner="anna", state="running", claimed_by="dead", created_at=NOW, ranked_at=NOW),
    job(
        id="job-3", owner="anna", state="succeeded", finished_at=time_of(50), created_at=NOW, ranked_at=NOW,
        source_blob="c" * 32,
    ),
    buffer(id="buffer-1", owner="anna", blob="d" * 32, expires_at=time_of(60)),
    Replica(id="aaaaaaaaaaaa", lease_until=time_of(10), key_id="key", folder_id="folder", runs=None),
]  # fmt: skip


class _Undone(Exception):
    """The transaction is rolled back, so that each case finds the same rows."""


def shown(value: Any) -> Any:
    """Return a result as plain values."""
    if isinstance(value, list):
        return [shown(each) for each in value]
    return getattr(value, "blob", getattr(value, "id", value))


@pytest.fixture(scope="module")
def database(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    settings = Settings(home=tmp_path_factory.mktemp("locks"), database_url=postgres.new_database())
    migrate(settings)
    opened = Database(settings)
    with opened.write() as session:
        session.add_all([row.__class__(**_values(row)) for row in _ROWS])
        session.execute(sa.update(Queue).values(turn=time_of(0)))
    for owner in ("anna", "ben"):
        with opened.write() as session:
            usage.lock(session, owner, NOW)
    yield opened
    opened.close()


def _values(row: Any) -> dict[str, Any]:
    return {column.name: getattr(row, column.name) for column in row.__table__.columns} | (
        {"attempt": 0, "crashes": 0, "priority": "normal", "byte_size": 0, "cancel_requested": False}
        if isinstance(row, Job)
        else {}
    )


@pytest.mark.parametrize("name", CASES)
def test_postgresql_locks_so(name: str, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, expected = CASES[name]
    monkeypatch.setattr("app.store.sql.replicas.moment", lambda session: NOW)
    found: Any = None
    with contextlib.suppress(_Undone), database.write() as holding:
        first[0](holding, *first[2])
        try:
            with contextlib.suppress(_Undone), database.write() as session:
                session.execute(sa.text("SET LOCAL lock_timeout = '150ms'"))
                found = shown(second[0](session, *second[2]))
                raise _Undone
        except Unavailable:
            found = WAITS
        raise _Undone
    assert found == expected


@pytest.mark.parametrize("name", CASES)
def test_the_simulation_locks_so(name: str) -> None:
    first, second, expected = CASES[name]
    scheduler = Scheduler(0)
    server = Server(scheduler)
    for row in _ROWS:
        server.tables[row.__table__.name][row.id] = _values(row)
    for owner in ("anna", "ben"):
        server.tables["callers"][owner] = {"owner": owner, "seen_at": NOW}
    server.tables["queue"][1] = {"turn": time_of(0)}
    scheduler.now = 100.0
    found: list[Any] = []

    def hold() -> None:
        with SimulatedDatabase(server, process).write() as session:
            first[1](session, *first[2])
            scheduler.start_thread(process, run)
            scheduler.pause(5.0)
            if not found:
                found.append(WAITS)
            session.roll_back()

    def run() -> None:
        with SimulatedDatabase(server, process).write() as session:
            found.append(shown(second[1](session, *second[2])))

    process = Process("test")
    scheduler.start_thread(process, hold)
    scheduler.run_until(120.0)
    assert found[0] == expected
