"""Write access to the database changes neither what an accepted job does nor where its result goes."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.__main__ import main
from app.errors import AppError
from app.job_kinds import own_runs
from app.jobs import dispatcher
from app.jobs.maintenance import storage_gate
from app.jobs.maintenance.binding import _TEXT_WITHOUT_TERMS
from app.store.crypto.sealing import Sealer
from app.store.sql import replicas
from app.store.sql.bindings import seed_binding, seed_binding_without_terms
from app.store.sql.db import Database
from app.store.sql.models import Job, Replica
from tests.faults import doings
from tests.faults.conftest import Running, in_folder, new_job, people
from tests.faults.replicas import until
from tests.faults.test_binding import SEED, VICTIM, Desk, write

pytestmark = pytest.mark.faults

CHANGES = (
    'parameters = \'{"SWAP_FIELDS": ["weight"]}\'',
    "options = '{\"measures\": {}}'",
    "seed_bits = 1",
    "report_level = 'none'",
    "retain_source = NOT retain_source",
    "inline = NOT inline",
    "rerun_of = 'another'",
    "series_id = 'another'",
    "control_digest = 'sha256t:0'",
    "destination_reference = 's3://gang/rows.csv', destination_media_type = 'text/csv'",
)


def occupied(service: Running) -> list[Job]:
    """Jobs that keep all workers until their gates open."""
    held = [service.submit(people(), seed=doings.HELD) for _ in range(2)]
    for each in held:
        service.wait_until_held(each)
    return held


def test_a_queued_job_with_changed_terms_fails_and_is_noted(service: Running) -> None:
    """A value of the same job that an older version sealed without terms, put into its row, opens neither."""
    victim, sealer = Desk(service, VICTIM), service.jobs._stores.sealer
    held = occupied(service)
    queued = [service.loop.do(victim.jobs.submit(new_job(people(10), seed=SEED))) for _ in CHANGES]
    older = service.loop.do(victim.jobs.submit(new_job(people(10), seed=SEED)))
    unchanged = service.loop.do(victim.jobs.submit(new_job(people(10), seed=SEED)))
    for job, change in zip(queued, CHANGES, strict=True):
        write(service, f"UPDATE jobs SET {change} WHERE id = :id", id=job.id)
    sealed = sealer.seal(SEED, seed_binding_without_terms(older))
    write(service, "UPDATE jobs SET sealed_seed = :sealed WHERE id = :id", sealed=sealed, id=older.id)
    for each in held:
        service.open_gate(each)
    for job in (*queued, older):
        ended = service.end(job)
        assert (ended.state, (ended.error or {}).get("code")) == ("failed", "job_altered")
    assert service.end(unchanged).state == "succeeded"
    database = Database(service.settings)
    with database.read() as session:
        lines = sa.text("SELECT subject FROM audit_lines WHERE action = 'job.altered'")
        assert set(session.scalars(lines)) == {job.id for job in (*queued, older)}
    database.close()


@pytest.mark.parametrize("opens_later", [True, False])
def test_a_job_under_a_key_that_another_replica_may_have_returns_to_the_queue(
    start: Callable[..., Running],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    opens_later: bool,
) -> None:
    """It fails as altered after its last attempt only; without such a replica it does so at once."""
    monkeypatch.setattr(storage_gate, "_PAUSE_SECONDS", 0.05)
    service, other = start(), Sealer([bytes(range(32))])
    database = Database(service.settings)
    monkeypatch.setattr(dispatcher, "MOST_ATTEMPTS", 1000 if opens_later else 4)

    def queued() -> tuple[Job, bytes]:
        """A job whose seed this replica cannot open, and its right value."""
        held = service.submit(people(), seed=doings.HELD)
        service.wait_until_held(held)
        job = service.submit(people(10), seed=SEED)
        with database.write() as session:
            right = bytes(session.scalar(sa.select(Job.sealed_seed).where(Job.id == job.id)) or b"")
        sealed = other.seal(SEED, seed_binding(job))
        write(service, "UPDATE jobs SET sealed_seed = :sealed WHERE id = :id", sealed=sealed, id=job.id)
        service.open_gate(held)
        return job, right

    job, _ = queued()
    ended = service.end(job)
    assert ((ended.error or {})["code"], ended.attempt) == ("job_altered", 1)

    with database.write() as session:
        lease_until = replicas.moment(session) + timedelta(minutes=10)
        runs = own_runs().document() | {replicas.KEY_IDS: [other.key_id]}
        folder_id = session.scalars(sa.select(Replica.folder_id)).one()
        session.add(
            Replica(id="f" * 12, lease_until=lease_until, key_id=other.key_id, folder_id=folder_id, runs=runs)
        )
    job, right = queued()
    if opens_later:
        until("the job has returned to the queue", lambda: service.get(job).attempt > 2)
        write(service, "UPDATE jobs SET sealed_seed = :sealed WHERE id = :id", sealed=right, id=job.id)
        assert service.end(job).state == "succeeded"
        assert f"job {job.id} returns to the queue" in caplog.text
        assert f"the master key {other.key_id} is not among those given" in caplog.text
    else:
        ended = service.end(job)
        assert ((ended.error or {})["code"], ended.attempt) == ("job_altered", 4)
    database.close()


def test_a_job_whose_terms_were_changed_is_not_rerun(service: Running) -> None:
    victim = Desk(service, VICTIM)
    job = victim.run(people(), retain_source=True)
    write(service, "UPDATE jobs SET report_level = 'none' WHERE id = :id", id=job.id)
    with pytest.raises(AppError, match="does not open under this id"):
        victim.rerun(job)
    write(service, f"UPDATE jobs SET report_level = '{job.report_level}' WHERE id = :id", id=job.id)
    assert victim.rerun(job).reproduced is True


@in_folder
def test_seeds_of_an_older_version_get_their_terms_once(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the way back, the next start binds them; a later seed without terms opens for nobody."""
    service = start()
    job, settings = Desk(service, VICTIM).run(people(), retain_source=True), service.settings
    sealer, mark = service.jobs._stores.sealer, Path(settings.home) / "rows-bound"
    service.close()
    monkeypatch.setenv("ROWVEIL_HOME", str(settings.home))
    monkeypatch.setenv("ROWVEIL_DATABASE_URL", settings.database_url)
    assert main(["migrate", "--to", "2026_11_25b_ledger_indexes"]) == 0, capsys.readouterr().err
    database = Database(settings)
    with database.read() as session:
        sealed = bytes(session.scalar(sa.text("SELECT sealed_seed FROM jobs")) or b"")
    assert sealer.open(sealed, seed_binding_without_terms(job)) == SEED
    assert mark.read_text() == _TEXT_WITHOUT_TERMS

    service = start()
    victim = Desk(service, VICTIM)
    assert victim.seed(job) == SEED.hex()
    assert victim.rerun(job).reproduced is True
    service.close()
    with database.write() as session:
        bound = bytes(session.scalar(sa.select(Job.sealed_seed).where(Job.id == job.id)) or b"")
        assert sealer.open(bound, seed_binding(job)) == SEED
        session.execute(
            sa.update(Job).where(Job.id == job.id).values(sealed_seed=sealed, report_level="none")
        )
    database.close()
    with pytest.raises(AppError, match="does not open under this id"):
        Desk(start(), VICTIM).seed(job)
