"""A rolling upgrade to a version with a new revision and newer tables, and back, with jobs in flight."""

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import psycopg
import pytest

from app.errors import StorageFull
from app.jobs.maintenance.takeover import Takeover
from app.store.sql.migration import NEWEST_REVISION
from app.store.sql.models import Replica
from app.store.sql.replicas import moment
from providers import PROVIDERS
from providers.selection.candidates import CHOICE_REVISION
from tests.faults import doings
from tests.faults.conftest import Running, people
from tests.faults.next_version import NEXT_DSWAP, NEXT_REVISION
from tests.faults.older_jobs import as_of_revision_2
from tests.faults.replicas import Replica as Process
from tests.faults.replicas import until
from tests.postgres import Postgres
from tests.unit.app.store.stored_rows import add, found, job

pytestmark = pytest.mark.faults

THIS_DSWAP = PROVIDERS["DSWAP"].revision
MIGRATIONS = Path(__file__).parents[2] / "migrations"
ROWS = [{"income": income, "city": f"City-{income % 7}"} for income in range(500)]
CALL = {"source": {"rows": ROWS}, "parameters": {"swap_fields": ["income"]}}


def next_migrations(folder: Path) -> Path:
    """The migrations of the next version, whose step older replicas can work with."""
    shutil.copytree(MIGRATIONS, folder)
    step = f"""
        import sqlalchemy as sa
        from alembic import op

        revision, down_revision, compatible = "{NEXT_REVISION}", "{NEWEST_REVISION}", True


        def upgrade():
            op.add_column("jobs", sa.Column("next", sa.Integer()))
        """
    (folder / "versions" / f"{NEXT_REVISION}.py").write_text(dedent(step))
    return folder


@contextlib.contextmanager
def process(name: str, folder: Path, database: str, newer: Path | None = None) -> Iterator[Process]:
    """A service process of this version, or of the next one with its migrations."""
    made = Process(name, folder / "home", database, None)
    if newer is not None:
        made.module = "tests.faults.next_version"
        made.environment["NEXT_MIGRATIONS"] = str(newer)
    try:
        made.start()
        until("a replica is up", lambda: made.up)
        yield made
    finally:
        made.close()


def submit(replica: Process, count: int) -> list[str]:
    answers = [
        replica.client.post("/v1/services/DSWAP", json=CALL, headers={"prefer": "respond-async"})
        for _ in range(count)
    ]
    assert all(answer.status_code in (200, 202) for answer in answers), answers[0].text
    return [answer.json()["id"] for answer in answers]


def test_an_upgrade_and_the_way_back_lose_no_job(postgres: Postgres, tmp_path: Path) -> None:
    """No replica fails a job of the other version; a job of a version that is gone has the other revision."""
    database, newer = postgres.new_database(), next_migrations(tmp_path / "next")

    def states(ids: list[str]) -> dict[str, tuple[int, str, Any]]:
        with psycopg.connect(database) as opened:
            query = "SELECT id, revision, state, error ->> 'code' FROM jobs WHERE id = ANY(%s)"
            return {row[0]: row[1:] for row in opened.execute(query, (ids,))}

    def ended(ids: list[str]) -> Callable[[], bool]:
        return lambda: all(state not in ("queued", "running") for _, state, _ in states(ids).values())

    with contextlib.ExitStack() as after:
        with process("old", tmp_path, database) as old:
            before = submit(old, 6)
            new = after.enter_context(process("new", tmp_path, database, newer))
            assert old.ready()["database"] == "ok"  # on the newer tables
            mixed_old, mixed_new = submit(old, 4), submit(new, 4)
            until("all have ended", ended([*before, *mixed_old, *mixed_new]))
            assert set(states([*before, *mixed_old]).values()) == {(THIS_DSWAP, "succeeded", None)}
            assert set(states(mixed_new).values()) == {(NEXT_DSWAP, "succeeded", None)}
        back = after.enter_context(process("back", tmp_path, database))  # the older version starts again
        workers = new.workers()
        assert len(workers) == 1
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        left = submit(new, 4)  # one runs for ever, the others are queued
        new.end(signal.SIGKILL)
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        again = submit(back, 2)
        until("all have ended", ended([*left, *again]))
        assert set(states([*again, *left]).values()) == {(THIS_DSWAP, "succeeded", None)}


def test_a_queued_job_waits_for_a_version_that_can_run_it(start: Callable[..., Running]) -> None:
    """It waits as long as one lives; then it fails, with a reason."""
    service = start(lease_seconds=1.0)
    if not service.jobs._stores.database.shared:
        pytest.skip("an embedded database has one version at a time")
    stores = service.jobs._stores
    with stores.database.write() as session:
        known = session.get(Replica, stores.lease.replica)
        assert known is not None
        newer = Replica(
            id="e" * 12,
            key_id=known.key_id,
            folder_id=known.folder_id,
            lease_until=moment(session) + timedelta(hours=1),
            runs={"revisions": {"DSWAP": 99}, "choice": "1"},
        )
        session.add(newer)
    (job_id,) = add(stores.database, job(revision=99))
    (gone_id,) = add(stores.database, job(revision=98))
    until("the other has failed", lambda: found(stores.database, gone_id).state == "failed")
    waiting = found(stores.database, job_id)
    assert (waiting.state, waiting.attempt) == ("queued", 0)
    assert service.run(people()).state == "succeeded"  # it does not keep others waiting
    with stores.database.write() as session:
        other = session.get(Replica, "e" * 12)
        session.delete(other)
    until("it has failed", lambda: found(stores.database, job_id).state == "failed")
    error = found(stores.database, job_id).error
    assert error is not None
    assert (error["code"], error["status"]) == ("revision_gone", 409)


def test_a_fault_of_the_database_fails_no_queued_job(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk was taken for a job that this version cannot run, and a deleted job ended the search."""
    service = start()
    stores, takeover = service.jobs._stores, service.jobs._dispatcher._takeover
    takeover._give_own_revision("01000000-0000-7000-8000-000000000000")

    def full(self: Takeover, job_id: str) -> None:
        raise StorageFull("the storage is full")

    monkeypatch.setattr(Takeover, "_give_own_revision", full)
    (job_id,) = add(stores.database, job(revision=98))
    with pytest.raises(StorageFull):
        takeover.take_unrunnable()
    assert found(stores.database, job_id).state == "queued"


def test_queued_jobs_of_an_older_version_are_run_by_this_one(start: Callable[..., Running]) -> None:
    """Before, an upgrade failed every queued job of a service whose revision was raised."""
    service = start(lease_seconds=1.0)
    released = as_of_revision_2(service, service.run(people()))
    until("a worker is free", lambda: service.jobs._dispatcher._free_workers() > 0)
    held = [service.submit(people(), seed=doings.HELD) for _ in range(service.settings.workers)]
    for holding in held:
        service.wait_until_held(holding)
    plain = service.submit(people())
    given = {"candidates": {"count": 2}, "measures": {}}
    chosen = service.submit(people(), options={**given, "choice_revision": CHOICE_REVISION})
    again = service.loop.do(service.jobs.rerun(released.id, people()))
    unknown = service.submit(people())
    as_of_revision_2(service, chosen, options=given)
    for older in (plain, again):
        as_of_revision_2(service, older)
    as_of_revision_2(service, unknown, parameters={"former": 1})
    until("the last one has failed", lambda: service.get(unknown).state == "failed")
    for holding in held:
        service.open_gate(holding)
    for older in (plain, chosen, again):
        ended = service.end(older)
        assert (ended.state, ended.revision) == ("succeeded", THIS_DSWAP), ended.error
    assert service.get(again).reproduced is True
    error = service.get(unknown).error
    assert error is not None
    assert error["code"] == "revision_gone"
    assert "revision 3 of DSWAP does not accept the job's parameters" in error["detail"]
